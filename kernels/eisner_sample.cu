// Exact draws of projective trees: the inside pass once, then every sample takes spans apart at random.
#include "unwind.cuh"

template <class T, class In>
DEVICE bool draw_trees(const In* arcs, Samples samples, double* work, int* stacks, int N, int n, int single_root,
                       bool must_prove) {
  typedef typename T::Scalar S;
  Inside<T> in(work, n);
  BARRIER();
  Range range = in.load(arcs, arcs, arcs, N, n, must_prove ? spread_for(n) : 0.);
  if (range.bad) return true;
  in.run(n, single_root);
  const double log_z = log_of(in.R.cell(n, 0));
  if (must_prove && !proven(log_z, range.log_bound, n)) return false;
  if (!(log_z > -infinity())) return true;
  LANES(s, samples.count) {
    Stream random = samples.random(s);
    unwind<true>(n, samples.of(s), stacks + LANE_NUMBER * 3 * (2 * N + 4),
                 [&](int kind, int d, int i, int first, int last) {
      auto part = [&](int t) { return summand(in, kind, d, i, t); };
      return draw(first, last, sum_of<S>(first, last, part), random.uniform(), part);
    });
  }
  return true;
}

// heads [samples, B, N], drawn by the numbers that follow from seed [1]; -1 where there is no tree.
template <class In>
KERNEL eisner_sample(const In* arcs, const i64* lengths, const i64* seed, i64* heads, double* work, int* stacks,
                     i64 work_size, i64 stack_size, int samples, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  SENTENCES(b, B) {
    const In* scores = arcs + (i64)b * N * N;
    const int n = words_in(lengths, b, N);
    const Samples all{heads, N, *seed, samples, B, b};
    BARRIER();
    all.clear();
    if (n == 0) continue;
    fast_then_safe<Lin<Pack>>([&](auto numbers, bool must_prove) {
      return draw_trees<ALGEBRA(numbers)>(scores, all, mine, stack, N, n, single_root, must_prove);
    });
  }
}

EXPORT_TYPES(eisner_sample)
