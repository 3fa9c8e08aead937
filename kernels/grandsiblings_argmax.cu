// The best projective tree with scores of grandparents and siblings: the program of grandsiblings.cuh over (max, +),
// then the splits found again from the top down.
#include "grandsiblings.cuh"
#include "siblings_unwind.cuh"

// heads [B, N]; all -1 where there is no tree, or a NaN or +inf was read. Ties: the smallest split wins.
template <class In>
KERNEL grandsiblings_argmax(const In* arcs, const In* siblings, const In* grandparents, const i64* lengths,
                            i64* heads, double* work, int* stacks, i64 work_size, i64 stack_size, int B, int N,
                            int single_root) {
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  SENTENCES(b, B) {
    const GrandParts<In> scores = GrandParts<In>{arcs, siblings, grandparents}.at(b, N);
    i64* h = heads + (i64)b * N;
    const int n = words_in(lengths, b, N);
    BARRIER();
    LANES(k, N) h[k] = -1;
    if (n == 0) continue;
    GrandInside<Max<Pack>> in(mine, n);
    BARRIER();
    Range range = in.load(scores, scores, scores, N, n, single_root, 0.);
    BARRIER();
    in.run(n);
    if (!range.bad && in.R.cell(n, 0, 0).v > -infinity()) best_tree(in, n, h, stack);
  }
}

EXPORT_TYPES(grandsiblings_argmax)
