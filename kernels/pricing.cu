// Grandparents (g, p, c) whose reduced cost is positive: the pricing of Riedel, Smith & McCallum 2012, section 4.3,
//
//   r(g, p, c) = s(g, p, c) - lambda_OneGP(p, c) - lambda_NoGP(g, p),            (8)
//
// with their bounds: arcs (p, c) of which no triple can be positive are passed over, then grandparents of the rest by
// min(bound over c, bound over g) in place of s (11), and only what is left (9) is scored (10).
//
// The duals of OneGP are taken as high as they may be (their section 4.3.3): `ceiling`. Ours is the spare slack: an arc
// (g, p) of which no triple as (p, c) needs its dual that high can pay, by the duals of GPArc, for the triples whose
// upper arc it is, if it can pay for all of them.
#include "pricing.cuh"

// A sentence. Of its open arcs (p, c), the k-th of p: c and its place in the output [N, N], ceiling and bound over g
// [N, wide]. Of its arcs (g, p), in rows of p [N, wide]: bound over c, dual (+inf where the arc may not be) and spare
// slack. Of its arcs (p, c) [N, wide]: the greatest r. And in packs of g, as bits [N, N, packs]: the candidates, and
// those of them that are not known.
struct Arcs {
  const double *ceiling, *floor, *kappa, *over_g, *over_c;
  double* known;
  double tolerance;
  int n, N, packs;
  i64 wide;
  double *high, *most, *over, *cost, *spare, *top;
  int *child, *places, *sizes;
  unsigned char *marks, *fresh;

  DEVICE i64 at(int i, int j) const { return (i64)i * N + j; }
  DEVICE i64 pack_at(int p, int k, int g) const { return at(p, k) * packs + g / W; }
  DEVICE double* score(int g, int p, int c) const { return known + at(g, p) * N + c; }

  // The arcs from p that its bound does not settle.
  APART void collect(int p) const {
    int k = 0;
    for (int c = 0; c < (int)wide; ++c) top[p * wide + c] = 0;
    for (int c = 0; c <= n; c += W) {
      unsigned open = above(some(over_g + at(p, c), n + 1 - c, -infinity()), some(ceiling + at(p, c), n + 1 - c, 0.));
      if (c == 0) open &= ~1u;
      if (p >= c && p < c + W) open &= ~(1u << (p - c));
      for (; open; open &= open - 1, ++k) {
        const int here = c + lowest_bit(open);
        child[at(p, k)] = here;
        high[p * wide + k] = ceiling[at(p, here)];
        most[p * wide + k] = over_g[at(p, here)];
      }
    }
    sizes[p] = k;
    for (; k < N; ++k) places[at(p, k)] = 0;
    for (int g = n + 1; g < (int)wide; ++g) cost[p * wide + g] = infinity();
  }

  // What is to be known of a pack of arcs (g, p), for several p.
  DEVICE void upper(int g, int p) const {
    const int count = n + 1 - p;
    const Pack most_ = some(ceiling + at(g, p), count, 0.), bound = some(over_g + at(g, p), count, 0.);
    const Pack now = some(floor + at(g, p), count, 0.), never = splat<Pack>(infinity()), zero = splat<Pack>(0);
    Pack cost_ = choose(most_ < never, some(kappa + at(g, p), count, 0.), never);
    cost_ = choose(lane_is(p, g), never, cost_);
    const Pack spare_ = g == 0 ? larger(most_, zero) : choose(bound > most_, zero, most_ - larger(bound, now));
    const Pack over_ = some(over_c + at(g, p), count, 0.);
    for (int l = 0; l < W && l < count; ++l) {
      const i64 to = (p + l) * wide + g;
      over[to] = lane_of(over_, l), cost[to] = lane_of(cost_, l), spare[to] = lane_of(spare_, l);
    }
  }

  // The scores of a pack of g and p on their way.
  DEVICE void prefetch(int p, int g) const {
#if !ON_GPU
    for (int k = 0, line = -1; k < sizes[p]; ++k) {
      const int c = child[at(p, k)];
      if (c / 8 == line) continue;
      line = c / 8;
      for (int l = 0; l < W && g + l <= n; ++l) __builtin_prefetch(score(g + l, p, c), 1);
    }
#endif
  }

  // Candidates among the triples of a pack of g and p: r above the tolerance, by what is known and by bounds (LATER:
  // all that were candidates are known); none of a g that can pay for all of its. How many triples there were.
  template <bool LATER> APART int mark(int p, int g) const {
    if (sizes[p] == 0) return 0;
    if (!LATER && p < n) prefetch(p + 1, g);
    const Pack over_ = pack(over + p * wide + g), cost_ = pack(cost + p * wide + g), bar = splat<Pack>(tolerance);
    const unsigned legal = above(splat<Pack>(infinity()), cost_);
    Pack total = splat<Pack>(0);
    unsigned any = 0;
    int seen = 0;
    for (int k = 0; k < sizes[p]; ++k) {
      const int c = child[at(p, k)];
      const Pack high_ = splat<Pack>(high[p * wide + k]);
      Pack r = smaller(over_, splat<Pack>(most[p * wide + k])) - high_ - cost_;
      unsigned mine = marks[pack_at(p, k, g)], new_ = 0;
      if (!LATER) {
        const unsigned others = c >= g && c < g + W ? legal & ~(1u << (c - g)) : legal;
        mine = others & above(r, bar);
        seen += count_bits(others);
      }
      if (mine) {
        const Pack s = gather(score(g, p, c), (i64)N * N, mine);
        new_ = unknown(s);
        r = choose(s == s, s - high_ - cost_, r);
        mine &= above(r, bar);
        total = total + only(mine, r);
        any |= mine;
      }
      marks[pack_at(p, k, g)] = mine;
      if (!LATER) fresh[pack_at(p, k, g)] = mine & new_;
    }
    const unsigned paid = any & at_least(pack(spare + p * wide + g), total);
    for (int k = 0; k < sizes[p] && paid; ++k) {
      marks[pack_at(p, k, g)] &= ~paid;
      if (!LATER) fresh[pack_at(p, k, g)] &= ~paid;
    }
    return seen;
  }

  // The found triples of the k-th open arc of p, from place `to` on.
  APART void write(int p, int k, int to, int room, int* triples, double* scores, double* reduced) const {
    const int c = child[at(p, k)];
    double best = 0;
    for (int from = 0; from <= n; from += W)
      for (unsigned left = marks[pack_at(p, k, from)]; left; left &= left - 1, ++to) {
        const int g = from + lowest_bit(left);
        const double s = *score(g, p, c), over_ = over[p * wide + g], most_ = most[p * wide + k];
        const double r = (s == s ? s : over_ < most_ ? over_ : most_) - high[p * wide + k] - cost[p * wide + g];
        best = r > best ? r : best;
        if (to >= room) continue;
        triples[3 * to] = g, triples[3 * to + 1] = p, triples[3 * to + 2] = c;
        scores[to] = s;
        reduced[to] = r;
      }
    top[p * wide + c] = best;
  }
};

// Scores what is marked and not known; how much that was, in this lane. `list` has room for the nodes and a pack.
template <class S> APART i64 score_fresh(const Arcs& arcs, S score, int* list) {
  i64 scored = 0;
  const int n = arcs.n, N = arcs.N;
  score.begin(n);
#if ON_GPU
  LANES(flat, n * N * (n + 1)) {
    const int g = flat % (n + 1), k = flat / (n + 1) % N, p = 1 + flat / (n + 1) / N;
    if (k >= arcs.sizes[p] || !arcs.fresh[arcs.pack_at(p, k, g)]) continue;
    const int c = arcs.child[arcs.at(p, k)];
    score.arc(p, c);
    *arcs.score(g, p, c) = score.one(g);
    ++scored;
  }
#else
  OPEN_ARCS(p, k, arcs.sizes, n, N) {
    int count = 0;
    for (int g = 0; g <= n; g += W)
      count += append(list + count, arcs.fresh[arcs.pack_at(p, k, g)], g);
    if (count == 0) continue;
    const int c = arcs.child[arcs.at(p, k)];
    score.arc(p, c);
    score.several(list, count, [&](int g, double s) { *arcs.score(g, p, c) = s; });
    scored += count;
  }
#endif
  return scored;
}

// All in doubles. ceiling, floor, kappa, over_g, over_c [B, N, N] and known [B, N, N, N] (in and out) as
// gpuparse.ops.pricing says; triples [B, room, 3], score and reduced [B, room], worst [B, N], count, looked and
// scored [B].
// KIND: which scorer (pricing.cuh); LISTED: what would be scored is found as it is. The tolerance is given by its bits.
template <class In, int KIND>
KERNEL pricing(const i64* lengths, const In* values, const In* second, const In* third, const int* index,
               const int* relations, const double* ceiling, const double* floor, const double* kappa,
               const double* over_g, const double* over_c, double* known, int* triples, double* score,
               double* reduced, double* worst, i64* count, i64* looked, i64* scored, double* work, int* lists,
               i64 work_size, i64 lists_size, i64 tolerance_bits, int rank, int room, int B, int N) {
  const i64 wide = (N + 7) / 8 * 8, square = (i64)N * N, rows = N * wide;
  const int columns = (rank + AT_ONCE - 1) / AT_ONCE * AT_ONCE, packs = (N + W - 1) / W;
  double* const doubles = work + SLOT * work_size;  // [6, N, wide], [N + 1, rank]: all in whole cache lines
  int* const ints = lists + SLOT * lists_size;  // [2, N, N], [N], [N + 8], [columns], bytes [2, N, N, packs]
  int* const sizes = ints + 2 * square;
  unsigned char* const bytes = (unsigned char*)(sizes + 2 * N + 8 + columns);
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    const i64 from = b * square;
    const Arcs arcs{ceiling + from, floor + from, kappa + from, over_g + from, over_c + from, known + from * N,
                    from_bits(tolerance_bits), n, N, packs, wide, doubles, doubles + rows,
                    doubles + 2 * rows, doubles + 3 * rows, doubles + 4 * rows, doubles + 5 * rows, ints,
                    ints + square, sizes, bytes, bytes + square * packs};
    const Tensors<In> all{KIND == 0 ? values + from * N : KIND == 1 ? values + (i64)b * N * rank : values,
                          KIND == 1 ? second + (i64)b * N * rank : nullptr,
                          KIND == 1 ? third + (i64)b * N * rank : nullptr,
                          KIND == 2 ? index + (i64)b * N * columns : nullptr, relations, (i64)B * N * columns, rank, N,
                          doubles + 6 * rows, sizes + 2 * N + 8};
    BARRIER();
    LANES(p, n) arcs.collect(p + 1);
    if (n) ROWS_PACKS(g, n + 1, p, n) arcs.upper(g, p + 1);
    BARRIER();
    i64 seen = 0, newly = 0;
    ROWS_PACKS(p, n, g, n + 1) seen += arcs.mark<false>(p + 1, g);
    BARRIER();
    if (KIND != LISTED) {
      newly = score_fresh(arcs, typename ScorerOf<In, KIND>::type{all}, sizes + N);
      BARRIER();
      ROWS_PACKS(p, n, g, n + 1) arcs.mark<true>(p + 1, g);
      BARRIER();
    }
    OPEN_ARCS(p, k, sizes, n, N) {
      int found = 0;
      for (int g = 0; g <= n; g += W) found += count_bits(arcs.marks[arcs.pack_at(p, k, g)]);
      arcs.places[arcs.at(p, k)] = found;
    }
    BARRIER();
    const int total = team_scan(arcs.places + N, n * N);
    OPEN_ARCS(p, k, sizes, n, N)
      arcs.write(p, k, arcs.places[arcs.at(p, k)], room, triples + (i64)b * room * 3, score + (i64)b * room,
                 reduced + (i64)b * room);
    BARRIER();
    PACKS(c, N) {
      Pack top = splat<Pack>(0);
      for (int p = 1; p <= n; ++p) top = larger(pack(arcs.top + p * wide + c), top);
      for (int l = 0; l < W && c + l < N; ++l) worst[(i64)b * N + c + l] = lane_of(top, l);
    }
    seen = team_reduce(seen, Plus{});
    newly = team_reduce(newly, Plus{});
    if (LEADER) count[b] = total, looked[b] = seen, scored[b] = newly;
  }
}

EXPORT(pricing_float_0, pricing<float, 0>)
EXPORT(pricing_float_1, pricing<float, 1>)
EXPORT(pricing_float_2, pricing<float, 2>)
EXPORT(pricing_float_3, pricing<float, 3>)
EXPORT(pricing_double_0, pricing<double, 0>)
EXPORT(pricing_double_1, pricing<double, 1>)
EXPORT(pricing_double_2, pricing<double, 2>)
EXPORT(pricing_double_3, pricing<double, 3>)
