// Head-lexicalised binary trees in O(n^4 R) (Eisner & Satta 1999): the inside pass, over any number type. Words are
// nodes 1..n, a span i..k of symbol A has one row of numbers, one for each word h:
//
//   h in i..k      inside: the trees of A over the span with the head word h
//   h elsewhere    hook: the same trees below a head h outside, sum_m arc(h, m) * inside(m)
//
// So a rule A -> B C, whichever child has the head, is one product of rows:
//
//   (i, k, A)[h] = sum over rules and j of rule * (i, j, B)[h] * (j+1, k, C)[h]
//                  h in i..j if the head is on the left (C hooks on), in j+1..k if it is on the right (B does)
//
// h comes last in memory: every loop is over h, side by side. Words have tags and longer spans other symbols, so that
// both may have the same rows. Which rows have anything in them is kept as bits: of spans that start at a word, by
// their ends, and of spans that end at a word, by their starts. What is zero is not looked at.
#pragma once
#include "sentences.cuh"

DEVICE bool something(Lin<double> x) { return x.v != 0; }
DEVICE bool something(Ext<Lin<double>> x) { return x.m.v != 0; }
DEVICE bool something(Max<double> x) { return x.v > -infinity(); }
#if ON_GPU
DEVICE bool something(Short x) { return x.m != 0; }
#endif

struct Greater { template <class X> DEVICE X operator()(X a, X b) const { return a > b ? a : b; } };

#if ON_GPU
DEVICE int lowest_bit(u64 x) { return __ffsll((i64)x) - 1; }
#else
DEVICE int lowest_bit(u64 x) { return __builtin_ctzll(x); }
#endif

// Calls f(k) for every k in lo..hi whose bit is set in both.
template <class F> DEVICE void each_in_both(const u64* a, const u64* b, int lo, int hi, F f) {
  for (int w = lo >> 6; w <= hi >> 6; ++w) {
    u64 both = a[w] & b[w];
    if (w == lo >> 6) both &= ~0ULL << (lo & 63);
    if (w == hi >> 6) both &= ~0ULL >> (63 - (hi & 63));
    for (; both; both &= both - 1) f(64 * w + lowest_bit(both));
  }
}

// What a kernel is told of a grammar: rules by their parent, left child and right child. table: first rules
// [3][symbols+1], then [3][rules][4]: the other two symbols (parent before children, left before right), the side of
// the head, the rule.
struct Rules {
  const int* table;
  int tags, symbols, rules;
  enum { PARENT, LEFT, RIGHT };
  DEVICE int first(int by, int symbol) const { return table[by * (symbols + 1) + symbol]; }
  DEVICE const int* entry(int by, int k) const { return table + 3 * (symbols + 1) + 4 * ((i64)by * rules + k); }
};

// Packs may start at any word: on a CPU rows have room for the lanes past the last one, whatever is in them.
DEVICE int lexical_row(int n) { return PAD ? n + PAD : n + 1; }

// Scores; those of a sentence begin at(b), its rules `rules_step` after those of the one before.
template <class In> struct Lexicon {
  const In *tags, *arcs, *rules, *roots;
  DEVICE Lexicon at(i64 b, i64 N, Rules g, i64 rules_step) const {
    return Lexicon{tags + b * (N - 1) * g.tags, arcs + b * N * N, rules + b * rules_step, roots};
  }
};

template <class T> struct LexicalInside {
  typedef typename T::Scalar S;
  typedef typename S::Score One;  // a score
  Rules g;
  Numbers<T> chart, heads, mods, rule, root;  // heads [h, m] and mods [m, h]: the weights of arcs
  u64 *starts, *ends;
  int n, row, depth, words;
  S z;  // the sum over all trees, once filled

  static DEVICE int depth_of(Rules g) { return g.tags > g.symbols - g.tags ? g.tags : g.symbols - g.tags; }
  static DEVICE i64 chart_size(int n, Rules g) { return (i64)n * (n + 1) / 2 * depth_of(g) * lexical_row(n); }
  static DEVICE i64 doubles(int n, Rules g) {
    return T::planes * (chart_size(n, g) + 2 * (n + 1) * (i64)lexical_row(n) + g.rules + g.symbols);
  }
  DEVICE LexicalInside(double* work, u64* bits, int n, Rules g) : g(g), n(n), row(lexical_row(n)), depth(depth_of(g)) {
    words = n / 64 + 1;
    starts = bits;
    ends = bits + (i64)(n + 2) * g.symbols * words;
    Numbers<T>* all[5] = {&chart, &heads, &mods, &rule, &root};
    const i64 square = (i64)(n + 1) * row, sizes[5] = {chart_size(n, g), square, square, g.rules, g.symbols};
    for (int k = 0; k < 5; ++k) *all[k] = numbers_from<T>(work, sizes[k]);
  }

  // Where rows start: cells by their ends, then by their starts, in them the symbols (tags have cells of their own).
  DEVICE i64 ends_at(int k) const { return (i64)(k * (k - 1) / 2) * depth * row; }
  DEVICE i64 cell_of(int i, int k) const { return ends_at(k) + (i64)(i - 1) * depth * row; }
  DEVICE i64 within(int A) const { return (i64)(A < g.tags ? A : A - g.tags) * row; }
  DEVICE i64 row_of(int i, int k, int A) const { return cell_of(i, k) + within(A); }
  DEVICE int first_symbol(int i, int k) const { return i == k ? 0 : g.tags; }
  DEVICE int symbols_in(int i, int k) const { return i == k ? g.tags : g.symbols - g.tags; }
  // bits of spans that start at i, by their ends; of those that end at k, by the word before their starts
  DEVICE u64* from(int i, int A) const { return starts + ((i64)i * g.symbols + A) * words; }
  DEVICE u64* upto(int k, int A) const { return ends + ((i64)k * g.symbols + A) * words; }
  DEVICE bool meet(const u64* a, const u64* b) const {
    u64 both = 0;
    for (int w = 0; w < words; ++w) both |= a[w] & b[w];
    return both != 0;
  }
  DEVICE bool live(int i, int k, int A) const { return from(i, A)[k >> 6] >> (k & 63) & 1; }

  // Weights of everything. Sums: every tree has one tag and one head a word, n - 1 rules and one root, so each kind is
  // shifted, rules by the greatest sum of a parent. Then Z' is at most the number of binary trees, below 4^n.
  template <class In> DEVICE Range load(Lexicon<In> scores, int N, bool must_prove) {
    LANES(k, 2 * (n + 2) * g.symbols * words) starts[k] = 0;
    LANES(k, (n + 1) * row) {
      heads.put_cell(k, S::zero());
      mods.put_cell(k, S::zero());
    }
    BARRIER();
    Range range = load_weights<T>(Given<In>{scores.arcs}, N, n, typename T::Score{},
                                  [&](int h, int m, T w) { heads.put((i64)h * row + m, w); });
    BARRIER();
    LANES(k, n * n) mods.put_cell((i64)(1 + k / n) * row + 1 + k % n, heads.cell((i64)(1 + k % n) * row + 1 + k / n));

    Range mine{0., 0., 0};
    // The greatest of scores, looked at; and with `whole`, where range matters, the log of the sum of all exponentials.
    auto greatest = [&](int first, int last, bool whole, auto score) INLINED {
      One best = forbidden<One>();
      for (int k = first; k < last; ++k) {
        const One x = score_of(score(k), One{});
        mine.bad |= wrong(x);
        best = x > best ? x : best;
      }
      if constexpr (takes_any_score<T>)
        if (whole && some(best)) {
          double sum = 0.;
          for (int k = first; k < last; ++k) sum += exp((double)score(k) - best);
          best = best + log(sum);
        }
      return best;
    };
    auto weight = [&](In x, One base) INLINED { return S::weight(score_of(x, One{}) - base, nullptr); };
    const double each = log(4.), spread = must_prove && !any_range<T> ? fmax(0., each - 600. / n) : 0.;
    One top = forbidden<One>();
    LANES(A, g.symbols)
      top = Greater{}(greatest(g.first(Rules::PARENT, A), g.first(Rules::PARENT, A + 1), T::sums,
                               [&](int k) { return scores.rules[g.entry(Rules::PARENT, k)[3]]; }), top);
    top = team_reduce(top, Greater{});
    One by_rule = T::sums && some(top) ? top : One{};
    if constexpr (T::sums && !any_range<T>) by_rule += spread;
    LANES(r, g.rules) rule.put_cell(r, weight(scores.rules[r], by_rule));

    const One best = greatest(0, g.symbols, T::sums, [&](int A) { return scores.roots[A]; });
    const One by_root = T::sums && some(best) ? best : One{};
    LANES(A, g.symbols) root.put_cell(A, weight(scores.roots[A], by_root));

    LANES(k, n) {
      const In* x = scores.tags + (i64)k * g.tags;
      const One most = greatest(0, g.tags, false, [&](int t) { return x[t]; });
      const One base = T::sums && some(most) ? most : One{};
      for (int t = 0; t < g.tags; ++t) chart.put_cell(row_of(k + 1, k + 1, t) + k + 1, weight(x[t], base));
      mine.shift += nats(base);
      mine.bad |= too_low(base);
    }
    mine.bad |= too_low(by_rule) | too_low(by_root);
    range = range + team_reduce(mine, Plus{});
    range.shift += (n - 1.) * nats(by_rule) + nats(by_root);
    range.log_bound = n * each - (n - 1.) * spread;
    return range;
  }

  // Row A of the span i..k at the pack h.
  DEVICE T inside(int i, int k, int A, int h) const {
    T all = T::zero();
    const i64 left = cell_of(i, 0) + h, right = cell_of(0, k) + h, step = (i64)depth * row;
    for (int q = g.first(Rules::PARENT, A), end = g.first(Rules::PARENT, A + 1); q < end; ++q) {
      const int* e = g.entry(Rules::PARENT, q);
      const i64 B = left + within(e[0]), C = right + within(e[1]) + step;
      T sum = T::zero();
      if (e[2] == 0)
        each_in_both(from(i, e[0]), upto(k, e[1]), h, k - 1, [&](int j) {
          sum.mac(T::pick(lanes_below(h, j + 1), chart.get(B + ends_at(j)), T::zero()), chart.get(C + j * step));
        });
      else
        each_in_both(from(i, e[0]), upto(k, e[1]), i, h + W - 1 < k ? h + W - 2 : k - 1, [&](int j) {
          sum.mac(T::pick(lanes_below(h, j + 1), T::zero(), chart.get(B + ends_at(j))), chart.get(C + j * step));
        });
      all.mac(rule.all(e[3]), sum.normal());
    }
    return all.normal();
  }

  DEVICE void run() {
    for (int k = 1; k <= n; ++k)
      for (int i = k; i >= 1; --i) {
        const int zeroth = first_symbol(i, k), symbols = symbols_in(i, k);
        if (i < k) ROWS_PACKS(a, symbols, x, k - i + 1) {
          const int A = zeroth + a, h = i + x;
          chart.put(row_of(i, k, A) + h, inside(i, k, A, h));
        }
        BARRIER();
        LANES(a, symbols) {
          const i64 at = row_of(i, k, zeroth + a);
          bool any = false;
          for (int h = i; h <= k && !any; ++h) any = something(chart.cell(at + h));
          if (!any) continue;
          from(i, zeroth + a)[k >> 6] |= 1ULL << (k & 63);
          upto(k, zeroth + a)[(i - 1) >> 6] |= 1ULL << ((i - 1) & 63);
        }
        BARRIER();
        if (i > 1 || k < n) ROWS_PACKS(a, symbols, h, n + 1) {
          if (!live(i, k, zeroth + a)) continue;
          const i64 at = row_of(i, k, zeroth + a);
          if (W == 1 && h >= i && h <= k) continue;
          T hook = T::zero();
          for (int m = i; m <= k; ++m) hook.mac(chart.all(at + m), mods.get((i64)m * row + h));
          chart.put(at + h, W == 1 ? hook.normal() : T::pick(in_span(h, i, k), chart.get(at + h), hook.normal()));
        }
        BARRIER();
      }
  }

  static DEVICE Mask in_span(int h, int i, int k) { return lanes_below(h, k + 1) & ~lanes_below(h, i); }

  DEVICE S top(int A, int h) const { return root.cell(A) * heads.cell(h) * chart.cell(row_of(1, n, A) + h); }
  // The sum over all trees.
  DEVICE S whole() const {
    S mine = S::zero();
    const int zeroth = first_symbol(1, n);
    LANES(a, symbols_in(1, n)) {
      if (!live(1, n, zeroth + a)) continue;
      for (int h = 1; h <= n; ++h) mine = mine + top(zeroth + a, h);
    }
    return team_reduce(mine, Plus{});
  }

  template <class In> DEVICE Found fill(Lexicon<In> scores, int N, bool must_prove) {
    BARRIER();
    const Range range = load(scores, N, must_prove);
    if (range.bad) return unfit<T>();
    BARRIER();
    run();
    z = whole();
    const double log_z = log_of(z);
    return found(log_z, range.shift, !must_prove || enough(log_z - range.log_bound));
  }
  // As in weights.cuh, for roundings of all the sums here; a product of rules and rows has up to R of them around it.
  DEVICE bool enough(double log_share) const {
    if constexpr (any_range<T>) return proven<T>(log_share, 0., n);
    return log_share > -600. + 4. * log((double)n + 1.) + 2. * log((double)g.rules + 1.);
  }
};

// --------------------------------------------------------------------------------------- from a filled chart to a tree

// rows [2n - 1, 5] of (i, k, symbol, split, head), words from 0 and heads from 1, spans before their parts and these
// from left to right. stack: room for 4 * (n + 2) ints. choose(count, whole, value) returns one of the summands
// value(0), ..., value(count - 1) of `whole`, or -1. With `alone` every lane has a tree of its own, without the team
// one together.
template <bool alone, class T, class Choose>
DEVICE void take_apart(const LexicalInside<T>& in, typename T::Scalar z, i64* rows, int* stack, Choose choose) {
  typedef typename T::Scalar S;
  const Rules g = in.g;
  const int n = in.n;
  const bool writes = alone || LEADER;
  int top = 0;
  auto push = [&](int i, int k, int A, int h) {
    int* to = stack + 4 * top++;
    if (writes) to[0] = i, to[1] = k, to[2] = A, to[3] = h;
  };
  const int zeroth = in.first_symbol(1, n);
  const int start = choose(in.symbols_in(1, n) * n, z, [&](int f) {
    return in.live(1, n, zeroth + f / n) ? in.top(zeroth + f / n, 1 + f % n) : S::zero();
  });
  if (start < 0) return;
  push(1, n, zeroth + start / n, 1 + start % n);
  for (i64 at = 0; top > 0; ++at) {
    if (!alone) BARRIER();
    const int* item = stack + 4 * --top;
    const int i = item[0], k = item[1], A = item[2], h = item[3];
    if (!alone) BARRIER();
    int split = 0;
    if (i < k) {
      const int first = g.first(Rules::PARENT, A), width = k - i;
      const int count = g.first(Rules::PARENT, A + 1) - first;
      const int f = choose(count * width, in.chart.cell(in.row_of(i, k, A) + h), [&](int f) {
        const int* e = g.entry(Rules::PARENT, first + f / width);
        const int j = i + f % width;
        if ((h <= j) != (e[2] == 0) || !in.live(i, j, e[0]) || !in.live(j + 1, k, e[1])) return S::zero();
        const i64 left = in.row_of(i, j, e[0]) + h, right = in.row_of(j + 1, k, e[1]) + h;
        return in.chart.cell(left) * in.chart.cell(right) * in.rule.cell(e[3]);
      });
      if (f < 0) return;
      const int* e = g.entry(Rules::PARENT, first + f / width);
      split = i + f % width;
      const bool left = e[2] == 0;  // the head is there, the other part hooks on
      const int from = left ? split + 1 : i, to = left ? k : split;
      const i64 other = in.row_of(from, to, left ? e[1] : e[0]);
      const int m = choose(to - from + 1, in.chart.cell(other + h), [&](int f) {
        return in.heads.cell((i64)h * in.row + from + f) * in.chart.cell(other + from + f);
      });
      if (m < 0) return;
      push(split + 1, k, e[1], left ? from + m : h);
      push(i, split, e[0], left ? h : from + m);
    }
    if (!writes) continue;
    i64* to = rows + 5 * at;
    to[0] = i - 1, to[1] = k - 1, to[2] = A, to[3] = split - 1, to[4] = h;
  }
}
