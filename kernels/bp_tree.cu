// TREE and PTREE of belief propagation: messages that say the links are a tree, and the way back.
#include "bp_tree.cuh"

// What came in of a sentence's links, and the weights of heads by it: those of a word's greatest is 1.
struct Choices {
  double *q, *top, *demanded;  // log-odds [N, N]; by word: the log of its weights' shift, how many heads are demanded
  int N, n;
  static DEVICE i64 room(int N) { return (i64)N * N + 2 * N; }
  DEVICE Choices(double* work, int N, int n) : q(work), top(work + (i64)N * N), demanded(top + N), N(N), n(n) {}
  DEVICE bool link(int h, int m) const { return m > 0 && h != m; }
  DEVICE double odds(int h, int m) const { return q[(i64)h * N + m]; }

  DEVICE Mask links(int h, int m) const {  // of words m and on
    return lanes_below(m, n + 1) & ~lane_is(m, 0) & ~lane_is(m, h);
  }
  DEVICE Spread load(const Sums& sums, const double* own, double shift, bool is_sum) const {
    ROWS_PACKS(h, N, m, N) {
      const i64 row = (i64)h * N;
      put_pack(q + row, m, N, sums.packs_without(row, m, N, scores_at(own + row, m, N)));
    }
    BARRIER();
    const Pack none = splat<Pack>(-infinity()), all = splat<Pack>(infinity()), one = splat<Pack>(1.);
    double holes = 0., reach = 0., bound = 0.;
    PACKS(m, n + 1) {
      Pack most = none, least = all, count = Pack{}, missing = Pack{}, sum = Pack{};
      for (int h = 0; h <= n; ++h) {
        const Pack x = scores_at(q + (i64)h * N, m, n + 1);
        const Mask link = links(h, m), finite = link & (x > none) & (x < all);
        count += choose(link & (x == all), one, Pack{});
        missing += choose(link & (x == none), one, Pack{});
        most = choose(finite & (x > most), x, most);
        least = choose(finite & (x < least), x, least);
      }
      const Mask some = most > none;
      const Pack base = choose(some, is_sum ? most + shift : Pack{}, Pack{});
      put_pack(top, m, n + 1, base);
      put_pack(demanded, m, n + 1, count);
      if (is_sum)
        for (int h = 0; h <= n; ++h) {
          const Pack x = scores_at(q + (i64)h * N, m, n + 1);
          sum += choose(links(h, m) & (x < all), exp_in_range(x - base), Pack{});
        }
      const Pack low = choose(some, least - base, Pack{}), high = log_quotient(choose(sum > one, sum, one), one);
      for (int l = 0; l < W && m + l <= n; ++l) {
        holes += lane_of(count, l) + lane_of(missing, l);
        reach = fmin(reach, lane_of(low, l));
        bound += lane_of(high, l);
      }
    }
    holes = team_reduce(holes, Plus{});
    reach = team_reduce(reach, Least{});
    return Spread{holes == 0., reach, team_reduce(bound, Plus{})};
  }
  // whether no head of the words m and on is demanded
  DEVICE bool is_free(int m) const { return !any(lanes_below(m, n + 1) & (scores_at(demanded, m, n + 1) > Pack{})); }
  // log weights of h -> m: of one head of m; and in sums over its other heads, whatever is demanded
  DEVICE double in_tree(int h, int m) const {
    const double x = odds(h, m), none = -infinity();
    if (!link(h, m)) return none;
    if (demanded[m] > 0.) return x == infinity() && demanded[m] == 1. ? 0. : none;
    return x - top[m];
  }
  DEVICE double in_sum(int h, int m) const {
    const double x = odds(h, m);
    return link(h, m) && x < infinity() ? x - top[m] : -infinity();
  }
  // the message, by the sums with a link and with the others
  template <class S> DEVICE double message(int h, int m, S with, S without, S w, bool heads) const {
    if (heads) {  // as one value of the word's head, whatever came in of it
      const S all = with * w + without;
      return is_zero(with) ? -infinity() : is_zero(all) ? log_of(with) : log_ratio(with, all) - top[m];
    }
    if (demanded[m] - (odds(h, m) == infinity()) > 0.) return -infinity();
    return is_zero(with) && is_zero(without) ? 0. : log_odds(with, without) - top[m];
  }
};

template <class T> DEVICE void put_weights(const Choices& given, const Table<T>& A, int n) {
  ROWS_PACKS(h, n + 1, m, n + 1) {
    Pack x;
#if ON_GPU
    x = given.in_tree(h, m);
#else
    x = splat<Pack>(-infinity());
    const Pack odds = scores_at(given.q + (i64)h * given.N, m, n + 1), top = scores_at(given.top, m, n + 1);
    if (given.is_free(m)) x = choose(given.links(h, m), odds - top, x);
    else for (int l = 0; l < W && m + l <= n; ++l) x[l] = given.in_tree(h, m + l);
#endif
    A.put(h, m, weigh<T>(x));
  }
}

// For word m, over its heads: each(h, weight in sums, sum with h, sums over the other heads).
template <class T, class Each>
DEVICE void over_heads(const Choices& given, const Table<T>& A, const Table<T>& rest, const Table<T>& tails, int n, int m,
                       Each each) {
  typedef typename T::Scalar S;
  const auto weight = [&](int h) INLINED {
    return given.demanded[m] > 0. ? weigh<S>(given.in_sum(h, m)) : A.cell(h, m);
  };
  S sum = S::zero();
  for (int h = n; h >= 0; --h) {
    tails.put_cell(h, m, sum);
    if (given.link(h, m)) sum = sum + weight(h) * rest.cell(h, m);
  }
  sum = S::zero();
  for (int h = 0; h <= n; ++h) {
    if (!given.link(h, m)) continue;
    const S w = weight(h), with = rest.cell(h, m);
    each(h, w, with, sum + tails.cell(h, m));
    sum = sum + w * with;
  }
}

#if !ON_GPU
// The messages about all heads of the words m and on, none of which is demanded; false if some are out of range.
DEVICE bool put_messages(const Choices& given, const Table<Lin<Pack>>& A, const Table<Lin<Pack>>& rest,
                         const Table<Lin<Pack>>& tails, int m, bool heads, double* out) {
  const int n = given.n;
  const Pack top = scores_at(given.top, m, n + 1), one = splat<Pack>(1.), none = splat<Pack>(-infinity());
  Pack sum = Pack{};
  for (int h = n; h >= 0; --h) {
    tails.put(h, m, Lin<Pack>{sum});
    sum += A.get(h, m).v * rest.get(h, m).v;
  }
  const Pack all = sum;
  if (heads && any(lanes_below(m, n + 1) & ~lanes_below(m, 1) & (all == Pack{}))) return false;
  sum = Pack{};
  for (int h = 0; h <= n; ++h) {
    const Mask link = given.links(h, m);
    const Pack with = choose(link, rest.get(h, m).v, one);
    const Pack without = choose(link, heads ? all : sum + tails.get(h, m).v, one);
    const auto fits = [](Pack x) INLINED { return (x == Pack{}) | ((x > splat<Pack>(1e-300)) & (x < splat<Pack>(1e300))); };
    if (any(~(fits(with) & fits(without)))) return false;
    const Mask some = with > Pack{}, others = without > Pack{};
    const Pack ratio = log_quotient(choose(some, with, one), choose(others, without, one)) - top;
    const Pack found = choose(some, choose(others, ratio, -none), choose(others, none, Pack{}));
    put_pack(out + (i64)h * given.N, m, n + 1, choose(link, found, Pack{}));
    sum += A.get(h, m).v * rest.get(h, m).v;
  }
  return true;
}
#endif

// The messages [N, N].
template <class T, template <class> class Trees>
DEVICE bool messages(const Choices& given, Spread spread, double* work, int single_root, bool heads, bool must_prove,
                     double* out) {
  const int n = given.n;
  const Table<T> A = tree_table<T>(work, n), rest = tree_table<T>(work, n), tails = tree_table<T>(work, n);
  put_weights(given, A, n);
  BARRIER();
  Trees<T> trees(work, n, false);
  if (!trees.run(A, rest, single_root, must_prove, spread)) return false;
  BARRIER();
  typedef typename T::Scalar S;
  const auto one_by_one = [&](int m) INLINED {
    if (m > 0) over_heads(given, A, rest, tails, n, m, [&](int h, S w, S with, S without) INLINED {
      out[(i64)h * given.N + m] = given.message(h, m, with, without, w, heads);
    });
  };
#if !ON_GPU
  if constexpr (T::sums && T::planes == 1) {
    PACKS(m, n + 1) {
      if (given.is_free(m) && put_messages(given, A, rest, tails, m, heads, out)) continue;
      for (int l = 0; l < W && m + l <= n; ++l) one_by_one(m + l);
    }
    return true;
  }
#endif
  LANES(m, n + 1) one_by_one(m);
  return true;
}

// The derivatives by what came in, found [N, N], by those of the messages, g. With u the sums with a link and v those with
// the word's others, a message is log u - log v: so they are those of the sum of along u, along being the derivatives by u,
// g / u - w (sum over the word's other links of g / v), and what the weights w in v themselves do. Of heads as variables it is
// log u - log (w u + v): that of links with g v / (w u + v) in the place of g, less g w u / (w u + v) by the link's own weight.
template <class T, template <class> class Trees>
DEVICE bool back(const Choices& given, Spread spread, double* work, int single_root, bool heads, bool must_prove,
                 double* found, const double* own, const Back& g, double* mixed, double share) {
  typedef typename T::Scalar S;
  const int n = given.n, N = given.N;
  if (must_prove && spread.reach < -150.) return false;
  const Table<T> A = tree_table<T>(work, n), rest = tree_table<T>(work, n), tails = tree_table<T>(work, n),
                 along = tree_table<T>(work, n), parts = tree_table<T>(work, n);
  put_weights(given, A, n);
  BARRIER();
  Trees<T> trees(work, n, true);
  if (!trees.run(A, rest, single_root, must_prove, spread)) return false;
  BARRIER();
  double least = 1.;
  LANES(m, n + 1) if (m > 0) {
    over_heads(given, A, rest, tails, n, m, [&](int h, S w, S with, S without) INLINED {
      const double message = given.message(h, m, with, without, w, heads);
      const double sent = Undamp{g, own + (i64)h * N, mixed, (i64)h * N, share}(m, message);
      double now = is_zero(with) ? 0. : sent;  // with neither, the message is 0 whatever comes in
      if (heads) {
        const S all = with * w + without;
        const double others = is_zero(all) ? 1. : quotient(without, all);
        found[(i64)h * N + m] = is_zero(all) ? 0. : -now * quotient(with * w, all);
        parts.put_cell(h, m, now == 0. || is_zero(all) ? S::zero() : all.inverse().scaled(now));
        now *= others;
      } else parts.put_cell(h, m, now == 0. ? S::zero() : without.inverse().scaled(now));
      along.put_cell(h, m, now == 0. ? S::zero() : with.inverse().scaled(now));
      if (must_prove && now != 0.) least = fmin(least, fmin(size_of(with), fmin(size_of(without), 1. / size_of(with))));
    });
    // the sum of the other links' parts
    S sum = S::zero();
    for (int h = n; h >= 0; --h) {
      tails.put_cell(h, m, sum);
      if (given.link(h, m)) sum = sum + parts.cell(h, m);
    }
    sum = S::zero();
    for (int h = 0; h <= n; ++h) {
      if (!given.link(h, m)) { along.put_cell(h, m, S::zero()); continue; }
      const S w = given.demanded[m] > 0. ? weigh<S>(given.in_sum(h, m)) : A.cell(h, m);
      const S others = w * (sum + tails.cell(h, m)), u = rest.cell(h, m);
      along.put_cell(h, m, is_zero(u) ? S::zero() : along.cell(h, m) + others.scaled(-1.));
      found[(i64)h * N + m] = (heads ? found[(i64)h * N + m] : 0.) - in_double(others * u);
      sum = sum + parts.cell(h, m);
    }
  }
  if (must_prove && !(team_reduce(least, Least{}) > 1e-100)) return false;
  BARRIER();
  return trees.back(A, along, single_root, must_prove, spread, [&](int h, int m, double by) INLINED {
    if (given.demanded[m] == 0.) found[(i64)h * N + m] += by;
  });
}

// Both with fast numbers and, where these prove too little, with safe ones.
template <template <class> class Trees>
DEVICE void messages_of(const Choices& given, Spread spread, double* work, int single_root, bool heads, double* found) {
  fast_then_safe<Tried<double, 0>>([&](auto numbers, bool must_prove) INLINED {
    return messages<ALGEBRA(numbers), Trees>(given, spread, work, single_root, heads, must_prove, found);
  });
}
template <template <class> class Trees>
DEVICE void back_of(const Choices& given, Spread spread, double* work, int single_root, bool heads, double* found,
                    const double* own, const Back& g, double* mixed, double share) {
  fast_then_safe<Tried<double, 0>>([&](auto numbers, bool must_prove) INLINED {
    return back<ALGEBRA(numbers), Trees>(given, spread, work, single_root, heads, must_prove, found, own, g, mixed, share);
  });
}

// order 0: totals [3, B, N, N], own and out [B, N, N], parts [3, B, N, N]; order 1: out and parts are derivatives by these,
// those by totals and own are put into the next two.
template <class In, int order>
KERNEL bp_tree(const double* totals, const double* own, const bool* frozen, const i64* lengths, double* out, double* parts,
               double* d_totals, double* d_own, double* work, i64 work_size, double share, int projective, int single_root,
               int heads, int maximise, int B, int N) {
  const i64 square = (i64)N * N;
  double *found = work + SLOT * work_size, *mixed = found + square, *room = mixed + square;
  double* rest = room + Choices::room(N) + PAD;
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N);
    const Choices given(room, N, n);
    const Sums sums(totals, b, B, square);
    const double* mine = own + b * square;
    const bool still = frozen && frozen[b];
    BARRIER();
    LANES(k, (int)square) found[k] = mixed[k] = 0.;
    const bool some = n > 0 && !still;
    Spread spread{true, 0., 0.};
    if (some) {
      const double shift = projective ? spread_for(n) : 0.;
      spread = given.load(sums, mine, shift, !maximise);
      BARRIER();
    }
    if constexpr (order == 0) {
      if (some) {
        if (maximise) messages<Max<Pack>, Spans>(given, spread, rest, single_root, heads != 0, false, found);
        else if (projective) messages_of<Spans>(given, spread, rest, single_root, heads != 0, found);
        else messages_of<Walks>(given, spread, rest, single_root, heads != 0, found);
      }
      BARRIER();
      const Edges edges(totals, own, out, parts, frozen, share, b, B, square);
      if (still) edges.keep(square);
      else edges.send_all(found, (int)square);
    } else {
      const Back g(out, parts, d_own, d_totals, b, B, square);
      if (some) {
        if (projective) back_of<Spans>(given, spread, rest, single_root, heads != 0, found, mine, g, mixed, share);
        else back_of<Walks>(given, spread, rest, single_root, heads != 0, found, mine, g, mixed, share);
      }
      BARRIER();
      g.finish(mine, given.q, found, mixed, N, n, share, still);
    }
  }
}

EXPORT(bp_tree_double_0, bp_tree<double, 0>)
EXPORT(bp_tree_double_1, bp_tree<double, 1>)
