// What the Viterbi kernels share: chains of tags over (max, +), in doubles.
//
// s_i[y] is the score of the best chain of words 0..i that ends in state y. A state is a tag, or for trigrams a pair
// (previous tag, tag): state r and tag c make state (r mod M) * T + c, with M = 1 or T contexts.
#pragma once
#include "packs.cuh"

// One sentence: unary [n, T], and pairs [M * T, T] between neighbours, in rows `wide` apart, and `step` apart from
// place to place (0: the same everywhere). OWN: each place has its own, as they were given, to be checked here; else
// they are doubles in rows of whole packs, and have been checked.
template <class In, bool OWN> struct PairsOf { typedef double type; };
template <class In> struct PairsOf<In, true> { typedef In type; };

template <class In_, bool OWN_> struct Chain {
  typedef In_ In;
  typedef typename PairsOf<In, OWN_>::type Pair;
  static constexpr bool OWN = OWN_;
  const In* unary;
  const Pair* pairs;
  i64 step;
  int n, T, M, wide;
  DEVICE const In* theta(int i) const { return unary + (i64)i * T; }
  DEVICE Pack theta(int i, int c) const { return some(theta(i) + c, T - c, -infinity()); }
  DEVICE const Pair* tau(int i) const { return pairs + i * step; }
};

constexpr double LOWEST = -1.7976931348623157e308;  // of all that is not -inf

// What a step found: whether a NaN or +inf was read, and (in lanes) the greatest of next + least.
struct Found {
  unsigned bad;
  Pack floor;
};

// next[c] = theta[c] + max over k < count of (s[x_k] + tau[x_k][c]), for P packs of tags from c on and context m; x_k is
// list[k], or k * M + m where there is no list. least [T]: null if the floor is not wanted.
template <int P, bool LISTED, class C>
DEVICE void relax(const C& chain, int i, const double* s, double* next, const int* list, int count, const double* least,
                  int m, int c, Found& found) {
  Pack acc[P];
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) acc[p] = splat<Pack>(-infinity());
  const typename C::Pair* const tau = chain.tau(i) + c;
  for (int k = 0; k < count; ++k) {
    const i64 x = LISTED ? list[k] : (i64)k * chain.M + m;
    const Pack a = splat<Pack>(s[x]);
    const typename C::Pair* row = tau + x * chain.wide;
#pragma GCC unroll 8
    for (int p = 0; p < P; ++p) {
      const Pack t = C::OWN && p == P - 1 ? some(row + p * W, chain.T - c - p * W, 0.) : whole(row + p * W);
      if (C::OWN) found.bad |= unfit(t);
      acc[p] = larger(a + t, acc[p]);
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < P; ++p) {
    const int at = c + p * W;
    const Pack t = p == P - 1 ? chain.theta(i + 1, at) : whole(chain.theta(i + 1) + at);
    found.bad |= unfit(t);
    acc[p] = acc[p] + t;
    unpack(next + (i64)m * chain.T + at, acc[p]);
    if (LISTED && least) found.floor = larger(acc[p] + pack(least + at), found.floor);
  }
}

// The step from word i to i + 1: next = s_{i+1} for all contexts and tags. It has room for a pack more.
template <bool LISTED, class C>
DEVICE Found step(const C& chain, int i, const double* s, double* next, const int* list, int count,
                  const double* least) {
  Found found{0, splat<Pack>(-infinity())};
#if ON_GPU
  LANES(k, chain.M * chain.T)
    relax<1, LISTED>(chain, i, s, next, list, count, least, k / chain.T, k % chain.T, found);
#else
#define RELAX(P) case P: relax<P, LISTED>(chain, i, s, next, list, count, least, m, c, found); break;
  for (int m = 0; m < chain.M; ++m)  // in order: a context's last pack reaches into the next one's
    for (int c = 0; c < chain.T; c += 8 * W) switch (chain.T - c >= 8 * W ? 8 : (chain.T - c + W - 1) / W) {
      RELAX(1) RELAX(2) RELAX(3) RELAX(4) RELAX(5) RELAX(6) RELAX(7) RELAX(8)
    }
#undef RELAX
#endif
  return found;
}

// Whether there is a NaN or +inf in a row.
DEVICE bool has_unfit(const double* row, int count) {
  unsigned bad = 0;
  PACKS(k, count) bad |= unfit(pack(row + k));
  return team_reduce((int)bad, Or{});
}

// s_0 = theta_0
template <class C> DEVICE unsigned first_states(const C& chain, double* s) {
  unsigned bad = 0;
  PACKS(c, chain.T) {
    const Pack t = chain.theta(0, c);
    bad |= unfit(t);
    unpack(s + c, t);
  }
  return bad;
}

// s_1 of trigrams: the first pair of tags has no score of its own.
template <class C> DEVICE unsigned first_pairs(const C& chain, const double* s, double* next) {
  unsigned bad = 0;
  ROWS_PACKS(x, chain.T, c, chain.T) {
    const Pack t = chain.theta(1, c);
    bad |= unfit(t);
    unpack(next + (i64)x * chain.T + c, splat<Pack>(s[x]) + t);
  }
  return bad;
}

#if !ON_GPU
// Which of the up to 64 places from k on f(place) marks, a pack at a time.
template <class F> DEVICE u64 bits_from(int k, int count, F f) {
  u64 bits = 0;
  const int end = count - k < 64 ? count : k + 64;
  for (int at = k; at < end; at += W) bits |= (u64)f(at) << (at - k);
  return bits;
}
#endif

struct Lesser { DEVICE double operator()(double a, double b) const { return b < a ? b : a; } };
struct Greater { DEVICE double operator()(double a, double b) const { return b > a ? b : a; } };

// The least and the greatest of all lanes of the team.
DEVICE double team_least(Pack mine) {
  double least = lane_of(mine, 0);
  for (int l = 1; l < W; ++l) least = Lesser{}(least, lane_of(mine, l));
  return team_reduce(least, Lesser{});
}

DEVICE double team_most(Pack mine) {
#if ON_GPU
  return team_reduce(mine, Greater{});
#else
  return largest(mine);
#endif
}

// The first k < count with the greatest value(k), given a pack at a time, and that value; -1 if all are -inf.
template <class F> DEVICE Best best_of(int count, F value) {
#if ON_GPU
  return team_argmax(0, count, value);
#else
  Pack top = splat<Pack>(-infinity());
  PACKS(k, count) top = larger(value(k), top);
  const double best = largest(top);
  for (int k = 0; k < count && best > -infinity(); k += 64)
    if (const u64 hits = bits_from(k, count, [&](int at) { return at_least(value(at), splat<Pack>(best)); }))
      return Best{best, k + __builtin_ctzll(hits)};
  return Best{best, -1};
#endif
}

// The k < count that keep(k) marks (the lanes of a pack as bits) are put in a list; their number. Their order is free.
template <class F> DEVICE int select(int count, int* list, F keep) {
#if ON_GPU
  __shared__ int found;
  BARRIER();
  if (LEADER) found = 0;
  BARRIER();
  LANES(k, count) if (keep(k)) list[atomicAdd(&found, 1)] = k;
  BARRIER();
  return found;
#else
  int found = 0;
  for (int k = 0; k < count; k += 64)
    for (u64 bits = bits_from(k, count, keep); bits; bits &= bits - 1) list[found++] = k + __builtin_ctzll(bits);
  return found;
#endif
}

// The same for value(k) >= bar. Where few are, most blocks of 64 are passed over by their greatest value.
template <class F> DEVICE int select_from(double bar, int count, int* list, F value) {
  auto keep = [&](int k) { return at_least(value(k), splat<Pack>(bar)); };
#if !ON_GPU
  if (count > 64) {
    int found = 0;
    for (int k = 0; k < count; k += 64) {
      Pack top = splat<Pack>(-infinity());
      for (int at = k; at < k + 64 && at < count; at += W) top = larger(value(at), top);
      if (!at_least(top, splat<Pack>(bar))) continue;
      for (u64 bits = bits_from(k, count, keep); bits; bits &= bits - 1) list[found++] = k + __builtin_ctzll(bits);
    }
    return found;
  }
#endif
  return select(count, list, keep);
}

// The same as bits for keep(x) of the listed x.
template <class F> DEVICE unsigned lanes_listed(const int* list, int k, int count, F keep) {
  unsigned bits = 0;
  for (int l = 0; l < W && k + l < count; ++l) bits |= (unsigned)keep(list[k + l]) << l;
  return bits;
}

// Among the listed states the one with the greatest value(x), the smallest among equals.
template <class F> DEVICE Best best_listed(const int* list, int count, F value) {
  Best best{-infinity(), -1};
  LANES(k, count) {
    const double v = value(list[k]);
    if (v > -infinity()) best = Better{}(best, Best{v, list[k]});
  }
  return team_reduce(best, Better{});
}

// The same of a row of states; past its end it has -inf.
DEVICE Best best_state(const double* s, int count) {
  return best_of(count, [&](int k) { return pack(s + k); });
}

// The best state before tag c of context m. columns: shared pairs of M = 1 transposed, or null.
template <class C> DEVICE int source(const C& chain, int i, const double* s, const double* columns, int m, int c) {
  const int T = chain.T, M = chain.M;
  if (columns)
    return best_of(T, [&](int a) { return pack(s + a) + whole(columns + (i64)c * chain.wide + a); })
        .index;
  const typename C::Pair* tau = chain.tau(i) + c;
  auto value = [&](int a) { const i64 x = (i64)a * M + m; return s[x] + (double)tau[x * chain.wide]; };
  return team_argmax(0, T, value).index * M + m;
}

// The dense program from word i on, s rows apart; whether a NaN or +inf was read.
template <class C> DEVICE unsigned dense_steps(const C& chain, double* s, i64 row, int i) {
  unsigned bad = 0;
  for (; i + 1 < chain.n; ++i) {
    double *now = s + i * row, *next = now + row;
    bad |= i == 0 && chain.M > 1 ? first_pairs(chain, now, next)
                                 : step<false>(chain, i, now, next, nullptr, chain.T, nullptr).bad;
    BARRIER();
  }
  return bad;
}

// All of it.
template <class C> DEVICE unsigned dense_chain(const C& chain, double* s, i64 row) {
  const unsigned bad = first_states(chain, s);
  BARRIER();
  return bad | dense_steps(chain, s, row, 0);
}

// The best chain of the dense program, from its end, and its score; nothing is written if there is none.
template <class C>
DEVICE void trace_dense(const C& chain, double* s, i64 row, const double* columns, i64* tag, double* score) {
  const int n = chain.n, T = chain.T, states = n > 1 ? chain.M * T : T;
  BARRIER();
  LANES(k, PAD) s[(n - 1) * row + states + k] = -infinity();
  const Best best = best_state(s + (n - 1) * row, states);
  int state = best.index;
  if (state < 0) return;
  if (LEADER) *score = best.value;
  for (int i = n - 1;; --i) {
    if (LEADER) tag[i] = state % T;
    if (i == 0) return;
    state = i == 1 && chain.M > 1 ? state / T : source(chain, i - 1, s + (i - 1) * row, columns, state / T, state % T);
  }
}
