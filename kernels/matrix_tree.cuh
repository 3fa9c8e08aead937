// The matrix-tree theorem without a subtraction. Words are eliminated one by one: whoever hung on word k hangs on
// the heads of k instead, in proportion (GTH; Alfa, Xue & Ye),
//
//   out_k = sum_i w_ik,     w_ij += w_ik * w_kj / out_k   (i != j),     Z = product of the out_k,
//
// so relative accuracy survives any range of weights. Node 0 is the root. With a single root it is left out of every
// out_k but the last one's: that is the part of Z linear in the root's weights.
#pragma once
#include "sentences.cuh"

template <class T> struct Matrix : Table<T> {
  // one number a lane, down the rows of column j
  DEVICE void put_down(int i, int j, int end, T v) const {
    double lanes[T::planes * W];
    v.store(lanes, W);
    for (int l = 0; l < W && i + l < end; ++l)
      for (int p = 0; p < T::planes; ++p) this->at(i + l, j)[p * this->plane()] = lanes[p * W + l];
  }
};

DEVICE i64 row_size(int n) { return PAD ? (i64)(n + 1 + 7) / 8 * 8 : n + 1; }
DEVICE i64 matrix_size(int n) { return (n + 1) * row_size(n); }

// A product of outflows: its log, and the least one on the way.
template <class S> struct Outflows {
  double sum = 0., lowest = 0.;
  DEVICE void times(S out, bool more_follow) {
    sum += log_of(out);
    if (more_follow) lowest = fmin(lowest, sum);
  }
  DEVICE double log() const { return sum; }
  DEVICE double least() const { return lowest; }
};
#if ON_GPU
template <> struct Outflows<Short> {  // nothing is too small for it
  Short all = Short::one();
  DEVICE void times(Short out, bool) { all = all * out; }
  DEVICE double log() const { return log_of(all); }
  DEVICE double least() const { return 0.; }
};
#endif

template <class T> struct Elimination {
  typedef typename T::Scalar S;
  Matrix<T> A, M;         // the weights, [head, modifier]: as given; and w_ik, w_kj as of k's elimination
  Matrix<T> vectors;       // rows: c_j = w_kj; 1 / out_k; and, in matrix_tree.cu, g and q_i = w_ik / out_k of two k
  int* word;               // node -> word
  Outflows<decltype(S().primal())> z;  // their product, Z'
  enum { C_, INVERSE, G_, Q_ };
  static constexpr int vector_rows = 5;

  // room: (2 matrices + 5 rows) of T
  DEVICE Elimination(double* work, int* order, int n) {
    const i64 size = T::planes * matrix_size(n), row = row_size(n);
    A = Matrix<T>{work, row, matrix_size(n)};
    M = Matrix<T>{work + size, row, matrix_size(n)};
    vectors = Matrix<T>{work + 2 * size, row, vector_rows * row};
    word = order;
  }
  static DEVICE i64 room(int n) { return T::planes * (2 * matrix_size(n) + vector_rows * row_size(n)); }

  template <class In> DEVICE Range load(Given<In> arcs, int N, int n, typename T::Score spread) {
    LANES(i, n + 1) word[i] = i;
    return load_weights<T>(arcs, N, n, spread, [&](int h, int m, T w) { A.put(h, m, w); M.put(h, m, w); });
  }

  // nodes x and y change places in both matrices
  DEVICE void swap_nodes(int x, int y, int n) {
    BARRIER();
    for (int which = 0; which < 2; ++which) {
      const Matrix<T>& X = which ? M : A;
      LANES(k, n + 1) { S s = X.cell(x, k); X.put_cell(x, k, X.cell(y, k)); X.put_cell(y, k, s); }
      BARRIER();
      LANES(k, n + 1) { S s = X.cell(k, x); X.put_cell(k, x, X.cell(k, y)); X.put_cell(k, y, s); }
      BARRIER();
    }
    if (LEADER) { int w = word[x]; word[x] = word[y]; word[y] = w; }
    BARRIER();
  }

  DEVICE S outflow(int k, int first) const {
    S sum = S::zero();
    WARP_LANES(i, k - first) sum = sum + M.cell(first + i, k);
    return warp_reduce(sum, Plus{});
  }

  // false: no tree. A word that at its turn has no head but the root must be the one under the root: it goes last.
  DEVICE bool run(int n, int single_root) {
    bool last_is_set = false;
    z = {};
    for (int k = n; k >= 1; --k) {
      const int first = single_root && k > 1 ? 1 : 0;
      S out = outflow(k, first);
      if (is_zero(out.primal())) {
        if (!single_root || last_is_set || k == 1) return false;
        last_is_set = true;
        swap_nodes(k, 1, n);
        out = outflow(k, first);
        if (is_zero(out.primal())) return false;
      }
      z.times(out.primal(), k > 1);
      const S inverse = out.inverse();
      if (LEADER) vectors.put_cell(INVERSE, k, inverse);
      if (W > 1)  // zeros after the end of the row
        PACKS(j, k) vectors.put(C_, j, T::pick(lanes_below(j, k), M.get(k, j), T::zero()));
      ROWS(i, k) {
        const T q = T::lift(M.cell(i, k) * inverse);
        WARP_PACKS(j, k) {
          T w = M.get(i, j);
          w.mac(q, W > 1 ? vectors.get(C_, j) : M.get(k, j));
          M.put(i, j, w.normal());
        }
      }
      BARRIER();
    }
    return true;
  }

  // Whether doubles were enough, after run() found trees. The weights of a root that is left out of the outflows are
  // not bounded by the others', but by the inverse of the outflows' product.
  DEVICE bool proven_by(const Range& range, int n) const {
    return z.least() > -250. && proven<T>(z.log(), range.log_bound, n);
  }

  template <class In> DEVICE Found fill(Given<In> arcs, int N, int n, int single_root, bool must_prove) {
    const Range range = load(arcs, N, n, spread_for<T>(n, must_prove));
    if (range.bad) return unfit<T>();
    const bool some = run(n, single_root);
    return found(some ? z.log() : -infinity(), range.shift, !must_prove || (some && proven_by(range, n)));
  }
};
