// The best projective tree: Eisner's program over (max, +), then the splits found again from the top down.
#include "unwind.cuh"

// heads [B, N]; all -1 where there is no tree, or a NaN or +inf was read. Ties: the smallest split wins.
template <class In>
KERNEL eisner_argmax(const In* arcs, const i64* lengths, i64* heads, double* work, int* stacks, i64 work_size,
                     i64 stack_size, int B, int N, int single_root) {
  int* stack = stacks + SLOT * stack_size;
  best_each(heads, N, lengths, B, N, [&](i64 b, int n, i64* to) {
    Inside<Max<Pack>> in(work + SLOT * work_size, n);
    if (in.fill(Given<In>{arcs + b * N * N}, N, n, single_root, false).some)
      unwind<false>(n, to, stack, [&](int kind, int d, int i, int first, int last) {
        return warp_argmax(first, last + 1, [&](int t) { return summand(in, kind, d, i, t).v; }).index;
      });
  });
}

EXPORT_TYPES(eisner_argmax)
