// Exact draws of projective trees with scores of third order: the inside pass once, in numbers of any range, then every
// sample takes spans apart at random.
#include "siblings_unwind.cuh"

// heads [samples, B, N], drawn by the numbers that follow from seed [1]; -1 where there is no tree.
template <class In>
KERNEL third_order_sample(const In* arcs, const In* siblings, const In* grandparents, const In* grandsiblings,
                          const i64* lengths, const i64* seed, i64* heads, double* work, int* stacks, i64 work_size,
                          i64 stack_size, int samples, int B, int N, int single_root) {
  const GrandParts<In> parts{arcs, siblings, grandparents, grandsiblings};
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    const Samples all{heads, N, *seed, samples, B, b};
    BARRIER();
    all.clear();
    if (n > 0)
      draw_trees<GrandInside<typename Tried<double, 0>::Safe, true>>(
          parts.at(b, N), all, work + SLOT * work_size, stacks + SLOT * stack_size, N, n, single_root, false);
  }
}

EXPORT_TYPES(third_order_sample)
