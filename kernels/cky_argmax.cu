// The best tree of a grammar: the program of cky.cuh over (max, +), then rules and splits found again from the top
// down.
#include "cky_unwind.cuh"

// trees [B, 2N - 1, 4]; all -1 where there is no tree, or a NaN or +inf was read. Ties: the first symbol at the root,
// the first rule, the smallest split.
template <class In>
KERNEL cky_argmax(const In* tags, const In* rules, const In* roots, const In* spans, const int* grammar,
                  const i64* lengths, i64* trees, double* work, int* stacks, i64 work_size, i64 stack_size, int B,
                  int N, int S, int T, int R) {
  const Rules g{grammar, S, T, R};
  const Order by = g.by(0);
  int* stack = stacks + SLOT * stack_size;
  best_each(trees, (2 * N - 1) * 4, lengths, B, N + 1, [&](i64 b, int n, i64* rows) {
    double* mine = work + SLOT * work_size;
    const Parts<In> x = Parts<In>{tags, rules, roots, spans}.at(b, N, g);
    CkyInside<Max<Pack>, In> c(mine, g, x, x, x, N, n);
    c.load(false);
    if (c.bad) return;
    c.run();
    const Best top = team_argmax(0, g.many(n), [&](int k) { return c.at_root(g.first(n) + k).v; });
    if (top.index < 0) return;
    take_apart<false>(g, n, rows, stack, [&]() { return g.first(n) + top.index; }, [&](int s, int w, int i) {
      const int first = by.start[s];
      const Best best = team_argmax(0, (by.start[s + 1] - first) * (w - 1), [&](int k) {
        return summand(c, by, Way{first + k / (w - 1), 1 + k % (w - 1)}, w, i).v;
      });
      return Way{first + best.index / (w - 1), 1 + best.index % (w - 1)};
    });
  });
}

EXPORT_TYPES(cky_argmax)
