// The k best projective trees, exactly: every chart cell keeps its k best derivations (a tree has just one).
#include "weights.cuh"

// Lists of k entries a cell: score, and where it came from: split t, ranks a and b of its factors (k <= 64).
struct Lists {
  double* score;
  int* from;
  int n, k;
  DEVICE i64 at(int d, int i) const { return ((i64)d * (n + 1) - (i64)d * (d - 1) / 2 + i) * k; }
  DEVICE double best(int d, int i) const { return score[at(d, i)]; }
  DEVICE void clear(int d, int i) const {
    for (int r = 0; r < k; ++r) score[at(d, i) + r] = -infinity();
  }
  // room for a candidate after those as good; the last entry falls out
  DEVICE void insert(i64 cell, double s, int f) const {
    int r = k - 1;
    for (; r > 0 && s > score[cell + r - 1]; --r) score[cell + r] = score[cell + r - 1], from[cell + r] = from[cell + r - 1];
    score[cell + r] = s, from[cell + r] = f;
  }
  // all pairs of an entry of x and one of y, plus `extra`; only pairs with (a+1)(b+1) <= k can be among the k best
  DEVICE void merge(i64 cell, const Lists& x, i64 cx, const Lists& y, i64 cy, double extra, int t) const {
    const double* worst = score + cell + k - 1;
    for (int a = 0; a < k; ++a) {
      if (!(x.score[cx + a] + y.score[cy] + extra > *worst)) return;
      for (int b = 0; (a + 1) * (b + 1) <= k; ++b) {
        double s = x.score[cx + a] + y.score[cy + b] + extra;
        if (!(s > *worst)) break;
        insert(cell, s, t << 12 | a << 6 | b);
      }
    }
  }
};

template <class In> DEVICE double arc(const In* arcs, int h, int m, int N) {
  return m == 0 ? -infinity() : (double)arcs[(i64)h * N + m];
}

enum Kind { RIGHT, LEFT, ARC };

// Trees of all ranks from the lists, a lane a rank.
DEVICE void read_off(const Lists& X, const Lists& R, const Lists& L, i64* heads, int* stack, int n, int rank) {
  int top = 0;
  auto push = [&](int kind, int d, int i, int r) {
    if (d > 0) stack[4 * top] = kind, stack[4 * top + 1] = d, stack[4 * top + 2] = i, stack[4 * top++ + 3] = r;
  };
  push(RIGHT, n, 0, rank);
  while (top > 0) {
    --top;
    const int kind = stack[4 * top], d = stack[4 * top + 1], i = stack[4 * top + 2], r = stack[4 * top + 3];
    const int f = (kind == RIGHT ? R : kind == LEFT ? L : X).from[(kind == RIGHT ? R : kind == LEFT ? L : X).at(d, i) + r];
    const int t = f >> 12, a = f >> 6 & 63, b = f & 63;
    if (kind == RIGHT) {
      heads[i + t] = i;
      push(RIGHT, d - t, i + t, b);
      push(ARC, t, i, a);
    } else if (kind == LEFT) {
      heads[i + t] = i + d;
      push(LEFT, t, i, a);
      push(ARC, d - t, i + t, b);
    } else {
      push(RIGHT, t, i, a);
      push(LEFT, d - 1 - t, i + t + 1, b);
    }
  }
}

// heads [k, B, N]; -1 for ranks that do not exist, and everywhere where a NaN or +inf was read.
template <class In>
KERNEL eisner_topk(const In* arcs, const i64* lengths, i64* heads, double* work, int* from, int* stacks, i64 cells,
                   i64 stack_size, int k, int B, int N, int single_root) {
  SENTENCES(b, B) {
    const In* s = arcs + (i64)b * N * N;
    const int n = words_in(lengths, b, N);
    int* stack = stacks + SLOT * stack_size;
    double* scores = work + SLOT * 3 * cells;
    int* origins = from + SLOT * 3 * cells;
    const Lists X{scores, origins, n, k}, R{scores + cells, origins + cells, n, k},
        L{scores + 2 * cells, origins + 2 * cells, n, k};
    int bad = 0;
    BARRIER();
    LANES(r, k)
      for (int m = 0; m < N; ++m) heads[((i64)r * B + b) * N + m] = -1;
    LANES(m, n + 1)
      for (int h = 0; h <= n; ++h) {
        double x = m == 0 || h == m ? 0. : (double)s[(i64)h * N + m];
        bad |= x != x || x == infinity();
      }
    bad = team_reduce(bad, Or{});
    if (bad || n == 0) continue;
    LANES(i, n + 1) {
      R.clear(0, i), L.clear(0, i);
      R.insert(R.at(0, i), 0., 0), L.insert(L.at(0, i), 0., 0);
    }
    BARRIER();
    for (int d = 1; d <= n; ++d) {
      LANES(i, n + 1 - d) {
        X.clear(d, i), R.clear(d, i), L.clear(d, i);
        for (int t = 0; t < d; ++t) X.merge(X.at(d, i), R, R.at(t, i), L, L.at(d - 1 - t, i + t + 1), 0., t);
        if (!(single_root && i == 0 && d < n))
          for (int t = 1; t <= d; ++t) R.merge(R.at(d, i), X, X.at(t, i), R, R.at(d - t, i + t), arc(s, i, i + t, N), t);
        for (int t = 0; t < d; ++t) L.merge(L.at(d, i), L, L.at(t, i), X, X.at(d - t, i + t), arc(s, i + d, i + t, N), t);
      }
      BARRIER();
    }
    LANES(r, k)
      if (R.score[R.at(n, 0) + r] > -infinity())
        read_off(X, R, L, heads + ((i64)r * B + b) * N, stack + (i64)r * 4 * (2 * N + 4), n, r);
  }
}

EXPORT_TYPES(eisner_topk)
