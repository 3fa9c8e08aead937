// Exact draws of trees of a grammar: the inside pass once, then every sample takes cells apart at random.
#include "cky_unwind.cuh"

// An index below n, by the weights part(index).
template <class S, class Part> DEVICE int draw_below(int n, Stream& random, Part part) {
  return draw(0, n - 1, sum_of<S>(0, n - 1, part), random.uniform(), part);
}

template <class T, class In>
DEVICE bool draw_trees(Rules g, Parts<In> x, Samples samples, double* work, int* stacks, int N, int n,
                       bool must_prove) {
  CkyInside<T, In> c(work, g, x, x, x, N, n);
  typedef typename T::Scalar S;
  c.load(must_prove);
  if (c.bad) return true;
  c.run();
  const double log_z = log_of(c.total());
  if (must_prove && !enough(log_z, n, g.R)) return false;
  if (!(log_z > -infinity())) return true;
  const Order by = g.by(0);
  LANES(k, samples.count) {
    Stream random = samples.random(k);
    take_apart<true>(
        g, n, samples.of(k), stacks + LANE_NUMBER * 3 * (N + 2),
        [&]() { return g.first(n) + draw_below<S>(g.many(n), random, [&](int s) { return c.at_root(g.first(n) + s); }); },
        [&](int s, int w, int i) {
          const int first = by.start[s], ways = (by.start[s + 1] - first) * (w - 1);
          const int j = draw_below<S>(ways, random, [&](int j) {
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
    const Samples all{trees, (2 * N - 1) * 4, *seed, samples, B, b};
    BARRIER();
    all.clear();
    if (n == 0) continue;
    fast_then_safe<Lin<Pack>>([&](auto numbers, bool must_prove) {
      return draw_trees<ALGEBRA(numbers)>(g, x, all, mine, stack, N, n, must_prove);
    });
  }
}

EXPORT_TYPES(cky_sample)
