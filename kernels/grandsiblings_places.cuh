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

  // The greater of what is known of each arc from h and of the row r; a NaN is kept.
  template <class In> DEVICE Pack greater(Pack known, Rows_ kind, const In* from, int r, int h, int m, int N) const {
    const Share share = share_of(kind, r, h, m);
    if (share == NONE) return known;
    Pack x = scores_at(from, m, N);
    if (share == SOME) x = choose(goes_with(kind, r, h, m), x, splat<Pack>(-infinity()));
    known = choose(x > known, x, known);
    return choose(x == x, known, x);
  }

  // Weights as in GrandInside: those of siblings are relative to the best of their arc. Heads of heads come last in a
  // loop where they can, for scores to be read one after the other.
  template <class In> APART Range load(GrandParts<In> scores, int N, double spread) const {
    const Pack none = splat<Pack>(-infinity());
    const i64 square = (i64)N * N;
    double *tops = P, *both = tops + (n + 1) * line, *base = both + (n + 1) * line;  // where charts are not there yet
    Mask bad = lanes_below(0, 0);
    for (int k = 0; k < (n + 1) * line; k += W) unpack(both + k, none);
    for (int g = 0; g <= n; ++g)
      for (int h = 1; h <= n; ++h) {
        const In* from = scores.grandparents + g * square + (i64)h * N;
        double* to = both + h * line;
        each_pack(N, [&](int m) INLINED { unpack(to + m, greater(pack(to + m), OUTER, from, g, h, m, N)); });
      }
    for (int h = 0; h <= n; ++h) {
      double *to = both + h * line, *best = tops + h * line;
      unpack(best, Pack{});
      each_pack(N, [&](int m) INLINED {
        const Mask may = may_take(h, m, n);
        Pack beside = scores.siblings ? none : Pack{}, others = none;
        for (int k = 0; k <= n && scores.siblings; ++k) {
          Pack& known = single_root && h == 0 && k > 0 ? others : beside;
          known = greater(known, INNER, scores.siblings + h * square + (i64)k * N, k, h, m, N);
        }
        bad |= may & wrong(others);
        unpack(best + m, beside);
      });
      for (int m = 0; m <= n; m += W) {
        const Mask may = may_take(h, m, n);
        const Pack beside = pack(best + m), arc = scores_at(scores.arcs + (i64)h * N, m, N);
        const Pack under = h > 0 ? pack(to + m) : Pack{}, all = arc + under + beside;
        bad |= may & (wrong(arc) | wrong(under) | wrong(beside) | wrong(all));
        unpack(best + m, choose(some(beside), beside, Pack{}));
        unpack(to + m, choose(may, all, none));
      }
    }
    if (any(bad)) return Range{0., 0., 1};
    const Range range = bases_of_words<Lin<Pack>>(both, line, n, splat<Pack>(spread), base);
    for (int r = 0; r <= n; r += W)
      for (int h = 1; h <= n; ++h) {
        const In *of_h = scores.arcs + (i64)h * N, *from = scores.grandparents + (i64)h * N;
        each_pack(N, [&](int m) INLINED {
          const Pack arc = scores_at(of_h, m, N), best = pack(tops + h * line + m), shift = pack(base + m);
          weigh(OUTER, A, from, square, r, h, m, N, n, [&](Pack x) INLINED { return arc + x + best - shift; });
        });
      }
    for (int h = 0; h <= n && scores.siblings; ++h)
      for (int r = 0; r <= n; r += W)
        each_pack(N, [&](int m) INLINED {
          const Pack best = pack(tops + h * line + m);
          weigh(INNER, S, scores.siblings + h * square, N, r, h, m, N, single_root && h == 0 ? 0 : n,
                [&](Pack x) INLINED { return x - best; });
        });
    each_pack(N, [&](int m) INLINED {
      const Pack w = exp_in_range(scores_at(scores.arcs, m, N) + pack(tops + m) - pack(base + m));
      for (int c = 0; c < W && m + c <= n; ++c) *at(A, 0, m + c) = w[c];
    });
    return range;
  }

  // exp(score(x)) of the W rows from r, those after `last` weighing nothing.
  template <class In, class Score>
  DEVICE void weigh(Rows_ kind, double* cube, const In* from, i64 step, int r, int h, int m, int N, int last,
                    Score score) const {
    const Share share = share_of(kind, r, r + W - 1, h, m);
    if (share == NONE) return;
    Square w;
    if (share == ALL && r + W - 1 <= last) {
#pragma GCC unroll 8
      for (int l = 0; l < W; ++l) w.row[l] = exp_in_range(score(scores_at(from + (r + l) * step, m, N)));
    } else {
      for (int l = 0; l < W; ++l) {
        w.row[l] = Pack{};
        if (r + l > last || share_of(kind, r + l, h, m) == NONE) continue;
        const Pack x = score(scores_at(from + (r + l) * step, m, N));
        w.row[l] = exp_in_range(choose(goes_with(kind, r + l, h, m), x, splat<Pack>(-infinity())));
      }
    }
    w = transposed(w);
    double* to = at(cube, h, m) + r;
    for (int c = 0; c < W && m + c <= n; ++c) unpack(to + c * row, w.row[c]);
  }

  // The way back: what stands in place of the weights goes to the rows.
  template <class In>
  DEVICE void hand_out(Rows_ kind, double* cube, In* to, i64 step, int r, int h, int m, int N) const {
    if (share_of(kind, r, r + W - 1, h, m) == NONE) return;
    const double* from = at(cube, h, m) + r;
    const Mask may = may_take(h, m, n);
    Square v;
    for (int c = 0; c < W; ++c) v.row[c] = m + c <= n ? pack(from + c * row) : Pack{};
    v = transposed(v);
    for (int l = 0; l < W && r + l <= n; ++l) {
      const Few<In> x = __builtin_convertvector(choose(may, v.row[l], Pack{}), Few<In>);
      In* place = to + (r + l) * step + m;
      if (m + W <= N) std::memcpy(place, &x, sizeof x);
      else for (int c = 0; m + c < N; ++c) place[c] = x[c];
    }
  }
  template <class In> APART void results(In* arcs, In* beside, In* under, int N) const {
    const i64 square = (i64)N * N;
    for (int h = 0; h <= n; ++h)
      for (int m = 1; m <= n; ++m)
        if (m != h) arcs[(i64)h * N + m] = (In)*at(P, h, m);
    for (int r = 0; r <= n && under; r += W)
      for (int h = 1; h <= n; ++h)
        each_pack(N, [&](int m) INLINED { hand_out(OUTER, A, under + (i64)h * N, square, r, h, m, N); });
    for (int h = 0; h <= n && beside; ++h)
      for (int r = 0; r <= n; r += W)
        each_pack(N, [&](int m) INLINED { hand_out(INNER, S, beside + h * square, N, r, h, m, N); });
  }
};
#endif
