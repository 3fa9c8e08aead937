// Exact draws of projective trees with scores of third order: the inside pass once, then every sample takes spans apart
// at random.
#include "siblings_unwind.cuh"

// heads [samples, B, N], drawn by the numbers that follow from seed [1]; -1 where there is no tree.
template <class In>
KERNEL third_order_sample(const In* arcs, const In* siblings, const In* grandparents, const In* grandsiblings,
                          const i64* lengths, const i64* seed, i64* heads, double* work, int* stacks, i64 work_size,
                          i64 stack_size, int samples, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  const GrandParts<In> parts{arcs, siblings, grandparents, grandsiblings};
  sample_each(heads, N, seed, samples, lengths, B, N, [&](auto numbers, bool must_prove, Samples all, int n) INLINED {
    return draw_trees<GrandInside<ALGEBRA(numbers), true>>(parts.at(all.b, N), all, mine, stack, N, n, single_root,
                                                           must_prove);
  });
}

EXPORT_TYPES(third_order_sample)
