// Projective trees: log Z, marginals and their directional derivatives by inside and outside, in O(n^3) time and
// O(n^2) memory.
#include "eisner_tiles.cuh"

template <class T, class In>
DEVICE bool sum_trees(Given<In> arcs, Results<In, 1> results, double* work, int N, int n, int single_root,
                      bool must_prove) {
  Inside<T> in(work, n);
  const Found z = in.fill(arcs, N, n, single_root, must_prove);
  if (!results.take(z)) return z.enough;
  In* out = results.out[0];
  Outside<T> outside(work + Inside<T>::squares * T::planes * square_size(n), n);
  BARRIER();
  outside.run(in, n, single_root, in.R.cell(n, 0).inverse(), [&](int d, int i, bool right, T v) {
    const auto x = ((right ? in.P : in.Q).get(d, i) * v).top();
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
#if !ON_GPU
    if constexpr (order == 0)
      if (must_prove) return sum_tiles(scores.at(b * square), results, mine, N, n, single_root);
#endif
    return sum_trees<ALGEBRA(numbers)>(scores.at(b * square), results, mine, N, n, single_root, must_prove);
  });
}

EXPORT_ORDERS(eisner)
