// Projective trees with scores of grandparents, siblings, and of both together (grandsiblings): log Z and the
// probabilities of all parts, in O(n^4) time and memory. In numbers of any range alone: there are two instances less, for
// most of the time goes into as many weights as there are scores.
#include "grandsiblings_outside.cuh"

// logz [B], and if out is not null the probabilities of arcs [B, N, N] and, where not null, of siblings and of
// grandparents [B, N, N, N], and of both together [B, N, N, N, N]. A sentence without any tree: -inf and zeros. Siblings
// and grandparents may be null: all zeros.
template <class In>
KERNEL third_order(const In* arcs, const In* siblings, const In* grandparents, const In* grandsiblings,
                   const i64* lengths, double* logz, In* out, In* beside, In* under, In* both, double* work,
                   i64 work_size, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  const i64 square = (i64)N * N, cube = square * N;
  const Results<In, 4> all{logz, {out, beside, under, both}, {square, cube, cube, cube * N}};
  const GrandParts<In> parts{arcs, siblings, grandparents, grandsiblings};
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    const Results<In, 4> results = all.of(b);
    const GrandParts<In> scores = parts.at(b, N);
    BARRIER();
    results.fill((In)0);
    if (n == 0) results.put(0.);
    BARRIER();
    if (n > 0) sum_trees<typename Tried<double, 0>::Safe>(scores, scores, scores, results, mine, N, n, single_root, false);
  }
}

EXPORT_TYPES(third_order)
