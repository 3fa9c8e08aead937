// CHILDSEQ of belief propagation: the sequences of children of a head on one side of it, a chain of places j = 1, 2, ...
// going outward. Each is a child (weight t) or not (f); the state is the last child so far, 0 for none.
//
//   before_j(c)  sum over the places before j, c being the last child:   way_j = sum_c before_j(c) F(c, j)
//                before_{j+1}(c) = before_j(c) f_j,  before_{j+1}(j) = way_j t_j
//   after_j(c)   sum over the places from j on:  after_j(c) = after_{j+1}(c) f_j + F(c, j) t_j after_{j+1}(j)
//   message      way_j after_{j+1}(j)  /  sum_c before_j(c) after_{j+1}(c)
//
// These two are the derivatives of the sum over all sequences by t_j and f_j. So the way back is the same over dual numbers:
// along the direction in t and f that the messages' derivatives make, its derivatives change by what is wanted.
#include "bp.cuh"

constexpr double FITS = 100.;  // no score of doubles is above this

DEVICE i64 state_row(int n) { return PAD ? (i64)(n + 1 + 7) / 8 * 8 : n + 1; }

template <class T> struct Sequence {
  typedef typename T::Scalar S;
  int h, side, size, N;            // head; 1: to the right, -1: to the left; places
  Table<T> F, before;              // by place and state; F(size + 1, c): c is the last child
  Numbers<T> after, way, weights;  // by state; by place; f and t by place
  static constexpr bool DOUBLES = T::sums && T::planes == T::order + 1;
  double least;                    // what sums were divided by, times the least that a message was made of
  double scale;                    // its log, and that of the weights

  static DEVICE i64 room(int n) { return T::planes * (2 * (n + 2) + 4) * state_row(n); }
  DEVICE Sequence(double* work, int n, int h, int side, int N)
      : h(h), side(side), size(side > 0 ? n - h : h > 0 ? h - 1 : 0), N(N), least(1.), scale(0.) {
    const i64 row = state_row(n), cells = (n + 2) * row;
    F = Table<T>{work, row, cells};
    before = Table<T>{work + T::planes * cells, row, cells};
    work += 2 * T::planes * cells;
    after = numbers_from<T>(work, row);
    way = numbers_from<T>(work, row);
    weights = numbers_from<T>(work, 2 * row);
  }
  DEVICE int node(int j) const { return h + side * j; }
  DEVICE S f(int j) const { return weights.cell(2 * (j - 1)); }
  DEVICE S t(int j) const { return weights.cell(2 * (j - 1) + 1); }
  DEVICE void put_weights(int j, S f, S t) const { weights.put_cell(2 * (j - 1), f); weights.put_cell(2 * (j - 1) + 1, t); }

  // Weights by scores [s, m] of this head and log-odds [m] of its links; whether doubles may do.
  DEVICE bool load(const double* scores, const double* q) {
    double most = -infinity();
    for (int j = 1; j <= size + 1; ++j)
      for (int c = 0; c < F.row; c += W) F.put(j, c, T::zero());
    const int first = side > 0 ? h + 1 : 1, last = side > 0 ? h + size : h - 1;
    for (int c = 0; c <= size; ++c) {
      const double* row = scores + (i64)node(c) * N;
      // later places, whose nodes are beside each other; then the head again, for the end
      const int from = side > 0 ? first + c : first, to = side > 0 ? last : last - c;
      for (int m = from; m <= to; m += W) put_states(weigh<T>(scores_at(row, m, N)), m, to, c);
      for (int m = from; m <= to; ++m) most = row[m] > most ? row[m] : most;
      const double end = c > 0 ? row[h] : 0.;
      most = end > most ? end : most;
      F.put_cell(size + 1, c, weight(end));
    }
    for (int j = 1; j <= size; ++j) {  // the greater of f and t is 1
      const double x = q[node(j)];
      const bool demanded = x == infinity();
      put_weights(j, weight(demanded ? x * -1. : x > 0. ? -x : 0.), weight(demanded || x > 0. ? 0. : x));
      scale += demanded || x < 0. ? 0. : x;
    }
    return most <= FITS;
  }
  static DEVICE S weight(double x) { return weigh<S>(x); }
  DEVICE void put_states(T v, int m, int to, int c) const {
    double lanes[T::planes * W];
    v.store(lanes, W);
    for (int l = 0; l < W && m + l <= to; ++l)
      F.put_cell(side > 0 ? m + l - h : h - m - l, c, S::load(lanes + l, W));
  }

  DEVICE void forward(bool logs = false) {
    for (int c = 0; c < before.row; c += W) before.put(1, c, T::zero());
    before.put_cell(1, 0, S::one());
    for (int j = 1; j <= size; ++j) {
      T sum = T::zero();
      for (int c = 0; c < j; c += W) sum.mac(before.get(j, c), F.get(j, c));
      const S to = sum_lanes(sum.normal()), on = to * t(j), stay = f(j);
      way.put_cell(j, to);
      const double by = shrunk(size_of(stay) + size_of(on));
      if (DOUBLES && logs) scale += log(by);
      const T each = T::lift(divided(stay, by));
      for (int c = 0; c < before.row; c += W) before.put(j + 1, c, before.get(j, c) * each);
      before.put_cell(j + 1, j, divided(on, by));
    }
  }
  // What to divide by, for sums to stay near 1.
  DEVICE double shrunk(double total) {
    if (!DOUBLES) return 1.;
    least *= total < 1. ? total : 1.;
    return total > 0. ? total : 1.;
  }

  // found(j, way_j after_{j+1}(j), sum over the others) for each place from the last to the first, before that with all
  // sequences as the sum at place size + 1; edge(j, c, v): a pack of before_j F t_j after_{j+1}(j), of states c and on.
  template <class Each, class Edge> DEVICE void backward(Each found, Edge edge) {
    T whole = T::zero();
    for (int c = 0; c < after.size; c += W) {
      after.put(c, F.get(size + 1, c));
      whole.mac(before.get(size + 1, c), F.get(size + 1, c));
    }
    found(size + 1, sum_lanes(whole.normal()), S::zero());
    for (int c = 0; c < after.size; c += W) edge(size + 1, c, before.get(size + 1, c) * F.get(size + 1, c));
    double lowest = 1.;
    for (int j = size; j >= 1; --j) {
      const S here = after.cell(j), on = t(j) * here;
      const T stay = T::lift(f(j)), go = T::lift(on);
      T without = T::zero(), total = T::zero();
      for (int c = 0; c < j; c += W) without.mac(before.get(j, c), after.get(c));  // no state from j on is before j
      const S with = way.cell(j) * here, none = sum_lanes(without.normal());
      found(j, with, none);
      for (int c = 0; c < j; c += W) {
        edge(j, c, before.get(j, c) * F.get(j, c) * go);
        T next = T::pick(lanes_below(c, j), after.get(c), T::zero()) * stay;
        next.mac(F.get(j, c), go);
        next = next.normal();
        after.put(c, next);
        total = total + next;
      }
      if (DOUBLES) {
        lowest = fmin(lowest, fmin(size_of(with), size_of(none)));
        const double by = shrunk(size_of(sum_lanes(total)));
        for (int c = 0; c < j; c += W) after.put(c, divided(after.get(c), by));
      }
    }
    least *= lowest;
  }
};

struct NoEdge { template <class T> DEVICE void operator()(int, int, T) const {} };

// One head's side of a sentence.
struct Chain {
  double* work;
  const double *scores, *q;  // of the head: [s, m], [m]
  int n, N, h, side;
  template <class T> DEVICE Sequence<T> sequence(double* at) const { return Sequence<T>(at, n, h, side, N); }

  // Messages [m]. Whether numbers were enough: every rounding to zero loses at most e^-708, and F makes at most e^FITS of
  // it, so all sums have their digits if what is least is above e^(FITS - 708) by that.
  template <class T> DEVICE bool messages(bool must_prove, double* out) const {
    Sequence<T> s = sequence<T>(work);
    if (!s.load(scores, q) && must_prove) return false;
    s.forward();
    s.backward([&](int j, typename T::Scalar with, typename T::Scalar without) INLINED {
      if (j <= s.size) out[s.node(j)] = log_odds(with, without);
    }, NoEdge{});
    return !must_prove || s.least > 1e-243;
  }

  // log Z, and its derivatives by log-odds [m] and scores [s, m].
  template <class T> DEVICE bool sum(bool must_prove, double* log_z, double* by_q, double* by_scores) const {
    typedef typename T::Scalar S;
    Sequence<T> s = sequence<T>(work);
    if (!s.load(scores, q) && must_prove) return false;
    s.forward(true);
    S whole = S::zero();
    s.backward([&](int j, S with, S without) INLINED {
      whole = j > s.size ? with : s.f(j) * without + s.t(j) * with;
      if (j > s.size) *log_z = log_of(whole) + s.scale;
      else by_q[s.node(j)] = q[s.node(j)] == infinity() ? 0. : quotient(s.t(j) * with, whole);
    }, [&](int j, int c, T v) INLINED { put_edges(s, j, c, v, whole, by_scores); });
    return !must_prove || s.least > 1e-243;
  }

  // Derivatives [m] of messages, by their sides; then of everything else, as in sum().
  template <class T> DEVICE bool back(bool must_prove, double* by_q, double* by_scores, const Undamp& undamp) const {
    typedef typename T::Scalar S;
    typedef Dual<T> D;
    double* room = work;
    const Numbers<T> seeds = numbers_from<T>(room, 2 * state_row(n));
    {
      Sequence<T> s = sequence<T>(room);
      if (!s.load(scores, q) && must_prove) return false;
      s.forward();
      s.backward([&](int j, S with, S without) INLINED {
        if (j > s.size) return;
        const double now = undamp(s.node(j), log_odds(with, without));
        const S whole = s.f(j) * without + s.t(j) * with;
        seeds.put_cell(2 * (j - 1), now == 0. ? S::zero() : (whole * without.inverse()).scaled(-now));
        seeds.put_cell(2 * (j - 1) + 1, now == 0. ? S::zero() : (whole * with.inverse()).scaled(now));
      }, NoEdge{});
      if (must_prove && !(s.least > 1e-180)) return false;  // directions are as large as that is small
    }
    Sequence<D> s = sequence<D>(room);
    s.load(scores, q);
    for (int j = 1; j <= s.size; ++j)
      s.put_weights(j, Dual<S>{s.f(j).a, seeds.cell(2 * (j - 1))}, Dual<S>{s.t(j).a, seeds.cell(2 * (j - 1) + 1)});
    s.forward();
    S whole = S::zero();
    s.backward([&](int j, Dual<S> with, Dual<S> without) INLINED {
      whole = j > s.size ? with.a : s.f(j).a * without.a + s.t(j).a * with.a;
      if (j <= s.size) by_q[s.node(j)] = quotient(s.t(j).a * with.b, whole);
    }, [&](int j, int c, D v) INLINED { put_edges(s, j, c, v.b, whole, by_scores); });
    return true;
  }

  template <class Sequence, class T, class S>
  DEVICE void put_edges(const Sequence& s, int j, int c, T v, S whole, double* by_scores) const {
    double lanes[T::planes * W];
    v.store(lanes, W);
    for (int l = 0; l < W && c + l < j; ++l)
      if (j <= s.size || c + l > 0)
        by_scores[(i64)s.node(c + l) * N + s.node(j <= s.size ? j : 0)] = quotient(S::load(lanes + l, W), whole);
  }
};

// order 0: with totals [3, B, N, N], own, out [B, N, N] and parts [3, B, N, N] the messages; without own, log Z [B] (logz),
// with log-odds [B, N, N] in place of totals, and its derivatives d_totals [B, N, N], d_scores [B, N, N, N].
// order 1: out and parts are derivatives by these, those by totals, own and scores are put into the next three.
template <class In, int order>
KERNEL bp_children(const double* totals, const double* own, const double* scores, const bool* frozen, const i64* lengths,
                   double* out, double* parts, double* d_totals, double* d_own, double* d_scores, double* logz, double* work,
                   i64 work_size, double share, int maximise, int B, int N) {
  const i64 square = (i64)N * N, cube = square * N;
  double *q = work + SLOT * work_size, *found = q + square, *mixed = found + square, *rooms = mixed + square + PAD;
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    const i64 room = (order + 1) * 2 * (2 * (n + 2) + 6) * state_row(n);
    BARRIER();
    if (own) {
      const Sums sums(totals, b, B, square);
      LANES(k, (int)square) q[k] = sums.without(k, own[b * square + k]);
    } else {
      LANES(k, (int)square) q[k] = totals[b * square + k];
    }
    LANES(k, (int)square) found[k] = mixed[k] = 0.;
    if (d_scores)
      for (int h = 0; h < N; ++h) LANES(k, (int)square) d_scores[b * cube + h * square + k] = 0.;
    BARRIER();
    const bool still = frozen && frozen[b];
    const auto chain = [&](int k) INLINED {
      return Chain{rooms + (ON_GPU ? k * room : 0), scores + b * cube + (k / 2) * square, q + (i64)(k / 2) * N, n, N, k / 2,
                   k % 2 ? 1 : -1};
    };
    const int chains = n > 0 && !still ? 2 * (n + 1) : 0;
    if constexpr (order == 0) {
      if (own) {
        LANES(k, chains) {
          const Chain it = chain(k);
          double* to = found + (i64)it.h * N;
          if (maximise) it.messages<Max<Pack>>(false, to);
          else if (!it.messages<Lin<Pack>>(true, to)) it.messages<Ext<Lin<Pack>>>(false, to);
        }
        BARRIER();
        const Edges edges(totals, own, out, parts, frozen, share, b, B, square);
        if (still) edges.keep(square);
        else edges.send_all(found, (int)square);
      } else {
        double mine = 0.;
        LANES(k, chains) {
          const Chain it = chain(k);
          double one = 0., *to = found + (i64)it.h * N, *by = d_scores + b * cube + it.h * square;
          if (!it.sum<Lin<Pack>>(true, &one, to, by)) it.sum<Ext<Lin<Pack>>>(false, &one, to, by);
          mine += one;
        }
        mine = team_reduce(mine, Plus{});
        if (LEADER) logz[b] = mine;
        LANES(k, (int)square) d_totals[b * square + k] = found[k];
      }
    } else {
      const Back back(out, parts, d_own, d_totals, b, B, square);
      LANES(k, chains) {
        const Chain it = chain(k);
        const i64 row = (i64)it.h * N;
        const Undamp undamp{back, own + b * square + row, mixed, row, share};
        double *to = found + row, *by = d_scores + b * cube + it.h * square;
        if (!it.back<Lin<Pack>>(true, to, by, undamp)) it.back<Ext<Lin<Pack>>>(false, to, by, undamp);
      }
      BARRIER();
      back.finish(own + b * square, q, found, mixed, N, n, share, still);
    }
  }
}

EXPORT(bp_children_double_0, bp_children<double, 0>)
EXPORT(bp_children_double_1, bp_children<double, 1>)
