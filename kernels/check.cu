// What the scores of each sentence hold, among those that are read: 1 NaN or +inf, 2 -inf, 4 length out of range, 8 one
// of 2^20 or more in size (+inf too, -inf not).
#include "weights.cuh"

template <class In> KERNEL check(const In* arcs, const i64* lengths, int* flags, int B, int N) {
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    const In* s = arcs + (i64)b * N * N;
    int mine = 0;
    PACKS(m, n + 1) {
      // most packs hold nothing unusual: no square is 2^40 or more, or NaN
      const Pack limit = splat<Pack>(1099511627776.);
      Mask usual = ~lanes_below(0, 0);
      for (int h = 0; h <= n; ++h) {
        const Pack x = scores_at(s + (i64)h * N, m, N);
        usual &= (x * x < limit) | lane_is(m, h);
      }
      if (!any(~usual & lanes_below(m, n + 1) & ~lane_is(m, 0))) continue;
      Mask wrong = lanes_below(0, 0), none = wrong, large = wrong;
      for (int h = 0; h <= n; ++h) {
        Pack x = choose(may_take(h, m, n), scores_at(s + (i64)h * N, m, N), Pack{});
        wrong |= (x != x) | (x == infinity());
        none |= x == -infinity();
        large |= (x > -infinity()) & (x * x >= limit);
      }
      mine |= any(wrong) | any(none) << 1 | any(large) << 3;
    }
    mine = team_reduce(mine, Or{});
    if (LEADER) flags[b] = mine | (lengths[b] < 1 || lengths[b] > N - 1) << 2;
  }
}

EXPORT_TYPES(check)
