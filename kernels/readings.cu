// What a tree and the stars of its nodes (automata.cu) say of arcs, and what they score: one evaluation of the Lagrangian
// of second-order parsing (Koo et al. 2010).
#include "ways.cuh"

// The sum of term(m) over words m = 1..n.
template <class Term> DEVICE double over_words(int n, double* ways, Term term) {
  BARRIER();
  clear(ways);
  WAYS_OVER(k, m, n) ways[k] += term(m + 1);
  add_up(ways);
  return ways[0];
}

// scores [B, N, N] that the tree was found by, arcs [B, N, N]; siblings (h, s, m) and grandparents (g, h, m)
// [B, N, N, N], or null; heads [B, N] of the tree, children [B, N, N], chosen (heads) and worth [B, N] of the stars.
// Says [B, names, 2, N, N]: arcs of the tree and children; if there are two names, arcs of the tree and heads chosen;
// values [B, 2] of the tree and the stars, total [B] of the tree by all scores.
template <class In>
KERNEL readings(const double* scores, const double* arcs, const In* siblings, const In* grandparents,
                const i64* lengths, const i64* heads, const unsigned char* children, const i64* chosen,
                const double* worth, double* says, double* values, double* total, int names, int B, int N) {
  ROOM double ways[WAYS];
  const i64 square = (i64)N * N;
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    const i64 *const h = heads + (i64)b * N, *const g = chosen + (i64)b * N;
    const double *const score = scores + b * square, *const arc = arcs + b * square, *const star = worth + (i64)b * N;
    const In* const beside = siblings ? siblings + b * square * N : nullptr;
    const In* const above = grandparents ? grandparents + b * square * N : nullptr;
    double* const to = says + b * square * 2 * names;
    CELLS(i, m, N) {
      const i64 e = (i64)i * N + m;
      const double here = h[m] == i;
      to[e] = here, to[square + e] = children[b * square + e];
      if (names > 1) to[2 * square + e] = here, to[3 * square + e] = g[m] == i;
    }
    const bool none = over_words(n, ways, [&](int m) INLINED { return h[m] < 0 ? 1. : 0.; }) > 0;
    const auto head = [&](int m) INLINED { return h[m] < 0 ? 0 : (int)h[m]; };
    const double by_arcs = over_words(n, ways, [&](int m) INLINED { return arc[(i64)head(m) * N + m]; });
    double whole = by_arcs;
    if (beside)
      whole += over_words(n, ways, [&](int m) INLINED {
        const int p = head(m), step = p < m ? -1 : 1;
        int s = m + step;
        while (s != p && h[s] != p) s += step;
        return (double)beside[((i64)p * N + s) * N + m];
      });
    if (above)
      whole += over_words(n, ways, [&](int m) INLINED {
        const int p = head(m);
        return p ? (double)above[((i64)head(p) * N + p) * N + m] : 0.;
      });
    const double tree = over_words(n, ways, [&](int m) INLINED { return score[(i64)head(m) * N + m]; });
    const double stars = over_words(n, ways, [&](int m) INLINED { return star[m]; });
    if (LEADER) {
      total[b] = none ? -infinity() : whole;
      values[2 * b] = none ? -infinity() : tree, values[2 * b + 1] = star[0] + stars;
    }
  }
}

EXPORT_TYPES(readings)
