// Exact draws of chains of tags: the forward pass once, then every sample from the last word to the first.
#include "chain.cuh"

// An index below `count` by the weights part(k); never one of weight 0 unless all are.
template <class S, class Part> DEVICE int draw(int count, double left, Part part) {
  S whole = S::zero();
  for (int k = 0; k < count; ++k) whole = whole + part(k);
  int chosen = 0;
  for (int k = 0; k < count && left >= 0.; ++k) {
    const double p = share(part(k), whole);
    if (p > 0.) chosen = k;  // the last possible one, should rounding leave a remainder
    left -= p;
  }
  return chosen;
}

struct Draws {
  i64 *tags, seed;  // of the sentence's first sample
  i64 step, number, words;  // from one sample to the next; the sentence's own number, and the most words
  int samples, B;
  DEVICE i64* of(int s) const { return tags + s * step; }
  DEVICE double uniform(int s, int i) const { return stream_for(seed, ((i64)s * B + number) * words + i).uniform(); }
};

template <class T, class In>
DEVICE bool draw_chains(const In* unary, const In* pairs, i64 place, Draws draws, double* work, int words, int tags,
                        int trigrams) {
  typedef typename T::Scalar S;
  Room room{work};
  Forward<T> f(room, tags, trigrams, (int)draws.words, false);
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
  LANES(s, draws.samples) {
    const int k = draw<S>(f.rows_of(last) * tags, draws.uniform(s, last),
                          [&](int k) { return f.a.cell(last * f.word + k / tags * f.row + k % tags); });
    i64* chain = draws.of(s);
    chain[last] = k % tags;
    if (trigrams && last > 0) chain[last - 1] = k / tags;
  }
  for (int i = last; i >= f.first(); --i) {  // the tag that is forgotten at word i
    load(i - f.first());
    const i64 before = (i - 1) * f.word;
    LANES(s, draws.samples) {
      i64* chain = draws.of(s);
      const int c = (int)chain[i], y = trigrams ? (int)chain[i - 1] : 0;
      chain[i - f.first()] = draw<S>(tags, draws.uniform(s, i - f.first()), [&](int x) {
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
  SENTENCES(b, B) {
    const int length = words_in(lengths, b, n + 1);
    const In *x = unary + (i64)b * n * T, *y = pairs + b * pairs_sentence;
    const Draws draws{tags + (i64)b * n, *seed, (i64)B * n, b, n, samples, B};
    BARRIER();
    LANES(s, samples)
      for (int i = 0; i < n; ++i) draws.of(s)[i] = -1;
    if (length == 0) continue;
    BARRIER();
    if (!draw_chains<Lin<Pack>>(x, y, pairs_place, draws, mine, length, T, trigrams)) {
      BARRIER();
      draw_chains<Ext<Lin<Pack>>>(x, y, pairs_place, draws, mine, length, T, trigrams);
    }
  }
}

EXPORT(chain_sample_float, chain_sample<float>)
EXPORT(chain_sample_double, chain_sample<double>)
