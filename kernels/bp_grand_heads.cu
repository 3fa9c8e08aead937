// GRAND of belief propagation where heads are variables: a factor for each p -> c and the head g of p. With q the odds of
// p -> c against what else goes with such g, it says (1 + F q) / (1 + q r) of g, and r of p -> c, the mean of F over the g
// that go with it. Messages are log q and log r as they were last, [p, c]; so much of them as is counted goes to the heads.
#include "bp_heads.cuh"

constexpr double LEAST_SHARE = 1.4901161193847656e-8;  // as in plain/bp_heads.py
// What sums without logs take: F up to exp(100), means up to exp(MEDIUM), F = 0 only with odds up to that; odds above FAR_OFF
// are rounded to it; a sum is at least LEAST_SUM, so that what is rounded to 0 does not count.
constexpr double NEAR = 2.7e43, MEDIUM = 60., FAR_OFF = 300., LEAST_SUM = 1e-100;
constexpr int MANY = 4;  // factors of a product that is surely in range

template <class V> DEVICE V plus_one(V x, bool maximise) {
  const V top = choose(x > V{}, x, V{});
  return maximise ? top : top + log_quotient(1. + decay(x), splat<V>(1.));
}

// log (1 + F q) / (1 + q r) by logs
DEVICE Pack said(Pack q, Pack r, Pack s, bool maximise) {
  const Pack none = splat<Pack>(-infinity());
  const Mask certain = q == splat<Pack>(infinity());
  q = choose(certain, Pack{}, q);
  return choose(certain, choose(r > none, s - r, Pack{}), plus_one(q + s, maximise) - plus_one(q + r, maximise));
}

DEVICE Pack odds_in_range(Pack q) {
  const Pack far = splat<Pack>(FAR_OFF);
  return exp_in_range(choose(q > far, far, q));
}

// One sentence. excludes: 1 if g = c and p -> c exclude each other, 2 if all g below p -> c do, too.
struct Heads {
  const double *scores, *made_of;  // scores, and those that messages were made of
  const double* factors;           // exp(scores), if these are the same and near 0; or null
  const double *old_q, *old_r;
  double *q, *r;                                 // log odds and means, as they are now
  double *finite, *minus, *likely, *rest, *out;  // log probabilities of heads with counts of -inf; probabilities; see below
  int N, n, excludes;
  bool maximise;

  DEVICE double log_probability(i64 at) const { return minus[at] > 0. ? -infinity() : finite[at]; }
  DEVICE Mask pairs(int p, int c) const {  // of the words c and on
    return lanes_below(c, p > 0 && p <= n ? n + 1 : 0) & ~lane_is(c, 0) & ~lane_is(c, p);
  }
  DEVICE Mask go_together(int g, int p, int c) const {
    const Mask all = pairs(p, c);
    if (excludes == 1) return all & ~lane_is(c, g);
    if (excludes == 2) return g > p ? all & lanes_below(c, g) : all & ~lanes_below(c, g + 1);
    return all;
  }
  // the c that may go with g -> p: from a whole pack on, and up to
  DEVICE int first(int g, int p) const { return excludes == 2 && g < p ? (g + 1) / W * W : 0; }
  DEVICE int last(int g, int p) const { return excludes == 2 && g > p ? g - 1 : n; }
  DEVICE i64 row(int g, int p) const { return ((i64)g * N + p) * N; }
  // F, 1 where they do not go together
  DEVICE Pack factor(int g, int p, int c, Mask both) const {
    if (factors) return choose(both, scores_at(factors + row(g, p), c, N), splat<Pack>(1.));
    return exp_in_range(choose(both, scores_at(scores + row(g, p), c, N), Pack{}));
  }

  // Probabilities of heads, and rest [h, m]: the log of the sum over m's other heads.
  DEVICE void load(const Sums& sums) const {
    PACKS(m, N) {
      const HeadsOf heads(sums, N, m);
      const Pack norm = heads.norm(maximise);
      heads.others(maximise, [&](int h, Pack others) INLINED {
        const i64 at = (i64)h * N;
        put_pack(finite + at, m, N, heads.finite(h) - norm);
        put_pack(minus + at, m, N, heads.forbidden(h));
        put_pack(likely + at, m, N, exp_in_range(heads.weight(h) - norm));
        put_pack(rest + at, m, N, others - norm);
      });
    }
  }
  // out [p, c]: the log of the sum over the heads of p that exclude p -> c.
  DEVICE void exclude() const {
    if (excludes == 1) LANES(k, N * N) out[k] = log_probability((i64)(k % N) * N + k / N);
    if (excludes != 2) return;
    LANES(p, n + 1) if (p > 0)
      for (int side = -1; side <= 1; side += 2) {
        double sum = -infinity();
        for (int c = p + side; c >= 1 && c <= n; c += side) {
          const double x = log_probability((i64)c * N + p), high = x > sum ? x : sum, low = x > sum ? sum : x;
          sum = low > -infinity() ? high + log(1. + exp_in_range(low - high)) : high;
          out[(i64)p * N + c] = sum;
        }
      }
  }
  // log q, given what else was said: the odds of p -> c, if p's head goes with it
  DEVICE void hear(double share, bool still) const {
    const Pack none = splat<Pack>(-infinity()), one = splat<Pack>(1.);
    ROWS_PACKS(p, N, c, N) {
      const i64 at = (i64)p * N;
      const Pack said = scores_at(old_r + at, c, N), old = scores_at(old_q + at, c, N);
      const Mask gone = scores_at(minus + at, c, N) - count_if(said, -infinity()) > Pack{};
      const Pack link = choose(gone, none, scores_at(finite + at, c, N) - finite_part(said));
      Pack others = scores_at(rest + at, c, N);
      if (excludes) {
        const Pack no = scores_at(out + at, c, N), apart = no - others;
        const Mask any_of_both = (no > none) & (others > none);
        const Pack left = 1. - exp_in_range(choose(apart < Pack{}, apart, Pack{})), least = splat<Pack>(LEAST_SHARE);
        others += log_quotient(choose(any_of_both, choose(left > least, left, least), one), one);
      }
      const Pack odds = choose(link > none, choose(others > none, link - others, -none), choose(others > none, none, Pack{}));
      const Pack now = choose(pairs(p, c), odds, none);
      put_pack(q + at, c, N, still ? old : damped(old, now, share));
    }
  }
  // log r without logs; false where these are needed
  DEVICE bool mean(double share) const {
    int wrong = 0;
    ROWS_PACKS(p, N, c, N) {
      const i64 at = (i64)p * N;
      const Mask there = pairs(p, c);
      const Pack old = scores_at(old_r + at, c, N), one = splat<Pack>(1.);
      const Pack old_odds = scores_at(old_q + at, c, N), o = odds_in_range(old_odds);
      Pack all = Pack{}, with = Pack{};
      Pack least_factor = one, most_factor = one;
      Mask forbidden = there & ~there;
      for (int g = 0; g <= n && p > 0 && p <= n; ++g) {
        if (g == p || c < first(g, p) || c > last(g, p)) continue;
        const Mask both = go_together(g, p, c);
        const Pack F = factor(g, p, c, both);
        Pack before = F;
        if (!factors) {
          if (made_of != scores) before = exp_in_range(choose(both, scores_at(made_of + row(g, p), c, N), Pack{}));
          const Pack low = choose(F < before, F, before), high = choose(F < before, before, F);
          least_factor = choose((low > Pack{}) & (low < least_factor), low, least_factor);
          most_factor = choose(high > most_factor, high, most_factor);
          forbidden = forbidden | (low == Pack{});
        }
        const Pack x = choose(both, splat<Pack>(likely[(i64)g * N + p]) / (1. + o * before), Pack{});
        all += x;
        with += x * F;
      }
      const Pack most = splat<Pack>(MEDIUM), least = splat<Pack>(LEAST_SUM);
      const Mask near = (least_factor >= splat<Pack>(1. / NEAR)) & (most_factor <= splat<Pack>(NEAR));
      const Mask unfit = forbidden & ((old_odds > most) | (scores_at(q + at, c, N) > most));
      const Mask fits = there & (all > least) & (with > least);
      const Pack now = choose(fits, log_quotient(choose(fits, with, one), choose(fits, all, one)), Pack{});
      const Pack mixed = damped(old, now, share);
      wrong |= any(there & (unfit | ~near | ~fits | ~(magnitude(mixed) <= most)));
      put_pack(r + at, c, N, mixed);
    }
    return !team_reduce(wrong, Or{});
  }
  // the same for scores of any size
  DEVICE void safe_mean(double share) const {
    ROWS_PACKS(p, N, c, N) {
      const i64 at = (i64)p * N;
      const Pack none = splat<Pack>(-infinity()), one = splat<Pack>(1.);
      const Pack old = scores_at(old_r + at, c, N), odds = scores_at(old_q + at, c, N);
      const auto above = [&](int g) INLINED {
        const Mask both = go_together(g, p, c);
        const Pack own = said(odds, old, choose(both, scores_at(made_of + row(g, p), c, N), Pack{}), maximise);
        const i64 k = (i64)g * N + p;
        const Mask gone = splat<Pack>(minus[k]) - count_if(own, -infinity()) > Pack{};
        return choose(both & ~gone, splat<Pack>(finite[k]) - finite_part(own), none);
      };
      Pack most = none, best = none, all = Pack{}, with = Pack{};
      for (int g = 0; g <= n && p > 0 && p <= n; ++g) {
        const Pack x = above(g), y = x + scores_at(scores + row(g, p), c, N);
        most = choose(x > most, x, most);
        best = choose((x > none) & (y > best), y, best);
      }
      const Mask some = most > none, any_of_them = best > none;
      if (!maximise)
        for (int g = 0; g <= n && p > 0 && p <= n; ++g) {
          const Pack x = above(g), y = x + scores_at(scores + row(g, p), c, N);
          all += choose(x > none, exp_in_range(x - most), Pack{});
          with += choose((x > none) & any_of_them, exp_in_range(y - best), Pack{});
        }
      const Pack sums = maximise ? Pack{} : log_quotient(choose(any_of_them, with, one), choose(some, all, one));
      const Pack now = choose(some, choose(any_of_them, best - most + sums, none), Pack{});
      put_pack(r + at, c, N, damped(old, now, share));
    }
  }
  // All that is said of each head. `fast`: by products; rest and out become odds and what numbers are divided by.
  DEVICE void collect(const Part& part, double counted, bool fast) const {
    const Pack one = splat<Pack>(1.);
    if (fast)
      ROWS_PACKS(p, N, c, N) {
        const i64 at = (i64)p * N;
        const Pack o = odds_in_range(scores_at(q + at, c, N));
        put_pack(rest + at, c, N, o);
        put_pack(out + at, c, N, 1. / (1. + o * exp_in_range(scores_at(r + at, c, N))));
      }
    BARRIER();
    LANES(k, N * N) {
      const int g = k / N, p = k % N;
      const i64 at = (i64)p * N;
      const bool link = p > 0 && p <= n && g <= n && g != p;
      Pack sum = Pack{}, count = Pack{}, product = one;
      if (link && fast) {
        int many = 0;
        for (int c = first(g, p), end = last(g, p); c <= end; c += W) {
          const Mask both = go_together(g, p, c);
          const Pack F = factor(g, p, c, both);
          product = product * choose(both, (1. + scores_at(rest + at, c, N) * F) * scores_at(out + at, c, N), one);
          if (++many % MANY == 0 || c + W > end) {
            sum += log_quotient(product, one);
            product = one;
          }
        }
      } else if (link) {
        for (int c = first(g, p), end = last(g, p); c <= end; c += W) {
          const Mask both = go_together(g, p, c);
          const Pack s = choose(both, scores_at(scores + row(g, p), c, N), Pack{});
          const Pack x = choose(both, said(scores_at(q + at, c, N), scores_at(r + at, c, N), s, maximise), Pack{});
          sum += finite_part(x);
          count += count_if(x, -infinity());
        }
      }
      const double low = r[k];
      double total = is_infinite(low) ? 0. : low, minuses = low == -infinity() ? 1. : 0.;
      for (int l = 0; l < W; ++l) total += lane_of(sum, l), minuses += lane_of(count, l);
      part.finite[k] = counted * total;
      part.minus[k] = minuses;
      part.plus[k] = 0.;
    }
  }
};

// totals, parts [3, B, N, N]; odds and means [B, N, N]; scores, and those that messages were made of, [B, N, N, N]; work:
// five squares.
template <class In>
KERNEL bp_grand_heads(const double* totals, const double* odds, const double* means, const double* made_of,
                      const double* scores, const double* factors, const bool* frozen, const i64* lengths, double* new_odds, double* new_means,
                      double* parts, double* work, i64 work_size, double share, double counted, int excludes, int maximise,
                      int B, int N) {
  const i64 square = (i64)N * N, cube = square * N;
  double* room = work + SLOT * work_size;
  SENTENCES(b, B) {
    const bool still = frozen && frozen[b];
    const Sums sums(totals, b, B, square);
    const Heads heads{scores + b * cube, made_of + b * cube, factors ? factors + b * cube : factors, odds + b * square,
                      means + b * square, new_odds + b * square, new_means + b * square, room, room + square,
                      room + 2 * square, room + 3 * square, room + 4 * square, N, words_in(lengths, b, N), excludes,
                      maximise != 0};
    BARRIER();
    heads.load(sums);
    BARRIER();
    heads.exclude();
    BARRIER();
    heads.hear(share, still);
    BARRIER();
    bool fast = !still && !maximise && heads.mean(share);
    BARRIER();
    if (still) {
      LANES(k, (int)square) heads.r[k] = heads.old_r[k];
    } else if (!fast) {
      heads.safe_mean(share);
    }
    BARRIER();
    heads.collect(Part(parts, b, B, square), counted, fast);
  }
}

EXPORT(bp_grand_heads_double, bp_grand_heads<double>)
