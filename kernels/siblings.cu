// Projective trees with scores of siblings: log Z, the probabilities of all parts and their directional derivatives by
// inside and outside, in O(n^3) time.
#include "siblings_rows.cuh"

// The outside pass: derivatives of log Z by the inside chart, each cell pulling from the spans that used it.
template <class T> struct SiblingOutside : SiblingCharts<T> {
  typedef SiblingCharts<T> Charts;
  using Charts::Charts, Charts::R, Charts::L, Charts::P, Charts::Q, Charts::X;

  // arc(d, i, right, v): v is the derivative of log Z by the score of the arc i -> i+d if right, else of i+d -> i;
  // row(d, t, i, right, v): by that of the arc and its sibling at distance t
  template <class Arc, class Row> DEVICE void run(const SiblingInside<T>& in, int n, Arc arc, Row row) {
    for (int d = n; d >= 1; --d) {
      PACKS(i, n + 1 - d) {
        T r = T::zero(), l = T::zero(), p = T::zero(), q = T::zero();
        if (d == n) r = T::pick(lane_is(i, 0), T::lift(in.R.cell(n, 0).inverse()), T::zero());
        else if (W > 1 || i + d < n) r = Q.get(d + 1, i) * in.Z.get(d + 1, 0, i);
        if (d < n && (W > 1 || i > 0)) l = P.get(d + 1, i - 1) * in.A.get(d + 1, 0, i - 1);
        for (int e = 1; e <= n - d - i; ++e) {
          r.mac(X.get(d + e, i), in.L.get(e - 1, i + d + 1));
          l.mac(L.get(d + e, i), in.Q.get(e, i + d));
        }
        for (int s = 1; s < i + W && s <= n - d; ++s) {
          r.mac(R.get(d + s, i - s), in.P.get(s, i - s));
          l.mac(X.get(d + s, i - s), in.R.get(s - 1, i - s));
        }
        r = r.normal(), l = l.normal();
        R.put(d, i, n, r);
        L.put(d, i, n, l);
        for (int e = 1; e <= n - d - i; ++e) {
          p.mac(R.get(d + e, i), in.R.get(e, i + d));
          p.mac(P.get(d + e, i) * in.X.get(e, i + d), in.A.get(d + e, d, i));
        }
        for (int s = 1; s < i + W && s <= n - d; ++s) {
          q.mac(L.get(d + s, i - s), in.L.get(s, i - s));
          q.mac(Q.get(d + s, i - s) * in.X.get(s, i - s), in.Z.get(d + s, d, i - s));
        }
        p = (p + r).normal(), q = (q + l).normal();
        P.put(d, i, n, p);
        Q.put(d, i, n, q);
        row(d, 0, i, true, p * in.A.get(d, 0, i) * in.L.get(d - 1, i + 1));
        row(d, 0, i, false, q * in.Z.get(d, 0, i) * in.R.get(d - 1, i));
        arc(d, i, true, in.P.get(d, i) * p);
        arc(d, i, false, in.Q.get(d, i) * q);
        const T between = in.X.get(d, i);
        T x = T::zero();
        for (int e = 1; e <= n - d - i; ++e) {
          const T y = Q.get(d + e, i) * in.Z.get(d + e, e, i) * in.Q.get(e, i + d);
          x = x + y;
          row(d + e, e, i, false, y * between);
        }
        for (int s = 1; s < i + W && s <= n - d; ++s) {
          const T y = P.get(d + s, i - s) * in.A.get(d + s, s, i - s) * in.P.get(s, i - s);
          x = x + y;
          row(d + s, s, i - s, true, y * between);
        }
        X.put(d, i, n, x.normal());
      }
      BARRIER();
    }
  }
};

template <class T, class In>
DEVICE bool sum_trees(Parts<In> scores, Parts<In> u, Parts<In> v, Results<In, 2> results, double* work, int N, int n,
                      int single_root, bool must_prove) {
  SiblingInside<T> in(work, n);
  const Found z = fill(in, scores, u, v, N, n, single_root, must_prove);
  if (!results.take(z)) return z.enough;
  In *out = results.out[0], *rows = results.out[1];
  SiblingOutside<T> outside(work + SiblingInside<T>::doubles(n), n);
  BARRIER();
  outside.run(in, n, [&](int d, int i, bool right, T value) {
    const auto x = value.top();
    for (int k = 0; k < W && i + k + d <= n; ++k) {
      const int h = i + k, m = h + d;
      if (right) out[(i64)h * N + m] = (In)lane_of(x, k);
      else if (h > 0) out[(i64)m * N + h] = (In)lane_of(x, k);
    }
  }, [&](int d, int t, int i, bool right, T value) {
    if (!rows) return;
    const auto x = value.top();
    for (int k = i < 0 ? -i : 0; k < W && i + k + d <= n; ++k) {
      const int a = i + k, b = a + d;
      if (right) rows[((i64)a * N + a + t) * N + b] = (In)lane_of(x, k);
      else if (a > 0) rows[((i64)b * N + b - t) * N + a] = (In)lane_of(x, k);
    }
  });
  return true;
}

// pass and unproven [B]: as in sentences.cuh.
// order 0: logz [B], and if out is not null the probabilities of arcs [B, N, N] and, if rows is not null, of siblings
// [B, N, N, N]; order 1: their derivatives along u; order 2: those along u and v. A sentence without any tree: -inf and
// zeros. Siblings, and parts of u and v, may be null: all zeros.
template <class In, int order>
KERNEL siblings(const In* arcs, const In* pairs, const In* u, const In* u_pairs, const In* v, const In* v_pairs,
                const i64* lengths, double* logz, In* out, In* rows, double* work, i64 work_size, int* unproven,
                int pass, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  const i64 square = (i64)N * N;
  sum_each<order>(Results<In, 2>{logz, {out, rows}, {square, square * N}}, lengths, B, N,
                  [&](auto numbers, bool must_prove, i64 b, int n, auto results) INLINED {
    const Parts<In> s = Parts<In>{arcs, pairs}.at(b, N), du = Parts<In>{u, u_pairs}.at(b, N),
                    dv = Parts<In>{v, v_pairs}.at(b, N);
#if !ON_GPU
    if constexpr (order == 0)
      if (must_prove && pairs) return sum_rows(s, results, mine, N, n, single_root);
#endif
    return sum_trees<ALGEBRA(numbers)>(s, du, dv, results, mine, N, n, single_root, must_prove);
  }, Passes{pass, unproven});
}

EXPORT_ORDERS(siblings)
