// Eisner's algorithm (1996), inside and outside, over any number type.
//
//   X(d, i)  span i..i+d about to get an arc between its ends:  sum_t R(t, i) * L(d-1-t, i+t+1)
//   P(d, i)  with the arc i -> i+d:  w * X        Q(d, i)  with the arc i+d -> i:  w * X
//   R(d, i)  complete, headed at i, to the right:  sum_t P(t, i) * R(d-t, i+t)
//   L(d, i)  complete, headed at i+d, to the left: sum_t L(t, i) * Q(d-t, i+t)
//
// Charts lie by width d, so that the lanes of a loop over i read and write side by side whatever the split t is.
#pragma once
#include "sentences.cuh"

template <class T> struct Chart : Table<T> {
  using Table<T>::cell;
  // as of a chart that has an entry for each head of a span's head
  DEVICE typename T::Scalar cell(int d, int i, int) const { return cell(d, i); }
  // lanes whose span ends after the last word become zero
  DEVICE void put(int d, int i, int n, T v) const {
    Table<T>::put(d, i, T::pick(lanes_below(i, n + 1 - d), v, T::zero()));
  }
};

// Two triangles in one square of n+2 rows: the first by rows downwards, the second upwards. Rows begin at multiples of
// a cache line, so a first-half cell is aligned by its span's start i and a second-half cell by its end i+d; they are an
// odd number of lines long, so that cells above each other do not all fall into the same few sets of a cache.
DEVICE i64 chart_row(int n) { return PAD ? ((n + 1 + 2 * PAD + 7) / 8 | 1) * 8 : n + 1; }
DEVICE i64 square_size(int n) { return (n + 2) * chart_row(n) + 2 * PAD; }
template <class T> DEVICE Chart<T> first_half(double* square, int n) {
  return Chart<T>{square + PAD, chart_row(n), square_size(n)};
}
template <class T> DEVICE Chart<T> second_half(double* square, int n) {
  const i64 row = chart_row(n);
  return Chart<T>{square + spread_out<T>(PAD + (n + 1) * row + PAD), 1 - row, square_size(n)};
}
template <class T> DEVICE void clear_pads(double* square, int n) {
  if (PAD == 0) return;
  const int N = n + 1;
  const i64 row = chart_row(n), plane = square_size(n);
  for (int k = 0; k < PAD; k += W) T::zero().store(square + k, plane);
  for (int r = 0; r <= N; ++r)
    for (int k = 0; k < PAD; k += W) {
      T::zero().store(square + PAD + r * row + (N - r) + k, plane);
      T::zero().store(square + PAD + r * row + N + PAD + k, plane);
      T::zero().store(square + PAD + (r + 1) * row - PAD + k, plane);
    }
}

template <class T> struct Inside {
  Chart<T> R, L, P, Q, A, Z;  // A, Z: weights of the arcs i -> i+d and i+d -> i
  static constexpr int squares = 3;
  DEVICE Inside(double* work, int n) {
    const i64 size = T::planes * square_size(n);
    R = first_half<T>(work, n), L = second_half<T>(work, n);
    P = first_half<T>(work + size, n), Q = second_half<T>(work + size, n);
    A = first_half<T>(work + 2 * size, n), Z = second_half<T>(work + 2 * size, n);
    for (int s = 0; s < squares; ++s) clear_pads<T>(work + s * size, n);
  }

  template <class In> DEVICE Range load(Given<In> arcs, int N, int n, typename T::Score spread) {
    return load_weights<T>(arcs, N, n, spread, [&](int h, int m, T w) {
      double lanes[T::planes * W];
      w.store(lanes, W);
      for (int l = 0; l < W; ++l) {
        int k = m + l;
        if (k > n || k == h) continue;
        double* to = h < k ? A.at(k - h, h) : Z.at(h - k, k);
        for (int p = 0; p < T::planes; ++p) to[p * A.plane()] = lanes[p * W + l];
      }
    });
  }

  // With a single root, R(d, 0) counts only when it spans the sentence: then X(d, 0) has R(0, 0) alone to its left.
  static DEVICE T without_partial_root(T v, int d, int i, int n, int single_root) {
    if (single_root && d < n && i == 0) v = T::pick(lane_is(i, 0), T::zero(), v);
    return v;
  }

  DEVICE void run(int n, int single_root) {
    PACKS(i, n + 1) { R.put(0, i, n, T::one()); L.put(0, i, n, T::one()); }
    BARRIER();
    for (int d = 1; d <= n; ++d) {
      PACKS(i, n + 1 - d) {
        T x = L.get(d - 1, i + 1), r = T::zero(), l = T::zero();
        for (int t = 1; t < d; ++t) {
          x.mac(R.get(t, i), L.get(d - 1 - t, i + t + 1));
          r.mac(P.get(t, i), R.get(d - t, i + t));
          l.mac(L.get(t, i), Q.get(d - t, i + t));
        }
        x = x.normal();
        T p = A.get(d, i) * x, q = Z.get(d, i) * x;
        P.put(d, i, n, p);
        Q.put(d, i, n, q);
        R.put(d, i, n, without_partial_root((r + p).normal(), d, i, n, single_root));
        L.put(d, i, n, (l + q).normal());
      }
      BARRIER();
    }
  }

  template <class In> DEVICE Found fill(Given<In> arcs, int N, int n, int single_root, bool must_prove) {
    BARRIER();
    const Range range = load(arcs, N, n, spread_for<T>(n, must_prove));
    if (range.bad) return unfit<T>();
    run(n, single_root);
    const double log_z = log_of(R.cell(n, 0).primal());
    return found(log_z, range.shift, !must_prove || proven<T>(log_z, range.log_bound, n));
  }
};

// The outside pass: derivatives by the inside chart, each cell pulling from the spans that used it.
template <class T> struct Outside {
  Chart<T> R, L, X;
  static constexpr int squares = 2;
  DEVICE Outside(double* work, int n) {
    const i64 size = T::planes * square_size(n);
    R = first_half<T>(work, n), L = second_half<T>(work, n), X = first_half<T>(work + size, n);
    for (int s = 0; s < squares; ++s) clear_pads<T>(work + s * size, n);
  }

  // put(d, i, right, v): v is the derivative by the span that is ended by the arc i -> i+d if right, else by i+d -> i, that
  // by the whole being `one`
  template <class Put> DEVICE void run(const Inside<T>& in, int n, int single_root, typename T::Scalar one, Put put) {
    for (int d = n; d >= 1; --d) {
      PACKS(i, n + 1 - d) {
        T r = T::zero(), l = T::zero(), p = T::zero(), q = T::zero();
        if (d == n) r = T::pick(lane_is(i, 0), T::lift(one), T::zero());
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
        put(d, i, true, p);
        put(d, i, false, q);
      }
      BARRIER();
    }
  }
};
