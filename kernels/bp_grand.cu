// GRAND of belief propagation: a binary factor for every g -> p -> c, its messages to g -> p (upper) and p -> c (lower),
// both at [g, p, c].
#include "bp.cuh"

// log (1 + F q) / (1 + q), the message by log-odds q of the other link, s being log F
template <class V> DEVICE V pair_message(V q, V s, bool maximise) {
  const auto demanded = q == splat<V>(infinity());
  if (maximise) {
    q = choose(demanded, V{}, q);
    const V with = q + s;
    return choose(demanded, s, choose(with > V{}, with, V{}) - choose(q > V{}, q, V{}));
  }
  const V z = decay(q);
  if (!any(magnitude(s) > splat<V>(600.))) {
    const Power<V> p = exp_parts(s);
    const V F = p.m * pow2(p.e);
    return log_quotient(choose(q > V{}, z + F, 1. + F * z), 1. + z);
  }
  // any s: the greater of 1 and F q is taken out
  const V with = choose(demanded, V{}, q) + s;
  const V found = choose(with > V{}, with, V{}) + log_quotient(1. + decay(with), 1. + z) - choose(q > V{}, q, V{});
  return choose(demanded, s, found);
}

struct Derivatives { Pack by_q, by_s; };
DEVICE Derivatives pair_derivatives(Pack q, Pack s, Pack g) {
  const Pack both = probability(q + choose(is_infinite(q), Pack{}, s));
  const Pack with = choose(q == splat<Pack>(infinity()), splat<Pack>(1.), both);
  return Derivatives{choose(is_infinite(q), Pack{}, g * (with - probability(q))),
                     choose(s == splat<Pack>(-infinity()), Pack{}, g * with)};
}

DEVICE double sum_of_lanes(Pack x, int m, int N) {
  double sum = 0.;
  for (int l = 0; l < W && m + l < N; ++l) sum += lane_of(x, l);
  return sum;
}

// Sums over the edges to each link i -> j: change(x) of upper[i, j, .] and of lower[., i, j].
template <class Change>
DEVICE void collect(const double* upper, const double* lower, double* to, int N, Change change) {
  ROWS_PACKS(i, N, j, N) {
    Pack sum = Pack{};
    for (int g = 0; g < N; ++g) sum += change(scores_at(lower + ((i64)g * N + i) * N, j, N));
    for (int l = 0; l < W && j + l < N; ++l) {
      const double* row = upper + ((i64)i * N + j + l) * N;
      double mine = lane_of(sum, l);
#if ON_GPU
      for (int k = 0; k < N; ++k) mine += change(row[k]);
#else
      Pack more = Pack{};
      for (int k = 0; k < N; k += W) more += choose(lanes_below(k, N), change(scores_at(row, k, N)), Pack{});
      mine += sum_of_lanes(more, 0, W);
#endif
      to[(i64)i * N + j + l] = mine;
    }
  }
}

// order 0: totals [3, B, N, N], scores and messages [B, N, N, N], parts [3, B, N, N]. order 1: out_* and parts are the
// derivatives by these, those by totals, own messages and scores are put into the next four; work: two cubes a slot.
template <class In, int order>
KERNEL bp_grand(const double* totals, const double* own_upper, const double* own_lower, const double* scores,
                const bool* frozen, const i64* lengths, double* out_upper, double* out_lower, double* parts,
                double* d_totals, double* d_upper, double* d_lower, double* d_scores, double* work, i64 work_size,
                double share, int maximise, int B, int N) {
  const i64 square = (i64)N * N, cube = square * N;
  double *by_upper = work + SLOT * work_size, *by_lower = by_upper + cube;
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    const Sums sums(totals, b, B, square);
    const double *upper = own_upper + b * cube, *lower = own_lower + b * cube, *s = scores + b * cube;
    double *to_upper = (order ? d_upper : out_upper) + b * cube, *to_lower = (order ? d_lower : out_lower) + b * cube;
    const double *g_upper = out_upper + b * cube, *g_lower = out_lower + b * cube, *g_part = parts + b * square;
    const bool still = frozen && frozen[b];
    BARRIER();
    int infinite = 0;  // whether some of the own messages are: then they are not just taken off
    for (int row = 0; row < N * N; ++row)
      PACKS(c, N) {
        const Mask inside = lanes_below(c, N);
        infinite |= any(inside & is_infinite(scores_at(upper + (i64)row * N, c, N))) |
                    any(inside & is_infinite(scores_at(lower + (i64)row * N, c, N)));
      }
    infinite = team_reduce(infinite, Or{});
#if ON_GPU
    LONG_LANES(flat, cube) {
      const int row = (int)(flat / N), c = (int)(flat % N);
#else
    for (int row = 0; row < N * N; ++row) PACKS(c, N) {
#endif
      const int g = row / N, p = row % N;
      const i64 at = (i64)row * N;
      const Pack u = scores_at(upper + at, c, N), l = scores_at(lower + at, c, N);
      const bool there = p > 0 && p != g && p <= n && g <= n && !still;
      const Pack scored = choose(lanes_below(c, there ? N : 0), scores_at(s + at, c, N), Pack{});
      const Pack none = Pack{};
      const Pack above = infinite ? Sums::left<Pack>(splat<Pack>(sums.finite[row]), splat<Pack>(sums.minus[row]),
                                                     splat<Pack>(sums.plus[row]), u)
                                  : splat<Pack>(sums.without(row, 0.)) - u;
      const Pack below = infinite ? sums.packs_without((i64)p * N, c, N, l) : sums.packs_without((i64)p * N, c, N, none) - l;
      if constexpr (order == 0) {
        Pack new_u = u, new_l = l;
        if (there) {
          new_u = damped(u, pair_message(below, scored, maximise != 0), share);
          new_l = damped(l, pair_message(above, scored, maximise != 0), share);
        } else if (!still) {
          new_u = damped(u, Pack{}, share), new_l = damped(l, Pack{}, share);
        }
        put_pack(to_upper + at, c, N, new_u);
        put_pack(to_lower + at, c, N, new_l);
      } else {
        Pack gu = scores_at(g_upper + at, c, N) + g_part[row];
        Pack gl = scores_at(g_lower + at, c, N) + scores_at(g_part + (i64)p * N, c, N);
        Pack by_scores = Pack{}, by_above = Pack{}, by_below = Pack{};
        if (there) {
          const Shared<Pack> su = undamped(u, pair_message(below, scored, false), gu, share);
          const Shared<Pack> sl = undamped(l, pair_message(above, scored, false), gl, share);
          const Derivatives du = pair_derivatives(below, scored, su.now), dl = pair_derivatives(above, scored, sl.now);
          by_scores = du.by_s + dl.by_s;
          by_below = du.by_q, by_above = dl.by_q;
          gu = su.old, gl = sl.old;
        } else if (!still) {
          gu = undamped(u, Pack{}, gu, share).old, gl = undamped(l, Pack{}, gl, share).old;
        }
        put_pack(d_scores + b * cube + at, c, N, by_scores);
        put_pack(by_upper + at, c, N, by_above);
        put_pack(by_lower + at, c, N, by_below);
        put_pack(to_upper + at, c, N, gu - choose(is_infinite(u), Pack{}, by_above));
        put_pack(to_lower + at, c, N, gl - choose(is_infinite(l), Pack{}, by_below));
      }
    }
    BARRIER();
    if constexpr (order == 0) {
      const Part part(parts, b, B, square);
      collect(to_upper, to_lower, part.finite, N, [](auto x) INLINED { return finite_part(x); });
      collect(to_upper, to_lower, part.minus, N, [](auto x) INLINED { return count_if(x, -infinity()); });
      collect(to_upper, to_lower, part.plus, N, [](auto x) INLINED { return count_if(x, infinity()); });
    } else {
      const Part by(d_totals, b, B, square);
      collect(by_upper, by_lower, by.finite, N, [](auto x) INLINED { return x; });
      LANES(k, (int)square) by.minus[k] = by.plus[k] = 0.;
    }
  }
}

EXPORT(bp_grand_double_0, bp_grand<double, 0>)
EXPORT(bp_grand_double_1, bp_grand<double, 1>)
