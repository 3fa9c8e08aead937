// The charts of grandsiblings_spans.cuh, where they are, the weights that scores give them, and results out of them.
#pragma once
#include "grandsiblings.cuh"
#include "squares.cuh"
#if !ON_GPU

// Which rows go with the arcs from h to the pack of words at m. INNER: siblings between the two, h itself standing for
// none; OUTER: heads of h, which are outside of the span.
enum Rows_ { OUTER, INNER };
DEVICE bool wants_above(Rows_ kind, int r, int h) { return (r < h) != (kind == INNER); }  // words above r, or below it
DEVICE Mask goes_with(Rows_ kind, int r, int h, int m) {
  if (r == h) return kind == INNER ? lanes_above(m, -1) : lanes_below(0, 0);
  return wants_above(kind, r, h) ? lanes_above(m, r) : lanes_below(m, r);
}
// How many of the pack of words go with a row, or with the rows from r to `last`.
enum Share { NONE, SOME, ALL };
DEVICE Share share_of(Rows_ kind, int r, int h, int m) {
  if (r == h) return kind == INNER ? ALL : NONE;
  if (wants_above(kind, r, h)) return m > r ? ALL : m + W - 1 > r ? SOME : NONE;
  return m + W <= r ? ALL : m < r ? SOME : NONE;
}
DEVICE Share share_of(Rows_ kind, int r, int last, int h, int m) {
  const Share a = share_of(kind, r, h, m), b = share_of(kind, last, h, m);
  const bool astride = r <= h && h <= last;
  if (astride && !(kind == INNER && a == ALL && b == ALL)) return SOME;
  return a == b ? a : SOME;
}

struct GrandPlaces {
  int n, packs, single_root;  // packs of heads
  i64 row, plane, line;
  double *A, *S, *P, *C, *T, *V;  // cubes [head, end, row]
  double *dP, *dC;
  double *u, *x, *root, *dots;    // of one span, [line] each; root: 4 of them, dots: 2 W of them

  static DEVICE i64 row_of(int n) {  // in cache lines, not a multiple of 4 of them: see chart_row
    const i64 lines = (n + 8) / 8;
    return 8 * (lines + (lines % 4 == 0));
  }
  static DEVICE i64 plane_of(int n) { return 8 * ((n + 1) * row_of(n) / 8 | 1); }
  static DEVICE i64 cube_of(int n) { return (n + 1) * plane_of(n) + 8; }
  static constexpr int inside_cubes = 6, cubes = 8;

  DEVICE GrandPlaces(double* work, int n, int single_root)
      : n(n), packs((n + W) / W), single_root(single_root), row(row_of(n)), plane(plane_of(n)), line(row + 8) {
    work += (64 - (i64)(uintptr_t)work % 64) % 64 / 8;
    double** lines[4] = {&u, &x, &root, &dots};
    const int sizes[4] = {1, 1, 4, 2 * 8};
    for (int k = 0; k < 4; ++k) *lines[k] = work, work += sizes[k] * line;
    double** all[cubes] = {&A, &S, &P, &C, &T, &V, &dP, &dC};
    for (int k = 0; k < cubes; ++k) *all[k] = work + k * cube_of(n);
  }

  DEVICE double* at(double* cube, int h, int m) const { return cube + h * plane + m * row; }

  // run(m) for packs of words that are all of them, the last one within a row of N scores if that can be.
  template <class Run> DEVICE void each_pack(int N, Run run) const {
    for (int m = 1; m <= n; m += W) run(m + W <= N || N <= W ? m : N - W);
  }

  // The greatest of the rows [n+1, step] for each arc from h; the first `counts` of them count, and all must be scores.
  template <class In>
  APART Pack greatest(Rows_ kind, const In* from, i64 step, int h, int m, int N, int counts, Mask& bad) const {
    const Pack none = splat<Pack>(-infinity());
    Pack best = none, odd = Pack{}, rest = none;
    for (int r = 0; r <= n; ++r) {
      const Share share = share_of(kind, r, h, m);
      if (share == NONE) continue;
      Pack x = scores_at(from + r * step, m, N);
      if (share == SOME) x = choose(goes_with(kind, r, h, m), x, none);
      odd = choose(x == x, odd, x);
      if (r < counts) best = choose(x > best, x, best);
      else rest = choose(x > rest, x, rest);
    }
    bad |= (odd != odd) | (best == -none) | (rest == -none);
    return best;
  }

  // Weights as in GrandInside: those of siblings are relative to the best of their arc.
  template <class In> APART Range load(GrandParts<In> scores, int N, double spread) const {
    const Pack none = splat<Pack>(-infinity());
    const i64 square = (i64)N * N;
    double *tops = P, *both = tops + (n + 1) * line, *base = both + (n + 1) * line;  // where charts are not there yet
    Mask bad = lanes_below(0, 0);
    for (int h = 0; h <= n; ++h) {
      unpack(both + h * line, none);
      each_pack(N, [&](int m) INLINED {
        const Mask may = may_take(h, m, n);
        Mask odd = lanes_below(0, 0);
        Pack beside = Pack{}, under = scores_at(scores.arcs + (i64)h * N, m, N);
        odd |= wrong(under);
        if (scores.siblings)
          beside = greatest(INNER, scores.siblings + h * square, N, h, m, N, single_root && h == 0 ? 1 : n + 1, odd);
        if (h > 0) under += greatest(OUTER, scores.grandparents + (i64)h * N, square, h, m, N, n + 1, odd);
        unpack(tops + h * line + m, choose(some(beside), beside, Pack{}));
        unpack(both + h * line + m, choose(may, beside + under, none));
        bad |= may & (odd | wrong(beside + under));
      });
    }
    if (any(bad)) return Range{0., 0., 1};
    const Range range = bases_of_words<Lin<Pack>>(both, line, n, splat<Pack>(spread), base);
    for (int h = 0; h <= n; ++h)
      each_pack(N, [&](int m) INLINED {
        const Pack best = pack(tops + h * line + m), shift = pack(base + m);
        const Pack arc = scores_at(scores.arcs + (i64)h * N, m, N);
        if (scores.siblings)
          weigh(INNER, S, scores.siblings + h * square, N, h, m, N, single_root && h == 0 ? 0 : n,
                [&](Pack x) INLINED { return x - best; });
        if (h > 0) {
          weigh(OUTER, A, scores.grandparents + (i64)h * N, square, h, m, N, n,
                [&](Pack x) INLINED { return arc + x + best - shift; });
        } else {
          const Pack w = exp_in_range(arc + best - shift);
          for (int c = 0; c < W && m + c <= n; ++c) *at(A, 0, m + c) = w[c];
        }
      });
    return range;
  }

  // exp(score(x)) of rows up to `last`; those after it weigh nothing.
  template <class In, class Score>
  APART void weigh(Rows_ kind, double* cube, const In* from, i64 step, int h, int m, int N, int last, Score score) const {
    const Pack none = splat<Pack>(-infinity());
    double* to = at(cube, h, m);
    for (int r = 0; r <= n; r += W) {
      const Share share = share_of(kind, r, r + W - 1, h, m);
      if (share == NONE) continue;
      Square w;
      if (share == ALL && r + W - 1 <= last) {
#pragma GCC unroll 8
        for (int l = 0; l < W; ++l) w.row[l] = exp_in_range(score(scores_at(from + (r + l) * step, m, N)));
      } else {
        for (int l = 0; l < W; ++l) {
          w.row[l] = Pack{};
          if (r + l > last || share_of(kind, r + l, h, m) == NONE) continue;
          const Pack x = scores_at(from + (r + l) * step, m, N);
          w.row[l] = exp_in_range(choose(goes_with(kind, r + l, h, m), score(x), none));
        }
      }
      w = transposed(w);
      for (int c = 0; c < W && m + c <= n; ++c) unpack(to + c * row + r, w.row[c]);
    }
  }

  // The way back: what stands in place of the weights goes to rows [n+1, step], if these are wanted. Returns its sum.
  template <class In> APART Pack hand_out(Rows_ kind, double* cube, In* to, i64 step, int h, int m, int N) const {
    const double* from = at(cube, h, m);
    const Mask may = may_take(h, m, n);
    Pack sum = Pack{};
    for (int r = 0; r <= n; r += W) {
      if (share_of(kind, r, r + W - 1, h, m) == NONE) continue;
      Square v;
      for (int c = 0; c < W; ++c) v.row[c] = m + c <= n ? pack(from + c * row + r) : Pack{};
      v = transposed(v);
      for (int l = 0; l < W && r + l <= n; ++l) {
        const Pack x = choose(may, v.row[l], Pack{});
        sum += x;
        if (to) put_few(to + (r + l) * step, m, N, x);
      }
    }
    return sum;
  }
  template <class In> static DEVICE void put_few(In* row, int m, int N, Pack v) {
    const Few<In> x = __builtin_convertvector(v, Few<In>);
    if (m + W <= N) std::memcpy(row + m, &x, sizeof x);
    else for (int l = 0; m + l < N; ++l) row[m + l] = x[l];
  }
  template <class In> APART void results(In* arcs, In* beside, In* under, int N) const {
    const i64 square = (i64)N * N;
    for (int h = 0; h <= n; ++h)
      each_pack(N, [&](int m) INLINED {
        Pack sum = Pack{};
        if (h > 0) sum = hand_out(OUTER, A, under ? under + (i64)h * N : nullptr, square, h, m, N);
        else for (int c = 0; c < W && m + c <= n; ++c) sum[c] = *at(A, 0, m + c);
        put_few(arcs + (i64)h * N, m, N, sum);
        if (beside) hand_out(INNER, S, beside + h * square, N, h, m, N);
      });
  }
};
#endif
