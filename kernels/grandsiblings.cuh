// Projective trees with scores of grandparents and of siblings: model 1 of Koo & Collins (2010), the inside pass, over
// any number type. A span has an entry for each head g of its own head (X: for the head h of both its ends):
//
//   X^h(d, i)  what lies between two children i and i+d of h, one after the other:  sum_t R^h(t, i) * L^h(d-1-t, i+t+1)
//   P^g(d, i)  ended by the arc i -> i+d:
//                A^g(d, i) * (S(d, 0, i) * L^i(d-1, i+1) + sum_t S(d, t, i) * P^g(t, i) * X^i(d-t, i+t))
//   Q^g(d, i)  ended by the arc i+d -> i:
//                Z^g(d, i) * (D(d, 0, i) * R^{i+d}(d-1, i) + sum_t D(d, t, i) * Q^g(t, i+d-t) * X^{i+d}(d-t, i))
//   R^g(d, i)  complete, headed at i, to the right:  sum_t P^g(t, i) * R^i(d-t, i+t)
//   L^g(d, i)  complete, headed at i+d, to the left: sum_t L^{i+d}(t, i) * Q^g(d-t, i+t)
//
// A and Z are the weights of arcs under a grandparent, S and D those of siblings as in siblings.cuh. g comes last in
// memory: every loop is over g, side by side, and all else in it is one number. Where g lies in the span, A and Z are 0
// and what R, L and X hold is never used. The root's own head is node 0.
//
// With scores of third order, which are of a head's head, the head and two children in a row, S and D are of g, too.
#pragma once
#include "siblings.cuh"

// The sum of all lanes.
template <class T> DEVICE typename T::Scalar over_lanes(T v) {
  typedef typename T::Scalar S;
#if ON_GPU
  return v;
#else
  double lanes[T::planes * W];
  v.store(lanes, W);
  S part[W];
  for (int l = 0; l < W; ++l) part[l] = S::load(lanes + l, W);
  for (int half = W / 2; half > 0; half /= 2)
    for (int l = 0; l < half; ++l) part[l] = part[l] + part[l + half];
  return part[0];
#endif
}

DEVICE i64 grid_size(int n) { return (i64)(n + 1) * (n + 2) / 2 * heads_row(n); }

// Rows of numbers, one for each span, in the order of their widths and starts.
template <class T> struct Grid {
  typedef typename T::Scalar S;
  double* base;
  int n, row;
  i64 size;
  DEVICE i64 plane() const { return plane_of(size); }
  DEVICE double* at(int d, int i, int g) const {
    return base + spread_out<T>(((i64)d * (n + 1) - (i64)d * (d - 1) / 2 + i) * row + g);
  }
  DEVICE T get(int d, int i, int g) const { return T::load(at(d, i, g), plane()); }
  DEVICE S cell(int d, int i, int g) const { return S::load(at(d, i, g), plane()); }
  DEVICE T all(int d, int i, int g) const { return T::lift(cell(d, i, g)); }
  DEVICE void put(int d, int i, int g, T v) const { v.store(at(d, i, g), plane()); }
  DEVICE void put_cell(int d, int i, int g, S v) const { v.store(at(d, i, g), plane()); }
};
template <class T> DEVICE Grid<T> grid(double* work, int n) { return Grid<T>{work, n, heads_row(n), grid_size(n)}; }

// Weights of siblings under each head of their head: rows, one for each of those in Triples, in their order.
template <class T> struct Quads {
  double* base;
  int n, row;
  i64 size;
  DEVICE i64 plane() const { return plane_of(size); }
  DEVICE double* at(int d, int t, int i, int g) const {
    const i64 rows = (i64)(n + 1) * d * (d - 1) / 2 - (i64)(d - 1) * d * (2 * d - 1) / 6;
    return base + spread_out<T>((rows + (i64)t * (n + 1 - d) + i) * row + g);
  }
  DEVICE T get(int d, int t, int i, int g) const { return T::load(at(d, t, i, g), plane()); }
  DEVICE typename T::Scalar cell(int d, int t, int i, int g) const { return T::Scalar::load(at(d, t, i, g), plane()); }
};
// Those of one g, for put_side.
template <class T> struct QuadsUnder {
  Quads<T> all;
  int g;
  DEVICE i64 plane() const { return all.plane(); }
  DEVICE double* at(int d, int t, int i) const { return all.at(d, t, i, g); }
  DEVICE i64 step(int d) const { return spread_out<T>((i64)(all.n + 1 - d) * all.row); }
};
DEVICE i64 quads_size(int n) { return (i64)n * (n + 1) * (n + 2) / 6 * heads_row(n); }
template <class T> DEVICE Quads<T> quads(double* work, int n) { return Quads<T>{work, n, heads_row(n), quads_size(n)}; }

template <class T, bool third> struct RowsOf { typedef Triples<T> type; };
template <class T> struct RowsOf<T, true> { typedef Quads<T> type; };

// Scores of one sentence, or a direction in them; a part of it may be null, for all zeros.
template <class In> struct GrandParts {
  const In *arcs, *siblings, *grandparents, *grandsiblings;
  DEVICE GrandParts at(i64 b, int N) const {
    const i64 cube = (i64)N * N * N;
    return GrandParts{arcs ? arcs + b * N * N : nullptr, siblings ? siblings + b * cube : nullptr,
                      grandparents ? grandparents + b * cube : nullptr,
                      grandsiblings ? grandsiblings + b * cube * N : nullptr};
  }
  template <class X> DEVICE X beside(int h, int s, int m, int N) const {
    return Parts<In>{nullptr, siblings}.template get<X>(h, s, m, N);
  }
  // of siblings under g
  template <class X> DEVICE X beside_under(int g, int h, int s, int m, int N) const {
    X x = beside<X>(h, s, m, N);
    if (grandsiblings && h > 0) x = x + scores_at<X>(grandsiblings + (((i64)g * N + h) * N + s) * N, m, N);
    return x;
  }
  // of an arc under g; a word under the root has no grandparent
  template <class X> DEVICE X arc_under(int g, int h, int m, int N) const {
    X x = X{};
    if (arcs) x = scores_at<X>(arcs + (i64)h * N, m, N);
    if (grandparents && h > 0) x = x + scores_at<X>(grandparents + ((i64)g * N + h) * N, m, N);
    return x;
  }
};

// Which lanes of the pack at m are modifiers of h that g may be the grandparent of.
DEVICE Mask may_be_under(int g, int h, int m, int n) {
  if (h == 0) return g == 0 ? may_take(h, m, n) : lanes_below(0, 0);
  if (g == h) return lanes_below(0, 0);
  return may_take(h, m, n) & (g < h ? lanes_above(m, g) : lanes_below(m, g));
}

template <class T, bool third = false> struct GrandInside {
  typedef T Number;
  typedef typename T::Scalar S;
  typedef typename T::Score Score;
  typedef typename S::Score Place;  // for one of them
  typedef typename RowsOf<T, third>::type Rows;
  Grid<T> R, L, P, Q, X, A, Z;
  Rows right, left;  // S and D
  Place* tops;             // [2n+3, row]: the best sibling of each arc, its greatest score; what words are shifted by
  static constexpr int grids = 7;
  static DEVICE i64 rows_size(int n) { return third ? quads_size(n) : triples_size(n); }
  static DEVICE i64 doubles(int n) {
    return T::planes * (grids * grid_size(n) + 2 * rows_size(n)) + (2 * n + 3) * (i64)heads_row(n);
  }
  DEVICE GrandInside(double* work, int n) {
    Grid<T>* all[grids] = {&R, &L, &P, &Q, &X, &A, &Z};
    const i64 size = T::planes * grid_size(n), more = T::planes * rows_size(n);
    for (int k = 0; k < grids; ++k) *all[k] = grid<T>(work + k * size, n);
    if constexpr (third) {
      right = quads<T>(work + grids * size, n);
      left = quads<T>(work + grids * size + more, n);
    } else {
      right = triples<T>(work + grids * size, n);
      left = triples<T>(work + grids * size + more, n);
    }
    tops = (Place*)work + grids * size + 2 * more;
  }

  // Weights of siblings are relative to the best of their arc.
  template <class In>
  DEVICE Range load(GrandParts<In> scores, GrandParts<In> u, GrandParts<In> v, int N, int n, int single_root,
                    Score spread) {
    Range mine{0., 0., 0};
    const Score none = forbidden<Score>();
    const int row = heads_row(n);
    Place *both = tops + (i64)(n + 1) * row, *base = both + (i64)(n + 1) * row;
    if (T::sums) {
      ROWS_PACKS(h, n + 1, m, n + 1) {
        const Score beside = best_sibling<Score>(h, m, n, single_root, [&](int s) INLINED {
          if constexpr (third) {
            Score best = none;
            for (int g = 0; g <= (h > 0 ? n : 0); ++g) {
              const Score x =
                  choose(may_be_under(g, h, m, n), scores.template beside_under<Score>(g, h, s, m, N), none);
              best = choose(x > best, x, best);
            }
            return best;
          } else {
            return scores.template beside<Score>(h, s, m, N);
          }
        });
        Score under = none;
        for (int g = 0; g <= (h > 0 ? n : 0); ++g) {
          const Score x = choose(may_be_under(g, h, m, n), scores.template arc_under<Score>(g, h, m, N), none);
          under = choose(x > under, x, under);
        }
        unpack(tops + (i64)h * row + m, choose(some(beside), beside, Score{}));
        unpack(both + (i64)h * row + m, beside + under);
      }
      BARRIER();
      mine = bases_of_words<T>(both, row, n, spread, base);
      BARRIER();
    }
    ROWS_PACKS(h, n + 1, m, n + 1) {
      const Score best = T::sums ? pack(tops + (i64)h * row + m) : Score{}, shift = T::sums ? pack(base + m) : Score{};
      Mask bad = lanes_below(0, 0);
      auto weight = [&](Score score, Score less, bool counts, Score along_u, Score along_v) INLINED {
        bad |= wrong(score);
        const Score x = counts ? score - less : none;
        Score directions[2] = {choose(some(x), along_u, Score{}), choose(some(x), along_v, Score{})};
        return T::weight(x, directions);
      };
      for (int right = 0; right < 2; ++right) {
        const Side side(right, h, m, n);
        const Rows& rows = right ? this->right : left;
        if constexpr (third) {
          for (int g = 0; g < row; ++g) {
            const Mask under = g <= n ? may_be_under(g, h, m, n) : lanes_below(0, 0);
            const bool some_under = any(under);
            put_side<T>(side, QuadsUnder<T>{rows, g}, [&](int s, Mask read) INLINED {
              if (!some_under) return T::zero();
              return weight(choose(read & under, scores.template beside_under<Score>(g, h, s, m, N), none), best,
                            !(single_root && h == 0 && s > 0),
                            T::order > 0 ? u.template beside_under<Score>(g, h, s, m, N) : Score{},
                            T::order > 1 ? v.template beside_under<Score>(g, h, s, m, N) : Score{});
            });
          }
        } else {
          put_side<T>(side, rows, [&](int s, Mask read) INLINED {
            return weight(choose(read, scores.template beside<Score>(h, s, m, N), none), best,
                          !(single_root && h == 0 && s > 0),
                          T::order > 0 ? u.template beside<Score>(h, s, m, N) : Score{},
                          T::order > 1 ? v.template beside<Score>(h, s, m, N) : Score{});
          });
        }
        const Grid<T>& to = right ? A : Z;
        double *at[W], lanes[T::planes * W];
        for (int k = side.first; k <= side.last; ++k)
          at[k - m] = right ? to.at(k - h, h, 0) : to.at(h - k, k, 0);
        for (int g = 0; g < row && side.first <= side.last; ++g) {
          const Mask read = g <= n ? may_be_under(g, h, m, n) : lanes_below(0, 0);
          T w = T::zero();
          if (any(read))
            w = weight(choose(read, scores.template arc_under<Score>(g, h, m, N) + best, none), shift, true,
                       T::order > 0 ? u.template arc_under<Score>(g, h, m, N) : Score{},
                       T::order > 1 ? v.template arc_under<Score>(g, h, m, N) : Score{});
          w.store(lanes, W);
          for (int k = side.first; k <= side.last; ++k)
            for (int p = 0; p < T::planes; ++p) at[k - m][spread_out<T>(g) + p * to.plane()] = lanes[p * W + k - m];
        }
      }
      mine.bad |= any(bad);
    }
    return team_reduce(mine, Plus{});
  }

  // As unwinding reads them.
  static DEVICE S cell_of(const Rows& rows, int d, int t, int i, int g) {
    if constexpr (third) return rows.cell(d, t, i, g);
    else return rows.cell(d, t, i);
  }
  DEVICE S row_right(int d, int t, int i, int g) const { return cell_of(right, d, t, i, g); }
  DEVICE S row_left(int d, int t, int i, int g) const { return cell_of(left, d, t, i, g); }
  // Weights of siblings times one number.
  static DEVICE T times(const Rows& rows, int d, int t, int i, int g, S y) {
    if constexpr (third) return rows.get(d, t, i, g) * T::lift(y);
    else return T::lift(y * rows.cell(d, t, i));
  }
  DEVICE S whole(int n) const { return R.cell(n, 0, 0); }

  static DEVICE bool enough(double log_z, Range range, int n) {
    return proven<T>(any_range<T> ? log_z : log_z - log((double)n + 1.), range.log_bound, n);
  }

  DEVICE void run(int n) {
    ROWS_PACKS(i, n + 1, g, heads_row(n)) { R.put(0, i, g, T::one()); L.put(0, i, g, T::one()); }
    BARRIER();
    for (int d = 1; d <= n; ++d) {
      ROWS_PACKS(i, n + 1 - d, g, heads_row(n)) {
        T x = L.get(d - 1, i + 1, g), r = T::zero(), l = T::zero();
        T p = times(right, d, 0, i, g, L.cell(d - 1, i + 1, i));
        T q = times(left, d, 0, i, g, R.cell(d - 1, i, i + d));
        for (int t = 1; t < d; ++t) {
          const T before = P.get(t, i, g);
          x.mac(R.get(t, i, g), L.get(d - 1 - t, i + t + 1, g));
          p.mac(before, times(right, d, t, i, g, X.cell(d - t, i + t, i)));
          q.mac(Q.get(t, i + d - t, g), times(left, d, t, i, g, X.cell(d - t, i, i + d)));
          r.mac(before, R.all(d - t, i + t, i));
          l.mac(Q.get(d - t, i + t, g), L.all(t, i, i + d));
        }
        p = p.normal() * A.get(d, i, g), q = q.normal() * Z.get(d, i, g);
        X.put(d, i, g, x.normal());
        P.put(d, i, g, p);
        Q.put(d, i, g, q);
        R.put(d, i, g, (r + p).normal());
        L.put(d, i, g, (l + q).normal());
      }
      BARRIER();
    }
  }
};
