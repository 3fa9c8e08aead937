// The best chain of tags by the dense program: every transition is looked at, once. No pointers back are kept: on the
// way from the end each best predecessor is found again.
#include "viterbi.cuh"

// tags [B, N]; -1 past the end, and everywhere (the score [B] then is -inf) where there is no chain or a NaN or +inf was
// read. own = 0: pairs [M * T, wide] of doubles for all, their columns likewise (null for M > 1) and the maximum of each
// row; own = 1: pairs [B, N - 1, T, T], M = 1.
template <class In, int own>
KERNEL viterbi(const In* unary, const typename PairsOf<In, own>::type* pairs, const double* columns,
               const double* row_max, const i64* lengths, i64* tags, double* scores, double* work, i64 work_size,
               int wide, int M, int B, int N, int T) {
  double* const s = work + SLOT * work_size;
  const int S = M * T;
  const bool broken = !own && has_unfit(row_max, S);
  const i64 row = (S + 7) / 8 * 8 + PAD, matrix = own ? (i64)T * T : 0;
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N + 1);
    const Chain<In, own> chain{unary + (i64)b * N * T, pairs + (i64)b * (N - 1) * matrix, matrix, n, T, M, wide};
    i64* const tag = tags + (i64)b * N;
    BARRIER();
    LANES(k, N) tag[k] = -1;
    if (LEADER) scores[b] = -infinity();
    if (n == 0) continue;
    const unsigned bad = dense_chain(chain, s, row);
    if (team_reduce((int)bad, Or{}) || (broken && n > (M > 1 ? 2 : 1))) continue;
    trace_dense(chain, s, row, columns, tag, scores + b);
  }
}

EXPORT(viterbi_float_0, viterbi<float, 0>)
EXPORT(viterbi_float_1, viterbi<float, 1>)
EXPORT(viterbi_double_0, viterbi<double, 0>)
EXPORT(viterbi_double_1, viterbi<double, 1>)
