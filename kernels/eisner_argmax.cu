// The best projective tree: Eisner's program over (max, +), then the splits found again from the top down.
#include "unwind.cuh"

// heads [B, N]; all -1 where there is no tree, or a NaN or +inf was read. Ties: the smallest split wins.
template <class In>
KERNEL eisner_argmax(const In* arcs, const i64* lengths, i64* heads, double* work, int* stacks, i64 work_size,
                     i64 stack_size, int B, int N, int single_root) {
  typedef Max<Pack> T;
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  SENTENCES(b, B) {
    const In* scores = arcs + (i64)b * N * N;
    i64* h = heads + (i64)b * N;
    const int n = words_in(lengths, b, N);
    BARRIER();
    LANES(k, N) h[k] = -1;
    if (n == 0) continue;
    Inside<T> in(mine, n);
    BARRIER();
    Range range = in.load(scores, scores, scores, N, n, 0.);
    in.run(n, single_root);
    if (range.bad || !(in.R.cell(n, 0).v > -infinity())) continue;
    unwind<false>(n, h, stack, [&](int kind, int d, int i, int first, int last) {
      return team_argmax(first, last + 1, [&](int t) { return summand(in, kind, d, i, t).v; }).index;
    });
  }
}

EXPORT_TYPES(eisner_argmax)
