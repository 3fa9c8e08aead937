// A step of dual decomposition (Rush et al. 2010, sections 4 and 6) for each sentence: do the oracles agree, what is the
// dual, is the best structure so far proven best, how far to go, and the multipliers after that.
#include "ways.cuh"

// What is known of a sentence, a row of doubles, and its numbers that stay. Then what a rule knows and its numbers.
enum { SCORE, BOUND, SIZE, ITERATIONS, CERTIFIED, DONE, ENOUGH, STOP_AT, TOLERANCE, OF_DUAL, OF_SIZE, OF_DISTANCE, MOST,
       SHARED, COARSE, KNOWN };
enum { POLYAK, HALVING, DECREASING };
enum { FACTOR, WAITED, LEAST, START, PATIENCE, SHRINK, GUESS, RULE };
enum { RISES, LAST, FIRST };

DEVICE bool is_finite(double x) { return x - x == 0; }
DEVICE double size_of(double x) { return x < 0 ? -x : x; }

// Whether a score is proven best by a bound: see gpuparse/decoding/certificates.py.
DEVICE bool is_proven(double score, double bound, double off) { return off < infinity() && bound <= score + off; }

// What a score may be off, if parts that are as far away as it can matter; total and moved [N, N].
DEVICE double off_by(double score, const double* known, const double* total, const double* moved, int N, double* ways) {
  const double distance = is_finite(score) ? size_of(known[MOST] - score) : 0.;
  BARRIER();
  clear(ways);
  WAYS_OVER(k, m, N) {
    double most = 0;
    for (int h = 0; h < N; ++h)
      if (const i64 at = (i64)h * N + m; total[at] >= -distance && moved[at] > most) most = moved[at];
    ways[k] += most;
  }
  add_up(ways);
  const double size = known[SHARED] + ways[0];
  if (known[COARSE] != 0 && distance < 1.1830521861667747e-271) return -infinity();  // 2^-900
  return known[OF_SIZE] * size + known[OF_DISTANCE] * distance;
}

DEVICE bool is_best(double score, double bound, double size, const double* known, const double* total,
                    const double* moved, int N, double* ways) {
  const double allowed = known[TOLERANCE] * fmax(size, size_of(score));
  if (!(score > -infinity()) || !is_proven(score, bound, allowed)) return false;
  return !total || is_proven(score, bound, off_by(score, known, total, moved, N, ways));
}

// The size of the next step by a rule [RULE], which is told what it has to remember.
DEVICE double step_size(int kind, double* rule, double dual, double bound, double best, double norm) {
  if (kind != POLYAK) {
    rule[RISES] += dual > rule[LAST];
    rule[LAST] = dual;
    return 2 * rule[FIRST] * (kind == HALVING ? exp2(-rule[RISES]) : 1 / (1 + rule[RISES]));
  }
  if (rule[START] == infinity()) rule[START] = dual;
  rule[WAITED] = bound < rule[LEAST] ? 0. : rule[WAITED] + 1;
  rule[LEAST] = fmin(rule[LEAST], bound);
  if (rule[WAITED] >= rule[PATIENCE] || dual > rule[START]) rule[FACTOR] *= rule[SHRINK], rule[WAITED] = 0;
  const double gap = best > -infinity() ? dual - best : rule[GUESS] * (dual == 0 ? 1. : size_of(dual));
  return norm > 0 && is_finite(gap) ? rule[FACTOR] * fmax(gap, 0.) / norm : 0.;
}

// Calls visit(k, at, y_o, y_o less the mean) for every place `at` of a sentence's T indicators, y_o among them, and y_0.
template <class In, class Visit> DEVICE void each(const In* y, const i64* parts, int P, Visit visit) {
  i64 from = 0;
  for (int part = 0; part < P; ++part) {
    const int oracles = (int)parts[2 * part], size = (int)parts[2 * part + 1];
    const In* const own = y + from;
    if (oracles == 2) {
      WAYS_OVER(k, e, size) {
        const double one = own[e], other = own[size + e], mean = (one + other) / 2;
        visit(k, from + e, one, one - mean, one);
        visit(k, from + size + e, other, other - mean, one);
      }
    } else {
      WAYS_OVER(k, e, size) {
        double sum = 0;
        for (int o = 0; o < oracles; ++o) sum += (double)own[(i64)o * size + e];
        for (int o = 0; o < oracles; ++o) {
          const double x = own[(i64)o * size + e];
          visit(k, from + (i64)o * size + e, x, x - sum / oracles, (double)own[e]);
        }
      }
    }
    from += (i64)oracles * size;
  }
}

// y [B, T] indicators, of parts [P] (how many oracles, how many indicators: one oracle's after the other's); values
// [B, O]; score [B], or null: known only where all agree; total and moved [B, N, N], or null; u and sums [B, T], least
// [B, T] or null, known [B, KNOWN], rules [B, RULE], all changed; better [B], trace [3, B]: dual, score, size. What is
// done is left alone.
template <class In>
KERNEL multipliers(const In* y, const double* values, const double* score, const double* total, const double* moved,
                   const i64* parts, double* u, double* sums, double* least, double* known, double* rules,
                   unsigned char* better, double* trace, int kind, int last, int B, int T, int O, int P, int N) {
  ROOM double norms[WAYS], spents[WAYS], differs[WAYS];
  SENTENCES(b, B) {
    double* const mine = known + (i64)b * KNOWN;
    BARRIER();
    if (mine[DONE] != 0) {
      if (LEADER) {
        better[b] = 0;
        for (int k = 0; k < 3; ++k) trace[(i64)k * B + b] = infinity() - infinity();
      }
      continue;
    }
    const i64 at = (i64)b * T;
    clear(norms), clear(spents), clear(differs);
    each(y + at, parts, P, [&](int k, i64 e, double x, double d, double first) INLINED {
      const double size = u[at + e];
      norms[k] += d * d, spents[k] += (size < 0 ? -size : size) * x, differs[k] += x != first ? 1. : 0.;
    });
    add_up(norms, spents, differs);
    const double norm = norms[0], spent = spents[0];
    const bool agree = differs[0] == 0;
    double dual = 0, own = 0;
    for (int o = 0; o < O; ++o) dual += values[(i64)b * O + o], own += size_of(values[(i64)b * O + o]);
    own = is_finite(dual) ? own + spent : 0.;
    const double found = score ? score[b] : agree ? dual : -infinity();
    const bool more = found > mine[SCORE] && dual > -infinity();
    const double best = more ? found : mine[SCORE], sure = mine[OF_DUAL] != 0 ? dual + mine[OF_DUAL] * own : dual;
    const bool lower = sure < mine[BOUND];
    const double bound = lower ? sure : mine[BOUND], size = fmin(mine[SIZE], own);
    const i64 square = (i64)b * N * N;
    const double *const totals = total ? total + square : total, *const moves = total ? moved + square : moved;
    const bool certified = is_best(best, bound, size, mine, totals, moves, N, norms);
    const bool enough = certified || is_best(mine[ENOUGH], bound, size, mine, totals, moves, N, norms);
    const bool done = enough || bound == -infinity() || best > mine[STOP_AT];
    double rule[RULE];
    for (int k = 0; k < RULE; ++k) rule[k] = rules[(i64)b * RULE + k];
    const double length = step_size(kind, rule, dual, bound, best, norm);
    BARRIER();  // all have read what is known
    if (LEADER) {
      mine[SCORE] = best, mine[BOUND] = bound, mine[SIZE] = size, mine[ITERATIONS] += 1;
      mine[CERTIFIED] = certified, mine[DONE] = done, better[b] = more;
      for (int k = 0; k < RULE; ++k) rules[(i64)b * RULE + k] = rule[k];
      trace[b] = dual, trace[(i64)B + b] = best, trace[2 * (i64)B + b] = length;
    }
    each(y + at, parts, P, [&](int, i64 e, double x, double d, double) INLINED {
      sums[at + e] += x;
      if (lower && least) least[at + e] = u[at + e];
      u[at + e] -= last ? 0. : length * d;
    });
  }
}

EXPORT_TYPES(multipliers)
