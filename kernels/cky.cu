// Binary trees of a grammar: log Z, the probabilities of all parts and their directional derivatives by inside and
// outside, in O(n^3 R) time.
#include "cky.cuh"

// The outside pass: derivatives of log Z by the inside cells, each cell pulling from the spans that used it. `up` holds
// them multiplied by the cell's own span weight: what its children need.
template <class T, class In> struct CkyOutside {
  const CkyInside<T, In>& c;
  Cells<T> up;
  T per_z;
  DEVICE CkyOutside(double*& work, const CkyInside<T, In>& c)
      : c(c), up(work, c.n, c.g.S), per_z(T::lift(c.total().inverse())) {
    BARRIER();
  }

  // put(s, d, i, v): v is the derivative of log Z by the score of the cell's tag or span
  template <class Put> DEVICE void run(Put put) {
    const Rules g = c.g;
    const int n = c.n;
    const Order lefts = g.by(1), rights = g.by(2);
    for (int d = n; d >= 1; --d) {
      ROWS_PACKS(a, g.many(d), i, n + 1 - d) {
        const int s = g.first(d) + a;
        T o = T::zero();
        if (d == n) o = T::pick(lane_is(i, 0), c.roots.all(s) * per_z, T::zero());
        for (int k = lefts.start[s]; k < lefts.start[s + 1] && d < n; ++k) {
          const int A = lefts.one[k], other = lefts.other[k];
          T y = T::zero();
          const int far = other < g.T ? 1 : n - d - i;
          for (int e = other < g.T ? 1 : 2; e <= far; ++e) y.mac(up.get(A, d + e, i), c.in.get(other, e, i + d));
          o.mac(c.rules.all(lefts.rule[k]), y.normal());
        }
        const int most = n - d < i + W - 1 ? n - d : i + W - 1;
        for (int k = rights.start[s]; k < rights.start[s + 1] && d < n; ++k) {
          const int A = rights.one[k], other = rights.other[k];
          T y = T::zero();
          const int far = other < g.T && most > 1 ? 1 : most;
          for (int e = other < g.T ? 1 : 2; e <= far; ++e) y.mac(up.get(A, d + e, i - e), c.in.get(other, e, i - e));
          o.mac(c.rules.all(rights.rule[k]), y.normal());
        }
        o = o.normal();
        put(s, d, i, o * c.in.get(s, d, i));
        if (d > 1) up.put(s, d, i, n, c.x.spans ? (o * c.span(s, d, i)).normal() : o);
      }
      BARRIER();
    }
  }

  // The derivative by the score of a rule; one lane does one.
  DEVICE auto count(int r) const {
    const Rules g = c.g;
    const int A = g.at[r], left = g.at[g.R + r], right = g.at[2 * g.R + r];
    T sum = T::zero();
    for (int w = left < g.T && right < g.T ? 2 : 3; w <= c.n; ++w) {
      for (int i = 0; i <= c.n - w; i += W) sum.mac(up.get(A, w, i), c.splits(left, right, w, i).normal());
      sum = sum.normal();
      if (left < g.T && right < g.T) break;
    }
    const auto x = (sum * c.rules.all(r)).top();
    decltype(lane_of(x, 0)) total = 0;
    for (int l = 0; l < W; ++l) total += lane_of(x, l);
    return total;
  }
};

template <class T, class In>
DEVICE bool sum_trees(Rules g, Parts<In> x, Parts<In> u, Parts<In> v, Results<In, 4> results, double* work, int N, int n,
                      bool must_prove) {
  CkyInside<T, In> c(work, g, x, u, v, N, n);
  const Found z = c.fill(must_prove);
  if (!results.take(z)) return z.enough;
  In *tags = results.out[0], *rules = results.out[1], *roots = results.out[2], *spans = results.out[3];
  CkyOutside<T, In> outside(work, c);
  outside.run([&](int s, int d, int i, T value) {
    if (d > 1 && !spans) return;
    const auto y = value.top();
    for (int l = 0; l < W && i + l + d <= n; ++l) {
      if (d == 1) tags[(i64)(i + l) * g.T + s] = (In)lane_of(y, l);
      else spans[((i64)(i + l) * N + i + l + d - 1) * g.S + s] = (In)lane_of(y, l);
    }
  });
  const auto per_z = c.total().inverse();
  LANES(k, g.many(n)) roots[g.first(n) + k] = (In)(c.at_root(g.first(n) + k) * per_z).top();
  LANES(r, g.R) rules[r] = (In)outside.count(r);
  return true;
}

// order 0: logz [B], and if out is not null the probabilities of tags [B, N, T], the expected numbers of rules [B, R],
// the probabilities of roots [B, S] and, if there are scores of spans, of spans [B, N, N, S]; order 1: their
// derivatives along u; order 2: those along u and v. A sentence without any tree: -inf and zeros. Parts of u and v may
// be null: zeros.
template <class In, int order>
KERNEL cky(const In* tags, const In* rules, const In* roots, const In* spans, const In* u_tags, const In* u_rules,
           const In* u_roots, const In* u_spans, const In* v_tags, const In* v_rules, const In* v_roots,
           const In* v_spans, const int* grammar, const i64* lengths, double* logz, In* out_tags, In* out_rules,
           In* out_roots, In* out_spans, double* work, i64 work_size, int B, int N, int S, int T, int R) {
  const Rules g{grammar, S, T, R};
  double* mine = work + SLOT * work_size;
  const Results<In, 4> all{logz, {out_tags, out_rules, out_roots, out_spans}, {(i64)N * T, R, S, (i64)N * N * S}};
  sum_each<order>(all, lengths, B, N + 1, [&](auto numbers, bool must_prove, i64 b, int n, auto results) INLINED {
    const Parts<In> x = Parts<In>{tags, rules, roots, spans}.at(b, N, g),
                    du = Parts<In>{u_tags, u_rules, u_roots, u_spans}.at(b, N, g),
                    dv = Parts<In>{v_tags, v_rules, v_roots, v_spans}.at(b, N, g);
    return sum_trees<ALGEBRA(numbers)>(g, x, du, dv, results, mine, N, n, must_prove);
  });
}

EXPORT_ORDERS(cky)
