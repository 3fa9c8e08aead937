// Exact draws of lexicalised trees: the inside pass once, then every sample takes spans apart at random.
#include "lexical.cuh"

struct Draw {
  Stream random;
  template <class S, class F> DEVICE int operator()(int count, S whole, F value) {
    return draw(0, count - 1, whole, random.uniform(), value);
  }
};

template <class T, class In>
DEVICE bool draw_trees(Lexicon<In> scores, Rules g, Samples samples, double* work, u64* bits, int* stacks, int N, int n,
                       bool must_prove) {
  LexicalInside<T> in(work, bits, n, g);
  const Found z = in.fill(scores, N, must_prove);
  if (z.some) LANES(s, samples.count)
    take_apart<true>(in, in.z, samples.of(s), stacks + LANE_NUMBER * 4 * (N + 2), Draw{samples.random(s)});
  return z.enough;
}

// trees [samples, B, 2N - 3, 5], drawn by the numbers that follow from seed [1]; -1 where there is no tree.
template <class In>
KERNEL lexical_sample(const In* tags, const In* arcs, const In* rules, const In* roots, const int* table,
                      const i64* lengths, const i64* seed, i64* trees, double* work, int* stacks, i64* bits,
                      i64 work_size, i64 stack_size, i64 bits_size, i64 rules_step, int samples, int B, int N, int T,
                      int S, int R) {
  const Rules g{table, T, S, R};
  double* mine = work + SLOT * work_size;
  u64* set = (u64*)bits + SLOT * bits_size;
  int* stack = stacks + SLOT * stack_size;
  const i64 size = (2 * N - 3) * 5;
  sample_each(trees, size, seed, samples, lengths, B, N, [&](auto numbers, bool must_prove, Samples all, int n) INLINED {
    const Lexicon<In> scores = Lexicon<In>{tags, arcs, rules, roots}.at(all.b, N, g, rules_step);
    return draw_trees<ALGEBRA(numbers)>(scores, g, all, mine, set, stack, N, n, must_prove);
  });
}

EXPORT_TYPES(lexical_sample)
