// The best lexicalised tree: the program of lexical.cuh over (max, +), then its rules found again from the top down.
#include "lexical.cuh"

struct TakeBest {
  template <class F> DEVICE int operator()(int count, Max<double>, F value) const {
    return team_argmax(0, count, [&](int f) { return value(f).v; }).index;
  }
};

// trees [B, 2N - 3, 5]; all -1 where there is no tree, or a NaN or +inf was read. Ties: the first rule and split win.
template <class In>
KERNEL lexical_argmax(const In* tags, const In* arcs, const In* rules, const In* roots, const int* table,
                      const i64* lengths, i64* trees, double* work, int* stacks, i64* bits, i64 work_size,
                      i64 stack_size, i64 bits_size, i64 rules_step, int B, int N, int T, int S, int R) {
  const Rules g{table, T, S, R};
  best_each(trees, (2 * N - 3) * 5, lengths, B, N, [&](i64 b, int n, i64* rows) {
    LexicalInside<Max<Pack>> in(work + SLOT * work_size, (u64*)bits + SLOT * bits_size, n, g);
    BARRIER();
    if (in.load(Lexicon<In>{tags, arcs, rules, roots}.at(b, N, g, rules_step), N, false).bad) return;
    BARRIER();
    in.run();
    take_apart<false>(in, Max<double>::zero(), rows, stacks + SLOT * stack_size, TakeBest{});
  });
}

EXPORT_TYPES(lexical_argmax)
