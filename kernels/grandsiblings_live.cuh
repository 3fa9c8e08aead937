// The program of grandsiblings.cuh over (max, +) on the arcs that are alive alone: spans have an entry for each live head
// of their head, arcs are looked for in lists, and what lies between two children is asked of live arcs only.
//
//   R(i, e)  complete, headed at i, and L(e, i) headed at e [N, N, K];  E(h, m) ended by the arc h -> m [rows, K]
//
// K is the most heads that a word has; without grandparents it is 1.
#pragma once
#include "open_arcs.cuh"

enum Part { WHOLE_RIGHT, WHOLE_LEFT, ENDED, MIDDLE };

template <class In> struct LiveProgram {
  OpenArcs<In> on;
  double *R, *L, *E;
  int *place, *right, *stack;  // [N, N] of h among the heads of m; [N] the first child to the right; [4 (2 N + 8)]
  int K;

  DEVICE int count(int i) const { return on.grands.there() && i > 0 ? on.head_count[i] : 1; }
  DEVICE int head(int h, int m) const { return on.grands.there() ? place[on.at(h, m)] : 0; }
  DEVICE double* to_right(int i, int e) const { return R + (i64)on.at(i, e) * K; }
  DEVICE double* to_left(int e, int i) const { return L + (i64)on.at(e, i) * K; }
  DEVICE double* ended(int h, int m) const { return E + (i64)on.row[on.at(h, m)] * K; }
  DEVICE double* beside(int h, int m) const { return on.row_s(h, m); }  // of s, with what lies between s and m
  DEVICE bool lives(int h, int m) const { return on.state[on.at(h, m)] == OPEN; }

  // What lies between the children a < b of h is split after r.
  DEVICE double split(int h, int a, int b, int r) const {
    return to_right(a, r)[head(h, a)] + to_left(b, r + 1)[head(h, b)];
  }
  // Between h and its first child m.
  DEVICE double inner(int h, int m) const {
    return (h < m ? to_left(m, h + 1) : to_right(m, h - 1))[head(h, m)];
  }
  // What follows an arc to its child m in the span that ends at e.
  DEVICE double rest(int h, int m, int e) const { return (h < m ? to_right(m, e) : to_left(m, e))[head(h, m)]; }

  // f(t) for the live children of h that are on the side of m, from the nearest on, before it.
  template <class F> DEVICE void inside(int h, int m, F f) const {
    const int step = h < m ? 1 : -1;
    for (int k = h < m ? right[h] : right[h] - 1; k >= 0 && k < on.child_count[h]; k += step) {
      const int t = on.child(h, k);
      if (h < m ? t >= m : t <= m) break;
      f(t);
    }
  }

  DEVICE void load() const {
    const int n = on.n;
    LANES(i, n + 1) {
      int k = 0;
      while (k < on.child_count[i] && on.child(i, k) < i) ++k;
      right[i] = k;
      for (k = 0; k < on.head_count[i]; ++k) place[on.at(on.heads[on.at(i, k)], i)] = k;
      for (k = 0; k < K; ++k) to_right(i, i)[k] = to_left(i, i)[k] = 0;
    }
    BARRIER();
    on.each_open([&](int h, int k) {
      const int m = on.child(h, k);
      for (int g = 0; g < K; ++g) {
        double x = on.arcs[on.at(h, m)];
        if (on.grands.there() && h > 0) x += g < count(h) ? on.row_g(h, m)[on.heads[on.at(h, g)]] : -infinity();
        ended(h, m)[g] = x;
      }
      if (on.siblings.there()) return;
      beside(h, m)[h] = 0;
      inside(h, m, [&](int t) INLINED { beside(h, m)[t] = on.pairs_of(h) ? 0 : -infinity(); });
    });
    BARRIER();
  }

  // The arc h -> m with its own pairs, for a pack of heads of h; and the span of h that ends at m.
  DEVICE void end(int h, int m, int k) const {
    if (k >= count(h)) return;
    if (lives(h, m)) {
      Pack x = splat<Pack>(beside(h, m)[h] + inner(h, m));
      inside(h, m, [&](int t) INLINED { x = larger(pack(ended(h, t) + k) + splat<Pack>(beside(h, m)[t]), x); });
      unpack(ended(h, m) + k, x + pack(ended(h, m) + k));
    }
    Pack x = splat<Pack>(-infinity());
    inside(h, h < m ? m + 1 : m - 1, [&](int t) INLINED {
      x = larger(pack(ended(h, t) + k) + splat<Pack>(rest(h, t, m)), x);
    });
    unpack((h < m ? to_right(h, m) : to_left(h, m)) + k, x);
  }

  DEVICE void middle(int h, int m) const {
    if (!lives(h, m)) return;
    inside(h, m, [&](int t) INLINED {
      const int a = t < m ? t : m, b = t < m ? m : t;
      double x = -infinity();
      for (int r = a; r < b; ++r) {
        const double here = split(h, a, b, r);
        x = here > x ? here : x;
      }
      beside(h, m)[t] += x;
    });
  }

  // Whether there is a tree; heads [n+1].
  DEVICE bool run(i64* tree) const {
    const int n = on.n;
    load();
    for (int d = 1; d <= n; ++d) {
      LANES(flat, 2 * (n + 1 - d)) {
        const int i = flat / 2, e = i + d;
        if (flat % 2) middle(e, i);
        else middle(i, e);
      }
      BARRIER();
      ROWS_PACKS(i, n + 1 - d, k, K) {
        end(i, i + d, k);
        end(i + d, i, k);
      }
      BARRIER();
    }
    if (!(to_right(0, n)[0] > -infinity())) return false;
    if (LEADER) unwind(tree);
    BARRIER();
    return true;
  }

  // From the whole sentence down, one lane alone.
  DEVICE void unwind(i64* tree) const {
    int top = 0;
    const auto push = [&](int part, int a, int b, int k) INLINED {
      int* const to = stack + 4 * top++;
      to[0] = part, to[1] = a, to[2] = b, to[3] = k;
    };
    push(WHOLE_RIGHT, 0, on.n, 0);
    while (top > 0) {
      const int* const from = stack + 4 * --top;
      const int part = from[0], h = from[1], m = from[2], k = from[3];
      double best = -infinity();
      int chosen = -1;
      if (part == MIDDLE) {  // h, m: two children of k
        const int a = h < m ? h : m, b = h < m ? m : h;
        for (int r = a; r < b; ++r)
          if (const double x = split(k, a, b, r); x > best) best = x, chosen = r;
        if (chosen > a) push(WHOLE_RIGHT, a, chosen, head(k, a));
        if (chosen + 1 < b) push(WHOLE_LEFT, b, chosen + 1, head(k, b));
      } else if (part == ENDED) {
        const auto better = [&](double x, int t) INLINED { if (x > best) best = x, chosen = t; };
        better(beside(h, m)[h] + inner(h, m), h);
        inside(h, m, [&](int t) INLINED { better(ended(h, t)[k] + beside(h, m)[t], t); });
        if (chosen != h) {
          tree[chosen] = h;
          push(ENDED, h, chosen, k);
          push(MIDDLE, chosen, m, h);
        } else if (h + 1 < m) {
          push(WHOLE_LEFT, m, h + 1, head(h, m));
        } else if (m + 1 < h) {
          push(WHOLE_RIGHT, m, h - 1, head(h, m));
        }
      } else {
        const int step = part == WHOLE_RIGHT ? 1 : -1;
        inside(h, m + step, [&](int t) INLINED {
          if (const double x = ended(h, t)[k] + rest(h, t, m); x > best) best = x, chosen = t;
        });
        tree[chosen] = h;
        if (chosen != m) push(part, chosen, m, head(h, chosen));
        push(ENDED, h, chosen, k);
      }
    }
  }
};
