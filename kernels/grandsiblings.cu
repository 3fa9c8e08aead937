// Projective trees with scores of grandparents and siblings: log Z, the probabilities of all parts and their
// directional derivatives by inside and outside, in O(n^4) time and O(n^3) memory.
#include "grandsiblings_outside.cuh"
#include "grandsiblings_spans.cuh"

// pass and unproven [B]: as in sentences.cuh.
// order 0: logz [B], and if out is not null the probabilities of arcs [B, N, N] and, where not null, of siblings and of
// grandparents [B, N, N, N]; order 1: their derivatives along u; order 2: those along u and v. A sentence without any
// tree: -inf and zeros. Siblings, and parts of u and v, may be null: all zeros.
template <class In, int order>
KERNEL grandsiblings(const In* arcs, const In* siblings, const In* grandparents, const In* u, const In* u_siblings,
                     const In* u_grandparents, const In* v, const In* v_siblings, const In* v_grandparents,
                     const i64* lengths, double* logz, In* out, In* beside, In* under, double* work, i64 work_size,
                     int* unproven, int pass, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  const i64 square = (i64)N * N, cube = square * N;
  sum_each<order>(Results<In, 3>{logz, {out, beside, under}, {square, cube, cube}}, lengths, B, N,
                  [&](auto numbers, bool must_prove, i64 b, int n, auto results) INLINED {
    const GrandParts<In> scores = GrandParts<In>{arcs, siblings, grandparents}.at(b, N),
                         du = GrandParts<In>{u, u_siblings, u_grandparents}.at(b, N),
                         dv = GrandParts<In>{v, v_siblings, v_grandparents}.at(b, N);
#if !ON_GPU
    if constexpr (order == 0 && !any_range<ALGEBRA(numbers)>) {
      if (!grandparents || (beside && !siblings)) return false;  // nobody asks for these
      return siblings ? sum_spans<true>(scores, results, mine, N, n, single_root)
                      : sum_spans<false>(scores, results, mine, N, n, single_root);
    } else
#endif
    return sum_trees<ALGEBRA(numbers)>(scores, du, dv, results, mine, N, n, single_root, must_prove);
  }, Passes{pass, unproven});
}

EXPORT_ORDERS(grandsiblings)
