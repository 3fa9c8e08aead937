// Exact draws of trees of a grammar: the inside pass once, then every sample takes cells apart at random.
#include "cky_unwind.cuh"

template <class T, class In>
DEVICE bool draw_trees(Rules g, Parts<In> x, Samples samples, double* work, int* stacks, int N, int n,
                       bool must_prove) {
  CkyInside<T, In> c(work, g, x, x, x, N, n);
  typedef typename T::Scalar S;
  const Found z = c.fill(must_prove);
  const Order by = g.by(0);
  if (z.some) LANES(k, samples.count) {
    Stream random = samples.random(k);
    take_apart<true>(
        g, n, samples.of(k), stacks + LANE_NUMBER * 3 * (N + 2),
        [&]() {
          return g.first(n) + draw_one<S>(0, g.many(n) - 1, random.uniform(),
                                          [&](int s) { return c.at_root(g.first(n) + s); });
        },
        [&](int s, int w, int i) {
          const int first = by.start[s], ways = (by.start[s + 1] - first) * (w - 1);
          const int j = draw_one<S>(0, ways - 1, random.uniform(), [&](int j) {
            return summand(c, by, Way{first + j / (w - 1), 1 + j % (w - 1)}, w, i);
          });
          return Way{first + j / (w - 1), 1 + j % (w - 1)};
        });
  }
  return z.enough;
}

// trees [samples, B, 2N - 1, 4], drawn by the numbers that follow from seed [1]; -1 where there is no tree.
template <class In>
KERNEL cky_sample(const In* tags, const In* rules, const In* roots, const In* spans, const int* grammar,
                  const i64* lengths, const i64* seed, i64* trees, double* work, int* stacks, i64 work_size,
                  i64 stack_size, int samples, int B, int N, int S, int T, int R) {
  const Rules g{grammar, S, T, R};
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  const i64 size = (2 * N - 1) * 4;
  sample_each(trees, size, seed, samples, lengths, B, N + 1, [&](auto numbers, bool must_prove, Samples all, int n) INLINED {
    const Parts<In> x = Parts<In>{tags, rules, roots, spans}.at(all.b, N, g);
    return draw_trees<ALGEBRA(numbers)>(g, x, all, mine, stack, N, n, must_prove);
  });
}

EXPORT_TYPES(cky_sample)
