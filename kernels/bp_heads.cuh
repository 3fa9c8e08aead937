// Belief propagation where heads are variables: messages are log weights of a word's heads, up to a number for each word. A
// head that is demanded forbids all others.
#pragma once
#include "bp.cuh"

// The words m and on, by all messages to their heads.
struct HeadsOf {
  const Sums& sums;
  int N, m;
  Pack demanded, most, second, at, sum;  // how many are; the two greatest weights, where the first is, the sum divided by it
  DEVICE HeadsOf(const Sums& sums, int N, int m) : sums(sums), N(N), m(m) {
    const Pack none = splat<Pack>(-infinity());
    demanded = Pack{}, most = none, second = none, at = Pack{}, sum = Pack{};
    for (int h = 0; h < N; ++h) demanded += row_pack(sums.plus + (i64)h * N, m, N);
    for (int h = 0; h < N; ++h) {
      const Pack x = weight(h);
      const Mask more = x > most;
      second = choose(more, most, choose(x > second, x, second));
      at = choose(more, splat<Pack>(h), at);
      most = choose(more, x, most);
    }
    for (int h = 0; h < N; ++h) sum += share(h);
  }
  DEVICE Pack forbidden(int h) const {
    const i64 row = (i64)h * N;
    return row_pack(sums.minus + row, m, N) + demanded - row_pack(sums.plus + row, m, N);
  }
  DEVICE Pack finite(int h) const { return row_pack(sums.finite + (i64)h * N, m, N); }
  DEVICE Pack weight(int h) const { return choose(forbidden(h) > Pack{}, splat<Pack>(-infinity()), finite(h)); }
  DEVICE Mask some() const { return most > splat<Pack>(-infinity()); }
  DEVICE Pack share(int h) const { return choose(some(), exp_in_range(weight(h) - most), Pack{}); }
  // log of the sum over all heads; 0 without any
  DEVICE Pack norm(bool maximise) const {
    const Pack one = splat<Pack>(1.);
    return choose(some(), maximise ? most : most + log_quotient(choose(some(), sum, one), one), Pack{});
  }
};
