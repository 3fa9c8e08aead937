// Exact draws of projective trees: the inside pass once, then every sample takes spans apart at random.
#include "unwind.cuh"

template <class T, class In>
DEVICE bool draw_trees(const In* arcs, Samples samples, double* work, int* stacks, int N, int n, int single_root,
                       bool must_prove) {
  Inside<T> in(work, n);
  const Found z = in.fill(Given<In>{arcs}, N, n, single_root, must_prove);
  if (z.some) LANES(s, samples.count) {
    Stream random = samples.random(s);
    unwind<true>(n, samples.of(s), stacks + LANE_NUMBER * 3 * (2 * N + 4),
                 [&](int kind, int d, int i, int first, int last) {
      return draw_one<typename T::Scalar>(first, last, random.uniform(),
                                          [&](int t) { return summand(in, kind, d, i, t); });
    });
  }
  return z.enough;
}

// heads [samples, B, N], drawn by the numbers that follow from seed [1]; -1 where there is no tree.
template <class In>
KERNEL eisner_sample(const In* arcs, const i64* lengths, const i64* seed, i64* heads, double* work, int* stacks,
                     i64 work_size, i64 stack_size, int samples, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  sample_each(heads, N, seed, samples, lengths, B, N, [&](auto numbers, bool must_prove, Samples all, int n) INLINED {
    const In* scores = arcs + (i64)all.b * N * N;
    return draw_trees<ALGEBRA(numbers)>(scores, all, mine, stack, N, n, single_root, must_prove);
  });
}

EXPORT_TYPES(eisner_sample)
