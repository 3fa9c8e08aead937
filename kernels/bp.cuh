// Belief propagation: messages about links, which are log-odds; -inf forbids a link, +inf demands it. A variable knows the
// sum of the finite messages to it, and how many are -inf and +inf: three matrices [B, N, N] after each other.
#pragma once
#include "sentences.cuh"
#if defined(__AVX512F__) && !ON_GPU
#include <immintrin.h>
#endif

template <class V> DEVICE V magnitude(V x) { return choose(x < V{}, -x, x); }
template <class V> DEVICE auto is_infinite(V x) { return magnitude(x) == splat<V>(infinity()); }
template <class V> DEVICE V count_if(V x, double what) { return choose(x == splat<V>(what), splat<V>(1.), V{}); }
template <class V> DEVICE V finite_part(V x) { return choose(is_infinite(x), V{}, x); }

// log (x / y) of numbers above 0 that are not subnormal (as fdlibm's, with one division)
#if ON_GPU
DEVICE double log_quotient(double x, double y) { return log(x / y); }
#else
DEVICE Pack log_quotient(Pack x, Pack y) {
  const PackBits one = PackBits{} + 0x3ff0000000000000LL, mantissa = PackBits{} + 0xfffffffffffffLL;
  Pack a = from_bits((bits(x) & mantissa) | one), b = from_bits((bits(y) & mantissa) | one);
  Pack e = __builtin_convertvector((bits(x) >> 52) - (bits(y) >> 52), Pack);
  const Mask high = a > b * 1.4142135623730951, low = a * 1.4142135623730951 < b;  // a / b from sqrt(1/2) to sqrt(2)
  a = choose(high, 0.5 * a, choose(low, 2. * a, a));
  e = choose(high, e + 1., choose(low, e - 1., e));
  const Pack s = (a - b) / (a + b), z = s * s;
  Pack r = splat<Pack>(1.479819860511658591e-01);
  r = r * z + 1.531383769920937332e-01;
  r = r * z + 1.818357216161805012e-01;
  r = r * z + 2.222219843214978396e-01;
  r = r * z + 2.857142874366239149e-01;
  r = r * z + 3.999999999940941908e-01;
  r = r * z + 6.666666666666735130e-01;
  return e * 6.93147180369123816490e-01 + (s * (2. + z * r) + e * 1.90821492927058770002e-10);
}
#endif

// exp(-|x|) and from it the probabilities of log-odds
template <class V> DEVICE V decay(V x) { return exp_in_range(-magnitude(x)); }
template <class V> DEVICE V probability(V x) {
  const V z = decay(x);
  return choose(x > V{}, splat<V>(1.), z) / (1. + z);
}

DEVICE void put_pack(double* row, int m, int N, Pack v) {
#if ON_GPU
  row[m] = v;
#else
  if (m + W <= N) {
    unpack(row + m, v);
    return;
  }
#if defined(__AVX512F__)
  _mm512_mask_storeu_pd(row + m, (__mmask8)((1 << (N - m)) - 1), (__m512d)v);
#else
  for (int l = 0; m + l < N; ++l) row[m + l] = v[l];
#endif
#endif
}

// The messages to the links of a sentence, all together, and what is left without one of them.
struct Sums {
  const double *finite, *minus, *plus;
  DEVICE Sums(const double* totals, i64 b, i64 B, i64 square)
      : finite(totals + b * square), minus(finite + B * square), plus(minus + B * square) {}
  template <class V> static DEVICE V join(V finite, V minus, V plus) {
    return choose(minus > V{}, splat<V>(-infinity()), choose(plus > V{}, splat<V>(infinity()), finite));
  }
  template <class V> static DEVICE V left(V finite, V minus, V plus, V own) {
    return join<V>(finite - finite_part(own), minus - count_if(own, -infinity()), plus - count_if(own, infinity()));
  }
  DEVICE double without(i64 at, double own) const { return left<double>(finite[at], minus[at], plus[at], own); }
  DEVICE Pack packs_without(i64 row, int m, int N, Pack own) const {
    return left<Pack>(scores_at(finite + row, m, N), scores_at(minus + row, m, N), scores_at(plus + row, m, N), own);
  }
};

// What a family says of each link, in the same form.
struct Part {
  double *finite, *minus, *plus;
  DEVICE Part(double* parts, i64 b, i64 B, i64 square)
      : finite(parts + b * square), minus(finite + B * square), plus(minus + B * square) {}
  DEVICE void put(i64 at, double message) const {
    finite[at] = finite_part(message);
    minus[at] = message == -infinity();
    plus[at] = message == infinity();
  }
};

// New messages have a share of the old ones; infinite ones are not mixed.
template <class V> DEVICE V damped(V old, V now, double share) {
  if (share == 0.) return now;
  return choose(is_infinite(old), now, choose(is_infinite(now), now, share * finite_part(old) + (1. - share) * now));
}
// Derivatives by the new and by the old message, given that by the damped one.
template <class V> struct Shared { V now, old; };
template <class V> DEVICE Shared<V> undamped(V old, V now, V g, double share) {
  g = choose(is_infinite(now), V{}, g);
  const V mixed = choose(is_infinite(old), V{}, g) * share;
  return Shared<V>{g - mixed, mixed};
}

// A family with one edge to each link: sentence b's edge to link `at`.
struct Edges {
  Sums sums;
  Part part;
  const double* own;
  double *out, share;
  bool frozen;  // messages stay as they are
  DEVICE Edges(const double* totals, const double* own, double* out, double* parts, const bool* frozen, double share, i64 b,
               i64 B, i64 square)
      : sums(totals, b, B, square), part(parts, b, B, square), own(own + b * square), out(out + b * square), share(share),
        frozen(frozen && frozen[b]) {}
  DEVICE void send_all(const double* messages, int square) const {
    PACKS(k, square) {
      const Pack x = damped(scores_at(own, k, square), scores_at(messages, k, square), share);
      put_pack(out, k, square, x);
      put_pack(part.finite, k, square, finite_part(x));
      put_pack(part.minus, k, square, count_if(x, -infinity()));
      put_pack(part.plus, k, square, count_if(x, infinity()));
    }
  }
  DEVICE void keep(i64 square) const { LANES(k, (int)square) { out[k] = own[k]; part.put(k, own[k]); } }
};

// The way back: g [B, N, N] and the finite matrix of g_part are derivatives by what was sent and by the part.
struct Back {
  const double *g, *g_part;
  double *d_own, *d_sums, *d_rest;  // by the own messages, and the three matrices of the sums
  i64 rest;
  DEVICE Back(const double* g, const double* g_part, double* d_own, double* d_sums, i64 b, i64 B, i64 square)
      : g(g + b * square), g_part(g_part + b * square), d_own(d_own + b * square), d_sums(d_sums + b * square),
        d_rest(d_sums + (b + B) * square), rest(B * square) {}
  // by: derivatives [N, N] by what came in (q); mixed: by the old messages as shares of the new ones, of links
  DEVICE void finish(const double* own, const double* q, const double* by, const double* mixed, int N, int n, double share,
                     bool still) const {
    LANES(k, N * N) {
      const int h = k / N, m = k % N;
      const bool link = h <= n && m >= 1 && m <= n && h != m && !still;
      const double sent = g[k] + g_part[k];
      const double old = still ? (is_infinite(own[k]) ? 0. : sent) : link ? mixed[k] : undamped(own[k], 0., sent, share).old;
      const double in = link && !is_infinite(q[k]) ? by[k] : 0.;
      d_sums[k] = in;
      d_own[k] = old - (is_infinite(own[k]) ? 0. : in);
      d_rest[k] = d_rest[k + rest] = 0.;
    }
  }
};

// The derivative by a new message [m] of head h, once it is known; keeps that by the old one.
struct Undamp {
  const Back& back;
  const double* own;  // of this head
  double* mixed;
  i64 row;
  double share;
  DEVICE double operator()(int m, double now) const {
    const Shared<double> both = undamped(own[m], now, back.g[row + m] + back.g_part[row + m], share);
    mixed[row + m] = both.old;
    return both.now;
  }
};

// The sum of a pack's lanes.
#if ON_GPU
template <class T> DEVICE T sum_lanes(T v) { return v; }
#else
template <class T> DEVICE typename T::Scalar sum_lanes(T v) {
  typedef typename T::Scalar S;
  double lanes[T::planes * W];
  v.store(lanes, W);
  S sum = S::load(lanes, W);
  for (int l = 1; l < W; ++l) sum = sum + S::load(lanes + l, W);
  return sum;
}
#endif

// Numbers whose sums are kept near 1 by the algorithm are divided by this; those with exponents need not be.
template <class V> DEVICE double size_of(Lin<V> x) { return x.v; }
template <class T> DEVICE double size_of(Dual<T> x) { return size_of(x.a); }
template <class V> DEVICE double size_of(Max<V>) { return 1.; }
template <class T> DEVICE double size_of(Ext<T>) { return 1.; }
template <class T> DEVICE T divided(T x, double by) {
  if constexpr (T::sums) return by == 1. ? x : x.scaled(splat<typename T::V>(1. / by));
  else return x;
}

DEVICE bool is_zero(Max<double> x) { return x.v == -infinity(); }
template <class T> DEVICE bool is_zero(Dual<T> x) { return is_zero(x.a); }
DEVICE double log_ratio(Lin<double> a, Lin<double> b) {
  const double r = a.v / b.v;
  return r > 1e-300 && r < 1e300 ? log(r) : log(a.v) - log(b.v);
}
template <class S> DEVICE double log_ratio(S a, S b) { return log_of(a) - log_of(b); }

// Log-odds of the sums with and without a link; 0 if there are neither (log Z says so).
template <class S> DEVICE double log_odds(S with, S without) {
  if (is_zero(with)) return is_zero(without) ? 0. : -infinity();
  return is_zero(without) ? infinity() : log_ratio(with, without);
}

// a / b, of any sign
DEVICE double quotient(Lin<double> a, Lin<double> b) { return a.v == 0. ? 0. : a.v / b.v; }
DEVICE double quotient(Ext<Lin<double>> a, Ext<Lin<double>> b) {
  if (a.m.v == 0.) return 0.;
  const double e = a.e - b.e;
  return a.m.v / b.m.v * pow2(e < 1023. ? e : 1023.);
}

// exp(x) as a number without derivatives
template <class T> struct Weigh {
  static DEVICE T of(typename T::V x) {
    const typename T::V none[2] = {typename T::V{}, typename T::V{}};
    return T::weight(x, none);
  }
};
template <class T> struct Weigh<Dual<T>> {
  static DEVICE Dual<T> of(typename T::V x) { return Dual<T>{Weigh<T>::of(x), T::zero()}; }
};
template <class T> DEVICE T weigh(typename T::V x) { return Weigh<T>::of(x); }

DEVICE double in_double(Lin<double> x) { return x.v; }
DEVICE double in_double(Ext<Lin<double>> x) { return x.m.v == 0. ? 0. : x.value(); }
