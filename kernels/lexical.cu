// Sums over lexicalised trees: log Z and its derivatives, the expected numbers of tags, arcs, rules and roots.
#include "lexical.cuh"

// Calls f(a, lo, hi) for every row a: on a CPU with all of its entries first..last-1, on a GPU with one for each lane.
template <class F> DEVICE void each_row(int rows, int first, int last, F f) {
#if ON_GPU
  const int width = last - first;
  LANES(k, rows * width) f(k / width, first + k % width, first + k % width + 1);
#else
  for (int a = 0; a < rows; ++a) f(a, first, last);
#endif
}

// Sums in such entries of a row that starts at `at`: in memory on a CPU, in a lane's own register on a GPU.
template <class T> struct RowSum {
  Numbers<T> to;
  i64 at;
#if ON_GPU
  T own;
  int place;
  DEVICE RowSum(Numbers<T> to, i64 at, int lo, int) : to(to), at(at), own(T::zero()), place(lo) {}
  DEVICE void mac(int, T x, T y) { own.mac(x, y); }
  DEVICE void done() { to.put(at + place, own.normal()); }
#else
  DEVICE RowSum(Numbers<T> to, i64 at, int lo, int hi) : to(to), at(at) {
    for (int h = lo; h < hi; h += W) to.put(at + h, T::zero());
  }
  DEVICE void mac(int h, T x, T y) {
    T sum = to.get(at + h);
    sum.mac(x, y);
    to.put(at + h, sum.normal());
  }
  DEVICE void done() {}
#endif
};

// The derivatives of log Z by the rows of the inside chart, each pulling from the spans that used it. Spans are taken
// in the opposite order, so that those around one are ready.
template <class T> struct LexicalOutside {
  typedef typename T::Scalar S;
  const LexicalInside<T>& in;
  Numbers<T> chart, arcs, rules;  // of arcs [h, m], without the arc's weight; of rules by head words [R, row]
  static DEVICE i64 doubles(int n, Rules g) {
    return T::planes * (LexicalInside<T>::chart_size(n, g) + (n + 1 + (i64)g.rules) * lexical_row(n));
  }
  DEVICE LexicalOutside(const LexicalInside<T>& in, double* work) : in(in) {
    const i64 size = in.chart.size, square = (i64)(in.n + 1) * in.row;
    chart = Numbers<T>{work, size};
    arcs = Numbers<T>{work + T::planes * size, square};
    rules = Numbers<T>{work + T::planes * (size + square), (i64)in.g.rules * in.row};
  }

  // Row A of the span i..k, its entries lo..hi-1, before what hangs on heads outside is added to the heads inside.
  DEVICE void uses(int i, int k, int A, int lo, int hi) const {
    const Rules g = in.g;
    const i64 mine = in.row_of(i, k, A);
    RowSum<T> all(chart, mine, lo, hi);
    const int n = in.n;
    const i64 step = (i64)in.depth * in.row;
    // as the left part of spans i..end, with k+1..end of symbol C
    for (int q = g.first(Rules::LEFT, A); k < n && q < g.first(Rules::LEFT, A + 1); ++q) {
      const int* e = g.entry(Rules::LEFT, q);
      const int P = e[0], C = e[1];
      const u64 *x = in.from(i, P), *y = in.from(k + 1, C);
      if (!in.meet(x, y)) continue;
      const T weight = in.rule.all(e[3]);
      const i64 above = in.cell_of(i, 0) + in.within(P), beside = in.cell_of(k + 1, 0) + in.within(C);
      const bool head = e[2] == 0;  // this part has it, else the other
      const int first = head ? i : k + 1, last = head ? k : n;
      for (int h = first > lo ? first : lo; h <= last && h < hi; h += W) {
        T sum = T::zero();
        each_in_both(x, y, head ? k + 1 : h, n, [&](int end) {
          const i64 at = in.ends_at(end) + h;
          sum.mac(T::pick(lanes_below(h, (head ? k : end) + 1), chart.get(above + at), T::zero()),
                  in.chart.get(beside + at));
        });
        sum = sum.normal();
        all.mac(h, weight, sum);
        const i64 at = (i64)e[3] * in.row + h;
        T count = rules.get(at);
        count.mac(weight * sum, in.chart.get(mine + h));
        rules.put(at, count.normal());
      }
    }
    // as the right part of spans start..k, with start..i-1 of symbol B
    for (int q = g.first(Rules::RIGHT, A); i > 1 && q < g.first(Rules::RIGHT, A + 1); ++q) {
      const int* e = g.entry(Rules::RIGHT, q);
      const int P = e[0], B = e[1];
      const u64 *x = in.upto(k, P), *y = in.upto(i - 1, B);
      if (!in.meet(x, y)) continue;
      const T weight = in.rule.all(e[3]);
      const i64 above = in.cell_of(1, k) + in.within(P), beside = in.cell_of(1, i - 1) + in.within(B);
      const bool head = e[2] == 1;
      const int first = head ? i : 1, last = head ? k : i - 1;
      for (int h = first > lo ? first : lo; h <= last && h < hi; h += W) {
        const Mask upto = lanes_below(h, last + 1);
        T sum = T::zero();
        each_in_both(x, y, 0, (head || h + W > i ? i - 1 : h + W - 1) - 1, [&](int before) {
          const i64 at = before * step + h;
          sum.mac(T::pick(upto & ~lanes_below(h, head ? 0 : before + 1), chart.get(above + at), T::zero()),
                  in.chart.get(beside + at));
        });
        all.mac(h, weight, sum.normal());
      }
    }
    all.done();
  }

  DEVICE void run(S z) {
    const int n = in.n, row = in.row;
    const T share = T::lift(z.inverse());
    LANES(k, (n + 1) * row) arcs.put_cell(k, S::zero());
    LANES(k, in.g.rules * row) rules.put_cell(k, S::zero());
    BARRIER();
    for (int k = n; k >= 1; --k)
      for (int i = 1; i <= k; ++i) {
        const int zeroth = in.first_symbol(i, k), symbols = in.symbols_in(i, k);
        if (i == 1 && k == n) {
          ROWS_PACKS(a, symbols, h, n + 1) {
            if (!in.live(i, k, zeroth + a)) continue;
            const T all = in.root.all(zeroth + a) * in.heads.get(h) * share;
            chart.put(in.row_of(i, k, zeroth + a) + h, T::pick(in.in_span(h, 1, n), all, T::zero()));
          }
          BARRIER();
          continue;
        }
        each_row(symbols, 0, n + 1, [&](int a, int lo, int hi) {
          if (in.live(i, k, zeroth + a)) uses(i, k, zeroth + a, lo, hi);
        });
        BARRIER();
        // hooks: their heads' shares go to the arcs, and to the heads of the span
        ROWS_PACKS(h, n + 1, x, k - i + 1) {
          if (h == 0 || (h >= i && h <= k)) continue;
          const int m = i + x;
          T sum = arcs.get((i64)h * row + m);
          for (int a = 0; a < symbols; ++a) {
            if (!in.live(i, k, zeroth + a)) continue;
            const i64 at = in.row_of(i, k, zeroth + a);
            sum.mac(chart.all(at + h), T::pick(lanes_below(m, k + 1), in.chart.get(at + m), T::zero()));
          }
          arcs.put((i64)h * row + m, sum.normal());
        }
        ROWS_PACKS(a, symbols, x, k - i + 1) {
          if (!in.live(i, k, zeroth + a)) continue;
          const i64 at = in.row_of(i, k, zeroth + a);
          const int m = i + x;
          T sum = chart.get(at + m);
          for (int h = 1; h <= n; ++h)
            if (h < i || h > k) sum.mac(chart.all(at + h), in.heads.get((i64)h * row + m));
          chart.put(at + m, W == 1 ? sum.normal() : T::pick(lanes_below(m, k + 1), sum.normal(), chart.get(at + m)));
        }
        BARRIER();
      }
  }
};

template <class T, class In>
DEVICE bool sum_trees(Lexicon<In> scores, Rules g, Results<In, 4> results, double* work, u64* bits, int N, int n,
                      bool must_prove) {
  typedef typename T::Scalar S;
  LexicalInside<T> in(work, bits, n, g);
  const Found found = in.fill(scores, N, must_prove);
  if (!results.take(found)) return found.enough;
  const S z = in.z;
  In *tags = results.out[0], *arcs = results.out[1], *rules = results.out[2], *roots = results.out[3];
  LexicalOutside<T> outside(in, work + LexicalInside<T>::doubles(n, g));
  outside.run(z);
  LANES(k, n * g.tags) {
    const int i = 1 + k / g.tags, t = k % g.tags;
    const i64 at = in.row_of(i, i, t) + i;
    if (in.live(i, i, t)) tags[k] = (In)(outside.chart.cell(at) * in.chart.cell(at)).value();
  }
  LANES(k, n * n) {
    const int h = 1 + k / n, m = 1 + k % n;
    const i64 at = (i64)h * in.row + m;
    arcs[(i64)h * N + m] = (In)(outside.arcs.cell(at) * in.heads.cell(at)).value();
  }
  LANES(k, g.rules) {
    S sum = S::zero();
    for (int h = 1; h <= n; ++h) sum = sum + outside.rules.cell((i64)k * in.row + h);
    rules[k] = (In)sum.value();
  }
  const int zeroth = in.first_symbol(1, n), symbols = in.symbols_in(1, n);
  const S one = z.inverse();
  LANES(a, symbols) {
    if (!in.live(1, n, zeroth + a)) continue;
    S sum = S::zero();
    for (int h = 1; h <= n; ++h) sum = sum + in.top(zeroth + a, h);
    roots[zeroth + a] = (In)(sum * one).value();
  }
  LANES(k, n) {
    S sum = S::zero();
    for (int a = 0; a < symbols; ++a)
      if (in.live(1, n, zeroth + a)) sum = sum + in.top(zeroth + a, k + 1);
    arcs[k + 1] = (In)(sum * one).value();
  }
  return true;
}

// logz [B], and if tags_out is not null the expected numbers of tags [B, N - 1, T], arcs [B, N, N], rules [B, R] and
// roots [B, S]. A sentence without any tree: -inf and zeros.
template <class In>
KERNEL lexical(const In* tags, const In* arcs, const In* rules, const In* roots, const int* table, const i64* lengths,
               double* logz, In* tags_out, In* arcs_out, In* rules_out, In* roots_out, double* work, i64* bits,
               i64 work_size, i64 bits_size, i64 rules_step, int B, int N, int T, int S, int R) {
  const Rules g{table, T, S, R};
  double* mine = work + SLOT * work_size;
  u64* set = (u64*)bits + SLOT * bits_size;
  const Results<In, 4> all{logz, {tags_out, arcs_out, rules_out, roots_out}, {(i64)(N - 1) * T, (i64)N * N, R, S}};
  sum_each<0>(all, lengths, B, N, [&](auto numbers, bool must_prove, i64 b, int n, auto results) INLINED {
    const Lexicon<In> scores = Lexicon<In>{tags, arcs, rules, roots}.at(b, N, g, rules_step);
    return sum_trees<ALGEBRA(numbers)>(scores, g, results, mine, set, N, n, must_prove);
  });
}

EXPORT_TYPES(lexical)
