// Non-projective trees: log Z, marginals and their directional derivatives, by elimination and its reverse.
#include "matrix_tree.cuh"

// Derivatives of log Z by the weights, from the last word eliminated back to the first. With
//   q_i = w_ik / out_k,  g_i = sum_j d_ij * w_kj,  E = sum_i q_i * g_i:
//   d_ik = (1 - E + g_i) / out_k   (only g_i / out_k for a root left out of out_k),   d_kj = sum_i d_ij * q_i.
template <class T, class S> DEVICE T rest_and(T g, S total) { return g + T::lift(S::one() + total.scaled(-1.)); }  // g + 1 - E
#if ON_GPU
DEVICE Short rest_and(Short g, Short total) { return g + Short::one() - total; }
#endif

template <class T> struct Reverse {
  typedef typename T::Scalar S;
  Matrix<T> D, Dt;  // d_ij [head, modifier], and [modifier, head]
  DEVICE Reverse(double* work, int n) {
    D = Matrix<T>{work, row_size(n), matrix_size(n)};
    Dt = Matrix<T>{work + T::planes * matrix_size(n), row_size(n), matrix_size(n)};
  }

  DEVICE void run(const Elimination<T>& e, int n, int single_root) {
    const Matrix<T>& v = e.vectors;
    auto prepare = [&](int k) INLINED {  // q_i and w_ki
      const S inverse = v.cell(e.INVERSE, k);
      LANES(i, k) {
        v.put_cell(e.Q_ + k % 2, i, e.M.cell(i, k) * inverse);
        v.put_cell(e.C_, i, e.M.cell(k, i));
      }
    };
    prepare(1);
    BARRIER();
    for (int k = 1; k <= n; ++k) {
      const int Q = e.Q_ + k % 2;
      const T inv = T::lift(v.cell(e.INVERSE, k));
      PACKS(x, k) {
        T g = T::zero(), r = T::zero();
        if (k > 1) r.mac(D.get(0, x), T::lift(v.cell(Q, 0)));
        for (int y = 1; y < k; ++y) {
          g.mac(Dt.get(y, x), T::lift(v.cell(e.C_, y)));
          r.mac(D.get(y, x), T::lift(v.cell(Q, y)));
        }
        v.put(e.G_, x, g.normal());
        r = r.normal();
        D.put(k, x, r);
        Dt.put_down(x, k, k, r);
      }
      BARRIER();
      S mine = S::zero();
      WARP_LANES(x, k) mine = mine + v.cell(Q, x) * v.cell(e.G_, x);
      const S total = warp_reduce(mine, Plus{});
      PACKS(x, k) {
        T d = rest_and(v.get(e.G_, x), total);
        if (single_root && k > 1 && x == 0) d = T::pick(lane_is(x, 0), v.get(e.G_, x), d);
        d = d * inv;
        Dt.put(k, x, d);
        D.put_down(x, k, k, d);
      }
      if (LEADER) { D.put_cell(k, k, S::zero()); Dt.put_cell(k, k, S::zero()); }
      if (k < n) prepare(k + 1);
      BARRIER();
    }
  }
};

template <class T, class In>
DEVICE bool sum_trees(Given<In> arcs, Results<In, 1> results, double* work, int* order, int N, int n, int single_root,
                      bool must_prove) {
  Elimination<T> e(work, order, n);
  const Found z = e.fill(arcs, N, n, single_root, must_prove);
  if (!results.take(z)) return z.enough;
  In* out = results.out[0];
  Reverse<T> reverse(work + e.room(n), n);
  reverse.run(e, n, single_root);
  ROWS(i, n + 1) WARP_PACKS(j, n + 1) {
    const auto d = (e.A.get(i, j) * reverse.D.get(i, j)).top();
    for (int l = 0; l < W && j + l <= n; ++l)
      if (j + l > 0 && j + l != i) {
        auto x = lane_of(d, l);
        if (T::order == 0 && x < 0) x = 0;  // rounding of 1 - E + g
        out[(i64)e.word[i] * N + e.word[j + l]] = (In)x;
      }
  }
  return true;
}

// order 0: logz [B], and if out is not null the marginals [B, N, N]; order 1: the marginals' derivative along u;
// order 2: its derivative along v. A sentence without any tree: -inf and zeros.
template <class In, int order>
KERNEL matrix_tree(const In* arcs, const In* u, const In* v, const i64* lengths, double* logz, In* out, double* work,
                   int* orders, i64 work_size, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  int* words = orders + SLOT * N;
  const Given<In> scores{arcs, order > 0 ? u : nullptr, order > 1 ? v : nullptr};
  const i64 square = (i64)N * N;
  sum_each<order>(Results<In, 1>{logz, {out}, {square}}, lengths, B, N,
                  [&](auto numbers, bool must_prove, i64 b, int n, auto results) INLINED {
    return sum_trees<ALGEBRA(numbers)>(scores.at(b * square), results, mine, words, N, n, single_root, must_prove);
  });
}

EXPORT_ORDERS(matrix_tree)
