// Projective trees: log Z, marginals and their directional derivatives by inside and outside, in O(n^3) time and
// O(n^2) memory.
#include "eisner.cuh"

// The outside pass: derivatives of log Z by the inside chart, each cell pulling from the spans that used it.
template <class T> struct Outside {
  Chart<T> R, L, X;
  static constexpr int squares = 2;
  DEVICE Outside(double* work, int n) {
    const i64 size = T::planes * square_size(n);
    R = first_half<T>(work, n), L = second_half<T>(work, n), X = first_half<T>(work + size, n);
    for (int s = 0; s < squares; ++s) clear_pads<T>(work + s * size, n);
  }

  // put(d, i, right, v): v is the derivative of log Z by the score of the arc i -> i+d if right, else of i+d -> i
  template <class Put> DEVICE void run(const Inside<T>& in, int n, int single_root, Put put) {
    for (int d = n; d >= 1; --d) {
      PACKS(i, n + 1 - d) {
        T r = T::zero(), l = T::zero(), p = T::zero(), q = T::zero();
        if (d == n) r = T::pick(lane_is(i, 0), T::lift(in.R.cell(n, 0).inverse()), T::zero());
        for (int e = 1; e <= n - d - i; ++e) {
          r.mac(X.get(d + e, i), in.L.get(e - 1, i + d + 1));
          l.mac(L.get(d + e, i), in.Q.get(e, i + d));
          p.mac(R.get(d + e, i), in.R.get(e, i + d));
        }
        for (int s = 1; s < i + W && s <= n - d; ++s) {
          r.mac(R.get(d + s, i - s), in.P.get(s, i - s));
          l.mac(X.get(d + s, i - s), in.R.get(s - 1, i - s));
          q.mac(L.get(d + s, i - s), in.L.get(s, i - s));
        }
        r = in.without_partial_root(r.normal(), d, i, n, single_root);
        R.put(d, i, n, r);
        p = (p + r).normal();
        l = l.normal();
        L.put(d, i, n, l);
        q = (q + l).normal();
        T x = in.A.get(d, i) * p;
        X.put(d, i, n, x + in.Z.get(d, i) * q);
        put(d, i, true, in.P.get(d, i) * p);
        put(d, i, false, in.Q.get(d, i) * q);
      }
      BARRIER();
    }
  }
};

template <class T, class In>
DEVICE bool sum_trees(Given<In> arcs, Results<In, 1> results, double* work, int N, int n, int single_root,
                      bool must_prove) {
  Inside<T> in(work, n);
  const Found z = in.fill(arcs, N, n, single_root, must_prove);
  if (!results.take(z)) return z.enough;
  In* out = results.out[0];
  Outside<T> outside(work + Inside<T>::squares * T::planes * square_size(n), n);
  BARRIER();
  outside.run(in, n, single_root, [&](int d, int i, bool right, T v) {
    Pack x = v.top();
    for (int k = 0; k < W && i + k + d <= n; ++k) {
      int h = i + k, m = h + d;
      if (right) out[(i64)h * N + m] = (In)lane_of(x, k);
      else if (h > 0) out[(i64)m * N + h] = (In)lane_of(x, k);
    }
  });
  return true;
}

// order 0: logz [B], and if out is not null the marginals [B, N, N]; order 1: the marginals' derivative along u;
// order 2: its derivative along v. A sentence without any tree: -inf and zeros.
template <class In, int order>
KERNEL eisner(const In* arcs, const In* u, const In* v, const i64* lengths, double* logz, In* out, double* work,
              i64 work_size, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  const Given<In> scores{arcs, order > 0 ? u : nullptr, order > 1 ? v : nullptr};
  const i64 square = (i64)N * N;
  sum_each<order>(Results<In, 1>{logz, {out}, {square}}, lengths, B, N,
                  [&](auto numbers, bool must_prove, i64 b, int n, auto results) INLINED {
    return sum_trees<ALGEBRA(numbers)>(scores.at(b * square), results, mine, N, n, single_root, must_prove);
  });
}

EXPORT_ORDERS(eisner)
