// Projective trees with scores of grandparents, siblings, and of both together (grandsiblings): log Z, the probabilities
// of all parts and their derivatives along a direction, in O(n^4) time and memory.
#include "grandsiblings_outside.cuh"

// pass and unproven [B]: as in sentences.cuh.
// order 0: logz [B], and if out is not null the probabilities of arcs [B, N, N] and, where not null, of siblings and of
// grandparents [B, N, N, N], and of both together [B, N, N, N, N]; order 1: their derivatives along u. A sentence
// without any tree: -inf and zeros. Siblings, grandparents, and parts of u may be null: all zeros.
template <class In, int order>
KERNEL third_order(const In* arcs, const In* siblings, const In* grandparents, const In* grandsiblings, const In* u,
                   const In* u_siblings, const In* u_grandparents, const In* u_grandsiblings, const i64* lengths,
                   double* logz, In* out, In* beside, In* under, In* both, double* work, i64 work_size, int* unproven,
                   int pass, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  const i64 square = (i64)N * N, cube = square * N;
  sum_each<order>(Results<In, 4>{logz, {out, beside, under, both}, {square, cube, cube, cube * N}}, lengths, B, N,
                  [&](auto numbers, bool must_prove, i64 b, int n, auto results) INLINED {
    const GrandParts<In> scores = GrandParts<In>{arcs, siblings, grandparents, grandsiblings}.at(b, N),
                         du = GrandParts<In>{u, u_siblings, u_grandparents, u_grandsiblings}.at(b, N);
    return sum_trees<ALGEBRA(numbers)>(scores, du, du, results, mine, N, n, single_root, must_prove);
  }, Passes{pass, unproven});
}

EXPORT(third_order_float_0, third_order<float, 0>)
EXPORT(third_order_float_1, third_order<float, 1>)
EXPORT(third_order_double_0, third_order<double, 0>)
EXPORT(third_order_double_1, third_order<double, 1>)
