// A good chain of tags by beam search: from each word the best few states go on. Where all places share their pairs, it is
// proven best if no state that was left out could gain anything, by the bound of viterbi_forward.cu; else the sum of each
// word's best unary score with its best way in bounds all chains.
#include "viterbi.cuh"

// tags [B, N] as in viterbi.cu; row_max, row_min and column_max [wide] of shared pairs, else null. counts [B, 4]: states,
// transitions, 0, 1. bound [B]: of all chains, +inf if nothing is known, -inf where the chain is proven best.
template <class In, int own>
KERNEL viterbi_beam(const In* unary, const typename PairsOf<In, own>::type* pairs, const double* row_max,
                    const double* row_min, const double* column_max, const i64* lengths, i64* tags, double* scores,
                    i64* counts, double* bound, double* work, int* lists, i64 work_size, i64 lists_size, int wide,
                    int beam, int B, int N, int T) {
  const i64 row = (T + 7) / 8 * 8 + PAD, matrix = own ? (i64)T * T : 0;
  double *const s = work + SLOT * work_size, *const left = s + N * row;  // left: the states that are not in the beam
  int *const beams = lists + SLOT * lists_size, *const sizes = beams + (i64)N * beam;
  const bool broken = !own && has_unfit(row_max, T);
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N + 1);
    const Chain<In, own> chain{unary + (i64)b * N * T, pairs + (i64)b * (N - 1) * matrix, matrix, n, T, 1, wide};
    i64* const tag = tags + (i64)b * N;
    BARRIER();
    LANES(k, N) tag[k] = -1;
    if (LEADER) scores[b] = -infinity();
    LANES(k, 4) counts[b * 4 + k] = k / 3;
    if (LEADER) bound[b] = -infinity();
    if (n == 0) continue;
    unsigned bad = first_states(chain, s), lost = 0;
    i64 states = 0;
    BARRIER();
    for (int i = 0; i + 1 < n; ++i) {
      const double* now = s + i * row;
      int* const list = beams + (i64)i * beam;
      PACKS(c, T) unpack(left + c, pack(now + c));
      BARRIER();
      int count = 0;
      double bar = LOWEST;
      for (; count < beam; ++count) {
        const Best best = best_state(left, T);
        if (best.index < 0) break;
        if (!own) bar = Greater{}(bar, best.value + row_min[best.index]);
        BARRIER();
        if (LEADER) list[count] = best.index, left[best.index] = -infinity();
        BARRIER();
      }
      PACKS(c, T) lost |= at_least(own ? pack(left + c) : pack(left + c) + pack(row_max + c), splat<Pack>(bar));
      states += count;
      if (LEADER) sizes[i] = count;
      BARRIER();
      bad |= step<true>(chain, i, now, s + (i + 1) * row, list, count, nullptr).bad;
      BARRIER();
    }
    if (LEADER) counts[b * 4] = states, counts[b * 4 + 1] = states * T;
    if (team_reduce((int)bad, Or{}) || (broken && n > 1)) continue;
    if (team_reduce((int)lost, Or{})) {
      double sum = own ? infinity() : 0.;
      for (int i = 0; i < n && !own; ++i) {
        Pack top = splat<Pack>(-infinity());
        PACKS(c, T) top = larger(i ? chain.theta(i, c) + pack(column_max + c) : chain.theta(i, c), top);
        sum += team_most(top);
      }
      if (LEADER) bound[b] = sum;
    }
    const Best best = best_state(s + (n - 1) * row, T);
    int y = best.index;
    if (y < 0) continue;
    if (LEADER) scores[b] = best.value;
    for (int i = n - 1;; --i) {
      if (LEADER) tag[i] = y;
      if (i == 0) break;
      const double* now = s + (i - 1) * row;
      const typename Chain<In, own>::Pair* tau = chain.tau(i - 1) + y;
      const int* list = beams + (i64)(i - 1) * beam;
      y = best_listed(list, sizes[i - 1], [&](int x) { return now[x] + (double)tau[(i64)x * wide]; }).index;
    }
  }
}

EXPORT(viterbi_beam_float_0, viterbi_beam<float, 0>)
EXPORT(viterbi_beam_float_1, viterbi_beam<float, 1>)
EXPORT(viterbi_beam_double_0, viterbi_beam<double, 0>)
EXPORT(viterbi_beam_double_1, viterbi_beam<double, 1>)
