// What kernels do with a batch, sentence by sentence: sums over structures, the best one, samples.
#pragma once
#include "weights.cuh"

// Runs with fast numbers and, where these prove too little, with safe ones: run(Algebra<T>, must_prove, given...) says
// whether it was enough.
template <class T> struct Algebra { typedef T type; };
#define ALGEBRA(numbers) typename decltype(numbers)::type
template <class Kinds, class Run, class... Given> DEVICE void fast_then_safe(Run run, Given... given) {
  if (run(Algebra<typename Kinds::Fast>{}, true, given...)) return;
  BARRIER();
  run(Algebra<typename Kinds::Safe>{}, false, given...);
}

// What an inside pass found.
struct Found {
  double log_z;
  bool bad, enough, some;  // a NaN or +inf was read; the numbers' range was enough; and there is a structure
};
// Of numbers that cannot tell a score that is wrong from one that is too high for them, others have to.
template <class T> DEVICE Found unfit() {
  return Found{0., takes_any_score<T>, takes_any_score<T>, false};
}
// `shift` is what weights were shifted by in log Z.
DEVICE Found found(double log_z, double shift, bool enough) {
  const bool some = log_z > -infinity();
  return Found{some ? log_z + shift : log_z, false, enough, enough && some};
}

// Results of sums: log Z [B] and arrays [B, size], null where not wanted.
template <class In, int arrays> struct Results {
  double* logz;
  In* out[arrays];
  i64 size[arrays];
  DEVICE Results of(i64 b) const {
    Results mine = *this;
    if (logz) mine.logz += b;
    for (int k = 0; k < arrays; ++k)
      if (out[k]) mine.out[k] += b * size[k];
    return mine;
  }
  DEVICE void fill(In value) const {
    for (int k = 0; k < arrays; ++k)
      if (In* to = out[k]) LANES(i, (int)size[k]) to[i] = value;
  }
  DEVICE void put(double log_z) const { if (LEADER && logz) *logz = log_z; }
  // Puts log Z; whether derivatives are there and wanted.
  DEVICE bool take(Found z) const {
    if (z.bad) {  // poison: the caller may not have checked
      const In nan = (In)(infinity() - infinity());
      put(nan);
      fill(nan);
    } else if (z.enough) {
      put(z.log_z);
    }
    return z.some && out[0];
  }
};

// Which numbers a launch takes. A GPU has room for the safe ones of few sentences at once: a first launch takes the
// fast ones and says of which sentences they proved too little, a second takes these.
enum Pass { FAST_THEN_SAFE, FAST_ALONE, SAFE_ALONE };
struct Passes {
  int which;
  int* unproven;  // [B]
};

// sum(numbers, must_prove, b, n, results) as fast_then_safe runs it, for every sentence b of n > 0 words; results are
// its own, and zero. A sentence has fewer words than `nodes`.
template <int order, class In, int arrays, class Sum>
DEVICE void sum_each(Results<In, arrays> all, const i64* lengths, int B, int nodes, Sum sum,
                     Passes pass = {FAST_THEN_SAFE, nullptr}) {
  typedef typename Tried<In, order>::Fast Fast;
  typedef typename Tried<In, order>::Safe Safe;
  SENTENCES(b, B) {
    if (pass.which == SAFE_ALONE && !pass.unproven[b]) continue;
    const int n = words_in(lengths, b, nodes);
    const Results<In, arrays> results = all.of(b);
    BARRIER();
    results.fill((In)0);
    if (n == 0) results.put(0.);
    const bool enough = n == 0 || (pass.which != SAFE_ALONE && sum(Algebra<Fast>{}, true, b, n, results));
    if (pass.which == FAST_ALONE && LEADER) pass.unproven[b] = !enough;
    if (enough || pass.which == FAST_ALONE) continue;
    BARRIER();
    sum(Algebra<Safe>{}, false, b, n, results);
  }
}

// find(b, n, to) for every sentence b of n > 0 words; to [size] of out [B, size] is its own, and -1.
template <class Find> DEVICE void best_each(i64* out, int size, const i64* lengths, int B, int nodes, Find find) {
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, nodes);
    i64* to = out + (i64)b * size;
    BARRIER();
    LANES(k, size) to[k] = -1;
    if (n > 0) find(b, n, to);
  }
}

// The samples of sentence b: out [count, B, size], by the numbers that follow from the seed.
struct Samples {
  i64* out;
  i64 size, seed;
  int count, B, b;
  DEVICE i64 number(int s) const { return (i64)s * B + b; }
  DEVICE i64* of(int s) const { return out + number(s) * size; }
  DEVICE Stream random(int s) const { return stream_for(seed, number(s)); }
  DEVICE double uniform(int s, int i) const { return stream_for(seed, number(s) * size + i).uniform(); }
  DEVICE void clear() const { LANES(s, count) for (i64 k = 0; k < size; ++k) of(s)[k] = -1; }
};

// draw(numbers, must_prove, samples, n) as fast_then_safe runs it, for every sentence samples.b of n > 0 words; its
// samples are -1.
template <class Draw>
DEVICE void sample_each(i64* out, i64 size, const i64* seed, int count, const i64* lengths, int B, int nodes, Draw draw) {
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, nodes);
    const Samples samples{out, size, *seed, count, B, b};
    BARRIER();
    samples.clear();
    if (n == 0) continue;
    fast_then_safe<Tried<double, 0>>(draw, samples, n);
  }
}
