// The best non-projective tree of each sentence.
#include "mst.cuh"

// heads [B, N]; all -1 where there is no tree, or a NaN or +inf was read.
template <class In>
KERNEL mst(const In* arcs, const i64* lengths, i64* heads, double* work, int* ints, i64 work_size, i64 ints_size, int B,
           int N, int single_root) {
  int* mine = ints + SLOT * ints_size;
  const MstWork w{work + SLOT * work_size, mine, mine + (i64)N * N};
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    i64* h = heads + (i64)b * N;
    BARRIER();
    LANES(k, N) if (k == 0 || k > n) h[k] = -1;
    if (n == 0) continue;
    if (!arborescence(arcs + (i64)b * N * N, N, n, single_root, w, h)) {
      BARRIER();
      LANES(k, N) h[k] = -1;
    }
  }
}

EXPORT_TYPES(mst)
