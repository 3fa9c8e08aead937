// Column generation in the dynamic program (Riedel, Smith & McCallum 2012, section 4.5): weights of arcs that no tree's
// score is above, by bounds where pairs of arcs are not scored.
//
// Of a pair one arc is the lower (grandparents) or the outer one (siblings), the other is above or inside. A bound on its
// score is known by the first, over all grandparents or siblings that this may have. Arcs are closed, half open or open:
// scored are the pairs of an open arc with those above and inside that are at least half open. A tree's pairs are shared
// out to its arcs,
//
//   w(h, m) = arc + u_s(h, m) + u_g(h, m) + v_s(h, m) + v_g(h, m).
//
// u is what h -> m pays for the pairs of which it is the lower or outer arc: the bound, if it is not open; if it is, what
// it has in the best tree that is known, or would have with the arcs of that; and in the latter case as much more as it
// can spare, while it weighs less than the known tree's arc to m. v is what it pays for being above or inside, where u is
// not enough:
//
//   v_g(g, p) = sum over open p -> c of (s(g, p, c) - u_g(p, c))+
//   v_s(h, s) = max over open h -> m of (s(h, s, m) - u_s(h, m))+
//
// for p may have many children, but s is the previous sibling of one m at most. (If m's sibling in the known tree is s,
// one nearer to h means that s has another head: all arcs of s but h -> s pay for those.) So the weights of the known
// tree's arcs come to its score, and those of arcs that are far from it stay below, though their pairs have but bounds. u
// and v are duals of OneGP and NoGP (their section 3.2), without a solver.
#pragma once
#include "pricing.cuh"
#include "unwind.cuh"

enum State { DEAD, CLOSED, HALF, OPEN };  // DEAD: in no best tree
enum News { OLD, ABOVE = 1, BELOW = 2 };   // pairs that an arc is the one or the other arc of are not scored yet

constexpr double HUGE_BOUND = 1e300;
constexpr double ROUNDING = 1.1102230246251565e-16;  // UNIT of certificates.py

// What a sum of so many terms may be off (certificates.py).
DEVICE double rounding_of(int terms, double size) { return 4 * ROUNDING * (terms + 8) * size; }

// Pairs of one kind: what scores them, with the lower or outer arc given, as (s | h, m) or (g | p, c); and their bounds.
template <class In> struct PairScores {
  int kind;  // of scorer (pricing.cuh); -1: there are none
  Tensors<In> all;
  const double* bound;  // [N, N]
  DEVICE bool there() const { return kind >= 0; }
};

// The score of a first child, which is its own head's sibling.
template <class S> DEVICE double first_child(const S& score, int h, int* list) {
#if ON_GPU
  return score.one(h);
#else
  double first = 0;
  list[0] = h;
  score.several(list, 1, [&](int, double s) { first = s; });
  return first;
#endif
}
template <class In> DEVICE double first_child(const Templates<In>& score, int, int*) { return score.nobody(); }

struct Treescore { double value, size; };

template <class In> struct OpenArcs {
  const double* arcs;  // [N, N]
  PairScores<In> siblings, grands;
  int n, N, wide;
  bool single_root;
  // [N, N] the weights; [N, wide] u of both kinds, by arc; v of siblings by arc, of grandparents by [p, g]; bounds of
  // trees with an arc; rows [.., wide] of the pairs of open arcs: by s, and by g, exact or bounds, -inf where no pair is
  double *w, *u_s, *u_g, *v_s, *v_g, *most, *leaving, *rows_s, *rows_g;
  // states and news, places in rows, whether all is paid for; lists by h: open h -> m, and at least half open ones; and
  // by m the latter; the known tree's heads
  int *state, *news, *row, *unpaid, *children, *child_count, *inner, *inner_count, *heads, *head_count, *best;
  int *list, *used;  // [N + 16]; rows that are taken

  DEVICE int at(int h, int m) const { return h * N + m; }
  DEVICE i64 in_row(int h, int m) const { return (i64)h * wide + m; }
  DEVICE double* row_s(int h, int m) const { return rows_s + (i64)row[at(h, m)] * wide; }
  DEVICE double* row_g(int p, int c) const { return rows_g + (i64)row[at(p, c)] * wide; }
  DEVICE int child(int h, int k) const { return children[at(h, k)]; }
  DEVICE bool has(int h, int m) const { return best[m] == h; }
  static DEVICE bool under(int g, int p, int c) { return g < p ? c > g : g > p && c < g; }
  static DEVICE bool between(int h, int s, int m) { return h < m ? h < s && s < m : m < s && s < h; }
  DEVICE bool pairs_of(int h) const { return !(single_root && h == 0); }  // whether it may have siblings

  // f(h, m) for all two nodes.
  template <class F> DEVICE void each_two(F f) const {
#if ON_GPU
    LANES(flat, (n + 1) * (n + 1)) f(flat / (n + 1), flat % (n + 1));
#else
    for (int h = 0; h <= n; ++h)
      for (int m = 0; m <= n; ++m) f(h, m);
#endif
  }

  // f(h, k) for the k-th open arc of every h.
  template <class F> DEVICE void each_open(F f) const {
#if ON_GPU
    LANES(flat, (n + 1) * N) if (const int h = flat / N, k = flat % N; k < child_count[h]) f(h, k);
#else
    for (int h = 0; h <= n; ++h)
      for (int k = 0; k < child_count[h]; ++k) f(h, k);
#endif
  }

  DEVICE void begin() const {
    if (LEADER) *used = 0;
    each_two([&](int h, int m) INLINED {
      const int i = at(h, m);
      double beside = siblings.there() ? siblings.bound[i] : 0;
      double above_ = grands.there() && h > 0 ? grands.bound[i] : 0;
      beside = beside < HUGE_BOUND ? beside : HUGE_BOUND, above_ = above_ < HUGE_BOUND ? above_ : HUGE_BOUND;
      const bool can = m > 0 && m != h && arcs[i] > -infinity() && beside > -infinity() && above_ > -infinity();
      state[i] = can ? CLOSED : DEAD, news[i] = OLD;
      u_s[in_row(h, m)] = beside, u_g[in_row(h, m)] = above_;
    });
    LANES(m, n + 1) best[m] = -1;
    BARRIER();
  }

  DEVICE void collect() const {
    LANES(h, n + 1) {
      int k = 0, s = 0, g = 0;
      for (int m = 0; m <= n; ++m) {
        if (state[at(h, m)] == OPEN) {
          children[at(h, k++)] = m;
          if (news[at(h, m)] & BELOW) row[at(h, m)] = ON_GPU ? at(h, m) : (*used)++;
        }
        if (state[at(h, m)] >= HALF) inner[at(h, s++)] = m;
        if (state[at(m, h)] >= HALF) heads[at(h, g++)] = m;
      }
      child_count[h] = k, inner_count[h] = s, head_count[h] = g;
    }
    BARRIER();
  }

  // One step further, if it has not gone all the way: whether it had not.
  DEVICE bool advance(int h, int m, bool whole) const {
    const int i = at(h, m);
    if (state[i] != CLOSED && state[i] != HALF) return false;
    if (state[i] == CLOSED) news[i] |= ABOVE;
    state[i] = whole || state[i] == HALF ? OPEN : HALF;
    if (state[i] == OPEN) news[i] |= BELOW;
    return true;
  }

  // Rows of arcs that were opened, and all pairs with a new arc; how many were scored, in this lane. bad: one of them is
  // NaN or +inf.
  template <bool SIBLINGS, class S> APART i64 score_pairs(S score, int& bad) const {
    i64 scored = 0;
    bool begun = false;
    each_open([&](int h, int k) {
      const int m = child(h, k);
      const bool fresh = news[at(h, m)] & BELOW;
      if (!SIBLINGS && h == 0) return;
      double* const to = SIBLINGS ? row_s(h, m) : row_g(h, m);
      [[maybe_unused]] int count = 0;
      bool told = false;
      const auto tell = [&]() INLINED {
        if (!begun) score.begin(n), begun = true;
        if (!told) score.arc(h, m), told = true;
      };
      const auto put = [&](int x, double s) INLINED {
        to[x] = s;
        bad |= !(s < infinity());
        ++scored;
      };
      if (fresh) {
        const double bound = (SIBLINGS ? u_s : u_g)[in_row(h, m)];
        for (int x = 0; x < wide; ++x) {
          const bool may = x <= n && (SIBLINGS ? between(h, x, m) && pairs_of(h) && state[at(h, x)] != DEAD
                                               : under(x, h, m) && state[at(x, h)] != DEAD);
          to[x] = may ? bound : -infinity();
        }
        if (SIBLINGS) {
          tell();
          put(h, first_child(score, h, list));
        }
      }
      const int* const others = (SIBLINGS ? inner : heads) + at(h, 0);
      const int all = SIBLINGS ? pairs_of(h) ? inner_count[h] : 0 : head_count[h];
      for (int i = 0; i < all; ++i) {
        const int x = others[i];
        if (!(SIBLINGS ? between(h, x, m) : under(x, h, m))) continue;
        if (!fresh && !(news[SIBLINGS ? at(h, x) : at(x, h)] & ABOVE)) continue;
#if ON_GPU
        tell();
        put(x, score.one(x));
#else
        list[count++] = x;
#endif
      }
#if !ON_GPU
      if (count == 0) return;
      tell();
      score.several(list, count, put);
#endif
    });
    return scored;
  }

  // Whether all scores were fit.
  DEVICE bool score_fresh(i64& beside, i64& above_) const {
    int bad = 0;
    if (siblings.kind == 0) beside += score_pairs<true>(DenseBeside<In>{siblings.all}, bad);
    if (siblings.kind == 1) beside += score_pairs<true>(Trilinear<In>{siblings.all}, bad);
    if (siblings.kind == 2) beside += score_pairs<true>(Templates<In>{siblings.all}, bad);
    if (grands.kind == 0) above_ += score_pairs<false>(Dense<In>{grands.all}, bad);
    if (grands.kind == 1) above_ += score_pairs<false>(Trilinear<In>{grands.all}, bad);
    if (grands.kind == 2) above_ += score_pairs<false>(Templates<In>{grands.all}, bad);
    bad = team_reduce(bad, Or{});
    BARRIER();
    each_two([&](int h, int m) INLINED { news[at(h, m)] = OLD; });
    BARRIER();
    return !bad;
  }

  DEVICE bool is_open(const i64* tree) const {
    bool all = true;
    for (int m = 1; m <= n; ++m) all = all && state[at((int)tree[m], m)] == OPEN;
    return all;
  }

  // The previous sibling that m has, or would have, under h in a tree; h: none.
  template <class Heads> static DEVICE int previous(const Heads* tree, int h, int m) {
    const int step = h < m ? -1 : 1;
    int s = m + step;
    while (s != h && tree[s] != h) s += step;
    return s;
  }

  // The score of a tree of open arcs, and the sizes of what it is the sum of.
  DEVICE Treescore score_of(const i64* tree) const {
    Treescore found{0, 0};
    const auto add = [&](double x) INLINED { found.value += x, found.size += x < 0 ? -x : x; };
    for (int m = 1; m <= n; ++m) {
      const int h = (int)tree[m];
      add(arcs[at(h, m)]);
      if (siblings.there()) add(row_s(h, m)[previous(tree, h, m)]);
      if (grands.there() && h > 0) add(row_g(h, m)[(int)tree[h]]);
    }
    return found;
  }

  // The most that a row has.
  DEVICE double most_of(const double* from) const {
    Pack top = splat<Pack>(-infinity());
    for (int x = 0; x <= n; x += W) top = larger(pack(from + x), top);
#if ON_GPU
    return top;
#else
    return largest(top);
#endif
  }

  // u of open arcs, without what they can spare. Those of the known tree pay what they have in it.
  DEVICE void pay() const {
    const bool known = best[1] >= 0;
    LANES(m, n + 1) leaving[m] = 0;
    BARRIER();
    each_open([&](int h, int k) {
      const int m = child(h, k);
      const bool own = known && has(h, m);
      bool can = true;
      if (siblings.there()) {
        const double* const from = row_s(h, m);
        double u;
        if (!known) {
          u = most_of(from);
        } else if (!own) {
          u = from[h];
          for (int i = 0; i < inner_count[h]; ++i) {
            const int x = inner[at(h, i)];
            if (has(h, x) && from[x] > u) u = from[x];
          }
          if (!(u > -infinity())) u = most_of(from);
        } else {
          const int s = previous(best, h, m), step = h < m ? 1 : -1;
          u = from[s];
          double top = from[h];
          for (int x = h + step; s != h && x != s; x += step) top = from[x] > top ? from[x] : top;
          if (s != h && top > u) leaving[s] = top - u;
        }
        u_s[in_row(h, m)] = u, can = u > -infinity();
      }
      if (grands.there() && h > 0) {
        const double* const from = row_g(h, m);
        double u = known ? from[best[h]] : -infinity();
        if (known && !(u > -infinity()))  // under that head it would cross: under the best that is scored
          for (int i = 0; i < head_count[h]; ++i)
            if (const double x = from[heads[at(h, i)]]; x > u) u = x;
        if (!(u > -infinity())) u = most_of(from);
        u_g[in_row(h, m)] = u, can = can && u > -infinity();
      }
      if (!can) state[at(h, m)] = DEAD;
    });
    BARRIER();
  }

  // v, by rows of the known tree's arcs (OWN) or, added to that, of those others that have not paid for all.
  template <bool OWN> DEVICE void charge() const {
    const Pack zero = splat<Pack>(0);
    ROWS_PACKS(h, n + 1, x, n + 1) {
      Pack beside = OWN ? zero : pack(v_s + in_row(h, x)), above_ = OWN ? zero : pack(v_g + in_row(h, x));
      for (int k = 0; k < child_count[h]; ++k) {
        const int m = child(h, k);
        if (state[at(h, m)] == DEAD || has(h, m) != OWN || !(OWN || unpaid[at(h, m)])) continue;
        if (siblings.there()) {
          Pack more = pack(row_s(h, m) + x) - splat<Pack>(u_s[in_row(h, m)]);
          if (OWN) {  // others mean that the known sibling has left
            const int s = previous(best, h, m);
            more = choose(h < m ? lanes_above_(x, s) : lanes_below(x, s), more, zero);
          }
          beside = larger(more, beside);
        }
        if (grands.there() && h > 0) above_ += larger(pack(row_g(h, m) + x) - splat<Pack>(u_g[in_row(h, m)]), zero);
      }
      unpack(v_s + in_row(h, x), beside);
      unpack(v_g + in_row(h, x), above_);
    }
    BARRIER();
  }
#if ON_GPU
  static DEVICE bool lanes_above_(int i, int k) { return i > k; }
#else
  static DEVICE Mask lanes_above_(int i, int k) { return (Mask)~lanes_below(i, k + 1); }
#endif

  DEVICE double weight(int h, int m) const {
    if (state[at(h, m)] == DEAD) return -infinity();
    const auto size = [](double x) INLINED { return x < 0 ? -x : x; };
    const double arc = arcs[at(h, m)], s = u_s[in_row(h, m)], g = u_g[in_row(h, m)];
    const double more = v_s[in_row(h, m)] + v_g[in_row(m, h)] + (has(h, m) ? 0 : leaving[m]);
    // no less than it would be without rounding
    return arc + s + g + more + (8 * ROUNDING * (size(arc) + size(s) + size(g) + more) + 2 * n * ROUNDING * more);
  }

  // An arc that weighs less than the known tree's to the same word can spare the difference: it takes over as much of
  // what others would have to pay for its own pairs.
  DEVICE void spare() const {
    each_open([&](int h, int k) {
      const int m = child(h, k);
      unpaid[at(h, m)] = 0;
      if (best[1] < 0 || has(h, m) || state[at(h, m)] == DEAD) return;
      double beside = 0, above_ = 0;
      if (siblings.there()) beside = most_of(row_s(h, m)) - u_s[in_row(h, m)];
      if (grands.there() && h > 0) above_ = most_of(row_g(h, m)) - u_g[in_row(h, m)];
      const double all = beside + above_, left = (weight(best[m], m) - weight(h, m)) * (1 - 1e-6);
      if (!(all > 0)) return;
      const double part = left >= all ? 1 : left > 0 ? left / all : 0;
      unpaid[at(h, m)] = part < 1;
      if (beside > 0) u_s[in_row(h, m)] = part < 1 ? u_s[in_row(h, m)] + part * beside : most_of(row_s(h, m));
      if (above_ > 0) u_g[in_row(h, m)] = part < 1 ? u_g[in_row(h, m)] + part * above_ : most_of(row_g(h, m));
    });
    BARRIER();
  }

  DEVICE void weigh() const {
    pay();
    charge<true>();
    spare();
    charge<false>();
    each_two([&](int h, int m) INLINED { w[at(h, m)] = weight(h, m); });
    BARRIER();
  }

  // Opens the arcs of a tree, and of every word those that weigh at least what the known tree's arc does: by half first,
  // if they pay for others. Whether there were any.
  DEVICE bool open(const i64* tree) const {
    int more = 0;
    const bool known = best[1] >= 0;
    LANES(m, n + 1) for (int h = 0; m > 0 && h <= n; ++h) {
      if (h != (int)tree[m] && !(known && w[at(h, m)] >= w[at(best[m], m)])) continue;
      const bool pays = v_s[in_row(h, m)] > 0 || v_g[in_row(m, h)] > 0;
      if (state[at(h, m)] != DEAD && advance(h, m, !known || !pays)) more = 1;
    }
    return team_reduce(more, Or{}) != 0;
  }

  // No arc that the trees above `least` do not have; what is open no longer pays for it.
  DEVICE void prune(double least) const {
    LANES(m, n + 1) for (int h = 0; m > 0 && h <= n; ++h) {
      if (state[at(h, m)] == DEAD || (most[in_row(h, m)] >= least && most[in_row(h, m)] > -infinity())) continue;
      state[at(h, m)] = DEAD;
      if (grands.there())
        for (int k = 0; k < child_count[m]; ++k) row_g(m, child(m, k))[h] = -infinity();
      if (siblings.there())
        for (int k = 0; k < child_count[h]; ++k)
          if (child(h, k) != m) row_s(h, child(h, k))[m] = -infinity();
    }
    BARRIER();
  }

  // How many arcs that are not open are in trees of at least that score, or with `now` opens them.
  DEVICE int closed_above(double least, bool now) const {
    int count = 0;
    LANES(m, n + 1) for (int h = 0; m > 0 && h <= n; ++h)
      if ((state[at(h, m)] == CLOSED || state[at(h, m)] == HALF) && most[in_row(h, m)] >= least) {
        if (now) advance(h, m, true);
        ++count;
      }
    return team_reduce(count, Plus{});
  }
};
