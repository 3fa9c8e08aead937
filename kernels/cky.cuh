// Binary trees of a context-free grammar in Chomsky normal form: the inside algorithm (CKY) in O(n^3 R) time.
//
// A cell (s, w, i) is symbol s over the w words from word i on. Tags have cells of width 1 only, other symbols only of
// widths above. Cells of one symbol and width lie side by side: those computed together read side by side, whatever
// their split is. Between rows there is room for a pack, zeros all the time.
#pragma once
#include "sentences.cuh"

constexpr int ROOM = 8;  // at least a pack

// The rules, as one array of ints: parents, lefts and rights of all [R] each; then three times, sorted by parent, by
// left and by right: where each symbol starts [S + 1], the rules [R], and the other two symbols of each [R], [R].
struct Order { const int *start, *rule, *one, *other; };
struct Rules {
  const int* at;
  int S, T, R;
  DEVICE Order by(int which) const {  // 0: parent (left, right), 1: left (parent, right), 2: right (parent, left)
    const int* p = at + 3 * (i64)R + which * ((i64)S + 1 + 3 * (i64)R);
    return Order{p, p + S + 1, p + S + 1 + R, p + S + 1 + 2 * (i64)R};
  }
  // Symbols that may stand over w words: from first(w) on, so many.
  DEVICE int first(int w) const { return w == 1 ? 0 : T; }
  DEVICE int many(int w) const { return w == 1 ? T : S - T; }
};

// tags [N, T], rules [R], roots [S] and, if not null, spans [N, N, S]. Of directions any may be null: zeros.
template <class In> struct Parts {
  const In *tags, *rules, *roots, *spans;
  DEVICE Parts at(i64 b, i64 N, Rules g) const {
    return Parts{tags ? tags + b * N * g.T : tags, rules ? rules + b * g.R : rules, roots ? roots + b * g.S : roots,
                 spans ? spans + b * N * N * g.S : spans};
  }
};

// p[i * step] for the pack at i; -inf from `end` on.
template <class X, class In> DEVICE X gather(const In* p, i64 step, int i, int end) {
#if ON_GPU
  return i < end ? score_of(p[i * step], X{}) : forbidden<X>();
#else
  Pack x;
  for (int l = 0; l < W; ++l) x[l] = i + l < end ? (double)p[(i + l) * step] : -infinity();
  return x;
#endif
}

template <class T, class In>
DEVICE T weigh(const In* x, const In* u, const In* v, i64 from, i64 step, int i, int end, typename T::Score base) {
  typedef typename T::Score X;
  const X score = gather<X>(x + from, step, i, end);
  X directions[2] = {X{}, X{}};
  if (T::order > 0 && u) directions[0] = choose(some(score), gather<X>(u + from, step, i, end), X{});
  if (T::order > 1 && v) directions[1] = choose(some(score), gather<X>(v + from, step, i, end), X{});
  return T::weight(score - base, directions);
}

struct Greatest { template <class X> DEVICE X operator()(X a, X b) const { return a > b ? a : b; } };

// Scores looked at: the greatest, and whether one is NaN or +inf.
template <class X> struct Looked {
  X top;
  int bad;
  DEVICE void look(X x) {
    bad |= any(wrong(x));
    top = choose(x > top, x, top);
  }
  DEVICE auto greatest() const {
    auto x = lane_of(top, 0);
    for (int l = 1; l < W; ++l) x = lane_of(top, l) > x ? lane_of(top, l) : x;
    return x;
  }
};

DEVICE i64 rounded(i64 numbers) { return (numbers + 7) / 8 * 8; }

template <class T> struct Cells {
  Numbers<T> at;
  i64 row, symbol;
  static DEVICE i64 size(i64 n, i64 S) { return ROOM + S * n * (rounded(n) + ROOM); }
  DEVICE Cells(double*& work, int n, int S)
      : at(numbers_from<T>(work, rounded(size(n, S)))), row(rounded(n) + ROOM), symbol(n * row) {
    PACKS(k, (int)rounded(size(n, S))) at.put(k, T::zero());
  }
  DEVICE i64 cell(int s, int w, int i) const { return ROOM + s * symbol + (w - 1) * row + i; }
  DEVICE T get(int s, int w, int i) const { return at.get(cell(s, w, i)); }
  DEVICE typename T::Scalar one(int s, int w, int i) const { return at.cell(cell(s, w, i)); }
  DEVICE void put(int s, int w, int i, int n, T value) const {
    at.put(cell(s, w, i), T::pick(lanes_below(i, n + 1 - w), value, T::zero()));
  }
};

template <class T, class In> struct CkyInside {
  typedef typename T::Scalar S_;
  typedef typename T::Score Score;
  typedef typename S_::Score One;  // of them
  Rules g;
  Parts<In> x, u, v;
  int N, n;
  Numbers<T> rules, roots;
  Cells<T> in;
  One span_base;
  double shift;  // log Z - log Z'
  int bad;

  DEVICE CkyInside(double*& work, Rules g, Parts<In> x, Parts<In> u, Parts<In> v, int N, int n)
      : g(g), x(x), u(u), v(v), N(N), n(n), rules(numbers_from<T>(work, rounded(g.R))),
        roots(numbers_from<T>(work, rounded(g.S))), in(work, n, g.S) {}

  // Weights from scores. Every tree has n - 1 rules, as many spans, a tag for each word and one root, so each kind may
  // be shifted. With `bounded` so far that no sum over parts of trees is above 1: four times the weights of all rules
  // that a symbol is the parent, the left or the right of are at most 1, hence (Catalan numbers) all cells, and sums
  // around them.
  DEVICE void load(bool bounded) {
    const Score none = forbidden<Score>();
    Looked<Score> all{none, 0};
    BARRIER();
    PACKS(r, g.R) all.look(gather<Score>(x.rules, 1, r, g.R));
    One rule_base = based(all);
    all.top = none;
    PACKS(s, g.S) all.look(gather<Score>(x.roots, 1, s, g.S));
    const One root_base = based(all);
    all.top = none;
    if (x.spans)
      for (int w = 2; w <= n; ++w)
        ROWS_PACKS(a, g.S - g.T, i, n + 1 - w)
          all.look(gather<Score>(x.spans + (i64)(w - 1) * g.S + g.T + a, step(), i, n + 1 - w));
    span_base = x.spans ? based(all) : One{};
    all.bad |= too_low(rule_base) | too_low(root_base) | too_low(span_base);
    double words = 0.;
    PACKS(i, n) {
      all.top = none;
      for (int t = 0; t < g.T; ++t) all.look(gather<Score>(x.tags + t, g.T, i, n));
      const Score base = T::sums ? choose(some(all.top), all.top, Score{}) : Score{};
      for (int l = 0; l < W; ++l) {
        words += i + l < n ? nats(lane_of(base, l)) : 0.;
        all.bad |= too_low(lane_of(base, l));
      }
      for (int t = 0; t < g.T; ++t)
        in.put(t, 1, i, n, weigh<T>(x.tags, u.tags, v.tags, t, g.T, i, n, base));
    }
    if constexpr (!any_range<T>)
      if (bounded) rule_base += log(4. * heaviest(rule_base));
    PACKS(r, g.R) rules.put(r, weigh<T>(x.rules, u.rules, v.rules, 0, 1, r, g.R, splat<Score>(rule_base)));
    PACKS(s, g.S) roots.put(s, weigh<T>(x.roots, u.roots, v.roots, 0, 1, s, g.S, splat<Score>(root_base)));
    bad = team_reduce(all.bad, Or{});
    shift = team_reduce(words, Plus{}) + nats(root_base) + (n - 1) * (nats(rule_base) + nats(span_base));
    BARRIER();
  }

  DEVICE i64 step() const { return ((i64)N + 1) * g.S; }  // from the span of a width at i to that at i + 1

  static DEVICE One based(Looked<Score> all) {
    if (!T::sums) return One{};
    const One top = team_reduce(all.greatest(), Greatest{});
    return some(top) ? top : One{};
  }

  // The greatest sum of exp(score - base) over the rules with the same parent, left or right; at least 1.
  DEVICE double heaviest(double base) {
    PACKS(r, g.R) unpack(rules.base + r, exp_in_range(gather<Pack>(x.rules, 1, r, g.R) - base));
    BARRIER();
    double most = 1.;
    LANES(k, 3 * g.S) {
      const Order by = g.by(k / g.S);
      double sum = 0.;
      for (int j = by.start[k % g.S]; j < by.start[k % g.S + 1]; ++j) sum += rules.base[by.rule[j]];
      most = sum > most ? sum : most;
    }
    most = team_reduce(most, Greatest{});
    BARRIER();
    return most;
  }

  DEVICE T span(int s, int w, int i) const {
    if (!x.spans) return T::one();
    const i64 from = (i64)(w - 1) * g.S + s;
    return weigh<T>(x.spans, u.spans, v.spans, from, step(), i, n + 1 - w, splat<Score>(span_base));
  }

  // The sum over all splits of w words from i on into left and right.
  DEVICE T splits(int left, int right, int w, int i) const {
    const int least = right < g.T ? w - 1 : 1, most = right < g.T ? w - 1 : w - 2;  // words of the left one
    const int lo = left < g.T || least > 2 ? least : 2, hi = left < g.T && most > 1 ? 1 : most;
    T y = T::zero();
    for (int t = lo; t <= hi; ++t) y.mac(in.get(left, t, i), in.get(right, w - t, i + t));
    return y;
  }

  DEVICE void run() {
    const Order by = g.by(0);
    for (int w = 2; w <= n; ++w) {
      ROWS_PACKS(a, g.S - g.T, i, n + 1 - w) {
        const int A = g.T + a;
        T sum = T::zero();
        for (int k = by.start[A]; k < by.start[A + 1]; ++k)
          sum.mac(rules.all(by.rule[k]), splits(by.one[k], by.other[k], w, i).normal());
        if (x.spans) sum = sum.normal() * span(A, w, i);
        in.put(A, w, i, n, sum.normal());
      }
      BARRIER();
    }
  }

  DEVICE S_ at_root(int s) const { return roots.cell(s) * in.one(s, n, 0); }
  DEVICE S_ total() const {
    S_ z = S_::zero();
    for (int k = 0; k < g.many(n); ++k) z = z + at_root(g.first(n) + k);
    return z;
  }

  DEVICE Found fill(bool must_prove) {
    load(must_prove);
    if (bad) return unfit<T>();
    run();
    const double log_z = log_of(total().primal());
    return found(log_z, shift, !must_prove || enough(log_z));
  }

  // Whether doubles were enough after `load(true)`: a rounding to zero loses at most 2^-1022 of Z', for nothing around
  // it is above 1; there are at most 8 n^3 R of them. The rest is room for derivatives.
  DEVICE bool enough(double log_z) const {
    if constexpr (any_range<T>) return proven<T>(log_z, 0., n);
    return log_z > -600. + 3. * log((double)n + 1.) + log((double)g.R + 1.);
  }
};
