// Exact draws of chains of tags: the forward pass once, then every sample from the last word to the first.
#include "chain.cuh"

template <class T, class In>
DEVICE bool draw_chains(const In* unary, const In* pairs, i64 place, Samples draws, double* work, int words, int tags,
                        int trigrams) {
  typedef typename T::Scalar S;
  Room room{work};
  Forward<T> f(room, tags, trigrams, (int)draws.size, false);
  f.pair_bad = 0;
  bool there = false;
  auto load = [&](int p) {
    if (there) return;
    f.load_pairs(Given<In>{pairs + p * place, nullptr, nullptr}, false);
    there = place == 0;
  };
  if (f.load_unary(Given<In>{unary, nullptr, nullptr}, words)) return true;
  double shift;
  const bool done = f.run(load, shift);
  if (f.pair_bad) return true;
  if (!done) return false;
  const S all = f.total();
  if (!f.proven(all)) return false;
  if (is_zero(all)) return true;
  const int last = words - 1;
  LANES(s, draws.count) {
    const int k = draw_one<S>(0, f.rows_of(last) * tags - 1, draws.uniform(s, last),
                          [&](int k) { return f.a.cell(last * f.word + k / tags * f.row + k % tags); });
    i64* chain = draws.of(s);
    chain[last] = k % tags;
    if (trigrams && last > 0) chain[last - 1] = k / tags;
  }
  for (int i = last; i >= f.first(); --i) {  // the tag that is forgotten at word i
    load(i - f.first());
    const i64 before = (i - 1) * f.word;
    LANES(s, draws.count) {
      i64* chain = draws.of(s);
      const int c = (int)chain[i], y = trigrams ? (int)chain[i - 1] : 0;
      chain[i - f.first()] = draw_one<S>(0, tags - 1, draws.uniform(s, i - f.first()), [&](int x) {
        return f.a.cell(before + f.state(x, y)) * f.psi.cell(((i64)x * f.M + y) * f.row + c);
      });
    }
  }
  return true;
}

// tags [samples, B, n], drawn by the numbers that follow from seed [1]; -1 past the end and where there is no chain.
template <class In>
KERNEL chain_sample(const In* unary, const In* pairs, const i64* lengths, const i64* seed, i64* tags, double* work,
                    i64 work_size, i64 pairs_sentence, i64 pairs_place, int samples, int B, int n, int T, int trigrams) {
  double* mine = work + SLOT * work_size;
  sample_each(tags, n, seed, samples, lengths, B, n + 1, [&](auto numbers, bool, Samples draws, int length) INLINED {
    const In *x = unary + (i64)draws.b * n * T, *y = pairs + draws.b * pairs_sentence;
    BARRIER();
    return draw_chains<ALGEBRA(numbers)>(x, y, pairs_place, draws, mine, length, T, trigrams);
  });
}

EXPORT_TYPES(chain_sample)
