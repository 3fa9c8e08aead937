// Belief propagation where heads are variables: messages are log weights of a word's heads, up to a number for each word. A
// head that is demanded forbids all others.
#pragma once
#include "bp.cuh"

// The words m and on, by all messages to their heads.
struct HeadsOf {
  const Sums& sums;
  int N, m;
  bool demands;                          // whether what is demanded forbids the other heads
  Pack demanded, most, second, at, sum;  // how many are; the two greatest weights, where the first is, the sum divided by it
  DEVICE HeadsOf(const Sums& sums, int N, int m, bool demands = true) : sums(sums), N(N), m(m), demands(demands) {
    const Pack none = splat<Pack>(-infinity());
    demanded = Pack{}, most = none, second = none, at = Pack{}, sum = Pack{};
    for (int h = 0; h < N; ++h) demanded += scores_at(sums.plus + (i64)h * N, m, N);
    for (int h = 0; h < N; ++h) {
      const Pack x = weight(h);
      const Mask more = x > most;
      second = choose(more, most, choose(x > second, x, second));
      at = choose(more, splat<Pack>(h), at);
      most = choose(more, x, most);
    }
    for (int h = 0; h < N; ++h) sum += share(h);
  }
  DEVICE Pack elsewhere(int h) const { return demanded - scores_at(sums.plus + (i64)h * N, m, N); }
  DEVICE Pack forbidden(int h) const {
    const Pack minus = scores_at(sums.minus + (i64)h * N, m, N);
    return demands ? minus + elsewhere(h) : minus;
  }
  DEVICE Pack finite(int h) const { return scores_at(sums.finite + (i64)h * N, m, N); }
  DEVICE Pack weight(int h) const { return choose(forbidden(h) > Pack{}, splat<Pack>(-infinity()), finite(h)); }
  DEVICE Mask some() const { return most > splat<Pack>(-infinity()); }
  DEVICE Pack share(int h) const { return choose(some(), exp_in_range(weight(h) - most), Pack{}); }
  // log of the sum over all heads; 0 without any
  DEVICE Pack norm(bool maximise) const {
    const Pack one = splat<Pack>(1.);
    return choose(some(), maximise ? most : most + log_quotient(choose(some(), sum, one), one), Pack{});
  }
  // each(h, log of the sum over the other heads)
  template <class Each> DEVICE void others(bool maximise, Each each) const {
    const Pack none = splat<Pack>(-infinity()), one = splat<Pack>(1.);
    const Mask more = second > none;
    Pack left = Pack{};  // without the greatest, which would take its digits
    for (int h = 0; h < N && !maximise; ++h)
      left += choose(at == splat<Pack>(h), Pack{}, exp_in_range(weight(h) - choose(more, second, Pack{})));
    const Pack but_first = choose(more, second + (maximise ? Pack{} : log_quotient(choose(more, left, one), one)), none);
    for (int h = 0; h < N; ++h) {
      const Mask first = at == splat<Pack>(h), rest = some() & ~first;
      const Pack log_rest = maximise ? Pack{} : log_quotient(choose(rest, sum - share(h), one), one);
      each(h, choose(rest, most + log_rest, but_first));
    }
  }
};
