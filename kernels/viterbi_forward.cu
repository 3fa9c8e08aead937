// The best chain of tags by column generation in one sweep: Belanger et al. 2012 with the reduced cost of the Lagrangian
// that is rooted in the first word (their equations 10 and 11),
//
//   R'_i(x, y) = theta_i(x) + alpha_i(x) + tau(x, y) - alpha_{i+1}(y),
//
// the gain of alpha_{i+1}(y) if x joined the domain D_i. Once the domains before word i are complete, alpha_i is final,
// and so is the answer to which columns x still gain anywhere: those are added, all at once, before any message goes on
// to word i + 1. Nothing is computed twice, and when the sweep ends no reduced cost is above 0.
//
// With s = theta_i + alpha_i and b in D_i: R'_i(x, y) <= s(x) + max tau(x, .) - (s(b) + min tau(b, .)), the bounded search
// (Algorithm 2) with the bounds of rows. Rounding is monotone, so this decides as exact comparison of the rounded sums
// would: the answer is the dense program's to the last bit.
#include "viterbi.cuh"

constexpr int FEW = 8;         // columns that are not worth a tighter bound
constexpr int DOMINATORS = 4;  // states whose messages together make one
constexpr int AHEAD = 4;       // words, to fetch unary scores in time
constexpr int DULL = 3;        // words in a row with hardly a state left out, after which the rest is done densely

// The unary scores of a word on their way: a CPU does not foresee them past the end of a page.
template <class C> DEVICE void prefetch(const C& chain, int i) {
#if !ON_GPU
  const char* at = (const char*)chain.theta(i < chain.n ? i : chain.n - 1);
  for (int k = 0; k < (int)sizeof(typename C::In) * chain.T; k += 64) __builtin_prefetch(at + k);
#endif
}

// A tighter bound: the least of alpha_{i+1} over the tags that word i + 1 may have, from the best few of the listed states
// together. Those that cannot rise above it leave the list. `alpha` and `spare` have room for the tags.
template <class C>
DEVICE int tighten(const C& chain, int i, const double* s, const double* row_max, double* alpha, int* list, int* spare,
                   int count) {
  double below = infinity();
  for (int round = 0; round < DOMINATORS && count > FEW; ++round) {
    const Best z = best_listed(list, count, [&](int x) { return s[x] < below ? s[x] : -infinity(); });
    if (z.index < 0) break;
    below = z.value;
    const double* tau = chain.pairs + (i64)z.index * chain.wide;
    Pack least = splat<Pack>(infinity());
    PACKS(c, chain.T) {
      Pack a = splat<Pack>(z.value) + pack(tau + c);
      if (round) a = larger(a, pack(alpha + c));
      unpack(alpha + c, a);
      a = choose(chain.theta(i + 1, c) > splat<Pack>(-infinity()), a, splat<Pack>(infinity()));
      least = smaller(a, least);
    }
    const double bar = team_least(least);
    if (round == 0 || !(bar > -infinity())) continue;  // one state alone was the bound before
    const int left = select(count, spare, [&](int k) {
      return lanes_listed(list, k, count, [&](int x) { return s[x] + row_max[x] >= bar; });
    });
    BARRIER();
    if (left > count - count / 4) break;
    LANES(k, left) spare[k] = list[spare[k]];
    BARRIER();
    LANES(k, left) list[k] = spare[k];
    BARRIER();
    count = left;
  }
  return count;
}

// tags [B, N] as in viterbi.cu, for pairs [T, wide] that all places share; row_max and row_min [wide]: of each row. counts
// [B, 4]: states in the domains, transitions looked at, words done densely, rounds.
template <class In>
KERNEL viterbi_forward(const In* unary, const double* pairs, const double* row_max,
                       const double* row_min, const i64* lengths, i64* tags, double* scores, i64* counts, double* work,
                       int* lists, i64 work_size, i64 lists_size, int wide, int B, int N, int T) {
  double* const s = work + SLOT * work_size;
  int* const domains = lists + SLOT * lists_size;  // [N + 1, T], and the size of each
  int* const sizes = domains + (i64)(N + 1) * T;
  const bool broken = has_unfit(row_max, T);
  const i64 row = (T + 7) / 8 * 8 + PAD;
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N + 1);
    const Chain<In, false> chain{unary + (i64)b * N * T, pairs, 0, n, T, 1, wide};
    i64* const tag = tags + (i64)b * N;
    BARRIER();
    LANES(k, N) tag[k] = -1;
    if (LEADER) scores[b] = -infinity();
    LANES(k, 4) counts[b * 4 + k] = k / 3;
    if (n == 0) continue;
    Found found{first_states(chain, s), splat<Pack>(-infinity())};
    unsigned bad = found.bad;
    i64 states = 0;
    int dull = 0, i = 0;
    BARRIER();
    PACKS(k, T) found.floor = larger(pack(s + k) + pack(row_min + k), found.floor);
    for (; i + 1 < n && dull < DULL; ++i) {
      double *now = s + i * row, *next = now + row;
      int* const list = domains + (i64)i * T;
      prefetch(chain, i + AHEAD);
      double bar = team_most(found.floor);
      bar = bar > LOWEST ? bar : LOWEST;
      int count = select_from(bar, T, list, [&](int y) { return pack(now + y) + pack(row_max + y); });
      if (count > FEW) {
        BARRIER();
        count = tighten(chain, i, now, row_max, next, list, domains + (i64)N * T, count);
      }
      dull = 2 * count > T && T > FEW ? dull + 1 : 0;
      states += count;
      if (LEADER) sizes[i] = count;
      BARRIER();
      found = step<true>(chain, i, now, next, list, count, i + 2 < n ? row_min : nullptr);
      bad |= found.bad;
      BARRIER();
    }
    const int swept = i;
    bad |= dense_steps(chain, s, row, i);
    if (LEADER) {
      counts[b * 4] = states + (i64)(n - 1 - swept) * T;
      counts[b * 4 + 1] = (states + (i64)(n - 1 - swept) * T) * T;
      counts[b * 4 + 2] = n - 1 - swept;
    }
    if (team_reduce((int)bad, Or{}) || (broken && n > 1)) continue;
    const Best best = best_state(s + (n - 1) * row, T);
    int y = best.index;
    if (y < 0) continue;
    if (LEADER) scores[b] = best.value;
    for (i = n - 1;; --i) {
      if (LEADER) tag[i] = y;
      if (i == 0) break;
      const double* now = s + (i - 1) * row;
      const double* tau = pairs + y;
      const int* list = domains + (i64)(i - 1) * T;
      if (i - 1 >= swept) y = source(chain, i - 1, now, nullptr, 0, y);
      else if (sizes[i - 1] == 1) y = list[0];
      else y = best_listed(list, sizes[i - 1], [&](int x) { return now[x] + tau[(i64)x * wide]; }).index;
    }
  }
}

EXPORT_TYPES(viterbi_forward)
