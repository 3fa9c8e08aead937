// Maximum spanning arborescence (Chu-Liu, Edmonds; dense, in the order of Tarjan and Gabow et al.: grow a path of best
// heads backwards, contract it as soon as it closes, O(n^2) in all). No recursion.
//
// A single root exactly: a component takes the root only if no other node can be its head. That makes the arcs from
// the root as few as can be, and the score the best among those trees; if they are more than one, there is no tree.
#pragma once
#include "squares.cuh"

struct MstWork {
  double* in;    // [N, N] in[v][u]: best arc from node u into the component whose row is v
  int* to;       // [N, N] the word in that component which the arc enters
  int* ints;     // 12 N
  static DEVICE i64 doubles(int N) { return (i64)N * N; }
  static DEVICE i64 integers(int N) { return (i64)N * N + 12 * N; }
};

// Best head of each word, one pass over the scores. Ties: the smallest head. Returns whether NaN or +inf was read.
template <class In> DEVICE int best_heads(const In* scores, int N, int n, i64* heads) {
  int bad = 0;
  PACKS(m, n + 1) {
    Pack best = splat<Pack>(-infinity()), from = splat<Pack>(-1.);
    Pack odd = Pack{};  // keeps a NaN once it has seen one
    auto among = [&](int first, int last, auto score) INLINED {
      for (int h = first; h < last; ++h) {
        const Pack x = score(h);
        odd = choose(x == x, odd, x);
        const Mask better = x > best;
        best = choose(better, x, best);
        from = choose(better, splat<Pack>((double)h), from);
      }
    };
    auto score = [&](int h) INLINED { return scores_at(scores + (i64)h * N, m, N); };
    auto other = [&](int h) INLINED { return choose(lane_is(m, h), splat<Pack>(-infinity()), score(h)); };
#if ON_GPU
    among(0, n + 1, other);  // the lanes of a warp read the same row
#else
    const int after = m + W < n + 1 ? m + W : n + 1;
    among(0, m, score);
    among(m, after, other);
    among(after, n + 1, score);
#endif
    const Mask wrong = (odd != odd) | (best == infinity());
    bad |= any(wrong & lanes_below(m, n + 1) & ~lane_is(m, 0));
    for (int l = 0; l < W && m + l <= n; ++l)
      if (m + l > 0) heads[m + l] = (i64)lane_of(from, l);
  }
  return team_reduce(bad, Or{});
}

// Whether the heads make a tree: from each word up, every node is walked over once. seen [n+1].
DEVICE bool is_tree(const i64* heads, int n, int single_root, int* seen) {
  int roots = 0;
  bool tree = true;
  if (LEADER) {
    for (int i = 0; i <= n; ++i) seen[i] = 0;
    for (int i = 1; i <= n && tree; ++i) {
      int x = i;
      for (; x > 0 && seen[x] == 0; x = (int)heads[x]) seen[x] = i;
      tree = x == 0 || (x > 0 && seen[x] < i);  // the root, or a node known to hang on it
      roots += heads[i] == 0;
    }
    tree = tree && (!single_root || roots == 1);
  }
  return team_broadcast(tree);
}

#if !ON_GPU
template <class V> DEVICE V greatest_lane(V v) {  // in all lanes
  auto with = [&](V other) INLINED { v = choose(other > v, other, v); };
  if constexpr (sizeof(V) == 64) {
    with(__builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
    with(__builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5));
    with(__builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6));
  } else {
    with(__builtin_shufflevector(v, v, 2, 3, 0, 1));
    with(__builtin_shufflevector(v, v, 1, 0, 3, 2));
  }
  return v;
}
#endif

// First of the greatest in row[lo..hi).
DEVICE Best row_argmax(const double* row, int lo, int hi) {
#if ON_GPU
  return warp_argmax(lo, hi, [&](int u) { return row[u]; });
#else
  Best best{-infinity(), -1};
  int u = lo;
  if (hi - lo >= W) {
    Pack value = splat<Pack>(-infinity()), at = splat<Pack>(-1.), here = Pack{};
    for (int l = 0; l < W; ++l) here[l] = lo + l;
    for (; u + W <= hi; u += W, here += (double)W) {
      Pack x = pack(row + u);
      Mask better = x > value;
      value = choose(better, x, value);
      at = choose(better, here, at);
    }
    const Pack top = greatest_lane(value), index = -greatest_lane(choose(value == top, -at, splat<Pack>(-infinity())));
    if (index[0] >= 0) best = Best{top[0], (int)index[0]};
  }
  for (; u < hi; ++u)
    if (row[u] > best.value) best = Best{row[u], u};
  return best;
#endif
}

// What a contraction keeps of the nodes.
struct Components {
  // component[u]: the row that u belongs to; node[v]: forest node of row v; place[v]: 1 + v's position on the path
  int *component, *node, *path, *place, *done;
  int *parent, *tail, *entry;  // by node of the contraction forest
  DEVICE Components(int* ints, int N)
      : component(ints), node(ints + N), path(ints + 2 * N), place(ints + 3 * N), done(ints + 4 * N),
        parent(ints + 5 * N), tail(ints + 7 * N), entry(ints + 9 * N) {}
};
template <class In> DEVICE void start_contraction(const In* scores, int N, int n, MstWork w, Components now) {
  LANES(v, n + 1) {
    now.component[v] = now.node[v] = v;
    now.place[v] = 0;
    now.done[v] = v == 0;
  }
  LANES(x, 2 * n + 1) now.parent[x] = -1;
  ROWS(k, n)
    WARP_LANES(u, n + 1) {
      const int v = k + 1;
      w.in[(i64)v * N + u] = u == v ? -infinity() : (double)scores[(i64)u * N + v];
      w.to[(i64)v * N + u] = v;
    }
  BARRIER();
}

// The contraction, by one warp. Returns false if there is no tree.
DEVICE bool contract(int N, int n, int single_root, MstWork w, Components now, i64* heads) {
  int *component = now.component, *node = now.node, *path = now.path, *place = now.place, *done = now.done,
      *parent = now.parent, *tail = now.tail, *entry = now.entry;
  int forest = n + 1, roots = 0;
  for (int start = 1; start <= n; ++start) {
    int v = component[start], length = 0;
    if (done[v]) continue;
    WARP_BARRIER();
    if (LEADER) path[length] = v, place[v] = length + 1;
    ++length;
    for (;;) {
      WARP_BARRIER();
      const double* row = w.in + (i64)v * N;
      Best best = row_argmax(row, single_root ? 1 : 0, n + 1);
      if (best.index < 0 && single_root && row[0] > -infinity()) best = Best{row[0], 0};
      if (best.index < 0) return false;
      WARP_BARRIER();
      const int u = best.index, c = component[u], position = u > 0 ? place[c] : 0;
      const bool ends = u == 0 || done[c];
      if (LEADER) tail[node[v]] = u, entry[node[v]] = w.to[(i64)v * N + u];
      WARP_LANES(x, n + 1) w.in[(i64)v * N + x] -= best.value;  // what it costs to take another arc instead
      WARP_BARRIER();
      if (ends) {  // the whole path hangs on the root
        roots += u == 0;
        WARP_LANES(k, length) { done[path[k]] = 1; place[path[k]] = 0; }
        WARP_BARRIER();
        break;
      }
      if (position == 0) {  // one step further back
        if (LEADER) path[length] = c, place[c] = length + 1;
        ++length;
        v = c;
        continue;
      }
      // a cycle: rows path[position-1 .. length-1] become row c
      for (int k = position; k < length; ++k) {
        const int r = path[k];
        WARP_LANES(x, n + 1) {
          const double other = w.in[(i64)r * N + x];
          if (other > w.in[(i64)c * N + x]) {
            w.in[(i64)c * N + x] = other;
            w.to[(i64)c * N + x] = w.to[(i64)r * N + x];
          }
        }
      }
      WARP_BARRIER();
      WARP_LANES(k, length - position + 1) {
        const int r = path[position - 1 + k];
        parent[node[r]] = forest;
        if (k > 0) place[r] = -1;
      }
      WARP_BARRIER();
      WARP_LANES(x, n + 1) {
        const int cx = component[x];
        if (cx == c || place[cx] < 0) {
          component[x] = c;
          w.in[(i64)c * N + x] = -infinity();
        }
      }
      WARP_BARRIER();
      WARP_LANES(k, length - position) place[path[position + k]] = 0;
      if (LEADER) node[c] = forest;
      WARP_BARRIER();
      ++forest;
      length = position;
      v = c;
    }
  }
  if (single_root && roots != 1) return false;
  // expansion: a contracted cycle's own arc enters one of its members, and replaces that member's arc in the cycle
  if (LEADER) {
    for (int f = forest - 1; f > n; --f) {
      int x = entry[f];
      while (parent[x] != f) x = parent[x];
      tail[x] = tail[f], entry[x] = entry[f];
    }
    for (int m = 1; m <= n; ++m) heads[m] = tail[m];
  }
  return true;
}

// heads [n+1] of one sentence; false if there is no tree or a bad score.
template <class In>
DEVICE bool arborescence(const In* scores, int N, int n, int single_root, MstWork w, i64* heads) {
  const int bad = best_heads(scores, N, n, heads);
  if (bad) return false;
  if (is_tree(heads, n, single_root, w.ints)) return true;
  const Components components(w.ints, N);
  start_contraction(scores, N, n, w, components);
  return team_broadcast(IN_FIRST_WARP && contract(N, n, single_root, w, components, heads));
}
