// The program of grandsiblings.cuh on a CPU, in doubles, span by span i..j. Charts are by a span's head h and its other
// end m, so that both directions are the same program, and g comes last:
//
//   P^g(h, m) = A^g(h, m) * (S(h, h, m) * C^h(m, next to h) + sum_k S(h, k, m) * X^h(k, m) * P^g(h, k))
//   C^g(h, m) = P^g(h, m) + sum_k C^h(k, m) * P^g(h, k)     X^g(i, j) = sum_t C^g(i, t) * C^g(j, t+1)
//
// over words k between h and m. Without scores of siblings X is not needed:
//
//   P^g(h, m) = A^g(h, m) * (C^g(h, next to m) + sum_k C^h(m, k) * C^g(h, k's neighbour towards h))
//
// A pack is of heads g, and only those outside of the span are looked at. What a head needs of the spans of its children
// k is one number each: T(h, m, k) = C^h(k, m) and V(h, m, k) = X^h(k, m), or C^h(m, k). Each is used by one span alone,
// so the derivative by it later takes its place; those by A, and by S, the place of these. Spans go by squares of starts
// and ends, for what they read to stay in the cache.
#pragma once
#include "grandsiblings_places.cuh"
#if !ON_GPU

template <int k> struct Many { static constexpr int number = k; };
#define MANY decltype(many)::number

template <bool siblings> struct GrandSpans : GrandPlaces {
  using GrandPlaces::GrandPlaces;

  // Some packs of heads outside of a span: where each is in a row.
  template <int many> struct Outer { i64 place[many]; };
  // run(outer, first) for all packs outside of i..j; a root's own head is 0.
  template <class Run> DEVICE void outside_of(int i, int j, Run run) const {
    const int before = i > 0 ? (i + W - 1) / W : 1;
    int after = i == 0 || j == n ? packs : (j + 1) / W;
    if (after < before) after = before;
    const int all = before + packs - after;
    int done = 0;
    auto take = [&](auto many) INLINED {
      Outer<MANY> outer;
      for (int l = 0; l < MANY; ++l) outer.place[l] = (done + l < before ? done + l : done + l + after - before) * W;
      run(many, outer, done == 0);
      done += MANY;
    };
    constexpr int most = W == 8 ? 4 : 2;
    while (done + most <= all) take(Many<most>{});
    if (most == 4 && done + 3 == all) take(Many<3>{});
    else if (most == 4 && done + 2 == all) take(Many<2>{});
    else if (done + 1 == all) take(Many<1>{});
  }

  DEVICE double* coefficients(int h, int m) const {  // of P(h, k), or of C(h, k's neighbour)
    double* v = at(V, h, m);
    if (!siblings) return v;
    const double* s = at(S, h, m);
    for (int k = (h < m ? h : m) + 1, end = h < m ? m : h; k < end; k += W) unpack(u + k, pack(s + k) * pack(v + k));
    return u;
  }
  DEVICE double first(int h, int m) const { return at(C, m, h < m ? h + 1 : h - 1)[h]; }

  APART void inside_head(int h, int m) const {
    const int i = h < m ? h : m, j = h < m ? m : h, back = h < m ? -1 : 1;
    const double *t = at(T, h, m), *v = coefficients(h, m), *a = at(A, h, m);
    const double *p_of = at(P, h, 0), *v_of = siblings ? p_of : at(C, h, back);
    double *p_to = at(P, h, m), *c_to = at(C, h, m);
    const double start = siblings ? at(S, h, m)[h] * first(h, m) : 0.;
    outside_of(i, j, [&](auto many, auto outer, bool) INLINED {
      Pack p[MANY], c[MANY];
      for (int l = 0; l < MANY; ++l) {
        p[l] = siblings ? splat<Pack>(start) : pack(at(C, h, m + back) + outer.place[l]);
        c[l] = Pack{};
      }
      for (int k = i + 1; k < j; ++k) {
        const Pack by_v = splat<Pack>(v[k]), by_t = splat<Pack>(t[k]);
#pragma GCC unroll 4
        for (int l = 0; l < MANY; ++l) {
          const Pack y = pack(p_of + k * row + outer.place[l]);
          p[l] += by_v * (siblings ? y : pack(v_of + k * row + outer.place[l]));
          c[l] += by_t * y;
        }
      }
      for (int l = 0; l < MANY; ++l) {
        p[l] *= pack(a + outer.place[l]);
        unpack(p_to + outer.place[l], p[l]);
        unpack(c_to + outer.place[l], c[l] + p[l]);
      }
    });
  }

  APART void between(int i, int j) const {  // X, to x
    outside_of(i, j, [&](auto many, auto outer, bool) INLINED {
      Pack sum[MANY];
      for (int l = 0; l < MANY; ++l) sum[l] = Pack{};
      const double *right = at(C, i, i), *left = at(C, j, i + 1);
      for (int t = i; t < j; ++t, right += row, left += row)
#pragma GCC unroll 4
        for (int l = 0; l < MANY; ++l) sum[l] += pack(right + outer.place[l]) * pack(left + outer.place[l]);
      for (int l = 0; l < MANY; ++l) unpack(x + outer.place[l], sum[l]);
    });
  }

  DEVICE void inside_span(int i, int j) const {
    inside_head(i, j), inside_head(j, i);
    if (siblings) between(i, j);
    // to those that may be the heads of both ends
    const double *right = at(C, i, j), *left = at(C, j, i), *as_left = siblings ? x : left, *as_right = siblings ? x : right;
    i64 to = j * row + i;
    for (int g = 0; g < i; ++g, to += plane) T[to] = right[g], V[to] = as_left[g];
    to = (j + 1) * plane + i * row + j;
    for (int g = j + 1; g <= n; ++g, to += plane) T[to] = left[g], V[to] = as_right[g];
  }

  // run(i, j) for the spans of words, narrower ones within a span before it.
  static constexpr int SQUARE = 8;
  template <class Run> DEVICE void upwards(Run run) const {
    for (int I = n / SQUARE; I >= 0; --I)
      for (int J = I; J <= n / SQUARE; ++J)
        for (int i = (I + 1) * SQUARE - 1; i >= I * SQUARE; --i)
          for (int j = J * SQUARE; j < (J + 1) * SQUARE; ++j)
            if (i > 0 && i < j && j <= n) run(i, j);
  }
  template <class Run> DEVICE void downwards(Run run) const {
    for (int I = 0; I <= n / SQUARE; ++I)
      for (int J = n / SQUARE; J >= I; --J)
        for (int i = I * SQUARE; i < (I + 1) * SQUARE; ++i)
          for (int j = (J + 1) * SQUARE - 1; j >= J * SQUARE; --j)
            if (i > 0 && i < j && j <= n) run(i, j);
  }

  // The root has no head: P and C of it are numbers. With a single root only its first child counts, in C(0, n) alone.
  APART double inside() const {
    for (int i = 1; i <= n; ++i)
      for (int g = 0; g < packs; ++g) unpack(at(C, i, i) + g * W, splat<Pack>(1.));
    upwards([&](int i, int j) INLINED { inside_span(i, j); });
    double *p = root, *c = root + line;
    for (int m = 1; m <= n; ++m) {
      const double *s = at(S, 0, m), *v = at(V, 0, m), *t = at(T, 0, m);
      double sum = siblings ? s[0] * first(0, m) : first(0, m), whole = 0.;
      for (int k = 1; k < m && siblings; ++k) sum += s[k] * v[k] * p[k];
      for (int k = 2; k < m && !siblings && !single_root; ++k) sum += v[k] * c[k - 1];
      if (!siblings && !single_root && m > 1) sum += c[m - 1];
      for (int k = 1; k < m; ++k) whole += t[k] * p[k];
      p[m] = *at(A, 0, m) * sum;
      c[m] = whole + p[m];
    }
    return c[n];
  }

  APART void outside_root(double one) const {
    double *p = root, *c = p + line, *dp = c + line, *dc = dp + line;
    for (int m = 1; m <= n; ++m) dp[m] = 0., dc[m] = m == n ? one : 0.;
    for (int m = n; m >= 1; --m) {
      double *a = at(A, 0, m), *s = at(S, 0, m), *v = at(V, 0, m), *t = at(T, 0, m);
      const double by_p = dp[m] + dc[m], by_sum = by_p * *a;
      *at(P, 0, m) = by_p * p[m];
      double* to_first = at(dC, m, 1);
      for (int k = 1; k < m; ++k) {
        dp[k] += dc[m] * t[k], t[k] = dc[m] * p[k];
        if (siblings) {
          const double y = by_sum * s[k];
          dp[k] += y * v[k], s[k] = y * v[k] * p[k], v[k] = y * p[k];
        } else if (k > 1 && !single_root) {
          dc[k - 1] += by_sum * v[k], v[k] = by_sum * c[k - 1];
        } else {
          v[k] = 0.;
        }
      }
      if (!siblings && !single_root && m > 1) dc[m - 1] += by_sum;
      if (m > 1) *to_first += siblings ? by_sum * s[0] : by_sum;
      if (siblings) s[0] *= by_sum * first(0, m);
    }
  }

  APART void outside_head(int h, int m) const {
    const int i = h < m ? h : m, j = h < m ? m : h, back = h < m ? -1 : 1;
    double *t = at(T, h, m), *s = at(S, h, m), *v = at(V, h, m), *by_v = dots, *by_t = dots + W * line;
    const double *of_v = coefficients(h, m), *of_p = at(P, h, 0), *of_c = at(C, h, back);
    double *to_p = at(dP, h, 0), *to_c = at(dC, h, back), *a = at(A, h, m);
    Pack total = Pack{}, whole = Pack{};
    outside_of(i, j, [&](auto many, auto outer, bool start) INLINED {
      Pack dc[MANY], dp[MANY];
      for (int l = 0; l < MANY; ++l) {
        const i64 g = outer.place[l];
        dc[l] = pack(at(dC, h, m) + g);
        const Pack by_p = pack(to_p + m * row + g) + dc[l];
        dp[l] = by_p * pack(a + g);
        const Pack mark = by_p * pack(of_p + m * row + g);
        whole += mark;
        unpack(a + g, mark);
        if (siblings) total += dp[l];
        else unpack(to_c + m * row + g, pack(to_c + m * row + g) + dp[l]);
      }
      for (int k = i + 1; k < j; ++k) {
        const Pack here_v = splat<Pack>(of_v[k]), here_t = splat<Pack>(t[k]);
        Pack sum_v = start ? Pack{} : pack(by_v + k * W), sum_t = start ? Pack{} : pack(by_t + k * W);
#pragma GCC unroll 4
        for (int l = 0; l < MANY; ++l) {
          const i64 g = k * row + outer.place[l];
          const Pack p = pack(of_p + g);
          Pack to = pack(to_p + g) + here_t * dc[l];
          sum_t += p * dc[l];
          if (siblings) {
            to += here_v * dp[l];
            sum_v += p * dp[l];
          } else {
            unpack(to_c + g, pack(to_c + g) + here_v * dp[l]);
            sum_v += pack(of_c + g) * dp[l];
          }
          unpack(to_p + g, to);
        }
        unpack(by_v + k * W, sum_v), unpack(by_t + k * W, sum_t);
      }
    });
    *at(P, h, m) = over_lanes(Lin<Pack>{whole}).v;  // of the arc; nothing wants P any more
    const double weight = s[h];
    for (int k = i + 1; k < j; k += W) {
      Square of_v, of_t;
#pragma GCC unroll 8
      for (int r = 0; r < W; ++r) of_v.row[r] = pack(by_v + (k + r) * W), of_t.row[r] = pack(by_t + (k + r) * W);
      const Mask here = lanes_below(k, j);
      const Pack y = sums_of_rows(of_v), x = pack(v + k), w = pack(s + k);
      unpack(t + k, choose(here, sums_of_rows(of_t), pack(t + k)));
      unpack(v + k, choose(here, siblings ? y * w : y, x));
      if (siblings) unpack(s + k, choose(here, y * w * x, w));
    }
    if (!siblings) return;
    const double all = over_lanes(Lin<Pack>{total}).v;
    s[h] = weight * all * first(h, m);
    at(dC, m, h < m ? h + 1 : h - 1)[h] += weight * all;
  }

  APART void outside_between(int i, int j) const {
    outside_of(i, j, [&](auto many, auto outer, bool) INLINED {
      Pack by[MANY];
      for (int l = 0; l < MANY; ++l) by[l] = pack(x + outer.place[l]);
      for (int t = i; t < j; ++t) {
        const double *right = at(C, i, t), *left = at(C, j, t + 1);
        double *to_right = at(dC, i, t), *to_left = at(dC, j, t + 1);
#pragma GCC unroll 4
        for (int l = 0; l < MANY; ++l) {
          const i64 g = outer.place[l];
          unpack(to_right + g, pack(to_right + g) + by[l] * pack(left + g));
          unpack(to_left + g, pack(to_left + g) + by[l] * pack(right + g));
        }
      }
    });
  }

  DEVICE void outside_span(int i, int j) const {
    double *right = at(dC, i, j), *left = at(dC, j, i);
    i64 from = j * row + i;
    for (int g = 0; g < i; ++g, from += plane) {
      right[g] += T[from];
      if (siblings) x[g] = V[from];
      else left[g] += V[from];
    }
    for (int g = i; g <= j && siblings; ++g) x[g] = 0.;
    from = (j + 1) * plane + i * row + j;
    for (int g = j + 1; g <= n; ++g, from += plane) {
      left[g] += T[from];
      if (siblings) x[g] = V[from];
      else right[g] += V[from];
    }
    if (siblings) outside_between(i, j);
    outside_head(i, j), outside_head(j, i);
  }

  APART void outside(double one) const {
    const i64 size = cube_of(n);
    std::memset(dP, 0, size * sizeof(double)), std::memset(dC, 0, size * sizeof(double));
    for (int g = 0; g < line; ++g) x[g] = 0.;
    outside_root(one);
    downwards([&](int i, int j) INLINED { outside_span(i, j); });
  }
};

template <bool siblings, class In>
DEVICE bool sum_spans(GrandParts<In> scores, Results<In, 3> results, double* work, int N, int n, int single_root) {
  typedef Lin<Pack> T;
  GrandSpans<siblings> charts(work, n, single_root);
  const Range range = charts.load(scores, N, spread_for(n));
  Found z = unfit<T>();
  double whole = 0.;
  if (!range.bad) {
    whole = charts.inside();
    const double log_z = log(whole);
    z = found(log_z, range.shift, GrandInside<T>::enough(log_z, range, n));
  }
  if (!results.take(z)) return z.enough;
  charts.outside(1. / whole);
  charts.results(results.out[0], results.out[1], results.out[2], N);
  return true;
}
#endif
