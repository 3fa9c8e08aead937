// Heads as variables, seen as links: the log-odds of each against the word's others, of all messages together.
#include "bp_heads.cuh"

// totals, odds [3, B, N, N]
template <class In>
KERNEL bp_heads(const double* totals, const i64* lengths, double* odds, int maximise, int B, int N) {
  const i64 square = (i64)N * N;
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    const Sums sums(totals, b, B, square);
    const Part part(odds, b, B, square);
    PACKS(m, N) {
      const HeadsOf heads(sums, N, m, false);
      heads.others(maximise != 0, [&](int h, Pack others) INLINED {
        const i64 row = (i64)h * N;
        const Pack one = splat<Pack>(1.);
        const Mask some = others > splat<Pack>(-infinity());
        const Mask link = lanes_below(m, h <= n ? n + 1 : 0) & ~lane_is(m, 0) & ~lane_is(m, h);
        put_pack(part.finite + row, m, N, heads.finite(h) - choose(some, others, Pack{}));
        put_pack(part.minus + row, m, N, heads.forbidden(h) + heads.elsewhere(h));
        put_pack(part.plus + row, m, N, scores_at(sums.plus + row, m, N) + choose(link & ~some, one, Pack{}));
      });
    }
  }
}

EXPORT(bp_heads_double, bp_heads<double>)
