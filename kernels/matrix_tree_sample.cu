// Exact draws of non-projective trees: the elimination run backwards, no walk and no rejection.
//
// Before word k comes back, the tree on the nodes below k is a draw for the weights w'_ij = w_ij + w_ik w_kj / out_k.
// Each of its arcs i -> j was direct or went through k, independently and in proportion; those through k hang on k
// now. The head of k is drawn by w_hk among the nodes that do not hang on k: the sum over all trees of the pieces
// cut off is what the product of the out_k counts (Cayley's formula). A root that may have only one word takes k
// just if its own arc went through k.
#include "matrix_tree.cuh"

// Where arc i -> j, as of node k's level, goes through: a node above k, or 0 if it is direct. All levels at once:
// w_ij(k) = a_ij + sum over l > k of w_il * w_lj / out_l.
template <class T> DEVICE int route(const Elimination<T>& e, int i, int j, int k, int n, Stream& random) {
  const int via = draw_one<typename T::Scalar>(k, n, random.uniform(), [&](int l) {
    return l == k ? e.A.cell(i, j) : e.M.cell(i, l) * e.vectors.cell(e.INVERSE, l) * e.M.cell(l, j);
  });
  return via == k ? 0 : via;
}

// head, via, mark: n+1 ints each
template <class T>
DEVICE void draw_tree(const Elimination<T>& e, int n, int single_root, Stream& random, int* head, int* via, int* mark) {
  typedef typename T::Scalar S;
  for (int i = 0; i <= n; ++i) mark[i] = 0;
  head[1] = 0;
  via[1] = route(e, 0, 1, 1, n, random);
  for (int k = 2; k <= n; ++k) {
    // marks 2k: hangs on k, 2k+1: does not
    mark[0] = 2 * k + 1, mark[k] = 2 * k;
    bool root_alone = false;
    for (int j = 1; j < k; ++j)
      if (via[j] == k) {
        root_alone |= head[j] == 0;
        head[j] = k;
        via[j] = route(e, k, j, k, n, random);
      }
    for (int i = 1; i < k; ++i) {
      int top = i;
      while (mark[top] < 2 * k) top = head[top];
      for (int x = i; mark[x] < 2 * k; x = head[x]) mark[x] = mark[top];
    }
    const int first = single_root && !root_alone ? 1 : 0;
    S whole = S::zero();
    for (int h = first; h < k; ++h)
      if (mark[h] == 2 * k + 1) whole = whole + e.M.cell(h, k);
    double left = random.uniform();
    int chosen = -1;
    for (int h = first; h < k && left >= 0.; ++h)
      if (mark[h] == 2 * k + 1) {
        double part = share(e.M.cell(h, k), whole);
        if (part > 0.) chosen = h;
        left -= part;
      }
    head[k] = chosen < 0 ? 0 : chosen;
    via[k] = route(e, head[k], k, k, n, random);
  }
}

template <class T, class In>
DEVICE bool draw_trees(const In* arcs, Samples samples, double* work, int* order, int* stacks, int N, int n,
                       int single_root, bool must_prove) {
  Elimination<T> e(work, order, n);
  const Found z = e.fill(Given<In>{arcs}, N, n, single_root, must_prove);
  if (z.some) LANES(s, samples.count) {
    Stream random = samples.random(s);
    int* head = stacks + LANE_NUMBER * 3 * N;
    draw_tree(e, n, single_root, random, head, head + N, head + 2 * N);
    i64* h = samples.of(s);
    for (int i = 1; i <= n; ++i) h[e.word[i]] = e.word[head[i]];
  }
  return z.enough;
}

// heads [samples, B, N], drawn by the numbers that follow from seed [1]; -1 where there is no tree.
template <class In>
KERNEL matrix_tree_sample(const In* arcs, const i64* lengths, const i64* seed, i64* heads, double* work, int* orders,
                          int* stacks, i64 work_size, i64 stack_size, int samples, int B, int N, int single_root) {
  double* mine = work + SLOT * work_size;
  int* stack = stacks + SLOT * stack_size;
  int* words = orders + SLOT * N;
  sample_each(heads, N, seed, samples, lengths, B, N, [&](auto numbers, bool must_prove, Samples all, int n) INLINED {
    const In* scores = arcs + (i64)all.b * N * N;
    return draw_trees<ALGEBRA(numbers)>(scores, all, mine, words, stack, N, n, single_root, must_prove);
  });
}

EXPORT_TYPES(matrix_tree_sample)
