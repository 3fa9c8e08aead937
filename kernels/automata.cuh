// A head automaton (Koo et al. 2010): node p of a sentence, its best head g and its best children.
//
// Without siblings: for each g, the sum over c of what is positive of
//
//   w_g(c) = down(p, c) + grandparents(g, p, c),     never of c = g.
//
// With siblings a chain on each side of p, going outward, from the first child to the last:
//
//   f_g(m) = w_g(m) + max(siblings(p, p, m), max over s between p and m of f_g(s) + siblings(p, s, m)),
//
// for W heads at once, side by side. Not all heads are tried. Chains of g are not above the sum over c of what is
// positive of w_g(c) + max over s of siblings(p, s, c): the chains are computed of W heads with the greatest bounds,
// then of those whose bounds are not below the best of these. Without grandparents the best chains of all serve every
// head that is no child in them.
#pragma once
#include "viterbi.cuh"

constexpr int SUMS = 8;  // a sum is that of c = 0, 8, .. and of c = 1, 9, .. and so on: the same on every machine

// A lane of a pack; a number in all of them; the numbers c, c + 1, .. in them; from[l][m] in lane l; of the sums and
// the greatest numbers of c = 0, 8, .. and so on, those of all c.
#if ON_GPU
DEVICE double lane_at(double x, int) { return x; }
DEVICE double in_all(double x) { return x; }
DEVICE double numbers(int c) { return (double)c; }
template <class In> DEVICE double each_at(const In* const* from, int m) { return (double)from[0][m]; }
#else
DEVICE double lane_at(Pack x, int l) { return x[l]; }
#if defined(__AVX512F__)
DEVICE Pack in_all(double x) { return Pack{x, x, x, x, x, x, x, x}; }
#else
DEVICE Pack in_all(double x) { return Pack{x, x, x, x}; }
#endif
DEVICE Pack numbers(int c) {
#if defined(__AVX512F__)
  return Pack{0, 1, 2, 3, 4, 5, 6, 7} + (double)c;
#else
  return Pack{0, 1, 2, 3} + (double)c;
#endif
}
template <class In> DEVICE Pack each_at(const In* const* from, int m) {
#if defined(__AVX512F__)
  return Pack{(double)from[0][m], (double)from[1][m], (double)from[2][m], (double)from[3][m],
              (double)from[4][m], (double)from[5][m], (double)from[6][m], (double)from[7][m]};
#else
  return Pack{(double)from[0][m], (double)from[1][m], (double)from[2][m], (double)from[3][m]};
#endif
}
#endif
DEVICE double sum_of(const Pack* sums) {
#if !ON_GPU && defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
  const __m512d x = (__m512d)sums[0];
  const __m256d half = _mm512_castpd512_pd256(x) + _mm512_extractf64x4_pd(x, 1);
  const __m128d quarter = _mm256_castpd256_pd128(half) + _mm256_extractf128_pd(half, 1);
  return quarter[0] + quarter[1];
#else
  double sum[SUMS];
#pragma GCC unroll 8
  for (int k = 0; k < SUMS; ++k) sum[k] = lane_at(sums[k / W], k % W);
#pragma GCC unroll 8
  for (int half = SUMS / 2; half; half /= 2)
#pragma GCC unroll 8
    for (int l = 0; l < half; ++l) sum[l] += sum[l + half];
  return sum[0];
#endif
}
DEVICE double top_of(const Pack* tops) {
  Pack top = tops[0];
#pragma GCC unroll 8
  for (int k = 1; k < SUMS / W; ++k) top = larger(tops[k], top);
#if ON_GPU
  return top;
#else
  return largest(top);
#endif
}

// Rooms of a node. Doubles, in rows of `wide`: down(p, .), that with the most of siblings, bounds by g, values by place
// (before that: how large the numbers are that bounds are made of), chains [N] by place; and the best value. Ints: the
// heads in their places [wide], how many places, the best head, its place, whether it is as it was. The first W places
// are for the first W heads.
DEVICE i64 wide_of(int N) { return (N + 7) / 8 * 8 + 8; }
DEVICE i64 doubles_of(int N) { return (N + 4) * wide_of(N) + 8; }
DEVICE i64 ints_of(int N) { return wide_of(N) + 8; }

template <class In> struct Automaton {
  const double *down, *up;
  const In *siblings, *grandparents;
  int p, n, N;
  bool one;  // exactly one child: of node 0 alone
  i64 wide;
  double *row, *gain, *bounds, *worth, *sizes, *chains, *best;
  int *list, *count, *head, *place, *old;
  unsigned char* children;

  DEVICE Automaton(const double* down, const double* up, const In* siblings, const In* grandparents, int p, int n,
                   int N, bool single_root, double* work, int* ints, unsigned char* children)
      : down(down), up(p ? up : nullptr), siblings(siblings), grandparents(p ? grandparents : nullptr), p(p), n(n),
        N(N), one(p == 0 && single_root), wide(wide_of(N)), row(work), gain(row + wide), bounds(gain + wide),
        worth(bounds + wide), sizes(worth), chains(worth + wide), best(chains + N * wide), list(ints),
        count(ints + wide), head(count + 1), place(count + 2), old(count + 3),
        children(children) {}

  DEVICE i64 at(int i, int j) const { return (i64)i * N + j; }
  DEVICE double beside(int s, int m) const { return (double)siblings[at(p, s) * N + m]; }
  DEVICE double of_head(int g) const { return up ? up[at(g, p)] : 0.; }
  DEVICE bool headless() const { return !up && !grandparents; }
  // Side by side what is read together: on a GPU chains of all places, on a CPU those of a pack of places to all m.
#if ON_GPU
  DEVICE i64 stride() const { return wide; }
  DEVICE double* chain(int m, int i) const { return chains + m * wide + i; }
#else
  DEVICE i64 stride() const { return W; }
  DEVICE double* chain(int m, int i) const { return chains + ((i64)(i / W) * N + m) * W + i % W; }
#endif

  // Whether what is read of `down` and `up` is equal to others.
  DEVICE bool is_as(const double* other_down, const double* other_up) const {
    int same = 1;
    for (int c = 1; c <= n; ++c) same &= c == p || down[at(p, c)] == other_down[at(p, c)];
    if (up)
      for (int g = 0; g <= n; ++g) same &= g == p || up[at(g, p)] == other_up[at(g, p)];
    return same;
  }

  // The scores of this node on their way, while another one is worked on.
  DEVICE void prefetch() const {
#if !ON_GPU
    constexpr int LINE = 64 / sizeof(In);
    const auto get = [](const In* from, const In* to) {
      for (; from < to; from += LINE) __builtin_prefetch(from);
    };
    if (siblings)
      for (int s = p ? 2 : 0; s <= n; ++s) {
        const In* const from = siblings + at(p, s) * N;
        if (s <= p) get(from + 1, from + s);
        if (s >= p && !one) get(from + s + 1, from + n + 1);
      }
    if (grandparents)
      for (int g = 0; g <= n; ++g) get(grandparents + at(g, p) * N + 1, grandparents + at(g, p) * N + n + 1);
#endif
  }

  // A pack of `row` and `gain`: -inf where there is no child.
  DEVICE void prepare(int c) const {
    const Pack none = in_all(-infinity()), number = numbers(c);
    Pack d = some(down + at(p, c), n + 1 - c, -infinity());
    d = choose(number == in_all(0), none, choose(number == in_all(p), none, d));
    unpack(row + c, d);
    if (!siblings || !grandparents) return unpack(gain + c, d);
    const auto beside_all = [&](int s) { return some(siblings + at(p, s) * N + c, n + 1 - c, -infinity()); };
    Pack most = beside_all(p);
    for (int s = p + 1; s < n && s < c + W - 1; ++s)
      most = choose(number > in_all(s), larger(beside_all(s), most), most);
    for (int s = p - 1; s > c; --s) most = choose(number < in_all(s), larger(beside_all(s), most), most);
    unpack(gain + c, d + most);
    unpack(sizes + c, size_of(d) + size_of(d + most));
  }

  // Without siblings the value of head g (-1: none, kept in place 0), else its bound, rounding included.
  DEVICE void weigh(int g) const {
    const double u = g < 0 ? 0. : of_head(g);
    double* const to = bounds + (g < 0 ? 0 : g);
    if (g == p || !(u > -infinity())) {
      *to = -infinity();
      return;
    }
    Pack sums[SUMS / W], tops[SUMS / W];
#pragma GCC unroll 8
    for (int k = 0; k < SUMS / W; ++k) sums[k] = tops[k] = in_all(0);
    for (int from = 0; from <= n; from += SUMS)
#pragma GCC unroll 8
      for (int k = 0; k < SUMS / W; ++k) {
        const int c = from + k * W;
        if (c > n) continue;
        Pack x = pack(gain + c), more = in_all(0);
        if (grandparents) more = some(grandparents + at(g, p) * N + c, n + 1 - c, 0.);
        x = x + more;
        x = choose(numbers(c) == in_all(g), in_all(-infinity()), x);
        sums[k] = sums[k] + choose(x > in_all(0), x, in_all(0));
        if (siblings) {
          const Pack size = pack(sizes + c) + size_of(more);
          tops[k] = choose(x > in_all(-infinity()), larger(size, tops[k]), tops[k]);
        }
      }
    const double sum = sum_of(sums), top = siblings ? top_of(tops) : 0.;
    // A chain is at most 4n additions of numbers not above 4 sums and the greatest weight: twice that is safe.
    const double slack = (8. * n + 32.) * 2.220446049250313e-16 * (4. * (sum + top) + (u < 0 ? -u : u));
    *to = u + sum + (siblings ? slack : 0.);
  }
  static DEVICE Pack size_of(Pack x) { return choose(x < in_all(0), -x, x); }

  // The first W heads: those of the greatest bounds. Their bounds are -inf from then on.
  DEVICE void choose_first() const {
    if (!grandparents) {
      for (int l = 0; l < W; ++l) list[l] = -1;
      *count = 1;
      return;
    }
    int some_ = 0;
    double top[W];
    for (int g = 0; g <= n; ++g) {
      const double x = bounds[g];
      if (!(x > -infinity()) || (some_ == W && !(x > top[W - 1]))) continue;
      int to = some_ < W ? some_++ : W - 1;
      for (; to && x > top[to - 1]; --to) top[to] = top[to - 1], list[to] = list[to - 1];
      top[to] = x, list[to] = g;
    }
    for (int l = 0; l < some_; ++l) bounds[list[l]] = -infinity();
    for (int l = some_; l < W; ++l) list[l] = some_ ? list[some_ - 1] : -1;
    *count = some_;
  }

  // The heads of a pack of places, and where their grandparents are.
  struct Heads {
    Pack g;
    const In* from[W];
  };
  DEVICE Heads heads(int i) const {
    Heads they;
    double lanes[W];
#pragma GCC unroll 8
    for (int l = 0; l < W; ++l) {
      lanes[l] = list[i + l];
      they.from[l] = grandparents + at(list[i + l], p) * N;
    }
    they.g = pack(lanes);
    return they;
  }

  // Weights of child m under them.
  DEVICE Pack weights(int m, const Heads& they) const {
    Pack x = in_all(row[m]);
    if (grandparents) x = x + each_at(they.from, m);
    return choose(they.g == in_all(m), in_all(-infinity()), x);
  }

  // One side of p, P packs of places at once: the chains to m, which lies `step` after the last one. Their greatest,
  // or 0, is `top`.
  template <int step, int P> DEVICE void side(int i, const Heads* they, Pack* top) const {
    constexpr int A = 4 / P;
    const Pack none = in_all(-infinity());
    Pack last[P], acc[P][A];
#pragma GCC unroll 4
    for (int k = 0; k < P; ++k) top[k] = in_all(0), last[k] = none;
    const i64 next = step * stride(), below = (i64)step * N, apart = chain(0, W) - chain(0, 0);
    for (int m = p + step; m >= 1 && m <= n; m += step) {
#pragma GCC unroll 4
      for (int k = 0; k < P; ++k)
#pragma GCC unroll 4
        for (int a = 0; a < A; ++a) acc[k][a] = a ? none : in_all(beside(p, m));
      int left = (m - p) * step - 2;
      const double* f = chain(p + step, i);
      const In* s = siblings + at(p, p + step) * N + m;
      for (; left >= A; left -= A, f += A * next, s += A * below)
#pragma GCC unroll 4
        for (int a = 0; a < A; ++a) {
          const Pack beside_ = in_all((double)s[a * below]);
#pragma GCC unroll 4
          for (int k = 0; k < P; ++k) acc[k][a] = larger(pack(f + a * next + k * apart) + beside_, acc[k][a]);
        }
      for (; left > 0; --left, f += next, s += below)
#pragma GCC unroll 4
        for (int k = 0; k < P; ++k)
          acc[k][A - 1] = larger(pack(f + k * apart) + in_all((double)*s), acc[k][A - 1]);
#pragma GCC unroll 4
      for (int k = 0; k < P; ++k) {
        Pack most = acc[k][0];
#pragma GCC unroll 4
        for (int a = 1; a < A; ++a) most = larger(acc[k][a], most);
        if (m != p + step) most = larger(last[k] + in_all((double)*s), most);  // last, for it is waited for
        last[k] = weights(m, they[k]) + most;
        unpack(chain(m, i) + k * apart, last[k]);
        top[k] = larger(last[k], top[k]);
      }
    }
  }

  // Chains and values of P packs of places.
  template <int P> APART void run(int i) const {
    Heads they[P];
    Pack left[P], right[P];
#pragma GCC unroll 4
    for (int k = 0; k < P; ++k) they[k] = heads(i + k * W);
    side<-1, P>(i, they, left);
    side<1, P>(i, they, right);
#pragma GCC unroll 4
    for (int k = 0; k < P; ++k)
      for (int l = 0; l < W; ++l) {
        const int at = i + k * W + l;
        worth[at] = (list[at] < 0 ? 0. : of_head(list[at])) + lane_at(left[k] + right[k], l);
      }
  }

  DEVICE void take(double value, int g, int i) const {
    if (!(value > *best || (value == *best && value > -infinity() && g < *head))) return;
    *best = value, *head = g, *place = i;
  }

  // What the first W places tell: the best of them, and which other heads are to be tried.
  DEVICE void judge() const {
    *best = -infinity(), *head = -1, *place = 0;
    if (grandparents) {
      for (int i = 0; i < *count; ++i) take(worth[i], list[i], i);
      if (*count < W) return;  // these were all
      int next = W;
      for (int g = 0; g <= n; ++g)
        if (bounds[g] > -infinity() && bounds[g] >= *best) list[next++] = g;
      fill(next);
      return;
    }
    const double most = worth[0];
    if (headless()) {
      *best = most;
      return;
    }
    unwind(0);
    for (int g = 0; g <= n; ++g)
      if (g != p && !children[g]) take(up[at(g, p)] + most, g, 0);
    int next = W;
    for (int g = 1; g <= n; ++g) {
      const double value = up[at(g, p)] + most;
      if (children[g] && (value > *best || (value == *best && value > -infinity() && g < *head))) list[next++] = g;
    }
    fill(next);
  }
  DEVICE void fill(int next) const {
    *count = next;
    for (int i = next; i % W; ++i) list[i] = list[next - 1];
  }

  // The first W heads and what they tell.
  DEVICE void begin() const {
    choose_first();
    if (*count) run<1>(0);
    judge();
  }

  // The children in the chains of a place. Of equals: the first to end, the nearest sibling, none at all.
  template <int step> DEVICE void unwind_side(int i) const {
    double top = 0;
    int last = p;
    for (int m = p + step; m >= 1 && m <= n; m += step)
      if (*chain(m, i) > top) top = *chain(m, i), last = m;
    while (last != p) {
      children[last] = 1;
      int before = p;
      double most = beside(p, last);
      for (int s = p + step; s != last; s += step) {
        const double x = *chain(s, i) + beside(s, last);
        if (x > most) most = x, before = s;
      }
      last = before;
    }
  }
  DEVICE void unwind(int i) const {
    for (int c = 0; c < N; ++c) children[c] = 0;
    unwind_side<-1>(i);
    unwind_side<1>(i);
  }

  DEVICE void finish(i64* chosen, double* value) const {
    if (siblings && !one) {
      for (int i = W; i < *count; ++i) take(worth[i], list[i], i);
      if (*best > -infinity()) unwind(*place);
      else for (int c = 0; c < N; ++c) children[c] = 0;
    } else {
      *best = -infinity(), *head = -1;
      int child = 0;
      if (one) {
        for (int m = 1; m <= n; ++m) {
          const double x = row[m] + (siblings ? beside(0, m) : 0.);
          if (x > *best) *best = x, child = m;
        }
      } else if (headless()) {
        *best = bounds[0];
      } else {
        for (int g = 0; g <= n; ++g)
          if (bounds[g] > *best) *best = bounds[g], *head = g;
      }
      const int g = *head;
      const bool any = !one && *best > -infinity();
      children[0] = 0;
      for (int c = 1; c < N; ++c) {
        bool is = c == child;
        if (any && c <= n && c != p && c != g)
          is = row[c] + (g >= 0 && grandparents ? (double)grandparents[at(g, p) * N + c] : 0.) > 0;
        children[c] = is;
      }
    }
    *chosen = *head;
    *value = *best;
  }
};
