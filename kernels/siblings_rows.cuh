// The program of siblings.cuh on a CPU, in doubles. Spans are i..j, charts rows [start i, end j], and every loop is
// over the ends j of a pack:
//
//   X(i, j) = sum_k R(i, k) * L(k+1, j)     R(i, j) = sum_k P(i, k) * R(k, j)     L(i, j) = sum_k L(i, k) * Q(k, j)
//   P(i, j) = A(i, j) * L(i+1, j) + sum_k P(i, k) * X(k, j) * A(i, k, j)
//   Q(i, j) = Z(i, j) * R(i, j-1) + sum_k X(i, k) * Q(k, j) * Z(i, k, j)
//
// A(i, j) and A(i, k, j) are the weights of the arc i -> j as the first and after k, Z(i, j) and Z(i, k, j) those of
// j -> i. Rows are finished from the last to the first, the outside pass goes the other way. Word j is at place j - 1
// of a row; a root has no end.
#pragma once
#include "siblings_places.cuh"
#if !ON_GPU

struct SiblingRows : SiblingPlaces {
  using SiblingPlaces::SiblingPlaces;

  DEVICE void inside() const {
    for (int J = 0; J < packs; ++J) put(L, n + 1, J, Pack{});
    for (int i = n; i >= 1; --i)
      for (int J = pack_of(i); J < packs; ++J) inside_pack(i, J);
    for (int J = 0; J < packs; ++J) root_inside_pack(J);
  }
  DEVICE double whole() const {  // R(0, n) = Z'
    double z = 0.;
    for (int k = 1; k <= n; ++k) z += P[k - 1] * R[k * row + n - 1];
    return z;
  }

  DEVICE void inside_pack(int i, int J) const {
    const int m = word(J), end = end_of(J), at_i = i - m;  // at_i: the lane of i, if it is here
    Pack x = at_i == W - 1 ? Pack{} : get(L, i + 1, J);
    Pack p = get(A, i, J) * x, q = Pack{}, r = Pack{}, l = Pack{};
    const double *a = weight(after, i, i + 1, J), *z = weight(before, i, i + 1, J);
    for (int k = i + 1; k < m; ++k, a += W, z += W) {
      const Pack here = all(P, i, k), of_q = get(Q, k, J);
      p += here * (get(X, k, J) * pack(a));
      r += here * get(R, k, J);
      x += all(R, i, k) * get(L, k + 1, J);
      l += all(L, i, k) * of_q;
      q += all(X, i, k) * (of_q * pack(z));
    }
    Pack before_r = splat<Pack>(at_i < 0 ? R[i * row + m - 2] : 0.);
    const double* first = at(Z, i, J);
    each_lane<true>([&](auto lane) INLINED {
      constexpr int c = LANE;
      if (c >= end || c < at_i) return;
      if (c == at_i) {
        before_r = splat<Pack>(1.);
        r = l = choose(lane_is(0, c), before_r, Pack{});
        return;
      }
      const int j = m + c;
      const Pack of_q = get(Q, j, J), here_p = spread<c>(p), here_x = spread<c>(x);
      const Pack here_r = spread<c>(r) + here_p, here_q = spread<c>(q) + before_r * first[c];
      q = choose(lane_is(0, c), here_q, q);
      p += here_p * (get(X, j, J) * pack(a));
      r += here_p * get(R, j, J);
      if (c + 1 < W) x += here_r * get(L, j + 1, J);
      l += (spread<c>(l) + here_q) * of_q;
      q += here_x * (of_q * pack(z));
      before_r = here_r, a += W, z += W;
    });
    put(P, i, J, p), put(Q, i, J, q), put(X, i, J, x), put(R, i, J, r), put(L, i, J, l + q);
  }

  DEVICE void root_inside_pack(int J) const {
    Pack p = get(A, 0, J) * get(L, 1, J);
    if (!single_root) {
      const int m = word(J), end = end_of(J);
      const double* a = weight(after, 0, 1, J);
      for (int k = 1; k < m; ++k, a += W) p += all(P, 0, k) * (get(X, k, J) * pack(a));
      each_lane<true>([&](auto lane) INLINED {
        if (LANE >= end) return;
        p += spread<LANE>(p) * (get(X, m + LANE, J) * pack(a));
        a += W;
      });
    }
    put(P, 0, J, p);
  }

  // What a pass over one row gives out: put(i, j, right, v), first(i, j, right, v) and rows(i, k, j, v) for the pack of
  // ends at j; those of left arcs after a sibling stay in place of their weights.
  struct Dots { Square p, x, r, l; };

  template <class Out> DEVICE void right_of(int i, int k, int J, const double* a, Pack* dot, Out out) const {
    const Pack y = pack(dP + J * W) * pack(a), t = y * get(X, k, J), p = all(P, i, k);
    *dot += t;
    put(dX, k, J, get(dX, k, J) + p * y);
    out.rows(i, k, word(J), p * t);
  }
  DEVICE void left_of(int i, int k, int J, double* z, Pack* dot) const {
    const Pack y = get(dQ, i, J) * pack(z), t = y * get(Q, k, J), x = all(X, i, k);
    *dot += t;
    put(dQ, k, J, get(dQ, k, J) + x * y);
    unpack(z, x * t);
  }

  template <class Out> DEVICE void outside_pack(int i, int J, double one, Out out) const {
    const int m = word(J), end = end_of(J), at_i = i - m;
    const int from = at_i < 0 ? 0 : at_i + 1;
    // from spans that end later
    Dots d{};
    for (int c = from; c < end; ++c) {
      const int k = m + c;
      Pack p = Pack{}, x = Pack{}, r = Pack{}, l = Pack{};
      for (int E = J + 1; E < packs; ++E) {
        right_of(i, k, E, weight(after, i, k, E), &p, out);
        left_of(i, k, E, weight(before, i, k, E), &x);
        p += get(dR, i, E) * get(R, k, E);
        r += get(dX, i, E) * get(L, k + 1, E);
        l += get(dL, i, E) * get(Q, k, E);
      }
      d.p.row[c] = p, d.x.row[c] = x, d.r.row[c] = r, d.l.row[c] = l;
    }
    Pack p = sums_of_rows(d.p), x = sums_of_rows(d.x), r = sums_of_rows(d.r), l = sums_of_rows(d.l), q = get(dQ, i, J);
    x += get(dX, i, J), l += pack(dA + J * W);
    const i64 after_pack = i * row + m + W - 1;
    if (J + 1 < packs) r += choose(lane_is(0, W - 1), splat<Pack>(dQ[after_pack] * Z[after_pack]), Pack{});
    else r += choose(lane_is(0, end - 1), all(P, 0, i) * one, Pack{});
    // from spans that begin earlier
    for (int h = 1; h < i; ++h) {
      r += get(dR, h, J) * all(P, h, i);
      l += get(dX, h, J) * all(R, h, i - 1);
      q += get(dL, h, J) * all(L, h, i);
    }
    const Mask later = ends_after(i, J);
    r = choose(later, r, Pack{}), l = choose(later, l, Pack{}), q = choose(later, q, Pack{});
    x = choose(later, x, Pack{}), p = choose(later, p, Pack{});
    // from spans that end later within the pack
    Square as_p, as_x;
    double *a = weight(after, i, i + 1, J), *z = weight(before, i, i + 1, J);
    if (at_i < 0) a += (m - i - 1) * W, z += (m - i - 1) * W;
    for (int c = 0; c < W; ++c) {
      const bool here = c >= from && c < end;
      as_p.row[c] = here ? get(X, m + c, J) * pack(a + (c - from) * W) : Pack{};
      as_x.row[c] = here ? get(Q, m + c, J) * pack(z + (c - from) * W) : Pack{};
    }
    as_p = transposed(as_p), as_x = transposed(as_x);
    const double *of_r = own + 3 * J * W * W, *of_l = of_r + W * W, *of_q = of_l + W * W;
    const double* first = at(Z, i, J);
    each_lane<false>([&](auto lane) INLINED {
      constexpr int c = LANE;
      if (c >= end || c <= at_i) return;
      const Pack here_r = spread<c>(r), here_p = spread<c>(p) + here_r, here_l = spread<c>(l);
      const Pack here_q = spread<c>(q) + here_l, here_x = spread<c>(x);
      p += here_r * pack(of_r + c * W) + here_p * as_p.row[c];
      l += here_l * pack(of_q + c * W);
      x += here_q * as_x.row[c];
      r += here_x * pack(of_l + c * W);
      if (c > 0) r += choose(lane_is(0, c - 1), here_q * first[c], Pack{});
    });
    r = choose(later, r, Pack{}), l = choose(later, l, Pack{});
    p = choose(later, p + r, Pack{}), q += l;
    put(dR, i, J, r), put(dL, i, J, l), put(dX, i, J, x), put(dQ, i, J, q), unpack(dP + J * W, p);
    const Pack by_first = p * get(A, i, J), next = get(L, i + 1, J);
    unpack(dA + J * W, by_first);
    out.arcs(i, m, true, p * get(P, i, J));
    out.arcs(i, m, false, q * get(Q, i, J));
    out.first(i, m, true, by_first * next);
    out.first(i, m, false, q * pack(first) * pack(at(R, i, J) - 1));  // R(i, j-1)
    for (int c = from; c < end; ++c, a += W, z += W) {
      Pack unused = Pack{};
      right_of(i, m + c, J, a, &unused, out);
      left_of(i, m + c, J, z, &unused);
    }
  }

  template <class Out> DEVICE void root_outside_pack(int J, double one, Out out) const {
    const int m = word(J), end = end_of(J);
    Pack p = Pack{};
    Square d{};
    for (int c = 0; c < end && !single_root; ++c)
      for (int E = J + 1; E < packs; ++E) right_of(0, m + c, E, weight(after, 0, m + c, E), &d.row[c], out);
    p = sums_of_rows(d);
    for (int c = 0; c < end; ++c) p[c] += one * R[(m + c) * row + n - 1];
    const double* a = single_root ? after : weight(after, 0, m, J);
    if (!single_root) {
      for (int c = 0; c < W; ++c) d.row[c] = c < end ? get(X, m + c, J) * pack(a + c * W) : Pack{};
      d = transposed(d);
      each_lane<false>([&](auto lane) INLINED { if (LANE < end) p += spread<LANE>(p) * d.row[LANE]; });
    }
    unpack(dP + J * W, p);
    const Pack by_first = p * get(A, 0, J);
    unpack(dA + J * W, by_first);
    out.arcs(0, m, true, p * get(P, 0, J));
    out.first(0, m, true, by_first * get(L, 1, J));
    Pack unused = Pack{};
    for (int c = 0; c < end && !single_root; ++c) right_of(0, m + c, J, a + c * W, &unused, out);
  }

  template <class Out> DEVICE void outside(Out out) const {
    const double one = 1. / whole();
    for (int i = 1; i <= n; ++i)
      for (int J = pack_of(i); J < packs; ++J) put(dX, i, J, Pack{}), put(dQ, i, J, Pack{});
    for (int J = 0; J < packs; ++J) {
      Square r{}, l{}, q{};
      for (int c = 0; c < end_of(J); ++c) {
        const int k = word(J) + c;
        r.row[c] = choose(lane_is(0, c), Pack{}, get(R, k, J)), q.row[c] = get(Q, k, J);
        if (c + 1 < W) l.row[c] = get(L, k + 1, J);
      }
      r = transposed(r), l = transposed(l), q = transposed(q);
      double* to = own + 3 * J * W * W;
      for (int c = 0; c < W; ++c) {
        unpack(to + c * W, r.row[c]), unpack(to + (W + c) * W, l.row[c]), unpack(to + (2 * W + c) * W, q.row[c]);
      }
    }
    for (int J = packs - 1; J >= 0; --J) root_outside_pack(J, one, out);
    for (int i = 1; i < n; ++i)
      for (int J = packs - 1; J >= pack_of(i + 1); --J) outside_pack(i, J, one, out);
    for (int I = packs - 1; I >= 0; --I)
      for (int J = I; J < packs; ++J) {
        const int m = word(I);
        for (int k = m + 1; k < word(J) + end_of(J) - 1; ++k) {
          Square v{};
          for (int c = 0; c < W && m + c < k; ++c) v.row[c] = pack(weight(before, m + c, k, J));
          v = transposed(v);
          for (int r = 0; r < end_of(J); ++r)
            if (word(J) + r > k) out.rows(word(J) + r, k, m, v.row[r]);
        }
      }
  }
};

template <class In> struct SiblingResults {
  In *arc, *row;
  int N, n;
  DEVICE void arcs(int i, int m, bool right, Pack v) const {
    for (int c = 0; c < W && m + c <= n; ++c)
      if (m + c > i) arc[right ? (i64)i * N + m + c : (i64)(m + c) * N + i] = (In)v[c];
  }
  DEVICE void first(int i, int m, bool right, Pack v) const {
    if (!row) return;
    for (int c = 0; c < W && m + c <= n; ++c)
      if (const i64 j = m + c; j > i) row[right ? ((i64)i * N + i) * N + j : (j * N + j) * N + i] = (In)v[c];
  }
  DEVICE void rows(int h, int s, int m, Pack v) const {
    if (!row) return;
    In* to = row + ((i64)h * N + s) * N + m;
    Few<In> x = __builtin_convertvector(v, Few<In>);
    if (m + W > N)
      for (int l = N - m; l < W; ++l) x[l] = to[l];  // that of the next row
    std::memcpy(to, &x, sizeof x);
  }
};

template <class In>
DEVICE bool sum_rows(Parts<In> scores, Results<In, 2> results, double* work, int N, int n, int single_root) {
  SiblingRows charts(work, n, single_root);
  const Range range = charts.load(scores, N, spread_for(n));
  Found z = unfit<Lin<Pack>>();
  if (!range.bad) {
    charts.inside();
    const double log_z = log(charts.whole());
    z = found(log_z, range.shift, proven<Lin<Pack>>(log_z, range.log_bound, n));
  }
  if (results.take(z)) charts.outside(SiblingResults<In>{results.out[0], results.out[1], N, n});
  return z.enough;
}
#endif
