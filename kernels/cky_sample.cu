// Exact draws of trees of a grammar: the inside pass once, then every sample takes cells apart at random.
#include "cky_unwind.cuh"

// An index below n with the probability share(part(index), their sum). At least one is possible.
template <class S, class Part, class Random> DEVICE int draw(int n, Random& random, Part part) {
  S whole = S::zero();
  for (int k = 0; k < n; ++k) whole = whole + part(k);
  double left = random.uniform();
  int chosen = 0;
  for (int k = 0; k < n && left >= 0.; ++k) {
    const double p = share(part(k), whole);
    if (p > 0.) chosen = k;  // the last possible one, should rounding leave a remainder
    left -= p;
  }
  return chosen;
}

template <class T, class In>
DEVICE bool draw_trees(Rules g, Parts<In> x, i64* trees, double* work, int* stacks, int N, int n, int B, int b,
                       int samples, i64 seed, bool must_prove) {
  CkyInside<T, In> c(work, g, x, x, x, N, n);
  typedef typename T::Scalar S;
  c.load(must_prove);
  if (c.bad) return true;
  c.run();
  const double log_z = log_of(c.total());
  if (must_prove && !enough(log_z, n, g.R)) return false;
  if (!(log_z > -infinity())) return true;
  const Order by = g.by(0);
  LANES(k, samples) {
    Stream random = stream_for(seed, (i64)k * B + b);
    take_apart<true>(
        g, n, trees + ((i64)k * B + b) * (2 * N - 1) * 4, stacks + LANE_NUMBER * 3 * (N + 2),
        [&]() { return g.first(n) + draw<S>(g.many(n), random, [&](int s) { return c.at_root(g.first(n) + s); }); },
        [&](int s, int w, int i) {
          const int first = by.start[s], ways = (by.start[s + 1] - first) * (w - 1);
          const int j = draw<S>(ways, random, [&](int j) {
            return summand(c, by, Way{first + j / (w - 1), 1 + j % (w - 1)}, w, i);
          });
          return Way{first + j / (w - 1), 1 + j % (w - 1)};
        });
  }
  return true;
}

// trees [samples, B, 2N - 1, 4], drawn by the numbers that follow from seed [1]; -1 where there is no tree.
template <class In>
KERNEL cky_sample(const In* tags, const In* rules, const In* roots, const In* spans, const int* grammar,
                  const i64* lengths, const i64* seed, i64* trees, double* work, int* stacks, i64 work_size,
                  i64 stack_size, int samples, int B, int N, int S, int T, int R) {
  const Rules g{grammar, S, T, R};
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  SENTENCES(b, B) {
    const int n = words_of(lengths, b, N);
    const Parts<In> x = Parts<In>{tags, rules, roots, spans}.at(b, N, g);
    BARRIER();
    LANES(s, samples)
      for (int k = 0; k < (2 * N - 1) * 4; ++k) trees[((i64)s * B + b) * (2 * N - 1) * 4 + k] = -1;
    if (n == 0) continue;
    if (!draw_trees<Lin<Pack>>(g, x, trees, mine, stack, N, n, B, b, samples, *seed, true)) {
      BARRIER();
      draw_trees<Ext<Lin<Pack>>>(g, x, trees, mine, stack, N, n, B, b, samples, *seed, false);
    }
  }
}

EXPORT(cky_sample_float, cky_sample<float>)
EXPORT(cky_sample_double, cky_sample<double>)
