// Exact draws of projective trees with scores of siblings: the inside pass once, then every sample takes
// spans apart at random.
#include "siblings.cuh"
#include "siblings_unwind.cuh"

template <class T, class In>
DEVICE bool draw_trees(Parts<In> scores, Samples samples, double* work, int* stacks, int N, int n, int single_root,
                       bool must_prove) {
  SiblingInside<T> in(work, n);
  BARRIER();
  const double spread = must_prove ? spread_over(0.5 * n * (n + 1.), n) : 0.;
  Range range = in.load(scores, scores, scores, N, n, single_root, spread);
  if (range.bad) return true;
  BARRIER();
  in.run(n);
  const double log_z = log_of(in.R.cell(n, 0));
  if (must_prove && !proven(log_z, range.log_bound, n)) return false;
  if (!(log_z > -infinity())) return true;
  LANES(s, samples.count) {
    Stream random = samples.random(s);
    draw_tree(in, n, samples.of(s), stacks + LANE_NUMBER * 4 * (N + 4), random);
  }
  return true;
}

// heads [samples, B, N], drawn by the numbers that follow from seed [1]; -1 where there is no tree.
template <class In>
KERNEL siblings_sample(const In* arcs, const In* pairs, const i64* lengths, const i64* seed, i64* heads,
                       double* work, int* stacks, i64 work_size, i64 stack_size, int samples, int B, int N,
                       int single_root) {
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  SENTENCES(b, B) {
    const Parts<In> scores = Parts<In>{arcs, pairs}.at(b, N);
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

EXPORT_TYPES(siblings_sample)
