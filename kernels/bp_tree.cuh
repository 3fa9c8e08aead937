// The sums over trees that messages of TREE and PTREE are made of: for each link h -> m the sum over the trees that have
// it, without its own weight, up to a constant for each m.
#pragma once
#include "bp.cuh"
#include "eisner.cuh"

// Rows of heads, columns of words; room for packs that run over the end.
DEVICE i64 tree_row(int n) { return PAD ? (i64)(n + 1 + 7) / 8 * 8 : n + 1; }
template <class T> DEVICE Table<T> tree_table(double*& work, int n) {
  const i64 size = (n + 1) * tree_row(n);
  const Table<T> made{work, tree_row(n), size};
  work += T::planes * size;
  return made;
}

struct Least { DEVICE double operator()(double a, double b) const { return a < b ? a : b; } };

// What is known of the weights, which are at most 1: whether all links have one that is not 0, the log of the least that is
// not, and the log of a bound on sums over parts of trees.
struct Spread { bool dense; double reach, log_bound; };

constexpr double LEAST = 1e-290;  // of products that are surely no rounding to 0

// TREE. A word is h's descendant or not whatever its own head is, so the trees with h -> m weigh w(h, m) u(h, m) Z(m), Z(m)
// being the same for all h: u(h, m) is the weight of walks from h, each word going on to a head, that come to the root and
// not to m. Words are eliminated from the walk without a subtraction, so that every u has all its digits: the words of one
// half for the targets in the other half, and so on by halves, O(n^3) in all.
//
// With a single root, what is linear in the root's weights counts. Doubles leave the root out of the words' steps, if each
// has another one left; numbers with an exponent take it as so little that its power can be read off them.
//
// The way back takes the eliminations in reverse. Every number x on the way is a sum over forests divided by another one, so
// that each log weight moves log x by a difference of two probabilities. Derivatives by x are at most 1 / x therefore, what
// is subtracted of them are such differences, and an error in one moves what is found by x times as much at most: no
// digits are lost that count, and nothing that is rounded to 0 is missed.
template <class T> struct Walks {
  typedef typename T::Scalar S;
  static constexpr bool DOUBLES = T::planes == 1;
  int n, row;
  bool keeps;     // all that is found, for the way back
  bool rooted;    // whether steps to the root count as steps
  double little;  // log2 of the weight of "a little"; 0 without
  Numbers<T> from, to, steps, scratch;

  // A level has P parts, of columns(P) + 1 columns each; all levels together 2 log2 n + 10 times n.
  static DEVICE i64 cells(int n) { return 6 * (i64)n * tree_row(n); }
  DEVICE Walks(double* work, int n, bool keeps) : n(n), row((int)tree_row(n)), keeps(keeps), rooted(true), little(0.) {
    int levels = 1;
    for (int P = 1; P < n; P *= 2) ++levels;
    from = numbers_from<T>(work, keeps ? (2 * levels + 8) * (i64)n * row : cells(n));
    to = keeps ? after(from, (n + 1) * (i64)row) : numbers_from<T>(work, cells(n));
    steps = numbers_from<T>(work, keeps ? 2 * (i64)n * n + 3 * n * levels : (i64)n * (n + 2));
    if (keeps) scratch = numbers_from<T>(work, 2 * cells(n) + 6 * n);
  }
  static DEVICE Numbers<T> after(const Numbers<T>& x, i64 many) { return Numbers<T>{x.at(many), x.size}; }
  // Part p of P has the words low(p) .. low(p + 1) - 1; in its group, which is a part of half as many, they are columns.
  DEVICE int low(int p, int P) const { return 1 + p * n / P; }
  DEVICE int width(int P) const { return (n + P - 1) / P; }  // of the longest part
  DEVICE int columns(int P) const { return P == 1 ? n : width(P / 2); }
  DEVICE i64 size(int P) const { return (i64)P * (columns(P) + 1) * row; }
  DEVICE i64 at(int p, int wide, int column, int r) const { return ((i64)p * (wide + 1) + column) * row + r; }

  // The word that part p eliminates as its t-th; no_word where it has none.
  static constexpr int no_word = -1;
  DEVICE int eliminated(int p, int P, int t) const {
    const int k = low(p ^ 1, P) + t;
    return k < low((p ^ 1) + 1, P) && low(p, P) < low(p + 1, P) ? k : no_word;
  }
  // Whether column c of part p is left once its word k is gone: those after k of its half, the other half, the root's.
  DEVICE bool left(int p, int P, int c, int k) const {
    if (c == columns(P)) return true;
    const int x = low(p / 2, P / 2) + c;
    return x < low(p / 2 + 1, P / 2) && (x > k || x < low(p ^ 1, P) || x >= low((p ^ 1) + 1, P));
  }
  // The column of part p for word k, the step from k to column c, and after these the inverse of all steps' weight.
  DEVICE int column(int p, int P, int k) const { return k - low(p / 2, P / 2); }
  DEVICE i64 step_at(int k, int c, int next) const { return (k - 1) * (next + 2) + c; }

  static DEVICE S times_power(S x, double e) {
    if constexpr (DOUBLES) return x;
    else return is_zero(x) ? x : S{x.m, x.e + e};
  }

  // A: weights. rest(h, m): what was found. False: numbers do not do.
  DEVICE bool run(const Table<T>& A, const Table<T>& rest, int single_root, bool must_prove, Spread spread) {
    if (must_prove && spread.reach < -600.) return false;
    const bool track = must_prove && !spread.dense;
    rooted = !single_root || !must_prove;
    if (single_root && !must_prove) little = 3. * n * spread.reach - 6. * n * log((double)n + 1.) - 4000.;
    double mine = 1.;
    bool stuck = false;
    ROWS_PACKS(c, n + 1, r, n + 1) {
      const int head = c < n ? c + 1 : 0;
      T w = T::pick(lanes_below(r, n + 1), A.get(head, r), T::zero());
      from.put(at(0, n, c, r), w);
    }
    BARRIER();
    if (little != 0.) {
      LANES(r, n + 1) from.put_cell(at(0, n, n, r), times_power(from.cell(at(0, n, n, r)), little));
      BARRIER();
    }
    int P = 1;
    while (P < n) {
      P *= 2;
      const int next = columns(P), wide = columns(P / 2);
      ROWS_PACKS(k, P * (next + 1), r, n + 1) {
        const int p = k / (next + 1), c = k % (next + 1), g = p / 2, x = low(g, P / 2) + c;
        if (c < next && x >= low(g + 1, P / 2)) continue;
        const int source = c == next ? wide : P == 2 ? c : column(g, P / 2, x);
        to.put(at(p, next, c, r), from.get(at(g, wide, source, r)));
      }
      BARRIER();
      for (int t = 0; t < width(P); ++t) {
#if ON_GPU
        LANES(flat, P * (next + 1)) {
          const int p = flat / (next + 1);
          int c = flat % (next + 1), end = c + 1;
#else
        for (int p = 0; p < P; ++p) {
          int c = 0, end = next + 1;
#endif
          const int k = eliminated(p, P, t);
          if (k == no_word) continue;
          S total = rooted ? to.cell(at(p, next, next, k)) : S::zero();
          for (int j = 0; j < next; ++j)
            if (left(p, P, j, k)) total = total + to.cell(at(p, next, j, k));
          const bool none = is_zero(total);
          stuck |= none && !rooted;
          const S inverse = none ? S::one() : total.inverse();
          for (; c < end; ++c) {
            if (!left(p, P, c, k)) continue;
            const S step = to.cell(at(p, next, c, k)) * inverse;
            if (track && size_of(to.cell(at(p, next, c, k))) > 0.) mine = fmin(mine, size_of(step));
            steps.put_cell(step_at(k, c, next), step);
          }
          if (end > next) {
            steps.put_cell(step_at(k, next + 1, next), inverse);
            to.put_cell(at(p, next, column(p, P, k), k), S::one());  // k's own row is once the steps
          }
        }
        BARRIER();
#if ON_GPU
        LANES(flat, P * (next + 1) * (n + 1)) {
          const int p = flat / ((next + 1) * (n + 1)), c = flat / (n + 1) % (next + 1), first = flat % (n + 1), end = first + 1;
#else
        for (int p = 0; p < P; ++p) for (int c = 0; c <= next; ++c) {
          const int first = 0, end = n + 1;
#endif
          const int k = eliminated(p, P, t);
          if (k == no_word || !left(p, P, c, k)) continue;
          const T step = steps.all(step_at(k, c, next));
          for (int r = first; r < end; r += W) {
            const T into = to.get(at(p, next, column(p, P, k), r)), more = into * step;
            const T x = to.get(at(p, next, c, r)) + more;
            if (track)
              for (int l = 0; l < W; ++l)
                if (lane_of(into.value(), l) > 0. && size_of(steps.cell(step_at(k, c, next))) > 0.)
                  mine = fmin(mine, lane_of(more.value(), l));
            to.put(at(p, next, c, r), T::pick(lane_is(r, k), step, x.normal()));
          }
        }
        BARRIER();
      }
      const Numbers<T> swap = from;
      from = to, to = keeps ? after(to, size(P)) : swap;
      if (keeps) steps = after(steps, n * (next + 2));
    }
    const int wide = columns(P);
    // u(h, m) of words h
    double least = 1., most = 0.;
    LANES(flat, (n + 1) * (n + 1)) {
      const int h = flat / (n + 1), m = flat % (n + 1);
      if (m == 0 || h == m) { rest.put_cell(h, m, S::zero()); continue; }
      S u = times_power(S::one(), little);
      if (h > 0) {
        u = from.cell(at(part_of(m, P), wide, wide, h));
        if (DOUBLES) {
          const double v = size_of(u);
          if (!(v <= 1e290)) most = 1.;
          if (track && v > 0.) least = fmin(least, v);
        }
      }
      rest.put_cell(h, m, u);
    }
    BARRIER();
    if (!must_prove) {
      if (little != 0.) LANES(m, n + 1) if (m > 0) drop_powers(rest, m);
      return true;
    }
    const double sure = team_reduce(most > 0. || stuck ? 0. : fmin(mine, least), Least{});
    return sure >= LEAST;
  }
  DEVICE int part_of(int m, int P) const { return (m * P + n - 1) / n - 1; }

  // After run(): by(h, m, derivative by the log of a weight) of the sum over all h, m of along(h, m) rest(h, m).
  template <class By>
  DEVICE bool back(const Table<T>&, const Table<T>& along, int, bool must_prove, Spread, By by) {
    // d: the derivatives by the numbers of a level; upper: of the level before it; sums: by steps
    Numbers<T> d = scratch, upper = after(scratch, cells(n)), sums = after(scratch, 2 * cells(n));
    int P = 1;
    while (P < n) P *= 2;
    ROWS_PACKS(k, P * (columns(P) + 1), r, n + 1) d.put(k * (i64)row + r, T::zero());
    BARRIER();
    LANES(flat, (n + 1) * (n + 1)) {
      const int h = flat / (n + 1), m = flat % (n + 1);
      if (h > 0 && m > 0 && h != m) d.put_cell(at(part_of(m, P), columns(P), columns(P), h), along.cell(h, m));
    }
    BARRIER();
    for (; P > 1; P /= 2) {
      const int next = columns(P), wide = columns(P / 2);
      steps = after(steps, -(i64)n * (next + 2));
      for (int t = width(P) - 1; t >= 0; --t) {
#if ON_GPU
        LANES(flat, P * (next + 1)) {
          const int p = flat / (next + 1), c = flat % (next + 1);
#else
        for (int p = 0; p < P; ++p) for (int c = 0; c <= next; ++c) {
#endif
          const int k = eliminated(p, P, t);
          if (k == no_word || !left(p, P, c, k)) continue;
          sums.put_cell(p * (next + 1) + c, dot(after(from, at(p, next, column(p, P, k), 0)), after(d, at(p, next, c, 0))));
        }
        BARRIER();
#if ON_GPU
        LANES(flat, P * (n + 1)) {
          const int p = flat / (n + 1), first = flat % (n + 1), end = first + 1;
#else
        for (int p = 0; p < P; ++p) {
          const int first = 0, end = n + 1;
#endif
          const int k = eliminated(p, P, t);
          if (k == no_word) continue;
          for (int r = first; r < end; r += W) {
            T sum = T::zero();
            for (int c = 0; c <= next; ++c)
              if (left(p, P, c, k)) sum.mac(d.get(at(p, next, c, r)), steps.all(step_at(k, c, next)));
            d.put(at(p, next, column(p, P, k), r), T::pick(lane_is(r, k), T::zero(), sum.normal()));
          }
          if (k < first || k >= end) continue;
          // steps are shares of their weights' sum
          S mean = S::zero();
          for (int c = 0; c <= next; ++c)
            if (left(p, P, c, k)) mean = mean + sums.cell(p * (next + 1) + c) * steps.cell(step_at(k, c, next));
          const S inverse = steps.cell(step_at(k, next + 1, next));
          for (int c = 0; c <= next; ++c)
            if (left(p, P, c, k)) {
              const S by_step = sums.cell(p * (next + 1) + c);
              d.put_cell(at(p, next, c, k), (c < next || rooted ? by_step + mean.scaled(-1.) : by_step) * inverse);
            }
        }
        BARRIER();
      }
      ROWS_PACKS(k, P / 2 * (wide + 1), r, n + 1) {
        const int g = k / (wide + 1), c = k % (wide + 1), x = c + (P == 2 ? 1 : low(g / 2, P / 4));
        const bool copied = c == wide || (x >= low(g, P / 2) && x < low(g + 1, P / 2));
        T sum = T::zero();
        for (int p = 2 * g; copied && p <= 2 * g + 1; ++p) sum = sum + d.get(at(p, next, c == wide ? next : column(p, P, x), r));
        upper.put(at(g, wide, c, r), sum);
      }
      BARRIER();
      const Numbers<T> swap = d;
      d = upper, upper = swap;
      from = after(from, -size(P / 2));
    }
    double most = 0.;
    LANES(flat, (n + 1) * (n + 1)) {
      const int h = flat / (n + 1), m = flat % (n + 1);
      if (m == 0 || h == m) continue;
      const i64 k = at(0, n, h > 0 ? h - 1 : n, m);
      const S mine = d.cell(k);
      if (DOUBLES && !(fabs(size_of(mine)) < 1e290)) most = 1.;  // what was once infinite remains so, or is NaN
      by(h, m, in_double(from.cell(k) * mine));
    }
    return !must_prove || team_reduce(most, Plus{}) == 0.;
  }
  DEVICE S dot(const Numbers<T>& x, const Numbers<T>& y) const {
    T sum = T::zero();
    for (int r = 0; r <= n; r += W) sum.mac(x.get(r), y.get(r));
    return sum_lanes(sum.normal());
  }
  // Links that only trees with more arcs of the root have: u has the little weight in it once more.
  DEVICE void drop_powers(const Table<T>& rest, int m) const {
    if constexpr (!DOUBLES) {
      double first = infinity();
      for (int h = 0; h <= n; ++h) first = fmin(first, power(rest.cell(h, m)));
      for (int h = 0; h <= n; ++h) if (power(rest.cell(h, m)) > first + 0.5) rest.put_cell(h, m, S::zero());
    }
  }
  DEVICE double power(S x) const {
    const double v = log_of(x);
    return v == -infinity() ? infinity() : (double)(i64)(v * 1.4426950408889634 / little + 0.5);
  }
};

// PTREE: Eisner's algorithm. What it finds is divided by Z.
template <class T> struct Spans {
  typedef typename T::Scalar S;
  static constexpr bool DOUBLES = T::sums && T::planes == T::order + 1;
  int n;
  double* work;
  DEVICE Spans(double* work, int n, bool) : n(n), work(work) {}

  DEVICE bool run(const Table<T>& A, const Table<T>& rest, int single_root, bool must_prove, Spread spread) {
    Inside<T> in(work, n);
    Outside<T> outside(work + Inside<T>::squares * T::planes * square_size(n), n);
    LANES(flat, (n + 1) * (n + 1)) {
      const int h = flat / (n + 1), m = flat % (n + 1);
      rest.put_cell(h, m, S::zero());
      if (h < m) in.A.put_cell(m - h, h, A.cell(h, m));
      if (h > m) in.Z.put_cell(h - m, m, m > 0 ? A.cell(h, m) : S::zero());
    }
    BARRIER();
    in.run(n, single_root);
    const S z = in.R.cell(n, 0);
    if (must_prove && is_zero(z.primal())) return false;
    double mine = 1.;
    outside.run(in, n, single_root, inverse(z), [&](int d, int i, bool right, T v) INLINED {
      T x = in.L.get(d - 1, i + 1);
      for (int t = 1; t < d; ++t) x.mac(in.R.get(t, i), in.L.get(d - 1 - t, i + t + 1));
      double lanes[T::planes * W];
      (x.normal() * v).store(lanes, W);
      for (int l = 0; l < W && i + l + d <= n; ++l) {
        const int a = i + l, b = a + d, h = right ? a : b, m = right ? b : a;
        if (m == 0) continue;
        const S found = S::load(lanes + l, W);
        rest.put_cell(h, m, found);
        if (DOUBLES) mine = fmin(mine, size_of(found));
      }
    });
    if (!must_prove) return true;
    mine = team_reduce(mine, Least{});
    // see proven(): the loss, against what is least
    const double room = T::order > 0 ? -350. : -600.;
    return log(size_of(z)) - spread.log_bound + log(mine) > room + 3. * log((double)n + 1.);
  }

  // After run(): by(h, m, derivative by the log of a weight) of the sum over all h, m of along(h, m) rest(h, m). rest are
  // first derivatives of Z, and second ones are symmetric: so it is what rest(h, m) change by along that direction.
  template <class By>
  DEVICE bool back(const Table<T>& A, const Table<T>& along, int single_root, bool must_prove, Spread spread, By by) {
    typedef Dual<T> D;
    const Table<D> weights = tree_table<D>(work, n), changed = tree_table<D>(work, n);
    LANES(k, (n + 1) * (n + 1)) {
      const int h = k / (n + 1), m = k % (n + 1);
      weights.put_cell(h, m, m > 0 && h != m ? Dual<S>{A.cell(h, m), along.cell(h, m)} : Dual<S>::zero());
    }
#if !ON_GPU
    for (int h = 0; h <= n; ++h)
      for (int m = n + 1; m < weights.row; ++m) weights.put_cell(h, m, Dual<S>::zero());
#endif
    BARRIER();
    Spans<D> trees(work, n, true);
    if (!trees.run(weights, changed, single_root, must_prove, spread)) return false;
    BARRIER();
    LANES(flat, (n + 1) * (n + 1)) {
      const int h = flat / (n + 1), m = flat % (n + 1);
      if (m > 0 && h != m) by(h, m, in_double(A.cell(h, m) * changed.cell(h, m).b));
    }
    return true;
  }
  static DEVICE S inverse(S z) {
    if (T::sums && !is_zero(z)) {
      if constexpr (T::order > 0) return S{z.a.inverse(), decltype(z.a)::zero()};
      else if constexpr (T::sums) return z.inverse();
    }
    return S::one();  // also if a link that is forbidden is in all trees
  }
};
