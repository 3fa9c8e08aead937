// The outside pass of grandsiblings.cuh, and sums by both passes.
#pragma once
#include "grandsiblings.cuh"

// The outside pass: derivatives of log Z by the inside chart, each cell pulling from the spans that used it. Of P and Q
// are kept those by the sum that A and Z multiply, in the place of these: each is read for its own cell alone.
template <class T, bool third> struct GrandOutside {
  typedef GrandInside<T, third> Inside;
  typedef typename Inside::Rows Rows;
  typedef typename T::Scalar S;
  Grid<T> R, L, P, Q, X;
  double* marks;  // [2, n+1, row]: derivatives by the scores of the arcs of one width, to be summed over g; where tops were
  static constexpr int grids = 3;
  DEVICE GrandOutside(double* work, const Inside& in, int n) : P(in.A), Q(in.Z), marks((double*)in.tops) {
    Grid<T>* all[grids] = {&R, &L, &X};
    const i64 size = T::planes * grid_size(n);
    for (int k = 0; k < grids; ++k) *all[k] = grid<T>(work + k * size, n);
  }

  // Over g: what is known of a first child, times the weights that it has alone.
  static DEVICE S sum(const Grid<T>& a, const Rows& rows, int d, int i, int row) {
    T v = T::zero();
    if constexpr (third) {
      for (int g = 0; g < row; g += W) v.mac(a.get(d, i, g), rows.get(d, 0, i, g));
      return over_lanes(v.normal());
    } else {
      for (int g = 0; g < row; g += W) v = v + a.get(d, i, g);
      return over_lanes(v.normal()) * rows.cell(d, 0, i);
    }
  }

  // arc(h, m, v), under(g, h, m, v), beside(h, s, m, v), and of third order both(g, h, s, m, v): v is the derivative of
  // log Z by the score of that part
  template <class Arc, class Under, class Beside, class Both>
  DEVICE void run(const Inside& in, int n, Arc arc, Under under, Beside beside, Both both) {
    const int row = heads_row(n);
    // v for a pack of heads of h, which are not among the words from h to m
    auto both_of = [&](int g, int h, int s, int m, T v) INLINED {
      if (h == 0 || m == 0) return;
      const auto x = v.top();
      const int first = h < m ? h : m, last = h < m ? m : h;
      for (int k = 0; k < W && g + k <= n; ++k)
        if (g + k < first || g + k > last) both(g + k, h, s, m, lane_of(x, k));
    };
    for (int d = n; d >= 1; --d) {
      // what was one number in a sum over g: the derivatives by it are sums over g
      LANES(k, (n + 1 - d) * row) {
        const int i = k / row, h = k % row;
        S r = S::zero(), l = S::zero(), x = S::zero();
        const bool before = h < i;  // h heads a span on the left of i..i+d, or on the right of it
        const int t = before ? i - h : h - i - d;
        if (t > 0 && h <= n) {
          const Grid<T> outer = before ? P : Q, whole = before ? R : L, inner = before ? in.P : in.Q;
          const Rows rows = before ? in.right : in.left;
          const int start = before ? h : i, s = before ? i : i + d, m = before ? i + d : i;
          const S between = in.X.cell(d, i, h);
          T as_x = T::zero(), as_end = T::zero();
          for (int g = 0; g < row; g += W) {
            const T y = inner.get(t, before ? h : i + d, g);
            if constexpr (third) {
              const T z = outer.get(d + t, start, g) * rows.get(d + t, t, start, g);
              as_x.mac(z, y);
              both_of(g, h, s, m, z * y * T::lift(between));
            } else {
              as_x.mac(outer.get(d + t, start, g), y);
            }
            as_end.mac(whole.get(d + t, start, g), y);
          }
          x = over_lanes(as_x.normal());
          if constexpr (!third) x = x * rows.cell(d + t, t, start);
          const S end = over_lanes(as_end.normal());
          const S first = t == 1 ? sum(outer, rows, d + 1, start, row) : S::zero();
          r = before ? end : first, l = before ? first : end;
          beside(h, s, m, (x * between).top());
        }
        if (d == n && h == 0) r = in.R.cell(n, 0, 0).inverse();
        R.put_cell(d, i, h, r);
        L.put_cell(d, i, h, l);
        X.put_cell(d, i, h, x.normal());
      }
      BARRIER();
      ROWS_PACKS(i, n + 1 - d, g, row) {
        T r = R.get(d, i, g), l = L.get(d, i, g), p = T::zero(), q = T::zero();
        for (int e = 1; e <= n - d - i; ++e) {
          r.mac(X.get(d + e, i, g), in.L.get(e - 1, i + d + 1, g));
          p.mac(R.get(d + e, i, g), in.R.all(e, i + d, i));
          p.mac(P.get(d + e, i, g), Inside::times(in.right, d + e, d, i, g, in.X.cell(e, i + d, i)));
        }
        for (int s = 1; s <= i; ++s) {
          l.mac(X.get(d + s, i - s, g), in.R.get(s - 1, i - s, g));
          q.mac(L.get(d + s, i - s, g), in.L.all(s, i - s, i + d));
          q.mac(Q.get(d + s, i - s, g), Inside::times(in.left, d + s, d, i - s, g, in.X.cell(s, i - s, i + d)));
        }
        r = r.normal(), l = l.normal();
        p = (p + r).normal(), q = (q + l).normal();
        R.put(d, i, g, r);
        L.put(d, i, g, l);
        P.put(d, i, g, p * in.A.get(d, i, g));
        Q.put(d, i, g, q * in.Z.get(d, i, g));
        const auto to_right = (p * in.P.get(d, i, g)).top(), to_left = (q * in.Q.get(d, i, g)).top();
        unpack(marks + (i64)i * row + g, to_right);
        unpack(marks + (i64)(n + 1 + i) * row + g, to_left);
        for (int k = 0; k < W && g + k <= n; ++k) {
          const int a = g + k;
          if (i == 0 || (a >= i && a <= i + d)) continue;
          under(a, i, i + d, lane_of(to_right, k));
          under(a, i + d, i, lane_of(to_left, k));
        }
      }
      BARRIER();
      LANES(k, 2 * (n + 1 - d)) {
        const bool right = k % 2 == 0;
        const int i = k / 2, h = right ? i : i + d, m = right ? i + d : i;
        double total = 0.;
        for (int g = 0; g <= n; ++g) total += marks[(i64)(right ? i : n + 1 + i) * row + g];
        if (m == 0) continue;
        arc(h, m, total);
        const S inner = (right ? in.L : in.R).cell(d - 1, right ? i + 1 : i, h);
        const Grid<T> outer = right ? P : Q;
        const Rows rows = right ? in.right : in.left;
        beside(h, h, m, (sum(outer, rows, d, i, row) * inner).top());
        if constexpr (third)
          for (int g = 0; g < row; g += W)
            both_of(g, h, h, m, outer.get(d, i, g) * rows.get(d, 0, i, g) * T::lift(inner));
      }
      BARRIER();
    }
  }
};

// Results are of arcs, siblings, grandparents and, of third order, all of these together.
template <class T, class In, int arrays>
DEVICE bool sum_trees(GrandParts<In> scores, GrandParts<In> u, GrandParts<In> v, Results<In, arrays> results,
                      double* work, int N, int n, int single_root, bool must_prove) {
  constexpr bool third = arrays == 4;
  GrandInside<T, third> in(work, n);
  const Found z = fill(in, scores, u, v, N, n, single_root, must_prove);
  if (!results.take(z)) return z.enough;
  In *out = results.out[0], *beside = results.out[1], *under = results.out[2], *both = results.out[arrays - 1];
  GrandOutside<T, third> outside(work + GrandInside<T, third>::doubles(n), in, n);
  BARRIER();
  outside.run(in, n,
              [&](int h, int m, auto x) { out[(i64)h * N + m] = (In)x; },
              [&](int g, int h, int m, auto x) { if (under) under[((i64)g * N + h) * N + m] = (In)x; },
              [&](int h, int s, int m, auto x) { if (beside && m > 0) beside[((i64)h * N + s) * N + m] = (In)x; },
              [&](int g, int h, int s, int m, auto x) { both[(((i64)g * N + h) * N + s) * N + m] = (In)x; });
  return true;
}
