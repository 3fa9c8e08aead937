// The best chain of tags by column generation: Algorithm 1 of Belanger et al. 2012, with the reduced cost averaged over
// the two Lagrangians rooted in the first and in the last word (their equation 12) and the bounded search of Algorithm 2.
//
//   2 R_i(x, y) = 2 tau(x, y) + N_i(x) + N'_{i+1}(y)
//   N_i(x) = theta_i(x) + alpha_i(x) - beta_i(x),   N'_i(y) = theta_i(y) - alpha_i(y) + beta_i(y)
//
// Beyond the paper: messages are kept relative to that of one tag of the word, so that a change of score far away changes
// none of them, and only those that did change are computed and priced again. Pairs with one tag in its domain are priced
// exactly, a row or column at a time, so that the bounds are needed only for pairs of two tags outside, which both fall
// short by themselves. All columns found are added, not one a search. And a sentence that takes more than its share of
// work, or in which a message is -inf (so that gains are infinite), is done by the dense program.
#include "viterbi.cuh"

// What things cost beside the transitions they look at, in rows of the dense program, and a transition looked at by itself,
// in transitions of its. Measured; with them a sentence that goes over to the dense program has cost half of it before.
constexpr int SEND = 4, PRICE = 9, SEARCH = 12, ADD = 1, SCALAR = 16;
constexpr int FEWEST = 40;  // tags: with fewer the dense program is always faster

template <class C> struct Columns {
  const C& chain;
  const double *columns, *row_max, *column_max;             // columns: tau transposed, or null
  i64 row;                                                  // of messages
  double *theta, *alpha, *beta;                             // [n, row], messages less their value at the tag ref
  double *alpha_shift, *beta_shift;                         // [n], what was taken off
  double* outside;                                          // [n, row], -inf for tags in the domain, else 0
  double *left_side, *right_side, *left_gain, *right_gain;  // [row], of the two words that are priced
  int *domains, *C_, *C_prime;                              // [n, T], [T], [T]
  int *size, *ref, *stale, *price;                          // [n]; stale: 1 alpha, 2 beta is to be computed

  DEVICE int* domain(int i) const { return domains + (i64)i * chain.T; }

  // tau(x, c) for the pack of tags at c where x is on the LEFT, else tau(c, x)
  template <bool LEFT> DEVICE Pack pairs_at(int x, int c) const {
    return pack((LEFT ? chain.pairs : columns) + (i64)x * chain.wide + c);
  }

  // max over the domain of (value(x) + scale * its pairs) at c, given value(x) of the first
  template <bool LEFT, class F>
  DEVICE Pack over_domain(const int* list, int count, double first, double scale, int c, F value) const {
    Pack best = splat<Pack>(first) + scale * pairs_at<LEFT>(list[0], c);
    for (int k = 1; k < count; ++k)
      best = larger(splat<Pack>(value(list[k])) + scale * pairs_at<LEFT>(list[k], c), best);
    return best;
  }

  // The message of word j to its neighbour i (equations 8 and 9) over the domain of j, for every tag of i, less its value
  // at ref_i. Returns the size of the greatest number in it: inf if it is -inf somewhere.
  template <bool RIGHT> DEVICE double send(int j, int i) const {
    const double *from = (RIGHT ? alpha : beta) + j * row, *own = theta + j * row;
    double* to = (RIGHT ? alpha : beta) + i * row;
    const int *list = domain(j), count = size[j], at = ref[i];
    auto value = [&](int x) { return from[x] + own[x]; };
    double z = -infinity();
    for (int k = 0; k < count; ++k) {
      const i64 x = list[k];
      z = Greater{}(z, value(x) + chain.pairs[RIGHT ? x * chain.wide + at : (i64)at * chain.wide + x]);
    }
    const double first = value(list[0]);
    Pack least = Pack{}, most = Pack{};
    const int end = chain.T - W;  // whole packs up to here
    PACKS(c, chain.T) {
      const Pack best = over_domain<RIGHT>(list, count, first, 1., c, value), message = best - splat<Pack>(z);
      unpack(to + c, message);
      least = smaller(c <= end ? message : choose(lanes_below(c, chain.T), message, least), least);
      most = larger(message, most);
    }
    if (LEADER) (RIGHT ? alpha_shift : beta_shift)[i] = z;
    BARRIER();
    const double low = team_least(least), high = team_most(most), size_of = fmax(fmax(-low, high), fabs(z));
    return z > -infinity() && size_of < infinity() ? size_of : infinity();
  }

  DEVICE Pack N(int i, int c) const {
    const i64 k = i * row + c;
    return pack(theta + k) + (pack(alpha + k) - pack(beta + k));
  }
  DEVICE Pack N_prime(int i, int c) const {
    const i64 k = i * row + c;
    return pack(theta + k) - (pack(alpha + k) - pack(beta + k));
  }
  DEVICE double N_at(int i, int x) const { const i64 k = i * row + x; return theta[k] + (alpha[k] - beta[k]); }
  DEVICE double N_prime_at(int i, int x) const { const i64 k = i * row + x; return theta[k] - (alpha[k] - beta[k]); }

  // What the pack of tags at c can gain between words i and i + 1, less a constant: n and n' of tags outside of the domains
  // of i and of i + 1 (inside: -inf), and the same with their best partner inside.
  struct Side { Pack n, gain; };
  DEVICE Side left_at(int i, int c, double first) const {
    const Pack n = N(i, c) + pack(outside + i * row + c);
    auto value = [&](int y) { return N_prime_at(i + 1, y); };
    return Side{n, n + over_domain<false>(domain(i + 1), size[i + 1], first, 2., c, value)};
  }
  DEVICE Side right_at(int i, int c, double first) const {
    const Pack n = N_prime(i + 1, c) + pack(outside + (i + 1) * row + c);
    auto value = [&](int x) { return N_at(i, x); };
    return Side{n, n + over_domain<true>(domain(i), size[i], first, 2., c, value)};
  }

  // Prices the pairs between words i and i + 1: exactly those with one tag inside, where the other joins its domain if R_i
  // is positive; by bounds of rows, then by search, those with both outside. What rounding could have made negative, by
  // `slack`, counts as positive. Returns how many transitions were looked at, or -1 if that is too many for the `room`.
  DEVICE i64 price_pairs(int i, double slack, i64& room) const {
    const int T = chain.T;
    const double shift = slack - alpha_shift[i + 1] - beta_shift[i];
    const double first = N_prime_at(i + 1, domain(i + 1)[0]), first_prime = N_at(i, domain(i)[0]);
    const i64 seen = (i64)(size[i] + size[i + 1]) * T;
    const Pack none = splat<Pack>(-infinity());
    Pack bound = none, top_prime = none, gain = none;
    PACKS(c, T) {
      const Side left = left_at(i, c, first), right = right_at(i, c, first_prime);
      gain = larger(left.gain, larger(right.gain, gain));
      bound = larger(left.n + 2. * pack(row_max + c), bound);
      top_prime = larger(right.n, top_prime);
    }
    const bool gains = team_most(gain) + shift > 0.;
    if (!gains && !(team_most(bound) + team_most(top_prime) + shift > 0.)) return seen;
    BARRIER();
    PACKS(c, T) {
      const Side left = left_at(i, c, first), right = right_at(i, c, first_prime);
      unpack(left_side + c, left.n), unpack(left_gain + c, left.gain);
      unpack(right_side + c, right.n), unpack(right_gain + c, right.gain);
    }
    BARRIER();
    room -= SEARCH * T;
    const i64 pairs = search(i, shift, room);
    if (gains) {
      const Pack bar = splat<Pack>(-shift);
      const int more = select(T, C_, [&](int c) { return above(pack(left_gain + c), bar); });
      BARRIER();
      const int more_prime = select(T, C_prime, [&](int c) { return above(pack(right_gain + c), bar); });
      BARRIER();
      room -= (i64)(more + more_prime) * ADD * T;
      if (room < 0) return -1;
      for (int k = 0; k < more; ++k) add(i, C_[k]);
      for (int k = 0; k < more_prime; ++k) add(i + 1, C_prime[k]);
    }
    return pairs < 0 ? pairs : pairs + seen;
  }

  // Algorithm 2 for pairs with both tags outside of their domains: the sets C' and C of tags that could have a positive
  // reduced cost, then all pairs of them. Returns how many transitions were looked at, or -1 if that is too many.
  DEVICE i64 search(int i, double shift, i64& room) const {
    const int T = chain.T;
    Pack best_left = splat<Pack>(-infinity());
    PACKS(c, T) best_left = larger(pack(left_side + c), best_left);
    const double U = team_most(best_left);
    const Pack first = splat<Pack>(U + shift), none = splat<Pack>(-infinity());
    Pack top = none;
    PACKS(c, T) {
      const Pack x = pack(right_side + c);
      top = larger(choose(x + first + 2. * pack(column_max + c) > Pack{}, x, none), top);
    }
    const double U_prime = team_most(top);  // over C'
    if (!(U_prime > -infinity())) return 0;
    const Pack second = splat<Pack>(U_prime + shift);
    const int left = select(T, C_, [&](int c) {
      return above(pack(left_side + c) + second + 2. * pack(row_max + c), Pack{});
    });
    BARRIER();
    if (left == 0) return 0;
    const int right = select(T, C_prime, [&](int c) {
      return above(pack(right_side + c) + first + 2. * pack(column_max + c), Pack{});
    });
    BARRIER();
    const bool by_rows = right * 4 > T;  // then a whole row of pairs is looked at faster than those of C'
    const i64 pairs = (i64)left * (by_rows ? T : right);
    room -= by_rows ? 3 * pairs : SCALAR * pairs;
    if (room < 0 || left > 8 + T / 2) return -1;
    for (int k = 0; k < left; ++k) {
      const int x = C_[k];
      const double here = left_side[x] + shift, *tau = chain.pairs + (i64)x * chain.wide;
      const Best best = by_rows
          ? best_of(T, [&](int c) { return splat<Pack>(here) + pack(right_side + c) + 2. * pack(tau + c); })
          : best_listed(C_prime, right, [&](int y) { return here + right_side[y] + 2. * tau[y]; });
      if (best.index >= 0 && best.value > 0.) {
        room -= 2 * ADD * T;
        add(i, x), add(i + 1, best.index);
      }
    }
    return pairs;
  }

  // Tag x joins the domain of word i, if it is not in it: the messages that word i sends are stale.
  DEVICE void add(int i, int x) const {
    int* list = domain(i);
    const int count = size[i];
    int known = 0;
    LANES(k, count) known |= list[k] == x;
    if (team_reduce(known, Or{})) return;
    if (LEADER) {
      list[count] = x;
      size[i] = count + 1;
      outside[i * row + x] = -infinity();
      if (i + 1 < chain.n) stale[i + 1] |= 1;
      if (i > 0) stale[i - 1] |= 2;
    }
    BARRIER();
  }

  // Every word begins with its best tags by theta alone. False if a word has none; `bad` if a NaN or +inf was read;
  // `scale` is the size of the greatest theta.
  DEVICE bool begin(int initial, unsigned& bad, double& scale) const {
    const int n = chain.n, T = chain.T;
    bool some_tag = true;
    Pack low = Pack{}, high = Pack{};
    for (int i = 0; i < n; ++i) {
      double* own = theta + i * row;
      PACKS(c, T) {
        const Pack t = chain.theta(i, c);
        bad |= unfit(t);
        low = smaller(choose(t > splat<Pack>(-infinity()), t, low), low), high = larger(t, high);
        unpack(own + c, t);
        unpack(outside + i * row + c, Pack{});
      }
      BARRIER();
      int count = 0;
      for (Best best{infinity(), -1}; count < initial && count < T; ++count) {
        const double value = best.value;
        const int last = best.index;
        best = count ? best_of(T, [&](int c) { return after(pack(own + c), c, value, last); }) : best_state(own, T);
        if (best.index < 0) break;
        if (LEADER) domain(i)[count] = best.index, outside[i * row + best.index] = -infinity();
      }
      some_tag &= count > 0;
      if (LEADER) {
        size[i] = count, ref[i] = count ? domain(i)[0] : 0;
        price[i] = 1, stale[i] = (i > 0) + 2 * (i + 1 < n);
      }
    }
    PACKS(c, T) unpack(alpha + c, Pack{}), unpack(beta + (n - 1) * row + c, Pack{});
    BARRIER();
    scale = fmax(-team_least(low), team_most(high));
    return some_tag;
  }

  // Those below (value, index) in the order of best_of, else -inf.
  static DEVICE Pack after(Pack x, int c, double value, int index) {
    const Pack v = splat<Pack>(value);
    return choose((x < v) | ((x == v) & ~lanes_below(c, index + 1)), x, splat<Pack>(-infinity()));
  }

  // Messages that are stale, from both ends. Returns the size of the greatest number in them: inf if one is -inf.
  DEVICE double messages(i64& looked_at, i64& room) const {
    double greatest = 0.;
    for (int pass = 0; pass < 2; ++pass)
      for (int k = 1; k < chain.n; ++k) {
        const int i = pass ? chain.n - 1 - k : k, j = pass ? i + 1 : i - 1;
        if (!(stale[i] & (1 + pass))) continue;
        greatest = fmax(greatest, pass ? send<false>(j, i) : send<true>(j, i));
        looked_at += (i64)size[j] * chain.T;
        room -= (i64)(size[j] + SEND) * chain.T;
        if (LEADER) {
          price[i] = 1;
          if (i > 0) price[i - 1] = 1;
          stale[i] &= ~(1 + pass);
          const int next = pass ? i - 1 : i + 1;
          if (size[i] > 1 && next >= 0 && next < chain.n) stale[next] |= 1 + pass;
        }
        BARRIER();
      }
    return greatest;
  }
};

// tags [B, N] as in viterbi.cu, for pairs [T, wide] that all places share; columns: the same transposed; row_max and
// column_max [wide]: of each row and column. counts [B, 4]: states in the domains, transitions looked at, words done
// densely, rounds.
template <class In>
KERNEL viterbi_averaged(const In* unary, const double* pairs, const double* columns,
                        const double* row_max, const double* column_max, const i64* lengths, i64* tags, double* scores,
                        i64* counts, double* work, int* lists, i64 work_size, i64 lists_size, int wide, int initial,
                        int B, int N, int T) {
  double* const mine = work + SLOT * work_size;
  int* const ints = lists + SLOT * lists_size;
  const int rounded = (T + 7) / 8 * 8;
  const i64 row = rounded + PAD;
  const bool broken = has_unfit(row_max, T);
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N + 1);
    typedef Chain<In, false> C;
    const C chain{unary + (i64)b * N * T, pairs, 0, n, T, 1, wide};
    const i64 all = N * row;
    double *const shifts = mine + 4 * all, *const sides = shifts + 2 * N;
    int *const candidates = ints + (i64)N * T, *const flags = candidates + 2 * T;
    const Columns<C> cg{chain,      columns,     row_max,       column_max,    row,           mine,
                        mine + all, mine + 2 * all, shifts,     shifts + N,    mine + 3 * all, sides,
                        sides + row, sides + 2 * row, sides + 3 * row, ints,   candidates,    candidates + T,
                        flags,      flags + N,   flags + 2 * N, flags + 3 * N};
    i64* const tag = tags + (i64)b * N;
    BARRIER();
    LANES(k, N) tag[k] = -1;
    if (LEADER) scores[b] = -infinity();
    LANES(k, 4) counts[b * 4 + k] = 0;
    if (n == 0) continue;
    unsigned bad = 0;
    double scale;
    const bool some_tag = cg.begin(initial, bad, scale);
    if (team_reduce((int)bad, Or{}) || (broken && n > 1) || !some_tag) continue;
    i64 looked_at = 0, rounds = 0, room = (i64)(n - 1) * T * (T > 60 ? T / 2 : 30);  // a first round at least
    bool dense = T < FEWEST && n > 1;
    int growing = 0;
    while (!dense) {  // Algorithm 1
      ++rounds;
      scale = fmax(scale, cg.messages(looked_at, room));
      const double slack = 32. * 2.220446049250313e-16 * scale;  // of the rounding in 2 R, with much to spare
      dense = !(scale < infinity());
      for (int i = 0; i + 1 < n && !dense; ++i) {
        if (!cg.price[i]) continue;
        const int before = cg.size[i] + cg.size[i + 1];
        room -= (before + PRICE) * T;
        const i64 seen = cg.price_pairs(i, slack, room);
        growing += cg.size[i] + cg.size[i + 1] > before;
        dense = seen < 0 || room < 0 || (rounds == 1 && 2 * growing > i + 6);  // half of the places: it would not end
        looked_at += seen < 0 ? 0 : seen;
        BARRIER();
        if (LEADER) cg.price[i] = 0;
      }
      int grown = 0;
      BARRIER();
      LANES(i, n) grown |= cg.stale[i];
      if (!team_reduce(grown, Or{})) break;
    }
    i64 states = 0;
    LANES(i, n - 1) states += cg.size[i];
    states = team_reduce(states, Plus{});
    if (LEADER) {
      counts[b * 4] = dense ? (i64)(n - 1) * T : states;
      counts[b * 4 + 1] = looked_at + (dense ? (i64)(n - 1) * T * T : 0);
      counts[b * 4 + 2] = dense ? n - 1 : 0;
      counts[b * 4 + 3] = rounds > 0 ? rounds : 1;
    }
    BARRIER();
    if (dense) {
      bad = dense_chain(chain, mine, row);
      if (!team_reduce((int)bad, Or{})) trace_dense(chain, mine, row, columns, tag, scores + b);
      continue;
    }
    const double *s = cg.alpha + (n - 1) * row, *unary_ = cg.theta + (n - 1) * row;
    int y = best_listed(cg.domain(n - 1), cg.size[n - 1], [&](int x) { return s[x] + unary_[x]; }).index;
    double score = unary_[y];
    for (int i = n - 1;; --i) {
      if (LEADER) tag[i] = y;
      if (i == 0) break;
      s -= row, unary_ -= row;
      const double* tau = pairs + y;
      y = best_listed(cg.domain(i - 1), cg.size[i - 1], [&](int x) { return s[x] + unary_[x] + tau[(i64)x * wide]; }).index;
      score += tau[(i64)y * wide] + unary_[y];
    }
    if (LEADER) scores[b] = score;
  }
}

EXPORT_TYPES(viterbi_averaged)
