// The k best non-projective trees, exactly, by partition (Lawler, Murty) in the order of the words: what is left after
// the best tree A of a set falls into sets that share A's heads for words 1..q and not for word q+1.
#include "mst.cuh"

// A set of trees by its best one: words 1..prefix have that tree's heads, word prefix+1 none of the excluded.
struct Candidates {
  double* score;   // [k], best first
  int* prefix;     // [k]
  int* id;         // [k] where the tree lies
  i64* heads;      // [k + 1, N]: row k is for trials
  unsigned* excluded;  // [k + 1, words]
};

template <class In> DEVICE double tree_score(const In* scores, const i64* heads, int N, int n) {
  double sum = 0.;
  for (int m = 1; m <= n; ++m) sum += (double)scores[heads[m] * N + m];
  return sum;
}

// heads [k, B, N]; -1 for ranks that do not exist, and everywhere where a NaN or +inf was read.
template <class In>
KERNEL mst_topk(const In* arcs, const i64* lengths, i64* heads, double* work, int* ints, i64* trees, i64 work_size,
                i64 ints_size, int k, int B, int N, int single_root) {
  const int bits_row = (N + 31) / 32;
  double* mine = work + SLOT * work_size;  // constrained scores [N, N], MstWork, best [N], rest [N], score [k]
  int* my_ints = ints + SLOT * ints_size;  // MstWork, prefix [k], id [k], excluded [(k + 1) * bits_row]
  double *limited = mine, *best = mine + 2 * (i64)N * N, *rest = best + N;
  const MstWork w{mine + (i64)N * N, my_ints, my_ints + (i64)N * N};
  int* extra = my_ints + MstWork::integers(N);
  const Candidates c{rest + N, extra, extra + k, trees + SLOT * (k + 1) * N, (unsigned*)(extra + 2 * k)};
  i64* trial = c.heads + (i64)k * N;
  unsigned* barred = c.excluded + (i64)k * bits_row;
  SENTENCES(b, B) {
    const In* s = arcs + (i64)b * N * N;
    const int n = words_in(lengths, b, N);
    BARRIER();
    LANES(r, k)
      for (int m = 0; m < N; ++m) heads[((i64)r * B + b) * N + m] = -1;
    if (n == 0) continue;
    BARRIER();
    if (!arborescence(s, N, n, single_root, w, trial)) continue;
    BARRIER();
    LANES(m, n + 1) {
      double top = -infinity();
      for (int h = 0; h <= n && m > 0; ++h)
        if (h != m) top = fmax(top, (double)s[(i64)h * N + m]);
      best[m] = top;
    }
    BARRIER();
    if (LEADER) {  // rest[m]: no tree has more from words m, m+1, ... n
      double sum = 0.;
      for (int m = n; m >= 1; --m) rest[m] = sum += best[m];
      c.score[0] = tree_score(s, trial, N, n), c.prefix[0] = 0;
      for (int r = 0; r < k; ++r) c.id[r] = r;
    }
    BARRIER();
    LANES(m, n + 1) c.heads[m] = trial[m];
    LANES(x, bits_row) c.excluded[x] = 0;
    BARRIER();
    // c.id is a permutation: entries [found, count) are the candidates, best first; [0, found) are given out
    int count = 1;
    for (int found = 0; found < count && found < k; ++found) {
      const int at = c.id[found], p = c.prefix[found];
      const i64* A = c.heads + (i64)at * N;
      LANES(m, n + 1) if (m > 0) heads[((i64)found * B + b) * N + m] = A[m];
      if (found == k - 1) break;
      double fixed = 0.;
      for (int m = 1; m <= p; ++m) fixed += (double)s[A[m] * N + m];
      for (int q = p; q < n; ++q) {  // words 1..q as in A, word q+1 otherwise
        if (q > p) fixed += (double)s[A[q] * N + q];
        BARRIER();
        LANES(x, bits_row) barred[x] = q == p ? c.excluded[(i64)at * bits_row + x] : 0u;
        BARRIER();
        if (LEADER) barred[A[q + 1] >> 5] |= 1u << (A[q + 1] & 31);
        BARRIER();
        auto allowed = [&](int h) { return !(barred[h >> 5] >> (h & 31) & 1u) && h != q + 1; };
        const Best other = team_argmax(0, n + 1, [&](int h) { return allowed(h) ? (double)s[(i64)h * N + q + 1] : -infinity(); });
        if (other.index < 0) continue;
        const bool full = count == k;
        const double bound = fixed + other.value + (q + 2 <= n ? rest[q + 2] : 0.);
        if (full && bound < c.score[k - 1] - 1e-9 * fabs(c.score[k - 1])) continue;  // cannot get among the k best
        for (int h = 0; h <= n; ++h)
          LANES(m, n + 1) {
            bool keep = m > q + 1 || (m == q + 1 ? allowed(h) : m >= 1 && A[m] == h);
            limited[(i64)h * N + m] = keep && m > 0 ? (double)s[(i64)h * N + m] : -infinity();
          }
        BARRIER();
        if (!arborescence(limited, N, n, single_root, w, trial)) continue;
        BARRIER();
        double mine_score = LEADER ? tree_score(s, trial, N, n) : 0.;
        const double score = team_broadcast(mine_score);
        if (full && !(score > c.score[k - 1])) continue;
        if (!full) ++count;
        const int slot = c.id[count - 1];  // free, or that of the worst one
        BARRIER();
        LANES(m, n + 1) c.heads[(i64)slot * N + m] = trial[m];
        LANES(x, bits_row) c.excluded[(i64)slot * bits_row + x] = barred[x];
        if (LEADER) {
          int r = count - 1;
          for (; r > found + 1 && score > c.score[r - 1]; --r)
            c.score[r] = c.score[r - 1], c.prefix[r] = c.prefix[r - 1], c.id[r] = c.id[r - 1];
          c.score[r] = score, c.prefix[r] = q, c.id[r] = slot;
        }
        BARRIER();
      }
      BARRIER();
    }
  }
}

EXPORT_TYPES(mst_topk)
