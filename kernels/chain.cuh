// Chains of tags: the forward pass over any number type, for scores of two tags in a row or of three.
//
// A word's state is its tag (M = 1), or the tag before and its own (M = T). From state (x, y) with the tag c the next one
// is (y, c); where M = 1 there is no y and the state is x. States lie in M rows of T tags: those of a word are written
// side by side, the last tag of a state being the word's own.
//
//   psi [x * M + y][c]         weight of tag c after state (x, y)          theta [i][t]   weight of tag t at word i
//   back [y][c][x]             the same numbers, for the way back
//   a [i][y][c]                all ways from the start to state (y, c) of word i, times a power of two
//
// Plain doubles are scaled as the pass goes on, so that their range has to hold one word's states only, and what is
// rounded to zero is bounded: by `lost` for a state that has almost nothing, and by a share for the others. What `lost`
// bounds grows from word to word by no more than the sums of weights, each of them 1 at most, and what comes to a state
// that has more than SMALL becomes a share of it, which does not grow. The wide numbers (Ext) need none of this.
#pragma once
#include "sentences.cuh"

// What would only make a kernel longer: inlined on a CPU, loops unrolled on a GPU.
#if ON_GPU
#define ROLLED _Pragma("unroll 1")
#define TWO_AT_A_TIME _Pragma("unroll 2")
#else
#define ROLLED
#define TWO_AT_A_TIME
#endif

template <class T> constexpr bool is_wide = false;
template <class T> constexpr bool is_wide<Ext<T>> = true;
#if ON_GPU
template <> constexpr bool is_wide<Short> = true;
#endif

// W numbers, `step` apart from k on; lanes past the end become zero.
template <class T> DEVICE T gather(Numbers<T> from, i64 k, i64 step, int lanes) {
#if ON_GPU
  return from.get(k);
#else
  double few[T::planes * W];
  T::zero().store(few, W);
  for (int l = 0; l < W && l < lanes; ++l)
    for (int p = 0; p < T::planes; ++p) few[p * W + l] = from.at(k + l * step)[p * from.size];
  return T::load(few, W);
#endif
}

DEVICE i64 tags_row(int T) { return (T + 7) / 8 * 8; }

// Hands out the workspace, piece by piece.
struct Room {
  double* next;
  template <class T> DEVICE Numbers<T> numbers(i64 size) { return numbers_from<T>(next, size); }
  DEVICE double* doubles(i64 size) {
    double* r = next;
    next += size;
    return r;
  }
};

// sum over k < count of left[l0 + k * ls] * right[r0 + k * rs ...], for U packs side by side
template <int U, class T>
APART void dots(T* sums, const Numbers<T> left, i64 l0, i64 ls, const Numbers<T> right, i64 r0, i64 rs, int count) {
  T sum[U];
  for (int u = 0; u < U; ++u) sum[u] = T::zero();
  TWO_AT_A_TIME for (int k = 0; k < count; ++k) {
    const T x = T::lift(left.cell(l0 + k * ls));
    for (int u = 0; u < U; ++u) sum[u].mac(x, right.get(r0 + k * rs + u * W));
  }
  for (int u = 0; u < U; ++u) sums[u] = sum[u].normal();
}

// sum over k < count of left[l0 + k] * right[r0 + k]; zeros lie past the end of both
template <class T> DEVICE typename T::Scalar row_dot(const Numbers<T>& left, i64 l0, const Numbers<T>& right, i64 r0, int count) {
  typedef typename T::Scalar S;
  T sum = T::zero();
  TWO_AT_A_TIME for (int k = 0; k < count; k += W) sum.mac(left.get(l0 + k), right.get(r0 + k));
  double lanes[T::planes * W];
  sum.normal().store(lanes, W);
  S all = S::load(lanes, W);
  for (int l = 1; l < W; ++l) all = all + S::load(lanes + l, W);
  return all;
}

#if !ON_GPU
// dots for a number of packs that is known only now, at most U.
template <int U, class T, class... Rest> DEVICE void some_dots(int packs, T* sums, Rest... rest) {
  if constexpr (U > 1)
    if (packs < U) return some_dots<U - 1>(packs, sums, rest...);
  dots<U>(sums, rest...);
}
#endif

// use(i, j, sum) for every row i and pack j of it, sum = dots(left at l(i); right at r(i) + j)
template <class T, class L, class R, class Use>
DEVICE void all_dots(int rows, int n, const Numbers<T>& left, L l, i64 ls, const Numbers<T>& right, R r, i64 rs, int count,
                     Use use) {
#if ON_GPU
  ROWS_PACKS(i, rows, j, n) {
    T sum;
    dots<1>(&sum, left, l(i), ls, right, r(i) + j, rs, count);
    use(i, j, sum);
  }
#else
  constexpr int most = is_wide<T> ? 1 : 8 / T::planes;  // as many sums at once as keep a processor busy
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < n; j += most * W) {
      T sum[most];
      const int packs = (n - j + W - 1) / W < most ? (n - j + W - 1) / W : most;
      some_dots<most>(packs, sum, left, l(i), ls, right, r(i) + j, rs, count);
      for (int u = 0; u < packs; ++u) use(i, j + u * W, sum[u]);
    }
#endif
}

#if ON_GPU
template <class X> DEVICE X highest(X v) { return v; }
#else
DEVICE double highest(Pack v) {
  double r = v[0];
  for (int l = 1; l < W; ++l) r = v[l] > r ? v[l] : r;
  return r;
}
#endif
DEVICE Pack greater(Pack a, Pack b) { return choose(a > b, a, b); }

// A state with less than this is one that has almost nothing; the greatest has about 1.
constexpr double SMALL = 3.872591914849318e-121;  // 2^-400
constexpr double ENOUGH = 8.470329472543003e-22;  // 2^-70: no greater share of a result may be missing

// The greatest number of a word and the greatest growth into a small one: first of what a lane has seen, then of the team.
struct Peak { double value, growth; };
struct Higher { DEVICE Peak operator()(Peak a, Peak b) const { return Peak{fmax(a.value, b.value), fmax(a.growth, b.growth)}; } };
struct Peaks {
  Pack value, growth;
  DEVICE void see(Pack v) { value = greater(v, value); }
  DEVICE void see_growth(Pack v, Pack by) { growth = greater(choose(v < splat<Pack>(SMALL), by, Pack{}), growth); }
  DEVICE Peak over_team() const { return team_reduce(Peak{highest(value), highest(growth)}, Higher{}); }
};

// e with 2^e <= x < 2^(e+1); x > 0
DEVICE double exponent_of(double x) { return (double)((bits(x) >> 52) & 0x7ffLL) - 1023.; }

template <class T, class In> DEVICE T weight_at(Given<In> g, i64 row, int t, int tags, typename T::Scalar::Score shift) {
  typedef typename T::Score X;
  X x = choose(lanes_below(t, tags), scores_at<X>(g.x + row, t, tags), forbidden<X>());
  X directions[2] = {X{}, X{}};
  if (T::order > 0) directions[0] = choose(some(x), scores_at<X>(g.u + row, t, tags), X{});
  if (T::order > 1) directions[1] = choose(some(x), scores_at<X>(g.v + row, t, tags), X{});
  return T::weight(x - shift, directions);
}

// The greatest of a row of scores, or of several; bad if one is NaN or +inf.
template <class One> struct Top {
  One value;
  int bad;
  // What scores are shifted by: that it is too low is bad, too.
  DEVICE One shift() {
    const One by = some(value) ? value : One{};
    bad |= too_low(by);
    return by;
  }
};
struct Sooner {
  template <class One> DEVICE Top<One> operator()(Top<One> a, Top<One> b) const {
    return Top<One>{a.value > b.value ? a.value : b.value, a.bad | b.bad};
  }
};
#if ON_GPU
template <class One, class Shuffle> DEVICE Top<One> by_words(Top<One> mine, Shuffle shuffle) {
  return Top<One>{by_words(mine.value, shuffle), shuffle(mine.bad)};
}
#endif
template <class T, class In> DEVICE auto top_of_row(const In* row, int tags) {
  typedef typename T::Score X;
  X top = forbidden<X>();
  Mask bad = lanes_below(0, 0);
  ROLLED for (int t = 0; t < tags; t += W) {
    const X x = choose(lanes_below(t, tags), scores_at<X>(row, t, tags), forbidden<X>());
    bad |= wrong(x);
    top = choose(x > top, x, top);
  }
  return Top<typename T::Scalar::Score>{highest(top), any(bad)};
}

// What is rounded to zero in one sum (of as many products as there are tags, a at most twice that) is less than this.
DEVICE double loss_of(int tags) { return 3.560118173611522e-307 * tags * tags; }  // 2^-1018 each

template <class T> struct Forward {
  typedef typename T::Scalar S;
  typedef typename S::Score One;  // a score
  static constexpr bool wide = is_wide<T>;
  int tags, trigrams, M, n;  // M: rows of states, n: words
  i64 row, word;  // numbers in a row of tags, and in the states of a word
  Numbers<T> psi, back, theta, a;
  One *shift, pair_shift;  // what the scores of each word were shifted by, and those of the pairs
  double *scale, *lost;    // of each word: log2 of the scale of a, bound of loss
  int pair_bad;

  DEVICE int first() const { return trigrams ? 2 : 1; }  // word whose tag is the first to be scored with those before
  DEVICE int rows_of(int i) const { return i == 0 ? 1 : M; }
  DEVICE i64 state(int x, int y) const { return M == 1 ? x : x * row + y; }

  DEVICE Forward(Room& room, int T_, int in_threes, int most, bool both_ways) {
    tags = T_, trigrams = in_threes, M = trigrams ? tags : 1, row = tags_row(tags), word = M * row;
    psi = room.numbers<T>(tags * word);
    if (both_ways) back = room.numbers<T>(tags * word);
    theta = room.numbers<T>(most * row);
    a = room.numbers<T>(most * word);
    shift = (One*)room.doubles(most), scale = room.doubles(most), lost = room.doubles(most);
  }

  // psi from the scores of one place (or of all), and `back` if wanted.
  template <class In> APART void load_pairs(Given<In> pairs, bool both_ways) {
    const int rows = tags * M;
    Top<One> top{forbidden<One>(), 0};
    BARRIER();
    LANES(s, rows) top = Sooner{}(top, top_of_row<T>(pairs.x + (i64)s * tags, tags));
    top = team_reduce(top, Sooner{});
    pair_shift = top.shift();
    pair_bad = top.bad;
    if (pair_bad) return;
    ROWS_PACKS(s, rows, c, tags) {
      const T w = weight_at<T>(pairs, (i64)s * tags, c, tags, pair_shift);
      psi.put(s * row + c, w);
      if (both_ways) {
        const int x = s / M, y = s % M;
        double few[T::planes * W];
        w.store(few, W);
        for (int l = 0; l < W && c + l < tags; ++l) {
          double* to = back.at(((i64)y * tags + c + l) * row + x);
          for (int p = 0; p < T::planes; ++p) to[p * plane_of(back.size)] = few[p * W + l];
        }
      }
    }
    if (both_ways && PAD)  // packs run over the rows' ends
      for (i64 r = 0; r < (i64)tags * M; ++r)
        for (int l = tags; l < row; ++l) back.put_cell(r * row + l, S::zero());
    BARRIER();
  }

  // theta of all words; returns whether a score is NaN or +inf
  template <class In> APART int load_unary(Given<In> unary, int words) {
    n = words;
    int bad = 0;
    BARRIER();
    LANES(i, n) {
      Top<One> top = top_of_row<T>(unary.x + (i64)i * tags, tags);
      shift[i] = top.shift();
      bad |= top.bad;
    }
    bad = team_reduce(bad, Or{});
    if (bad) return 1;
    ROWS_PACKS(i, n, t, tags) theta.put(i * row + t, weight_at<T>(unary, (i64)i * tags, t, tags, shift[i]));
    BARRIER();
    return 0;
  }

  // One word's states are there: their scale, and what may be missing. False if nothing is left of them.
  DEVICE bool settle(int i, Peaks seen, double factor) {
    if (wide) {
      BARRIER();
      return true;
    }
    const Peak mine = seen.over_team();
    const double loss = loss_of(tags);
    missing += absent * factor * (tags / SMALL);
    absent = i == 0 ? loss : (absent * mine.growth + loss) * factor + loss;
    if (LEADER) lost[i] = absent;
    top = mine.value;
    return mine.value > 0.;
  }
  double top, absent, missing;  // greatest of the last word's a, what its small ones may lack, the share all may lack

  // Calls load(place) before the pairs of a place are needed, which it may have already. False where the plain numbers
  // ran out of range.
  template <class Load> DEVICE bool run(Load load, double& total_shift) {
    total_shift = nats(shift[0]);
    absent = missing = 0.;
    Peaks peak{Pack{}, splat<Pack>(1.)};
    PACKS(t, tags) {
      const T v = theta.get(t);
      a.put(t, v);
      if constexpr (!wide) peak.see(v.value());
    }
    if (LEADER) scale[0] = 0.;
    if (!settle(0, peak, 1.)) return false;
    double exponent = 0.;
    for (int i = 1; i < n; ++i) {
      const double k = wide ? 0. : exponent_of(top), factor = pow2(-k);
      exponent += k;
      if (LEADER) scale[i] = exponent;
      total_shift += nats(shift[i]);
      const bool scored = i >= first();
      peak = Peaks{Pack{}, splat<Pack>(scored ? 0. : 1.)};
      auto write = [&](int y, int c, T ways) {
        const T t = theta.get(i * row + c);
        T v = ways * t;
        if constexpr (!wide) {
          v = v.scaled(splat<Pack>(factor));
          peak.see(v.value());
          if (scored) peak.see_growth(v.value(), t.value() * (double)tags);
        }
        a.put(i * word + y * row + c, v);
      };
      if (!scored) {
        ROWS_PACKS(y, M, c, tags) write(y, c, T::lift(a.cell(y)));
      } else {
        load(i - first());
        if (pair_bad) return true;
        total_shift += nats(pair_shift);
        const i64 before = (i - 1) * word;
        all_dots(M, tags, a, [&](int y) { return before + y; }, M == 1 ? 1 : row, psi, [&](int y) { return y * row; },
                 word, tags, write);
      }
      if (!settle(i, peak, factor)) return false;
    }
    return true;
  }

  // All ways to the end.
  DEVICE S total() const {
    S sum = S::zero();
    const i64 last = (n - 1) * word;
    LANES(k, rows_of(n - 1) * tags) sum = sum + a.cell(last + k / tags * row + k % tags);
    return team_reduce(sum, Plus{});
  }

  // Whether rounding to zero changed the total by nothing that matters.
  DEVICE bool proven(S all) const {
    if constexpr (!takes_any_score<T>) return ::proven<T>(log_of(all), 0., n);
    return wide || (missing < ENOUGH && absent * tags * M < ENOUGH * all.primal().value());
  }
};
