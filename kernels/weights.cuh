// Arc scores to weights. Every tree takes one head for each word, so a word's scores may be shifted by their
// greatest one: log Z = log Z' + sum of the shifts, and no weight is above 1.
#pragma once
#include "numbers.cuh"

// The scores of head h (its row) for the pack of modifiers at m; past the row's end, -inf.
template <class X = Pack, class In> DEVICE X scores_at(const In* row, int m, int N) {
#if ON_GPU
  return score_of(row[m], X{});
#else
  typedef In Few __attribute__((vector_size(sizeof(In) * W)));
  auto load = [](const In* from) INLINED {
    Few few;
    std::memcpy(&few, from, sizeof few);
    return __builtin_convertvector(few, Pack);
  };
  if (m + W <= N) return load(row + m);
  // the row's last W scores; before a shorter row there may be none
  if (N >= W) return choose(lanes_below(m, N), moved_down(load(row + N - W), m + W - N), splat<Pack>(-infinity()));
  Pack x;
  for (int l = 0; l < W; ++l) x[l] = m + l < N ? (double)row[m + l] : -infinity();
  return x;
#endif
}

// Scores, and directions in them that may be null.
template <class In> struct Given {
  const In *x, *u, *v;
  DEVICE Given at(i64 a, i64 b, i64 c) const { return Given{x + a, u ? u + b : u, v ? v + c : v}; }
  DEVICE Given at(i64 a) const { return at(a, a, a); }
};

// Which lanes of the pack at m are modifiers that head h may take: 1 <= m <= n, m != h.
DEVICE Mask may_take(int h, int m, int n) { return lanes_below(m, n + 1) & ~lane_is(m, 0) & ~lane_is(m, h); }

#if ON_GPU
DEVICE bool any(bool m) { return m; }
DEVICE double lane_of(double v, int) { return v; }
DEVICE float lane_of(float v, int) { return v; }
DEVICE Fixed lane_of(Fixed v, int) { return v; }
#else
DEVICE bool any(Mask m) {
  i64 r = 0;
  for (int l = 0; l < W; ++l) r |= m[l];
  return r != 0;
}
DEVICE double lane_of(Pack v, int l) { return v[l]; }
#endif

// Numbers whose exponents hold any product of weights; and such as take scores of any size.
template <class T> constexpr bool any_range = false;
template <class T> constexpr bool any_range<Ext<T>> = true;
template <class T> constexpr bool takes_any_score = true;
#if ON_GPU
template <> constexpr bool any_range<Short> = true;
template <> constexpr bool takes_any_score<Short> = false;
#endif

struct Range {
  double shift;      // log Z - log Z'
  double log_bound;  // no sum over parts of trees is above exp(this)
  int bad;           // a NaN or +inf was read
  DEVICE Range operator+(Range o) const { return Range{shift + o.shift, log_bound + o.log_bound, bad | o.bad}; }
};

// Adds a word: what its scores are shifted by, and the sum of its weights.
template <class T, class X> DEVICE void add_word(Range& mine, X shift, typename T::V sum, int m, int n) {
  double bound = 1.;  // of W sums, none above n + 1: there is no overflow
  for (int l = 0; l < W; ++l)
    if (m + l >= 1 && m + l <= n) {
      mine.shift += nats(lane_of(shift, l));
      mine.bad |= too_low(lane_of(shift, l));
      if constexpr (!any_range<T>) bound *= fmax(1., lane_of(sum, l));
    }
  if constexpr (!any_range<T>) mine.log_bound += log(bound);
}

// Calls put(h, m, T weights) for every head h = 0..n and pack of modifiers m = 0.. of an n-word sentence.
// `spread` is taken off every score beside the word's own shift (a few nats where n is large, against overflow).
template <class T, class In, class Put>
DEVICE Range load_weights(Given<In> arcs, int N, int n, typename T::Score spread, Put put) {
  typedef typename T::Score X;
  Range mine{0., 0., 0};
  const X none = forbidden<X>();
  PACKS(m, n + 1) {
    X best = none;
    Mask bad = lanes_below(0, 0);
    for (int h = 0; h <= n; ++h) {
      X x = choose(may_take(h, m, n), scores_at<X>(arcs.x + (i64)h * N, m, N), none);
      bad |= wrong(x);
      best = choose(x > best, x, best);
    }
    mine.bad |= any(bad);
    X base = T::sums ? choose(some(best), best, X{}) + spread : X{};
    typename T::V sum{};
    for (int h = 0; h <= n; ++h) {
      X x = choose(may_take(h, m, n), scores_at<X>(arcs.x + (i64)h * N, m, N), none);
      X directions[2] = {X{}, X{}};
      if (T::order > 0) directions[0] = choose(some(x), scores_at<X>(arcs.u + (T::order > 0 ? (i64)h * N : 0), m, N), X{});
      if (T::order > 1) directions[1] = choose(some(x), scores_at<X>(arcs.v + (T::order > 1 ? (i64)h * N : 0), m, N), X{});
      T w = T::weight(x - base, directions);
      if (T::sums && !any_range<T>) sum += w.value();
      put(h, m, w);
    }
    if (T::sums) add_word<T>(mine, base, sum, m, n);
  }
  return team_reduce(mine, Plus{});
}

// With weights at most exp(-spread), every partial sum stays below exp(600).
DEVICE double spread_for(int n) { return n > 1 ? fmax(0., log((double)n) - 600. / n) : 0.; }
template <class T> DEVICE typename T::Score spread_for(int n, bool must_prove) {
  if constexpr (any_range<T>) return typename T::Score{};
  else return splat<typename T::Score>(must_prove ? spread_for(n) : 0.);
}

// Whether the numbers were enough. Doubles: every rounding to zero loses at most 2^-1022, its effect on Z' is at most that
// times the bound, and there are at most 8 n^3 of them: the loss is below 1e-17 of Z' if log Z' is above the bound's log by
// -708.4 + 39.2 + 2.1 + 3 log(n + 1). The rest is room for derivatives, whose size the directions add to. Short: what has a
// score that was taken for LOWEST weighs exp(-2^21) at most, and Z' is 2^20 above that.
template <class T> DEVICE bool proven(double log_z, double log_bound, int n) {
  if constexpr (any_range<T>) return log_z > -1048576.;
  return log_z - log_bound > -600. + 3. * log((double)n + 1.);
}

// Random numbers by SplitMix64: one stream a sample, the same on every device.
struct Stream {
  u64 state;
  DEVICE u64 next() {
    u64 z = (state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  DEVICE double uniform() { return (double)(next() >> 11) * 1.1102230246251565e-16; }  // [0, 1)
};
DEVICE Stream stream_for(i64 seed, i64 sample) {
  Stream s{(u64)seed};
  s.state = s.next() ^ (0xd1342543de82ef95ULL * (u64)(sample + 1));
  s.next();
  return s;
}

// The sum of part(k), k = first..last, and a k with the probability of its share, by a number from [0, 1). At least one
// is possible.
template <class S, class Part> DEVICE S sum_of(int first, int last, Part part) {
  S whole = S::zero();
  for (int k = first; k <= last; ++k) whole = whole + part(k);
  return whole;
}
template <class S, class Part> DEVICE int draw(int first, int last, S whole, double left, Part part) {
  int chosen = first;
  for (int k = first; k <= last && left >= 0.; ++k) {
    const double p = share(part(k), whole);
    if (p > 0.) chosen = k;  // the last possible one, should rounding leave a remainder
    left -= p;
  }
  return chosen;
}
// The same without the sum known.
template <class S, class Part> DEVICE int draw_one(int first, int last, double left, Part part) {
  return draw(first, last, sum_of<S>(first, last, part), left, part);
}

// A length as given, kept inside the tensor.
DEVICE int words_in(const i64* lengths, int b, int N) {
  i64 n = lengths[b];
  return (int)(n < 0 ? 0 : n > N - 1 ? N - 1 : n);
}
