// How much the beliefs about links have changed in an iteration, and which sentences have converged.
#include "bp.cuh"

struct Greater { DEVICE double operator()(double a, double b) const { return a > b ? a : b; } };

// before, after [3, B, N, N]: all messages; others [B]: changes of other variables, or null. Of the rest [B] the first is
// as it was, the second as it is now.
template <class In>
KERNEL bp_settle(const double* before, const double* after, const double* others, const double* residuals,
                 const bool* converged, const i64* iterations, double* new_residuals, bool* new_converged,
                 i64* new_iterations, double tolerance, int may_stop, int B, int N) {
  const i64 square = (i64)N * N;
  SENTENCES(b, B) {
    const Sums old(before, b, B, square), now(after, b, B, square);
    BARRIER();
    double most = others ? others[b] : 0.;
    ROWS_PACKS(h, N, m, N) {
      const i64 row = (i64)h * N;
      const Pack none = Pack{};
      const Pack change = magnitude(probability(now.packs_without(row, m, N, none)) -
                                    probability(old.packs_without(row, m, N, none)));
      for (int l = 0; l < W && m + l < N; ++l) most = Greater{}(most, lane_of(change, l));
    }
    most = team_reduce(most, Greater{});
    if (LEADER) {
      new_residuals[b] = converged[b] ? residuals[b] : most;
      new_iterations[b] = iterations[b] + !converged[b];
      new_converged[b] = converged[b] || (may_stop && most <= tolerance);
    }
  }
}

EXPORT(bp_settle_double, bp_settle<double>)
