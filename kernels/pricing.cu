// Grandparents (g, p, c) whose reduced cost is positive: the pricing of Riedel, Smith & McCallum 2012, section 4.3,
//
//   r(g, p, c) = s(g, p, c) - lambda_OneGP(p, c) - lambda_NoGP(g, p),            (8)
//
// with their bounds: arcs (p, c) of which no triple can be positive are passed over, then grandparents of the rest by
// min(bound over c, bound over g) in place of s (11), and only what is left (9) is scored (10).
//
// Siblings have the same form if g is the sibling and p the head. The second dual is then of the arc (p, g), g lies
// between p and c, and g = p stands for none.
//
// The duals of OneGP are taken as high as they may be (their section 4.3.3): `ceiling`. Ours is the spare slack: an arc
// (g, p) of which no triple as (p, c) needs its dual that high can pay, by the duals of GPArc, for the triples whose
// upper arc it is, if it can pay for all of them. An arc to a sibling pays once for all that follow: for the dearest.
#include "pricing.cuh"

// A sentence. Of its open arcs (p, c), the k-th of p: c and its place in the output [N, N], ceiling and bound over g
// [N, wide]. Of its arcs (g, p), or (p, g) to siblings, in rows of p [N, wide]: bound over c, dual (+inf where the arc
// may not be) and spare slack. Of its arcs (p, c) [N, wide]: the greatest r. And as bits, in words of g (pricing.cuh):
// the candidates and those of them that are not known [N, N, words], and where of a p there are such [N, words]. A CPU,
// which goes from arc to arc, needs no places and one row of the greatest r.
struct Arcs {
  const double *ceiling, *floor, *kappa, *over_g, *over_c;
  double* known;
  double tolerance;
  int n, N, words;
  i64 wide;
  double *high, *most, *over, *cost, *spare, *top;
  int *child, *places, *sizes;
  Word *marks, *fresh, *news;
  bool siblings;

  DEVICE i64 at(int i, int j) const { return (i64)i * N + j; }
  DEVICE i64 word_at(int p, int k, int g) const { return at(p, k) * words + g / NODES; }
  DEVICE Word* news_at(int p, int g) const { return news + p * words + g / NODES; }
  DEVICE double* score(int g, int p, int c) const { return known + at(p, c) * N + g; }
  DEVICE double* top_of(int p) const { return top + (ON_GPU ? p * wide : 0); }

  // The dual of g beside p and c: of no sibling it depends on the side, and that of the left stands where no arc is.
  DEVICE Pack cost_of(Pack costs, int p, int c, int g) const {
    return siblings && c < p ? choose(lane_is(g, p), splat<Pack>(kappa[at(p, 0)]), costs) : costs;
  }

  // Which g of a word may be beside p and c.
  DEVICE Word beside(int p, int c, int g) const {
    if (!siblings) return (Word)~bit_of(c, g);
    return c > p ? bits_below(c, g) & ~bits_below(p, g) : bits_below(p + 1, g) & ~bits_below(c + 1, g);
  }

  // The arcs from p that its bound does not settle.
  APART void collect(int p) const {
    int k = 0;
    fetch(floor + at(p, 0), n + 1), fetch(kappa + at(p, 0), n + 1), fetch(over_c + at(p, 0), n + 1);
#if ON_GPU
    for (int c = 0; c < N; ++c) top_of(p)[c] = places[at(p, c)] = 0;
#endif
    sizes[p] = 0;
    if (p == 0 && !siblings) return;
    for (int from = 0; from <= n; from += 64) {
      u64 open = 0;
      for (int c = from; c <= n && c < from + 64; c += W) {
        const int count = n + 1 - c;
        const Pack bound = some(over_g + at(p, c), count, -infinity()), high_ = some(ceiling + at(p, c), count, 0.);
        open |= (u64)above(bound, high_) << (c - from);
      }
      if (from == 0) open &= ~(u64)1;
      if (p >= from && p < from + 64) open &= ~((u64)1 << (p - from));
      for (; open; open &= open - 1, ++k) {
        const int c = from + lowest_bit(open);
        fetch(score(0, p, c), n + 1);
        child[at(p, k)] = c;
        high[p * wide + k] = ceiling[at(p, c)];
        most[p * wide + k] = over_g[at(p, c)];
      }
    }
    sizes[p] = k;
  }

  // What is to be known of the arcs from p to a pack of siblings g.
  DEVICE void lower(int p, int g) const {
    if (!sizes[p]) return;
    const int count = n + 1 - g;
    const Pack never = splat<Pack>(infinity()), zero = splat<Pack>(0);
    const Pack most_ = some(ceiling + at(p, g), count, 0.), bound = some(over_g + at(p, g), count, 0.);
    const Pack now = some(floor + at(p, g), count, 0.), dual = some(kappa + at(p, g), count, 0.);
    const auto none = lane_is(g, p);
    const Pack cost_ = choose(lane_is(g, 0), never, choose(most_ < never, dual, never));
    const Pack spare_ = choose(bound > most_, zero, most_ - larger(bound, now));
    unpack(cost + p * wide + g, choose(none, dual, cost_));
    unpack(spare + p * wide + g, choose(none, zero, spare_));
    unpack(over + p * wide + g, some(over_c + at(p, g), count, 0.));
  }

  // What is to be known of the arcs from a pack of g to a pack of p.
  APART void upper(int g, int p) const {
    const int count = n + 1 - p;
    int open = 0;
    for (int l = 0; l < W && l < count; ++l) open |= sizes[p + l];
    if (!open) return;
    Pack over_[W], cost_[W], spare_[W];
    const Pack never = splat<Pack>(infinity()), zero = splat<Pack>(0);
    for (int l = 0; l < W; ++l) {
      const int i = g + l;
      over_[l] = zero, cost_[l] = never, spare_[l] = zero;
      if (i > n) continue;
      const Pack most_ = some(ceiling + at(i, p), count, 0.), bound = some(over_g + at(i, p), count, 0.);
      const Pack now = some(floor + at(i, p), count, 0.);
      cost_[l] = choose(most_ < never, some(kappa + at(i, p), count, 0.), never);
      cost_[l] = choose(lane_is(p, i), never, cost_[l]);
      spare_[l] = i == 0 ? larger(most_, zero) : choose(bound > most_, zero, most_ - larger(bound, now));
      over_[l] = some(over_c + at(i, p), count, 0.);
    }
    store_turned(over + p * wide + g, wide, over_, count);
    store_turned(cost + p * wide + g, wide, cost_, count);
    store_turned(spare + p * wide + g, wide, spare_, count);
  }

  // Candidates among the triples of p and a word of g: r above the tolerance, by what is known and by bounds (LATER:
  // all that were candidates are known); none of a g that can pay for all of its. How many triples there were.
  template <bool LATER> DEVICE int mark(int p, int g) const {
    const int size = sizes[p], packs = n + 1 - g >= NODES ? NODES / W : (n + W - g) / W;
    if (size == 0 || (LATER && !*news_at(p, g))) return 0;
    const double *const costs = cost + p * wide + g, *const bounds = over + p * wide + g;
    const double *const highs = high + p * wide, *const mosts = most + p * wide, *const scores = score(g, p, 0);
    const int* const children = child + at(p, 0);
    Word *const marks_ = marks + word_at(p, 0, g), *const fresh_ = fresh + word_at(p, 0, g);
    const Pack bar = splat<Pack>(tolerance);
    Pack total[NODES / W];
    Word legal = 0, any = 0, unscored = 0, paid = 0;
    int seen = 0;
    for (int i = 0; i < packs; ++i) {
      total[i] = splat<Pack>(0);
      if (!LATER) legal |= (Word)above(splat<Pack>(infinity()), pack(costs + i * W)) << 8 * i;
    }
    for (int k = 0; k < size; ++k) {
      const int c = children[k];
      const Pack high_ = splat<Pack>(highs[k]), most_ = splat<Pack>(mosts[k]);
      const Word others = LATER ? marks_[(i64)k * words] : (Word)(legal & beside(p, c, g));
      if (!LATER) seen += count_bits(others);
      Word mine = 0, new_ = 0;
      for (int i = 0; i < packs; ++i) {
        const Pack cost_ = cost_of(pack(costs + i * W), p, c, g + i * W);
        const Pack bound = smaller(pack(bounds + i * W), most_) - high_ - cost_;
        unsigned here = others >> 8 * i & 0xff;
        if (!LATER) here &= above(bound, bar);
        const Pack s = loaded(scores + (i64)c * N + i * W, here);
        const unsigned unknown_ = unknown(s);
        const Pack r = choose_lanes(unknown_, bound, s - high_ - cost_);
        here &= above(r, bar);
        total[i] = siblings ? choose_lanes(here, larger(r, total[i]), total[i]) : add_lanes(here, total[i], r);
        mine |= (Word)here << 8 * i;
        if (!LATER) new_ |= (Word)(here & unknown_) << 8 * i;
      }
      marks_[(i64)k * words] = mine;
      any |= mine;
      if (LATER) continue;
      fresh_[(i64)k * words] = new_;
      unscored |= new_;
    }
    for (int i = 0; i < packs; ++i)
      paid |= any & (Word)at_least(pack(spare + p * wide + g + i * W), total[i]) << 8 * i;
    for (int k = 0; k < size && paid; ++k) {
      marks_[(i64)k * words] &= ~paid;
      if (!LATER) fresh_[(i64)k * words] &= ~paid;
    }
    if (!LATER) *news_at(p, g) = unscored & ~paid;
    return seen;
  }

  // The same for all of them.
  template <bool LATER> APART i64 mark_all() const {
    const Arcs mine = *this;  // which no store can change
    i64 seen = 0;
    ROWS_WORDS(p, mine.n + 1, g, mine.n + 1) seen += mine.mark<LATER>(p, g);
    return seen;
  }

  // f(g) for every g that is marked in a row.
  template <class F> DEVICE void marked(const Word* row, F f) const {
    for (int g = 0; g <= n; g += NODES)
      for (Word left = row[g / NODES]; left; left &= left - 1) {
        const int bit = lowest_bit(left);
        f(g + bit / 8 * W + bit % 8);
      }
  }

  // The found triples of the k-th open arc of p, from place `to` on: the place after them.
  DEVICE int write(int p, int k, int to, int room, int* triples, double* scores, double* reduced) const {
    const int c = child[at(p, k)];
    const double high_ = high[p * wide + k], most_ = most[p * wide + k];
    const double *const over_ = over + p * wide, *const cost_ = cost + p * wide;
    double best = 0;
    marked(marks + word_at(p, k, 0), [&](int g) {
      const double s = *score(g, p, c), dual = siblings && g == p && c < p ? kappa[at(p, 0)] : cost_[g];
      const double r = (s == s ? s : over_[g] < most_ ? over_[g] : most_) - high_ - dual;
      best = r > best ? r : best;
      if (to < room) {
        triples[3 * to] = g, triples[3 * to + 1] = p, triples[3 * to + 2] = c;
        scores[to] = s;
        reduced[to] = r;
      }
      ++to;
    });
    double& top_ = top_of(p)[c];
    top_ = best > top_ ? best : top_;
    return to;
  }

  // All that were found, in the order p, c, g: how many.
  APART int write_all(int room, int* triples, double* scores, double* reduced) const {
#if ON_GPU
    OPEN_ARCS(p, k, sizes, n, N) {
      int found = 0;
      marked(marks + word_at(p, k, 0), [&](int) { ++found; });
      places[at(p, k)] = found;
    }
    BARRIER();
    const int total = team_scan(places, (n + 1) * N);
    OPEN_ARCS(p, k, sizes, n, N) write(p, k, places[at(p, k)], room, triples, scores, reduced);
    BARRIER();
    return total;
#else
    const Arcs mine = *this;
    int total = 0;
    std::memset(top, 0, wide * sizeof *top);
    OPEN_ARCS(p, k, mine.sizes, mine.n, N) total = mine.write(p, k, total, room, triples, scores, reduced);
    return total;
#endif
  }
};

// Scores what is marked and not known; how much that was, in this lane. `list` has room for the nodes and a pack.
template <class S> APART i64 score_fresh(const Arcs& arcs, S score, int* list) {
  const int n = arcs.n, N = arcs.N;
  i64 scored = 0;
#if ON_GPU
  LONG_LANES(flat, (i64)(n + 1) * N * (n + 1)) {
    const int g = (int)(flat % (n + 1)), k = (int)(flat / (n + 1) % N), p = (int)(flat / (n + 1) / N);
    if (k >= arcs.sizes[p] || !arcs.fresh[arcs.word_at(p, k, g)]) continue;
    const int c = arcs.child[arcs.at(p, k)];
    score.arc(p, c);
    *arcs.score(g, p, c) = score.one(g);
    ++scored;
  }
#else
  OPEN_ARCS(p, k, arcs.sizes, n, N) {
    int count = 0;
    const Word* const fresh = arcs.fresh + arcs.word_at(p, k, 0);
    for (int g = 0; g <= n; g += NODES) {
      int from = g;
      for (Word left = fresh[g / NODES]; left; from += W, left >>= 8) count += append(list + count, left & 0xff, from);
    }
    if (count == 0) continue;
    if (scored == 0) score.begin(n);
    const int c = arcs.child[arcs.at(p, k)];
    double* const known = arcs.score(0, p, c);
    score.arc(p, c);
    score.several(list, count, [&](int g, double s) { known[g] = s; });
    scored += count;
  }
#endif
  return scored;
}

// All in doubles. ceiling, floor, kappa, over_g, over_c [B, N, N] and known [B, N, N, N] (in and out) as
// gpuparse.ops.pricing says, of grandparents or siblings; triples [B, room, 3], score and reduced [B, room], worst [B, N], count, looked and
// scored [B].
// KIND: which scorer (pricing.cuh); LISTED: what would be scored is found as it is. The tolerance is given by its bits.
template <class In, int KIND>
KERNEL pricing(const i64* lengths, const In* values, const In* second, const In* third, const int* index,
               const int* relations, const double* ceiling, const double* floor, const double* kappa,
               const double* over_g, const double* over_c, double* known, int* triples, double* score,
               double* reduced, double* worst, i64* count, i64* looked, i64* scored, double* work, i64 work_size,
               i64 tolerance_bits, int siblings, int rank, int room, int B, int N) {
  const i64 wide = (N + 7) / 8 * 8, square = (i64)N * N, rows = N * wide;
  const int columns = (rank + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
  const int words = (N + NODES - 1) / NODES;
  double* const doubles = work + SLOT * work_size;  // [6, N, wide], [N + 1, rank]: all in whole cache lines
  Word* const bits = (Word*)(doubles + 6 * rows + (N + 1) * rank);  // [2 N + 1, N, words], in room for [.., wide] bytes
  int* const ints = (int*)((unsigned char*)bits + (2 * N + 1) * rows);  // [2, N, N], [N], [N + 8], [columns]
  int* const sizes = ints + 2 * square;
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    const i64 from = b * square;
    const Arcs arcs{ceiling + from, floor + from, kappa + from, over_g + from, over_c + from, known + from * N,
                    from_bits(tolerance_bits), n, N, words, wide, doubles, doubles + rows,
                    doubles + 2 * rows, doubles + 3 * rows, doubles + 4 * rows, doubles + 5 * rows, ints,
                    ints + square, sizes, bits, bits + square * words, bits + 2 * square * words, siblings != 0};
    const Tensors<In> all{KIND == 0 ? values + from * N : KIND == 1 ? values + (i64)b * N * rank : values,
                          KIND == 1 ? second + (i64)b * N * rank : nullptr,
                          KIND == 1 ? third + (i64)b * N * rank : nullptr,
                          KIND == 2 ? index + (i64)b * N * columns : nullptr, relations, (i64)B * N * columns, rank, N,
                          doubles + 6 * rows, sizes + 2 * N + 8};
    BARRIER();
    LANES(p, n + 1) arcs.collect(p);
    BARRIER();
    if (n && siblings) ROWS_PACKS(p, n + 1, g, n + 1) arcs.lower(p, g);
    if (n && !siblings) ROWS_PACKS(g, (n + W) / W, p, n) arcs.upper(g * W, 1 + p);
    BARRIER();
    i64 seen = arcs.mark_all<false>(), newly = 0;
    BARRIER();
    if (KIND != LISTED) {
      if (KIND == 0 && siblings) newly = score_fresh(arcs, DenseBeside<In>{all}, sizes + N);
      else newly = score_fresh(arcs, typename ScorerOf<In, KIND>::type{all}, sizes + N);
      BARRIER();
      arcs.mark_all<true>();
      BARRIER();
    }
    const int total = arcs.write_all(room, triples + (i64)b * room * 3, score + (i64)b * room, reduced + (i64)b * room);
    PACKS(c, N) {
      Pack top = splat<Pack>(0);
      for (int p = 0; p <= (ON_GPU ? n : 0); ++p) top = larger(pack(arcs.top_of(p) + c), top);
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
