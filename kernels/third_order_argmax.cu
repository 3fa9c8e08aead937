// The best projective tree with scores of third order: the program of grandsiblings.cuh over (max, +), then the splits
// found again from the top down.
#include "siblings_unwind.cuh"

// heads [B, N]; all -1 where there is no tree, or a NaN or +inf was read. Ties: the smallest split wins.
template <class In>
KERNEL third_order_argmax(const In* arcs, const In* siblings, const In* grandparents, const In* grandsiblings,
                          const i64* lengths, i64* heads, double* work, int* stacks, i64 work_size, i64 stack_size,
                          int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  const GrandParts<In> all{arcs, siblings, grandparents, grandsiblings};
  best_each(heads, N, lengths, B, N, [&](i64 b, int n, i64* to) {
    best_tree<GrandInside<Max<Pack>, true>>(all.at(b, N), to, mine, stack, N, n, single_root);
  });
}

EXPORT_TYPES(third_order_argmax)
