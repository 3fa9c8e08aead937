// Chains of tags: log Z, marginals, expected counts of tags in a row, and their directional derivatives, by forward and
// backward, in O(n T^2) time for pairs of tags and O(n T^3) for triples.
#include "chain.cuh"

#if ON_GPU
template <class In, class V> DEVICE void write_to(In* row, int t, int, V v) { row[t] = (In)v; }
template <class In, class V> DEVICE void add_to(In* row, int t, int, V v) { row[t] += (In)v; }
#else
template <class In> DEVICE void write_to(In* row, int t, int tags, Pack v) {
  if (t + W <= tags) {
    typedef In Few __attribute__((vector_size(sizeof(In) * W)));
    Few few = __builtin_convertvector(v, Few);
    std::memcpy(row + t, &few, sizeof few);
  } else {
    for (int l = 0; t + l < tags; ++l) row[t + l] = (In)v[l];
  }
}
template <class In> DEVICE void add_to(In* row, int t, int tags, Pack v) { write_to(row, t, tags, v + scores_at(row, t, tags)); }
#endif

// Derivative of log Z along all directions (order 0: log Z itself, of the part that was not shifted off).
DEVICE double log_slope(Lin<double> z) { return log_of(z); }
DEVICE double log_slope(Ext<Lin<double>> z) { return log_of(z); }
#if ON_GPU
DEVICE double log_slope(Short z) { return log_of(z); }
#endif
template <class D> DEVICE double log_slope(Dual<D> z) { return (z.b * z.a.inverse()).top(); }
template <class D> DEVICE double log_slope(Ext<Dual<D>> z) { return log_slope(z.m); }

template <class In> struct Outputs {
  double* value;    // of the sentence
  In *mu, *counts;  // of the sentence; null if not wanted
  double weight;
  i64 count_place;  // 0: all places together
};

// Results are multiplied by a weight of any sign: as shares of log Z; or, of numbers that have no sign, at last.
template <class S> DEVICE S share_of(S all, double weight) { return all.inverse().scaled(weight); }
template <class T> DEVICE auto result(T v, double) { return v.top(); }
#if ON_GPU
DEVICE Short share_of(Short all, double) { return all.inverse(); }
DEVICE float result(Short v, double weight) { return v.top() * (float)weight; }
#endif

// The way back. `load` as in Forward::run; there is no f.back unless the pairs are `fixed`, the same at all places.
// False if out of range.
template <class T, class In, class Load>
DEVICE bool run_back(Forward<T>& f, Room room, typename T::Scalar all, Outputs<In> out, bool fixed, Load load) {
  typedef typename T::Scalar S;
  constexpr bool wide = is_wide<T>;
  const int n = f.n, tags = f.tags, M = f.M;
  const i64 row = f.row, word = f.word;
  const Numbers<T> g = room.numbers<T>(n * word), b = room.numbers<T>(word);  // theta * b; all ways to the end
  const S share = share_of(all, out.weight);
  const double whole = wide ? 1. : (double)all.primal().value(), last = f.scale[n - 1], loss = loss_of(tags);
  double absent = 0., missing = f.missing, exponent = 0., top = 1.;  // of g, as of a; missing: of a and g together
  const auto to_scale = [](auto v, auto by) INLINED {
    if constexpr (wide) return v;
    else return v.scaled(by);
  };
  for (int i = n - 1; i >= 0; --i) {
    const double k = wide || i == n - 1 ? 0. : exponent_of(top), factor = pow2(-k), before = exponent;
    const bool scored = i < n - 1 && i + 1 >= f.first();
    exponent += k;
    if (scored) {
      load(i + 1 - f.first());
      if (!fixed) LANES(s, tags * M) {
        const S v = row_dot(f.psi, s * row, g, (i + 1) * word + s % M * row, tags);
        b.put_cell(s % M * row + s / M, to_scale(v, factor));
      }
      else all_dots(M, tags, g, [&](int y) { return (i + 1) * word + y * row; }, 1, f.back,
               [&](int y) { return y * tags * row; }, row, tags, [&](int y, int x, T v) {
        b.put(y * row + x, to_scale(v, splat<Pack>(factor)));
      });
    } else if (i < n - 1) {  // the first of three
      LANES(y, tags) {
        S sum = S::zero();
        ROLLED for (int c = 0; c < tags; ++c) sum = sum + g.cell(word + y * row + c);
        b.put_cell(y, to_scale(sum, factor));
      }
    }
    BARRIER();
    // shares of log Z: of a[i] * b, and of a[i] * psi * g[i + 1]
    S mine = share, pair = share;
    if constexpr (!wide) {
      const double here = f.scale[i] + exponent - last, there = f.scale[i] + before - last;
      mine = mine.scaled(pow2(fmin(here, 1023.))), pair = pair.scaled(pow2(fmin(there, 1023.)));
      const double short_of = (absent * tags + loss) * factor + loss;
      if (!((f.lost[i] + short_of) * 4. * tags * M * pow2(fmin(here, 1023.)) < ENOUGH * whole)) return false;
    }
    const T pairs = T::lift(pair), tag = T::lift(mine);
    if (scored && out.counts && out.count_place) {
      In* counts = out.counts + (i + 1 - f.first()) * out.count_place;
      ROWS_PACKS(s, tags * M, c, tags) {
        const T v = T::lift(f.a.cell(i * word + f.state(s / M, s % M))) * f.psi.get(s * row + c);
        write_to(counts + (i64)s * tags, c, tags, result(v * g.get((i + 1) * word + s % M * row + c) * pairs, out.weight));
      }
      BARRIER();
    }
    Peaks seen{Pack{}, Pack{}};
    PACKS(t, tags) {
      const T theta = f.theta.get(i * row + t);
      T sum = T::zero();
      ROLLED for (int r = 0; r < f.rows_of(i); ++r) {
        const i64 at = r * row + t;
        T ways = i == n - 1 ? T::one() : f.rows_of(i) == 1 ? b.get(at) : gather(b, t * row + r, row, tags - t);
        ways = T::pick(lanes_below(t, tags), ways, T::zero());
        sum.mac(f.a.get(i * word + at), ways);
        const T v = theta * ways;
        if constexpr (!wide) {
          seen.see(v.value());
          if (scored) seen.see_growth(v.value(), theta.value() * (double)tags);
        }
        g.put(i * word + at, v);
      }
      if (out.mu) write_to(out.mu + (i64)i * tags, t, tags, result(sum.normal() * tag, out.weight));
      if (scored && out.counts && !out.count_place)  // ready for the counts of all places together
        ROLLED for (int r = 0; r < M; ++r) {
          const i64 at = (i + 1) * word + r * row + t;
          g.put(at, g.get(at) * pairs);
        }
    }
    if (wide) {
      BARRIER();
    } else {
      const Peak peak = seen.over_team();
      missing += absent * factor * (tags / SMALL);
      absent = (absent * peak.growth + loss) * factor + loss;
      top = peak.value;
      if (!(top > 0. && missing < ENOUGH)) return false;
    }
  }
  const int places = n - f.first();
  if (out.counts && !out.count_place && places > 0) {
    const int start = f.first() - 1;
    all_dots(tags * M, tags, f.a, [&](int s) { return start * word + f.state(s / M, s % M); }, word, g,
             [&](int s) { return (start + 1) * word + s % M * row; }, word, places, [&](int s, int c, T v) {
      add_to(out.counts + (i64)s * tags, c, tags, result(v * f.psi.get(s * row + c), out.weight));
    });
    BARRIER();
  }
  return true;
}

struct Strides { i64 x, u, v; };

enum Loaded { NOTHING_YET, FAST, SAFE };  // what psi holds, if it is the same everywhere

template <class T, class In>
DEVICE bool sum_chains(Given<In> unary, Given<In> pairs, Strides place, Outputs<In> out, double* work, int words, int most,
                       int tags, int trigrams, bool same, int& loaded) {
  const bool fixed = place.x == 0 && place.u == 0 && place.v == 0, both_ways = out.mu || out.counts;
  typedef typename T::Scalar::Score One;
  const int mine = is_wide<T> && takes_any_score<T> ? SAFE : FAST;
  Room room{work};
  Forward<T> f(room, tags, trigrams, most, both_ways);
  // what is kept of psi from one sentence to the next
  double* kept = room.doubles(2);
  f.pair_bad = 0;
  // what the last sentence left, if that was the same; numbers of the other type lie elsewhere, and over it
  if (loaded != mine) loaded = NOTHING_YET;
  bool there = fixed && same && loaded == mine;
  if (there) f.pair_shift = *(One*)kept, f.pair_bad = kept[1] != 0.;
  auto load = [&](int p) {
    if (there) return;
    f.load_pairs(pairs.at(p * place.x, p * place.u, p * place.v), both_ways && fixed);
    there = fixed, loaded = mine;
    if (LEADER) *(One*)kept = f.pair_shift, kept[1] = f.pair_bad;
  };
  double shift = 0.;
  bool bad = (f.pair_bad && words > f.first()) || f.load_unary(unary, words);
  if (!bad) {
    const bool done = f.run(load, shift);
    bad = f.pair_bad && words > f.first();
    if (!bad && !done) return false;
  }
  if (bad && !takes_any_score<T>) return false;
  if (bad) {  // poison: the caller may not have checked
    const In nan = (In)(infinity() - infinity());
    if (LEADER && out.value) *out.value = nan;
    if (out.mu) LANES(k, most * tags) out.mu[k] = nan;
    if (out.counts) {
      const int rows = (trigrams ? tags * tags : tags) * (out.count_place ? most - (trigrams ? 2 : 1) : 1);
      LANES(s, rows)
        ROLLED for (int c = 0; c < tags; ++c) out.counts[(i64)s * tags + c] = nan;
    }
    BARRIER();
    return true;
  }
  const typename T::Scalar all = f.total();
  if (!f.proven(all)) return false;
  const bool some = !is_zero(all.primal());
  if (T::order) shift = 0.;
  else if (!is_wide<T>) shift += f.scale[words - 1] * 0.6931471805599453;
  if (LEADER && out.value) *out.value = some ? log_slope(all) + shift : T::order ? 0. : -infinity();
  if (!some || !both_ways) return true;
  return run_back(f, room, all, out, fixed, load);
}

// value [B]: log Z, or its derivative of that order along u and v. mu [B, n, T] and counts (of each group of sentences:
// of all places together, or of each where count_place is not 0): gradient of the sum of weight * value. Group g has the
// sentences g, g + groups ...; there are as many groups as sentences unless all have the same pairs.
template <class In, int order>
KERNEL chain(const In* unary, const In* pairs, const i64* lengths, const double* weight, const In* u, const In* pairs_u,
             const In* v, const In* pairs_v, double* value, In* mu, In* counts, double* work, i64 work_size,
             i64 pairs_sentence, i64 pairs_place, i64 u_sentence, i64 u_place, i64 v_sentence, i64 v_place,
             i64 count_size, i64 count_place, int groups, int B, int n, int T, int trigrams) {
  double* mine = work + SLOT * work_size;
  const Given<In> words{unary, order > 0 ? u : nullptr, order > 1 ? v : nullptr};
  const Given<In> rows{pairs, order > 0 ? pairs_u : nullptr, order > 1 ? pairs_v : nullptr};
  const Strides place{pairs_place, u_place, v_place};
  const bool same = pairs_sentence == 0 && u_sentence == 0 && v_sentence == 0;
  int loaded = NOTHING_YET;
  SENTENCES(group, groups) {
    In* sums = counts ? counts + group * count_size : nullptr;
    BARRIER();
    if (sums) LANES(k, (int)(count_size / T))
      ROLLED for (int c = 0; c < T; ++c) sums[(i64)k * T + c] = (In)0;
    for (int b = group; b < B; b += groups) {
      const i64 at = (i64)b * n * T;
      const int length = words_in(lengths, b, n + 1);
      Outputs<In> out{value ? value + b : nullptr, mu ? mu + at : nullptr, sums, weight ? weight[b] : 1., count_place};
      BARRIER();
      if (out.mu) LANES(k, n * T) out.mu[k] = (In)0;
      if (length == 0) { if (LEADER && out.value) *out.value = 0.; continue; }
      const Given<In> x = words.at(at, at, at), y = rows.at(b * pairs_sentence, b * u_sentence, b * v_sentence);
      BARRIER();
      fast_then_safe<Tried<In, order>>([&](auto numbers, bool) INLINED {
        return sum_chains<ALGEBRA(numbers)>(x, y, place, out, mine, length, n, T, trigrams, same, loaded);
      });
    }
  }
}

EXPORT_ORDERS(chain)
