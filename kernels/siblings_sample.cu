// Exact draws of projective trees with scores of siblings: the inside pass once, then every sample takes
// spans apart at random.
#include "siblings.cuh"
#include "siblings_unwind.cuh"

template <class T, class In>
DEVICE bool draw_trees(Parts<In> scores, i64* heads, double* work, int* stacks, int N, int n, int B, int b,
                       int samples, i64 seed, int single_root, bool must_prove) {
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
  LANES(s, samples) {
    Stream random = stream_for(seed, (i64)s * B + b);
    draw_tree(in, n, heads + ((i64)s * B + b) * N, stacks + LANE_NUMBER * 4 * (N + 4), random);
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
    BARRIER();
    LANES(s, samples)
      for (int k = 0; k < N; ++k) heads[((i64)s * B + b) * N + k] = -1;
    if (n == 0) continue;
    if (!draw_trees<Lin<Pack>>(scores, heads, mine, stack, N, n, B, b, samples, *seed, single_root, true)) {
      BARRIER();
      draw_trees<Ext<Lin<Pack>>>(scores, heads, mine, stack, N, n, B, b, samples, *seed, single_root, false);
    }
  }
}

EXPORT(siblings_sample_float, siblings_sample<float>)
EXPORT(siblings_sample_double, siblings_sample<double>)
