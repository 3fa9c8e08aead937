// The best projective tree with scores of siblings and grandparents, most of which are never scored: column generation in
// the dynamic program (open_arcs.cuh).
//
// In rounds: the best tree by arcs' weights, none of which is too low. If it weighs no more than the best tree that is
// known scores, that is proven best. Else its arcs are opened, and those that could stand in their place. Once they all
// are, the outside pass says what trees with each arc can score at most: arcs that fall short of the known tree are dead,
// others are opened. When all arcs that are alive are open, the exact program is run on these (grandsiblings_live.cuh).
#include "grandsiblings_live.cuh"

constexpr int REPEATS = 4;   // rounds with a better tree and no arc opened
constexpr int HALVINGS = 8;  // of how far below the bound arcs may be that are opened together
constexpr int TOGETHER = 4;  // arcs a word

struct Work {
  double* doubles;
  int* ints;
  DEVICE double* take(i64 count) { doubles += count; return doubles - count; }
  DEVICE int* take_ints(i64 count) { ints += count; return ints - count; }
};

template <class In>
DEVICE PairScores<In> pair_scores(int kind, int rank, const In* values, const In* second, const In* third,
                                  const int* index, const int* relations, const double* bound, i64 b, int B, int N,
                                  int nodes, Work& work) {
  const int columns = (rank + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
  const i64 of_nodes = b * N * rank, cube = b * N * N * N;
  return PairScores<In>{kind, Tensors<In>{kind == 0 ? values + cube : kind == 1 ? values + of_nodes : values,
                                          kind == 1 ? second + of_nodes : nullptr, kind == 1 ? third + of_nodes : nullptr,
                                          kind == 2 ? index + b * nodes * columns : nullptr, relations,
                                          (i64)B * nodes * columns, rank, N, work.take((i64)(N + 1) * rank),
                                          work.take_ints(columns)},
                        kind < 0 ? nullptr : bound + b * N * N};
}

// One that all lanes read: on a GPU in shared memory, for its pointers are more than there are registers.
template <class S> DEVICE S& team_shared(S& mine) {
#if ON_GPU
  __shared__ S kept;
  BARRIER();
  if (LEADER) kept = mine;
  BARRIER();
  return kept;
#else
  return mine;
#endif
}

// What is asked of a sentence; heads [n+1], which are -1.
template <class In>
DEVICE void price_tree(LiveProgram<In>& live, double* charts, i64* tree, i64* told) {
  typedef Max<Pack> T;
  const OpenArcs<In>& on = live.on;
  int* const stack = live.stack;
  const int n = on.n, N = on.N;
  i64 beside = 0, above_ = 0;
  int rounds = 0, repeats = 0, alive = -1;
  Treescore known{-infinity(), 0};
  Inside<T> in(charts, n);
  Outside<T> out(charts + 3 * square_size(n), n);
  const auto solve = [&](const double* w) INLINED {
    const Found found = in.fill(Given<double>{w, nullptr, nullptr}, N, n, on.single_root, false);
    if (found.some)
      ::unwind<false>(n, tree, stack, [&](int kind, int d, int i, int first, int last) {
        return warp_argmax(first, last + 1, [&](int t) { return summand(in, kind, d, i, t).v; }).index;
      });
    BARRIER();
    return found.some ? found.log_z : -infinity();
  };
  const auto keep = [&]() INLINED {  // the tree, if it is better
    const Treescore now = on.score_of(tree);
    if (!(now.value > known.value)) return false;
    known = now;
    BARRIER();
    LANES(m, n + 1) on.best[m] = (int)tree[m];
    BARRIER();
    return true;
  };
  bool exact = false;
  double most = solve(on.arcs);
  BARRIER();
  on.begin();
  int lost = 0;
  if (most > -infinity()) LANES(m, n + 1) if (m > 0 && !on.advance((int)tree[m], m, true)) lost = 1;
  bool whole = !team_reduce(lost, Or{});  // whether all arcs of the tree are open
  while (most > -infinity()) {
    ++rounds;
    on.collect();
    if (on.score_fresh(beside, above_)) {
      if (whole) keep();
      on.weigh();
      most = solve(on.w);
    } else {
      most = -infinity();
    }
    if (!(most > -infinity())) {  // no tree, or something cannot be added up
      known.value = -infinity();
      break;
    }
    const double off = rounding_of(3 * n, known.size);
    if (most <= known.value + off) break;
    if (on.open(tree)) {
      whole = on.is_open(tree);
      continue;
    }
    if (keep() && repeats++ < REPEATS) continue;
    double mine = 0;
    LANES(m, n + 1) {
      double top = 0;
      for (int h = 0; m > 0 && h <= n; ++h) top = on.w[on.at(h, m)] > top ? on.w[on.at(h, m)] : top;
      mine += top;
    }
    const double size = 2 * team_reduce(mine, Plus{}) + (known.value < 0 ? -known.value : known.value) + known.size;
    const double least = known.value > -infinity() ? known.value - rounding_of(4 * n, size) : -infinity();
    out.run(in, n, on.single_root, T::Scalar::one(), [&](int d, int i, bool right, T v) {
      const T with = v * (right ? in.P.get(d, i) : in.Q.get(d, i));
      for (int l = 0; l < W && i + l + d <= n; ++l)
        on.most[right ? on.in_row(i + l, i + l + d) : on.in_row(i + l + d, i + l)] = lane_of(with.v, l);
    });
    on.prune(least);
    double cut = least > -HUGE_BOUND ? least : -HUGE_BOUND;
    int closed = on.closed_above(cut, false);
    for (int k = 0; k < HALVINGS && closed > TOGETHER * n; ++k) {
      const double next = cut / 2 + most / 2;
      const int fewer = on.closed_above(next, false);
      if (fewer == 0) break;
      cut = next, closed = fewer;
    }
    if (closed == 0) {
      exact = true;
      break;
    }
    on.closed_above(cut, true);
    BARRIER();
  }
  if (exact) {
    on.collect();
    int mine = 0, top = 1;
    for (int i = 0; i <= n; ++i) {
      mine += on.child_count[i];
      if (on.grands.there()) top = on.head_count[i] > top ? on.head_count[i] : top;
    }
    alive = mine;
    if (LEADER) live.K = (top + W - 1) / W * W;
    BARRIER();
    if (!live.run(tree)) known.value = -infinity(), alive = 0;
    else known.value = 0;
  } else if (known.value > -infinity()) {
    LANES(m, n + 1) if (m > 0) tree[m] = on.best[m];
  }
  BARRIER();
  if (!(known.value > -infinity())) LANES(m, n + 1) tree[m] = -1;
  int opened = 0;
  on.each_two([&](int h, int m) INLINED { opened += on.state[on.at(h, m)] == OPEN; });
  opened = team_reduce(opened, Plus{});
  beside = team_reduce(beside, Plus{});
  above_ = team_reduce(above_, Plus{});
  if (LEADER)
    told[0] = beside, told[1] = above_, told[2] = rounds, told[3] = alive < 0 ? opened : alive, told[4] = exact;
}

// All of siblings and grandparents as gpuparse.ops.priced says; arcs and bounds [B, N, N] in doubles. heads [B, N], all
// -1 where there is no tree or a NaN or +inf was read; told [B, 5]: siblings and grandparents that were scored, rounds,
// arcs that were open at last or alive, and whether the exact program was run.
template <class In>
KERNEL grandsiblings_priced(const double* arcs, const i64* lengths, const In* values_s, const In* second_s,
                            const In* third_s, const int* index_s, const int* relations_s, const double* bound_s,
                            const In* values_g, const In* second_g, const In* third_g, const int* index_g,
                            const int* relations_g, const double* bound_g, i64* heads, i64* told, double* work,
                            int* ints, i64 work_size, i64 ints_size, int kind_s, int rank_s, int kind_g, int rank_g,
                            int B, int N, int single_root) {
  const int wide = (N + 7) / 8 * 8;
  const i64 rows = (i64)N * wide, cube = N * rows;
  best_each(heads, N, lengths, B, N, [&](i64 b, int n, i64* to) {
    Work room{work + SLOT * work_size, ints + SLOT * ints_size};
    const PairScores<In> siblings = pair_scores<In>(kind_s, rank_s, values_s, second_s, third_s, index_s, relations_s,
                                                    bound_s, b, B, N, N + 1, room);
    const PairScores<In> grands = pair_scores<In>(kind_g, rank_g, values_g, second_g, third_g, index_g, relations_g,
                                                  bound_g, b, B, N, N, room);
    OpenArcs<In> on{arcs + b * N * N, siblings, grands, n, N, wide, single_root != 0};
    on.w = room.take(rows), on.u_s = room.take(rows), on.u_g = room.take(rows), on.v_s = room.take(rows);
    on.v_g = room.take(rows), on.most = room.take(rows), on.leaving = room.take(wide);
    on.rows_s = room.take(cube), on.rows_g = room.take(cube);
    on.state = room.take_ints(N * N), on.news = room.take_ints(N * N), on.row = room.take_ints(N * N);
    on.unpaid = room.take_ints(N * N), on.children = room.take_ints(N * N), on.inner = room.take_ints(N * N);
    on.heads = room.take_ints(N * N), on.child_count = room.take_ints(N), on.inner_count = room.take_ints(N);
    on.head_count = room.take_ints(N);
    on.best = room.take_ints(N), on.list = room.take_ints(N + 16), on.used = room.take_ints(1);
    LiveProgram<In> made{on};
    made.R = room.take(cube), made.L = room.take(cube), made.E = room.take(cube);
    made.place = room.take_ints(N * N), made.right = room.take_ints(N), made.stack = room.take_ints(4 * (2 * N + 8));
    price_tree(team_shared(made), room.doubles, to, told + b * 5);
  });
}

EXPORT_TYPES(grandsiblings_priced)
