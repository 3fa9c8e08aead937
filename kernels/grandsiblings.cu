// Projective trees with scores of grandparents and siblings: log Z, the probabilities of all parts and their
// directional derivatives by inside and outside, in O(n^4) time and O(n^3) memory.
#include "grandsiblings_spans.cuh"

// The outside pass: derivatives of log Z by the inside chart, each cell pulling from the spans that used it. Of P and Q
// are kept those by the sum that A and Z multiply, in the place of these: each is read for its own cell alone.
template <class T> struct GrandOutside {
  typedef typename T::Scalar S;
  Grid<T> R, L, P, Q, X;
  double* marks;  // [2, n+1, row]: derivatives by the scores of the arcs of one width, to be summed over g; where tops were
  static constexpr int grids = 3;
  DEVICE GrandOutside(double* work, const GrandInside<T>& in, int n) : P(in.A), Q(in.Z), marks((double*)in.tops) {
    Grid<T>* all[grids] = {&R, &L, &X};
    const i64 size = T::planes * grid_size(n);
    for (int k = 0; k < grids; ++k) *all[k] = grid<T>(work + k * size, n);
  }

  static DEVICE S sum(const Grid<T>& a, int d, int i, int row) {
    T v = T::zero();
    for (int g = 0; g < row; g += W) v = v + a.get(d, i, g);
    return over_lanes(v.normal());
  }

  // arc(h, m, v), under(g, h, m, v), beside(h, s, m, v): v is the derivative of log Z by the score of that part
  template <class Arc, class Under, class Beside>
  DEVICE void run(const GrandInside<T>& in, int n, Arc arc, Under under, Beside beside) {
    const int row = heads_row(n);
    for (int d = n; d >= 1; --d) {
      // what was one number in a sum over g: the derivatives by it are sums over g
      LANES(k, (n + 1 - d) * row) {
        const int i = k / row, h = k % row;
        S r = S::zero(), l = S::zero(), x = S::zero();
        const bool before = h < i;  // h heads a span on the left of i..i+d, or on the right of it
        const int t = before ? i - h : h - i - d;
        if (t > 0 && h <= n) {
          const Grid<T> outer = before ? P : Q, whole = before ? R : L, inner = before ? in.P : in.Q;
          const Triples<T> rows = before ? in.right : in.left;
          const int start = before ? h : i;
          T as_x = T::zero(), as_end = T::zero();
          for (int g = 0; g < row; g += W) {
            const T y = inner.get(t, before ? h : i + d, g);
            as_x.mac(outer.get(d + t, start, g), y);
            as_end.mac(whole.get(d + t, start, g), y);
          }
          x = over_lanes(as_x.normal()) * rows.cell(d + t, t, start);
          const S end = over_lanes(as_end.normal());
          const S first = t == 1 ? sum(outer, d + 1, start, row) * rows.cell(d + 1, 0, start) : S::zero();
          r = before ? end : first, l = before ? first : end;
          beside(h, before ? i : i + d, before ? i + d : i, (x * in.X.cell(d, i, h)).top());
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
          p.mac(P.get(d + e, i, g), T::lift(in.X.cell(e, i + d, i) * in.right.cell(d + e, d, i)));
        }
        for (int s = 1; s <= i; ++s) {
          l.mac(X.get(d + s, i - s, g), in.R.get(s - 1, i - s, g));
          q.mac(L.get(d + s, i - s, g), in.L.all(s, i - s, i + d));
          q.mac(Q.get(d + s, i - s, g), T::lift(in.X.cell(s, i - s, i + d) * in.left.cell(d + s, d, i - s)));
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
        const S first = (right ? in.right : in.left).cell(d, 0, i) * inner;
        beside(h, h, m, (sum(right ? P : Q, d, i, row) * first).top());
      }
      BARRIER();
    }
  }
};

template <class T, class In>
DEVICE bool sum_trees(GrandParts<In> scores, GrandParts<In> u, GrandParts<In> v, Results<In, 3> results, double* work,
                      int N, int n, int single_root, bool must_prove) {
  GrandInside<T> in(work, n);
  const Found z = fill(in, scores, u, v, N, n, single_root, must_prove);
  if (!results.take(z)) return z.enough;
  In *out = results.out[0], *beside = results.out[1], *under = results.out[2];
  GrandOutside<T> outside(work + GrandInside<T>::doubles(n), in, n);
  BARRIER();
  outside.run(in, n,
              [&](int h, int m, auto x) { out[(i64)h * N + m] = (In)x; },
              [&](int g, int h, int m, auto x) { if (under) under[((i64)g * N + h) * N + m] = (In)x; },
              [&](int h, int s, int m, auto x) { if (beside && m > 0) beside[((i64)h * N + s) * N + m] = (In)x; });
  return true;
}

// pass and unproven [B]: as in sentences.cuh.
// order 0: logz [B], and if out is not null the probabilities of arcs [B, N, N] and, where not null, of siblings and of
// grandparents [B, N, N, N]; order 1: their derivatives along u; order 2: those along u and v. A sentence without any
// tree: -inf and zeros. Siblings, and parts of u and v, may be null: all zeros.
template <class In, int order>
KERNEL grandsiblings(const In* arcs, const In* siblings, const In* grandparents, const In* u, const In* u_siblings,
                     const In* u_grandparents, const In* v, const In* v_siblings, const In* v_grandparents,
                     const i64* lengths, double* logz, In* out, In* beside, In* under, double* work, i64 work_size,
                     int* unproven, int pass, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  const i64 square = (i64)N * N, cube = square * N;
  sum_each<order>(Results<In, 3>{logz, {out, beside, under}, {square, cube, cube}}, lengths, B, N,
                  [&](auto numbers, bool must_prove, i64 b, int n, auto results) INLINED {
    const GrandParts<In> scores = GrandParts<In>{arcs, siblings, grandparents}.at(b, N),
                         du = GrandParts<In>{u, u_siblings, u_grandparents}.at(b, N),
                         dv = GrandParts<In>{v, v_siblings, v_grandparents}.at(b, N);
#if !ON_GPU
    if constexpr (order == 0 && !any_range<ALGEBRA(numbers)>) {
      if (!grandparents || (beside && !siblings)) return false;  // nobody asks for these
      return siblings ? sum_spans<true>(scores, results, mine, N, n, single_root)
                      : sum_spans<false>(scores, results, mine, N, n, single_root);
    } else
#endif
    return sum_trees<ALGEBRA(numbers)>(scores, du, dv, results, mine, N, n, single_root, must_prove);
  }, Passes{pass, unproven});
}

EXPORT_ORDERS(grandsiblings)
