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
#pragma once
#include "siblings.cuh"

#if ON_GPU
DEVICE bool lane_in(bool m, int) { return m; }
#else
DEVICE bool lane_in(Mask m, int l) { return m[l] != 0; }
#endif

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

DEVICE int heads_row(int n) { return PAD ? (n + 8) / 8 * 8 : n + 1; }
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

// Scores of one sentence, or a direction in them; a part of it may be null, for all zeros.
template <class In> struct GrandParts {
  const In *arcs, *siblings, *grandparents;
  DEVICE GrandParts at(i64 b, int N) const {
    const i64 cube = (i64)N * N * N;
    return GrandParts{arcs ? arcs + b * N * N : nullptr, siblings ? siblings + b * cube : nullptr,
                      grandparents ? grandparents + b * cube : nullptr};
  }
  DEVICE Pack beside(int h, int s, int m, int N) const { return Parts<In>{nullptr, siblings}.get(h, s, m, N); }
  // of an arc under g; a word under the root has no grandparent
  DEVICE Pack arc_under(int g, int h, int m, int N) const {
    Pack x = Pack{};
    if (arcs) x = scores_at(arcs + (i64)h * N, m, N);
    if (grandparents && h > 0) x = x + scores_at(grandparents + ((i64)g * N + h) * N, m, N);
    return x;
  }
};

// Which lanes of the pack at m are modifiers of h that g may be the grandparent of.
DEVICE Mask may_be_under(int g, int h, int m, int n) {
  if (h == 0) return g == 0 ? may_take(h, m, n) : lanes_below(0, 0);
  if (g == h) return lanes_below(0, 0);
  return may_take(h, m, n) & (g < h ? lanes_above(m, g) : lanes_below(m, g));
}

template <class T> struct GrandInside {
  typedef typename T::Scalar S;
  Grid<T> R, L, P, Q, X, A, Z;
  Triples<T> right, left;  // S and D
  double* tops;            // [n+1, row]: of each arc h -> m, its best sibling
  static constexpr int grids = 7;
  static DEVICE i64 doubles(int n) {
    return T::planes * (grids * grid_size(n) + 2 * triples_size(n)) + (n + 1) * (i64)heads_row(n);
  }
  DEVICE GrandInside(double* work, int n) {
    Grid<T>* all[grids] = {&R, &L, &P, &Q, &X, &A, &Z};
    const i64 size = T::planes * grid_size(n), more = T::planes * triples_size(n);
    for (int k = 0; k < grids; ++k) *all[k] = grid<T>(work + k * size, n);
    right = triples<T>(work + grids * size, n);
    left = triples<T>(work + grids * size + more, n);
    tops = work + grids * size + 2 * more;
  }

  // Stores the lanes of a mask, each at place(m + lane).
  template <class Place> static DEVICE void scatter(T w, Mask valid, int m, Place place, i64 plane) {
    double lanes[T::planes * W];
    w.store(lanes, W);
    for (int l = 0; l < W; ++l)
      if (lane_in(valid, l))
        for (int p = 0; p < T::planes; ++p) place(m + l)[p * plane] = lanes[p * W + l];
  }

  // A lane works on the same modifiers all the time. Weights of siblings are relative to the best of their arc.
  template <class In>
  DEVICE Range load(GrandParts<In> scores, GrandParts<In> u, GrandParts<In> v, int N, int n, int single_root,
                    double spread) {
    Range mine{0., 0., 0};
    const Pack none = splat<Pack>(-infinity());
    const int row = heads_row(n);
    const i64 plane = A.plane(), pairs_plane = right.plane();
    ROWS_PACKS(k, (n + 1) * (n + 2) / 2, g, row) {
      T::zero().store(A.base + spread_out<T>((i64)k * row + g), plane);
      T::zero().store(Z.base + spread_out<T>((i64)k * row + g), plane);
    }
    BARRIER();
    PACKS(m, n + 1) {
      Pack top = none, base = Pack{}, sum = Pack{};
      Mask bad = lanes_below(0, 0);
      for (int h = 0; h <= n; ++h) {
        Pack beside = none, under = none;
        for (int s = 0; s <= n; ++s) {
          const Pack x = choose(may_follow(h, s, m, n), scores.beside(h, s, m, N), none);
          bad |= (x != x) | (x == -none);
          if (!(single_root && h == 0 && s > 0)) beside = choose(x > beside, x, beside);
        }
        for (int g = 0; g <= n; ++g) {
          const Pack x = choose(may_be_under(g, h, m, n), scores.arc_under(g, h, m, N), none);
          bad |= (x != x) | (x == -none);
          under = choose(x > under, x, under);
        }
        const Pack both = beside + under;
        top = choose(both > top, both, top);
        unpack(tops + (i64)h * row + m, T::sums ? choose(beside > none, beside, Pack{}) : Pack{});
      }
      mine.bad |= any(bad);
      if (T::sums) base = choose(top > none, top, Pack{}) + spread;
      for (int h = 0; h <= n; ++h) {
        const Pack best = pack(tops + (i64)h * row + m);
        Pack ways = Pack{}, ups = Pack{};
        auto weight = [&](Pack x, Pack along_u, Pack along_v) {
          Pack directions[2] = {choose(x > none, along_u, Pack{}), choose(x > none, along_v, Pack{})};
          return T::weight(x, directions);
        };
        for (int s = 0; s <= n; ++s) {
          const Mask valid = may_follow(h, s, m, n);
          Pack x = choose(valid, scores.beside(h, s, m, N) - best, none);
          if (single_root && h == 0 && s > 0) x = none;
          const T w = weight(x, T::order > 0 ? u.beside(h, s, m, N) : Pack{},
                             T::order > 1 ? v.beside(h, s, m, N) : Pack{});
          if (T::sums) ways += w.value();
          auto place = [&](int k) { return h < k ? right.at(k - h, s - h, h) : left.at(h - k, h - s, k); };
          scatter(w, valid, m, place, pairs_plane);
        }
        for (int g = 0; g <= n; ++g) {
          const Mask valid = may_be_under(g, h, m, n);
          const Pack x = choose(valid, scores.arc_under(g, h, m, N) + best - base, none);
          const T w = weight(x, T::order > 0 ? u.arc_under(g, h, m, N) : Pack{},
                             T::order > 1 ? v.arc_under(g, h, m, N) : Pack{});
          if (T::sums) ups += w.value();
          scatter(w, valid, m, [&](int k) { return h < k ? A.at(k - h, h, g) : Z.at(h - k, k, g); }, plane);
        }
        sum += ways * ups;
      }
      if (m == 0)  // arcs to the root: none, but S and D are to be numbers
        for (int d = 1; d <= n; ++d)
          for (int t = 0; t < d; ++t) S::zero().store(left.at(d, t, 0), pairs_plane);
      for (int l = 0; T::sums && l < W; ++l)
        if (m + l >= 1 && m + l <= n) {
          mine.shift += lane_of(base, l);
          mine.log_bound += log(fmax(1., lane_of(sum, l)));
        }
    }
    return team_reduce(mine, Plus{});
  }

  // As unwinding reads them.
  DEVICE S row_right(int d, int t, int i) const { return right.cell(d, t, i); }
  DEVICE S row_left(int d, int t, int i) const { return left.cell(d, t, i); }
  DEVICE S whole(int n) const { return R.cell(n, 0, 0); }

  static DEVICE double ways(double n) { return 0.5 * n * n * (n + 1.); }
  static DEVICE bool enough(double log_z, Range range, int n) {
    return proven(log_z - log((double)n + 1.), range.log_bound, n);
  }

  DEVICE void run(int n) {
    ROWS_PACKS(i, n + 1, g, heads_row(n)) { R.put(0, i, g, T::one()); L.put(0, i, g, T::one()); }
    BARRIER();
    for (int d = 1; d <= n; ++d) {
      ROWS_PACKS(i, n + 1 - d, g, heads_row(n)) {
        T x = L.get(d - 1, i + 1, g), r = T::zero(), l = T::zero();
        T p = T::lift(right.cell(d, 0, i) * L.cell(d - 1, i + 1, i));
        T q = T::lift(left.cell(d, 0, i) * R.cell(d - 1, i, i + d));
        for (int t = 1; t < d; ++t) {
          const T before = P.get(t, i, g);
          x.mac(R.get(t, i, g), L.get(d - 1 - t, i + t + 1, g));
          p.mac(before, T::lift(X.cell(d - t, i + t, i) * right.cell(d, t, i)));
          q.mac(Q.get(t, i + d - t, g), T::lift(X.cell(d - t, i, i + d) * left.cell(d, t, i)));
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
