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
  typedef typename T::Scalar S;
  LexicalInside<T> in(work, bits, n, g);
  BARRIER();
  const Range range = in.load(scores, N, must_prove);
  if (range.bad) return true;
  BARRIER();
  in.run();
  const S z = in.whole();
  const double log_z = log_of(z);
  if (must_prove && !lexical_proven(log_z, range.log_bound, n, g.rules)) return false;
  if (!(log_z > -infinity())) return true;
  LANES(s, samples.count)
    take_apart<true>(in, z, samples.of(s), stacks + LANE_NUMBER * 4 * (N + 2), Draw{samples.random(s)});
  return true;
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
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    const Samples all{trees, (2 * N - 3) * 5, *seed, samples, B, b};
    BARRIER();
    all.clear();
    if (n == 0) continue;
    const Lexicon<In> scores{tags + (i64)b * (N - 1) * T, arcs + (i64)b * N * N, rules + b * rules_step, roots};
    fast_then_safe<Lin<Pack>>([&](auto numbers, bool must_prove) {
      return draw_trees<ALGEBRA(numbers)>(scores, g, all, mine, set, stack, N, n, must_prove);
    });
  }
}

EXPORT_TYPES(lexical_sample)
