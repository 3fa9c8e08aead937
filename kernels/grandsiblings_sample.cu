// Exact draws of projective trees with scores of grandparents and siblings: the inside pass once, then every sample
// takes spans apart at random.
#include "siblings_unwind.cuh"

// heads [samples, B, N], drawn by the numbers that follow from seed [1]; -1 where there is no tree.
template <class In>
KERNEL grandsiblings_sample(const In* arcs, const In* siblings, const In* grandparents, const i64* lengths,
                            const i64* seed, i64* heads, double* work, int* stacks, i64 work_size, i64 stack_size,
                            int samples, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  sample_each(heads, N, seed, samples, lengths, B, N, [&](auto numbers, bool must_prove, Samples all, int n) INLINED {
    const GrandParts<In> scores = GrandParts<In>{arcs, siblings, grandparents}.at(all.b, N);
    return draw_trees<GrandInside<ALGEBRA(numbers)>>(scores, all, mine, stack, N, n, single_root, must_prove);
  });
}

EXPORT_TYPES(grandsiblings_sample)
