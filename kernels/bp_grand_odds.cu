// GRAND of belief propagation with messages that are odds r, not their logs. With T the odds by all messages to a link, r
// among them, what came in is q = T / r, and (1 + F q) / (1 + q) = (r + F T) / (r + T): no log but that of products.
//
// log F is within 100 of 0, and so are the logs of all messages.
#include "bp.cuh"

constexpr int MANY = 6;  // messages whose product is in range
// T further from 1 than this is rounded to it: then a message is F or 1 to all its digits.
constexpr double FAR_ODDS = 300.;

// A product of numbers above 0: m 2^e, m from 1 to 2 once it is settled.
template <class V> struct Product {
  V m, e;
  static DEVICE Product one() { return Product{splat<V>(1.), V{}}; }
  DEVICE void settle() {
    e += from_bits((bits(m) >> 52) | 0x4330000000000000LL) - 4503599627370496. - 1023.;
    m = from_bits((bits(m) & 0xfffffffffffffLL) | 0x3ff0000000000000LL);
  }
};

// The odds of a sentence, and the messages of one triple after the other.
struct Odds {
  const double* T;  // by all messages to a link
  double *upper, *lower;
  const double* scores;
  int N, n;
  DEVICE bool link(int g, int p) const { return g <= n && p <= n && p > 0 && p != g; }

  struct Pair { Pack upper, lower; };
  // new messages of (g, p, c), c and on
  DEVICE Pair send(int g, int p, int c) const {
    const i64 at = ((i64)g * N + p) * N;
    const Pack u = scores_at(upper + at, c, N), l = scores_at(lower + at, c, N);
    const Power<Pack> power = exp_parts(choose(lanes_below(c, N), scores_at(scores + at, c, N), Pack{}));
    const Pack F = power.m * pow2(power.e);
    // both quotients by one division
    const Pack below = scores_at(T + (i64)p * N, c, N), above = splat<Pack>(T[(i64)g * N + p]);
    const Pack to_u = l + below, to_l = u + above, inverse = 1. / (to_u * to_l);
    const Pair found{(l + F * below) * to_l * inverse, (u + F * above) * to_u * inverse};
    put_pack(upper + at, c, N, found.upper);
    put_pack(lower + at, c, N, found.lower);
    return found;
  }
};

// messages [B, N, N, N] in their place; work, a sentence: T, and m and e of the products of messages to each link
template <class In>
KERNEL bp_grand_odds(const double* totals, double* upper, double* lower, const double* scores, const i64* lengths,
                     double* parts, double* work, i64 work_size, int B, int N) {
  const i64 square = (i64)N * N, cube = square * N;
  double *T = work + SLOT * work_size, *ms = T + square, *es = ms + square;
  SENTENCES(b, B) {
    const Sums sums(totals, b, B, square);
    const Part part(parts, b, B, square);
    const Odds odds{T, upper + b * cube, lower + b * cube, scores + b * cube, N, words_in(lengths, b, N)};
    const Pack one = splat<Pack>(1.), far = splat<Pack>(FAR_ODDS);
    BARRIER();
    ROWS_PACKS(h, N, m, N) {
      const i64 row = (i64)h * N;
      Pack q = sums.packs_without(row, m, N, Pack{});
      q = choose(q > far, far, choose(q < -far, -far, q));
      put_pack(T + row, m, N, exp_in_range(q));
      put_pack(ms + row, m, N, one);
      put_pack(es + row, m, N, Pack{});
      put_pack(part.minus + row, m, N, Pack{});
      put_pack(part.plus + row, m, N, Pack{});
    }
    BARRIER();
    // what is no link has messages of 1, and is left out
#if ON_GPU
    LONG_LANES(flat, cube) {
      const int g = flat / (N * N), p = flat / N % N;
      if (odds.link(g, p)) odds.send(g, p, flat % N);
    }
    BARRIER();
    LANES(row, N * N) {
      Product<double> all = Product<double>::one();
      for (int k = 0; k < N; ++k) {
        all.m *= odds.lower[k * square + row] * odds.upper[(i64)row * N + k];
        if (k % (MANY / 2) == 0) all.settle();
      }
      all.settle();
      ms[row] = all.m, es[row] = all.e;
    }
#else
    for (int g = 0; g < N; ++g) {
      for (int p = 1; p < N; ++p) {
        if (!odds.link(g, p)) continue;
        double *m = ms + (i64)p * N, *mine = ms + (i64)g * N + p, *power = es + (i64)g * N + p;
        Product<Pack> above = Product<Pack>::one();
        for (int c = 0, k = 0; c < N; c += W) {
          const Odds::Pair sent = odds.send(g, p, c);
          put_pack(m, c, N, scores_at(m, c, N) * sent.lower);
          above.m *= choose(lanes_below(c, N), sent.upper, one);
          if (++k % MANY == 0) above.settle();
        }
        above.settle();
        for (int l = 0; l < W; ++l) *mine *= lane_of(above.m, l), *power += lane_of(above.e, l);
      }
      if (g % (MANY - 1) == 0 || g == N - 1)
        ROWS_PACKS(h, N, m, N) {
          double *to_m = ms + (i64)h * N, *to_e = es + (i64)h * N;
          Product<Pack> all{choose(lanes_below(m, N), scores_at(to_m, m, N), one), scores_at(to_e, m, N)};
          all.settle();
          put_pack(to_m, m, N, all.m);
          put_pack(to_e, m, N, all.e);
        }
    }
#endif
    BARRIER();
    ROWS_PACKS(h, N, m, N) {
      const i64 row = (i64)h * N;
      const Pack mantissa = choose(lanes_below(m, N), scores_at(ms + row, m, N), one);
      put_pack(part.finite + row, m, N, log_quotient(mantissa, one) + 0.6931471805599453 * scores_at(es + row, m, N));
    }
  }
}

EXPORT(bp_grand_odds_double, bp_grand_odds<double>)
