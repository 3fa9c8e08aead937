// Exact draws of projective trees: the inside pass once, then every sample takes spans apart at random.
#include "unwind.cuh"

template <class T, class In>
DEVICE bool draw_trees(const In* arcs, i64* heads, double* work, int* stacks, int N, int n, int B, int b, int samples,
                       i64 seed, int single_root, bool must_prove) {
  typedef typename T::Scalar S;
  Inside<T> in(work, n);
  BARRIER();
  Range range = in.load(arcs, arcs, arcs, N, n, must_prove ? spread_for(n) : 0.);
  if (range.bad) return true;
  in.run(n, single_root);
  const double log_z = log_of(in.R.cell(n, 0));
  if (must_prove && !proven(log_z, range.log_bound, n)) return false;
  if (!(log_z > -infinity())) return true;
  LANES(s, samples) {
    Stream random = stream_for(seed, (i64)s * B + b);
    unwind<true>(n, heads + ((i64)s * B + b) * N, stacks + LANE_NUMBER * 3 * (2 * N + 4),
                 [&](int kind, int d, int i, int first, int last) {
      S whole = S::zero();
      for (int t = first; t <= last; ++t) whole = whole + summand(in, kind, d, i, t);
      double left = random.uniform();
      int chosen = -1;
      for (int t = first; t <= last && left >= 0.; ++t) {
        double part = share(summand(in, kind, d, i, t), whole);
        if (part > 0.) chosen = t;  // the last possible one, should rounding leave a remainder
        left -= part;
      }
      return chosen;
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

EXPORT(eisner_sample_float, eisner_sample<float>)
EXPORT(eisner_sample_double, eisner_sample<double>)
