// Eisner's program (1996) with scores of siblings in a row, the inside pass, over any number type.
//
//   X(d, i)  what lies between two children i and i+d of a head, one after the other:  sum_t R(t, i) * L(d-1-t, i+t+1)
//   P(d, i)  ended by the arc i -> i+d:  A(d, 0, i) * L(d-1, i+1) + sum_t A(d, t, i) * P(t, i) * X(d-t, i+t)
//   Q(d, i)  ended by the arc i+d -> i:  Z(d, 0, i) * R(d-1, i) + sum_t Z(d, t, i) * Q(t, i+d-t) * X(d-t, i)
//   R(d, i)  complete, headed at i, to the right:  sum_t P(t, i) * R(d-t, i+t)
//   L(d, i)  complete, headed at i+d, to the left: sum_t L(t, i) * Q(d-t, i+t)
//
// A(d, t, i) is the weight of the arc i -> i+d and of its sibling i+t (t = 0: there is none), Z(d, t, i) that of the
// arc i+d -> i and of its sibling i+d-t. With a single root those of its second child are 0.
#pragma once
#include "eisner.cuh"

// Scores of one sentence, or a direction in them; a part of it may be null, for all zeros.
template <class In> struct Parts {
  const In *arcs, *siblings;
  DEVICE Parts at(i64 b, int N) const {
    return Parts{arcs ? arcs + b * N * N : nullptr, siblings ? siblings + b * N * N * N : nullptr};
  }
  template <class X = Pack> DEVICE X get(int h, int s, int m, int N) const {
    X x = X{};
    if (arcs) x = scores_at<X>(arcs + (i64)h * N, m, N);
    if (siblings) x = x + scores_at<X>(siblings + ((i64)h * N + s) * N, m, N);
    return x;
  }
};

// Which lanes of the pack at i are > k.
#if ON_GPU
DEVICE bool lanes_above(int i, int k) { return i > k; }
#else
DEVICE Mask lanes_above(int i, int k) { return (Mask)~lanes_below(i, k + 1); }
#endif

// Weights by width d, distance t of the sibling and start i, rows one after the other without gaps.
template <class T> struct Triples {
  double* base;
  int n;
  i64 size;
  DEVICE i64 plane() const { return plane_of(size); }
  DEVICE double* at(int d, int t, int i) const {
    const i64 rows = (i64)(n + 1) * d * (d - 1) / 2 - (i64)(d - 1) * d * (2 * d - 1) / 6;
    return base + spread_out<T>(rows + (i64)t * (n + 1 - d) + i);
  }
  DEVICE T get(int d, int t, int i) const { return T::load(at(d, t, i), plane()); }
  DEVICE typename T::Scalar cell(int d, int t, int i) const { return T::Scalar::load(at(d, t, i), plane()); }
  DEVICE i64 step(int d) const { return spread_out<T>(n + 1 - d); }  // from t to t + 1
};
DEVICE i64 triples_size(int n) { return (i64)n * (n + 1) * (n + 2) / 6 + 2 * PAD; }
template <class T> DEVICE Triples<T> triples(double* work, int n) {
  const i64 size = triples_size(n);
  for (int k = 0; k < PAD; k += W) T::zero().store(work + k, size), T::zero().store(work + size - PAD + k, size);
  return Triples<T>{work + PAD, n, size};
}

DEVICE int heads_row(int n) { return PAD ? (n + 8) / 8 * 8 : n + 1; }

// What words' scores are shifted by, base [n+1], from the best score of every arc with all that may go with it,
// best [n+1, row]. Siblings and grandparents follow from the heads: so no sum over parts of trees is above the product
// over words of the sum over heads of that best.
template <class T, class X = typename T::Score, class Place>
DEVICE Range bases_of_words(const Place* best, int row, int n, X spread, Place* base) {
  Range mine{0., 0., 0};
  PACKS(m, n + 1) {
    X top = forbidden<X>();
    typename T::V sum{};
    for (int h = 0; h <= n; ++h) {
      const X x = pack(best + (i64)h * row + m);
      top = choose(x > top, x, top);
    }
    const X shift = choose(some(top), top, X{}) + spread;
    unpack(base + m, shift);
    if constexpr (!any_range<T>)
      for (int h = 0; h <= n; ++h) sum += exp_in_range(pack(best + (i64)h * row + m) - shift);
    add_word<T>(mine, shift, sum, m, n);
  }
  return mine;
}

// Arcs of head h to the pack of modifiers at m that are on one side of it, from `first` to `last`.
struct Side {
  bool right;
  int h, m, n, first, last;
  DEVICE Side(bool right_, int h_, int m_, int n_) : right(right_), h(h_), m(m_), n(n_) {
    const int end = m + W - 1 < n ? m + W - 1 : n;
    first = right && m <= h ? h + 1 : m, last = right || end < h ? end : h - 1;
  }
  DEVICE int widest() const { return first > last ? 0 : right ? last - h : h - first; }
  DEVICE int sibling(int t) const { return right ? h + t : h - t; }
  DEVICE int from(int t) const { return right && h + t >= first ? h + t + 1 : first; }  // those wider than t
  DEVICE int to(int t) const { return !right && h - t <= last ? h - t - 1 : last; }
  // up to which t all lanes have a score with the sibling at distance t (0: none), and which have
  DEVICE int full() const { return m == 0 || m + W - 1 > n ? 0 : right ? m - h : h - m - (W - 1); }
  DEVICE Mask read(int t) const {
    return (right ? lanes_above(m, h + t) & lanes_below(m, n + 1) : lanes_below(m, h - t)) & ~lane_is(m, 0);
  }
};

// The best score(s) of a sibling s, for each arc from h to the pack of modifiers at m.
template <class X, class Score> DEVICE X best_sibling(int h, int m, int n, int single_root, Score score) {
  const X none = forbidden<X>();
  X best = none;
  for (int right = 0; right < 2; ++right) {
    const Side side(right, h, m, n);
    const int widest = single_root && h == 0 && side.widest() > 0 ? 1 : side.widest(), full = side.full();
    int t = 0;
    for (; t < full && t < widest; ++t) {
      const X x = score(side.sibling(t));
      best = choose(x > best, x, best);
    }
    for (; t < widest; ++t) {
      const X x = choose(side.read(t), score(side.sibling(t)), none);
      best = choose(x > best, x, best);
    }
  }
  return best;
}

// Weights of one side's arcs with their siblings: weight(s, read) gives those with s for the lanes that it is to read.
template <class T, class Rows, class Weight> DEVICE void put_side(Side side, const Rows& to, Weight weight) {
  double *at[W], lanes[T::planes * W];
  i64 step[W];
  for (int k = side.first; k <= side.last; ++k) {
    const int d = side.right ? k - side.h : side.h - k;
    at[k - side.m] = to.at(d, 0, side.right ? side.h : k), step[k - side.m] = to.step(d);
  }
  const i64 plane = to.plane();
  const int widest = side.widest();
  for (int t = 0; t < widest; ++t) {
    weight(side.sibling(t), side.read(t)).store(lanes, W);
    const int end = side.to(t);
    for (int k = side.from(t); k <= end; ++k) {
      double*& place = at[k - side.m];
      for (int p = 0; p < T::planes; ++p) place[p * plane] = lanes[p * W + k - side.m];
      place += step[k - side.m];
    }
  }
}

// Charts of the inside pass, or of derivatives by it.
template <class T> struct SiblingCharts {
  Chart<T> R, L, P, Q, X;
  static constexpr int squares = 3;
  DEVICE SiblingCharts(double* work, int n) {
    const i64 size = T::planes * square_size(n);
    R = first_half<T>(work, n), L = second_half<T>(work, n);
    P = first_half<T>(work + size, n), Q = second_half<T>(work + size, n);
    X = first_half<T>(work + 2 * size, n);
    for (int s = 0; s < squares; ++s) clear_pads<T>(work + s * size, n);
  }
};

template <class T> struct SiblingInside : SiblingCharts<T> {
  typedef T Number;
  typedef SiblingCharts<T> Charts;
  typedef typename T::Scalar S;
  typedef typename T::Score Score;
  typedef typename S::Score Place;  // for one of them
  using Charts::R, Charts::L, Charts::P, Charts::Q, Charts::X, Charts::squares;
  Triples<T> A, Z;
  Place* tops;  // [n+2, row]: the greatest score of each arc, and what those of words are shifted by
  static DEVICE i64 doubles(int n) {
    return T::planes * (squares * square_size(n) + 2 * triples_size(n)) + (n + 2) * (i64)heads_row(n);
  }
  DEVICE SiblingInside(double* work, int n) : Charts(work, n) {
    double* next = work + squares * T::planes * square_size(n);
    A = triples<T>(next, n);
    Z = triples<T>(next + T::planes * triples_size(n), n);
    tops = (Place*)next + 2 * T::planes * triples_size(n);
  }

  template <class In>
  DEVICE Range load(Parts<In> scores, Parts<In> u, Parts<In> v, int N, int n, int single_root, Score spread) {
    Range mine{0., 0., 0};
    const Score none = forbidden<Score>();
    const int row = heads_row(n);
    Place* base = tops + (i64)(n + 1) * row;
    if (T::sums) {
      ROWS_PACKS(h, n + 1, m, n + 1) {
        const Score best =
            best_sibling<Score>(h, m, n, single_root, [&](int s) INLINED { return scores.template get<Score>(h, s, m, N); });
        unpack(tops + (i64)h * row + m, best);
      }
      BARRIER();
      mine = bases_of_words<T>(tops, row, n, spread, base);
      BARRIER();
    }
    ROWS_PACKS(h, n + 1, m, n + 1) {
      const Score shift = T::sums ? pack(base + m) : Score{};
      Mask bad = lanes_below(0, 0);
      for (int right = 0; right < 2; ++right)
        put_side<T>(Side(right, h, m, n), right ? A : Z, [&](int s, Mask read) INLINED {
          const Score score = choose(read, scores.template get<Score>(h, s, m, N), none);
          Score x = score - shift, directions[2] = {Score{}, Score{}};
          bad |= wrong(score);
          if (single_root && h == 0 && s > 0) x = none;
          if (T::order > 0) directions[0] = choose(some(x), u.template get<Score>(h, s, m, N), Score{});
          if (T::order > 1) directions[1] = choose(some(x), v.template get<Score>(h, s, m, N), Score{});
          return T::weight(x, directions);
        });
      mine.bad |= any(bad);
    }
    return team_reduce(mine, Plus{});
  }

  // As unwinding reads them.
  DEVICE S row_right(int d, int t, int i, int) const { return A.cell(d, t, i); }
  DEVICE S row_left(int d, int t, int i, int) const { return Z.cell(d, t, i); }
  DEVICE S whole(int n) const { return R.cell(n, 0); }

  static DEVICE bool enough(double log_z, Range range, int n) { return proven<T>(log_z, range.log_bound, n); }

  DEVICE void run(int n) {
    PACKS(i, n + 1) { R.put(0, i, n, T::one()); L.put(0, i, n, T::one()); }
    BARRIER();
    for (int d = 1; d <= n; ++d) {
      PACKS(i, n + 1 - d) {
        T x = L.get(d - 1, i + 1), r = T::zero(), l = T::zero();
        T p = A.get(d, 0, i) * x, q = Z.get(d, 0, i) * R.get(d - 1, i);
        for (int t = 1; t < d; ++t) {
          x.mac(R.get(t, i), L.get(d - 1 - t, i + t + 1));
          r.mac(P.get(t, i), R.get(d - t, i + t));
          l.mac(L.get(t, i), Q.get(d - t, i + t));
        }
        X.put(d, i, n, x.normal());
        for (int t = 1; t < d; ++t) {
          p.mac(P.get(t, i) * X.get(d - t, i + t), A.get(d, t, i));
          q.mac(Q.get(t, i + d - t) * X.get(d - t, i), Z.get(d, t, i));
        }
        p = p.normal(), q = q.normal();
        P.put(d, i, n, p);
        Q.put(d, i, n, q);
        R.put(d, i, n, (r + p).normal());
        L.put(d, i, n, (l + q).normal());
      }
      BARRIER();
    }
  }
};

// Fills an inside chart of this program, or of that with grandparents.
template <class Inside, class Parts>
DEVICE Found fill(Inside& in, Parts scores, Parts u, Parts v, int N, int n, int single_root, bool must_prove) {
  typedef typename Inside::Number T;
  BARRIER();
  const Range range = in.load(scores, u, v, N, n, single_root, spread_for<T>(n, must_prove));
  if (range.bad) return unfit<T>();
  in.run(n);
  const double log_z = log_of(in.whole(n).primal());
  return found(log_z, range.shift, !must_prove || in.enough(log_z, range, n));
}
