// The charts of siblings_rows.cuh, where they are, and the weights that scores give them.
#pragma once
#include "siblings.cuh"
#include "squares.cuh"
#if !ON_GPU

struct SiblingPlaces {
  int n, packs, single_root;
  i64 row;
  double *R, *L, *P, *Q, *X, *A, *Z;  // charts, and weights of first arcs
  double *dR, *dL, *dX, *dQ;          // derivatives of log Z
  double *dP, *dA;                    // those of one row, and what it leaves to dL of the next
  double *after, *before;             // A(i, k, j) and Z(i, k, j), by packs of ends j, then i, then k
  double* own;                        // for each pack J, transposed: R(k, j) off the diagonal, L(k+1, j), Q(k, j) in it
  static constexpr int charts = 11;

  static DEVICE int packs_of(int n) { return (n + W - 1) / W; }
  static DEVICE i64 row_of(int n) { return (packs_of(n) | 1) * W; }  // an odd number of cache lines: see chart_row
  // Packs of weights whose ends are before those of pack J: of starts i and words k between, i < k <= W * (J' + 1).
  static DEVICE i64 packs_before(i64 J) { return W * (J * (J + 1) * (2 * J + 1) * W / 3 + J * (J + 1)) / 4; }
  static DEVICE i64 doubles(int n) {
    return (charts * (n + 2) + 2 + 3 * W) * row_of(n) + 2 * W * packs_before(packs_of(n));
  }

  DEVICE SiblingPlaces(double* work, int n, int single_root)
      : n(n), packs(packs_of(n)), single_root(single_root), row(row_of(n)) {
    double** all[charts] = {&R, &L, &P, &Q, &X, &A, &Z, &dR, &dL, &dX, &dQ};
    for (int k = 0; k < charts; ++k) *all[k] = work + k * (n + 2) * row;
    dP = work + charts * (n + 2) * row, dA = dP + row;
    after = dA + row, before = after + W * packs_before(packs);
    own = before + W * packs_before(packs);
  }

  DEVICE double* at(double* chart, int i, int J) const { return chart + i * row + J * W; }
  DEVICE Pack get(const double* chart, int i, int J) const { return pack(chart + i * row + J * W); }
  DEVICE void put(double* chart, int i, int J, Pack v) const { unpack(chart + i * row + J * W, v); }
  DEVICE Pack all(const double* chart, int i, int j) const { return splat<Pack>(chart[i * row + j - 1]); }
  DEVICE int word(int J) const { return J * W + 1; }            // the first of a pack
  DEVICE int pack_of(int j) const { return (j - 1) / W; }
  DEVICE int end_of(int J) const { return J + 1 < packs ? W : n - J * W; }  // words in it
  DEVICE double* weight(double* weights, int i, int k, int J) const {
    const i64 top = (J + 1) * W;
    return weights + W * (packs_before(J) + i * top - (i64)i * (i - 1) / 2 + k - i - 1);
  }
  // Which ends of the pack J are after k, and words.
  DEVICE Mask ends_after(int k, int J) const { return lanes_above(word(J), k) & lanes_below(word(J), n + 1); }

  // The greatest score of siblings for each arc from h to a pack of words, seen row by row; whether one is no score.
  template <class In> struct Greatest {
    typedef decltype(Few<In>{} < Few<In>{}) Lanes;
    In* best;  // [packs * W]
    Few<In> odd;
    DEVICE Few<In> at(int J) const { return few(best + J * W); }
    DEVICE void see(const In* row, int J, Lanes use, bool counts) {
      const Few<In> x = few(row + J * W + 1), so_far = at(J);  // past the end of a row there is another
      odd = use & ~(x < Few<In>{} + (In)infinity()) ? x : odd;
      const Few<In> now = use & (x > so_far) ? x : so_far;
      if (counts) std::memcpy(best + J * W, &now, sizeof now);
    }
    DEVICE void see(const In* row, int J) {
      const Few<In> x = few(row + J * W + 1), so_far = at(J), now = x > so_far ? x : so_far;
      odd = x == x ? odd : x;
      std::memcpy(best + J * W, &now, sizeof now);
    }
  };

  template <class In> DEVICE Range load(Parts<In> scores, int N, double spread) {
    typedef typename Greatest<In>::Lanes Lanes;
    const Pack none = splat<Pack>(-infinity());
    const i64 best_row = row + W;
    double *best = R, *base = best + (n + 1) * best_row;  // in place of charts that are not there yet
    Lanes lanes;
    for (int l = 0; l < W; ++l) lanes[l] = l;
    auto from = [&](int c) INLINED { return (Lanes)(lanes >= Lanes{} + c); };  // from lane c on
    const int last = packs - 1;
    const Lanes all = from(0), words = ~from(end_of(last));
    Mask bad = lanes_below(0, 0);
    for (int h = 0; h <= n; ++h) {
      const In* of_h = scores.siblings + (i64)h * N * N;
      const bool counts = !(single_root && h == 0);
      Greatest<In> found{(In*)dP, Few<In>{}};
      for (int j = 0; j < packs * W; ++j) found.best[j] = (In)-infinity();
      for (int k = h + 1; k < n; ++k) {
        const In* with = of_h + (i64)k * N;
        int J = k / W;
        found.see(with, J, from(k % W) & (J == last ? words : all), counts);
        if (counts) for (++J; J < last; ++J) found.see(with, J);
        else for (++J; J < last; ++J) found.see(with, J, all, false);
        if (J == last) found.see(with, J, words, counts);
      }
      for (int k = 2; k < h; ++k) {
        const In* with = of_h + (i64)k * N;
        const int end = pack_of(k - 1);
        for (int J = 0; J < end; ++J) found.see(with, J);
        found.see(with, end, ~from(k - 1 - end * W), true);
      }
      unpack(best + h * best_row, none);
      for (int J = 0; J < packs; ++J) {
        const int m = word(J);
        const Mask may = may_take(h, m, n);
        const Pack first = choose(may, scores_at(of_h + (i64)h * N, m, N), none);
        const Pack arc = choose(may, scores_at(scores.arcs + (i64)h * N, m, N), none);
        const Pack x = __builtin_convertvector(found.at(J), Pack), top = arc + choose(x > first, x, first);
        bad |= (first != first) | (arc != arc) | (top == -none) | (arc == -none) | (x == -none);
        unpack(best + h * best_row + m, choose(may, top, none));
      }
      bad |= __builtin_convertvector(found.odd, Pack) != Pack{};
    }
    if (any(bad)) return Range{0., 0., 1};
    Range range = bases_of_words<Lin<Pack>>(best, best_row, n, splat<Pack>(spread), base);
    load_right(scores, N, base);
    load_left(scores, N, base);
    return range;
  }

  template <class In> static DEVICE Pack wide(const In* p) { return __builtin_convertvector(few(p), Pack); }

  template <class In> DEVICE void load_right(Parts<In> scores, int N, const double* base) {
    const Pack none = splat<Pack>(-infinity());
    for (int i = 0; i < n; ++i)
      for (int J = i / W; J < packs; ++J) {
        const int m = word(J), last = m + end_of(J) - 1;
        const Pack arc = scores_at(scores.arcs + (i64)i * N, m, N), shift = pack(base + m);
        const In* of_i = scores.siblings + (i64)i * N * N;
        const Pack first = arc + scores_at(of_i + (i64)i * N, m, N) - shift;
        put(A, i, J, exp_in_range(choose(ends_after(i, J), first, none)));
        if (single_root && i == 0) continue;
        double* to = weight(after, i, i + 1, J);
        int k = i + 1;
        for (; last == m + W - 1 && k < m; ++k, to += W)
          unpack(to, exp_in_range(arc + wide(of_i + (i64)k * N + m) - shift));
        for (; k < m + W; ++k, to += W) {
          Pack w = Pack{};
          if (k < last) w = exp_in_range(choose(ends_after(k, J), arc + wide(of_i + (i64)k * N + m) - shift, none));
          unpack(to, w);
        }
      }
  }

  // Heads j of pack J, modifiers i of pack I: loaded by rows of modifiers, kept by rows of heads.
  template <class In> DEVICE void load_left(Parts<In> scores, int N, const double* base) {
    const Pack none = splat<Pack>(-infinity());
    for (int I = 0; I < packs; ++I)
      for (int J = I; J < packs; ++J) {
        const int m = word(I), first_head = word(J), heads = end_of(J);
        const Pack shift = pack(base + m);
        const Mask words = lanes_below(m, n + 1);
        Square arcs, w;
        for (int r = 0; r < W; ++r) {
          const int j = first_head + r;
          w.row[r] = arcs.row[r] = none;
          if (r >= heads) continue;
          arcs.row[r] = scores_at(scores.arcs + (i64)j * N, m, N);
          w.row[r] = arcs.row[r] + scores_at(scores.siblings + ((i64)j * N + j) * N, m, N) - shift;
          w.row[r] = choose(words & lanes_below(m, j), w.row[r], none);
        }
        for (int r = 0; r < W; ++r) w.row[r] = exp_in_range(w.row[r]);
        w = transposed(w);
        for (int c = 0; c < end_of(I); ++c) put(Z, m + c, J, w.row[c]);
        for (int k = m + 1; k < first_head + W; ++k) {
          const In* from = scores.siblings + ((i64)first_head * N + k) * N + m;
          const bool plain = k >= m + W && k < first_head && heads == W;
          const Mask before_k = lanes_below(m, k);
          for (int r = 0; r < W; ++r) {
            if (plain) {
              w.row[r] = exp_in_range(arcs.row[r] + wide(from + (i64)r * N * N) - shift);
            } else if (r < heads && first_head + r > k) {
              const Pack x = arcs.row[r] + wide(from + (i64)r * N * N) - shift;
              w.row[r] = exp_in_range(choose(before_k, x, none));
            } else {
              w.row[r] = Pack{};
            }
          }
          w = transposed(w);
          for (int c = 0; c < W && m + c < k; ++c) unpack(weight(before, m + c, k, J), w.row[c]);
        }
      }
  }
};
#endif
