// The best projective tree with scores of siblings: the program of siblings.cuh over (max, +),
// then the splits found again from the top down.
#include "siblings_unwind.cuh"

// heads [B, N]; all -1 where there is no tree, or a NaN or +inf was read. Ties: the smallest split wins.
template <class In>
KERNEL siblings_argmax(const In* arcs, const In* pairs, const i64* lengths, i64* heads, double* work,
                       int* stacks, i64 work_size, i64 stack_size, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  best_each(heads, N, lengths, B, N, [&](i64 b, int n, i64* to) {
    best_tree<SiblingInside<Max<Pack>>>(Parts<In>{arcs, pairs}.at(b, N), to, mine, stack, N, n, single_root);
  });
}

EXPORT_TYPES(siblings_argmax)
