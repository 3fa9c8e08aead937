// What some kernels do with packs besides arithmetic.
#pragma once
#include "weights.cuh"

// Packs: the lesser and the greater of two; the lanes, as bits, where a >= b, where a > b, and where x is NaN or +inf;
// `count` scores from p on as doubles, with `fill` in the lanes after them; as many as a pack holds.
#if ON_GPU

DEVICE double larger(double a, double b) { return a > b ? a : b; }
DEVICE double smaller(double a, double b) { return a < b ? a : b; }
DEVICE unsigned at_least(double a, double b) { return a >= b; }
DEVICE unsigned above(double a, double b) { return a > b; }
DEVICE unsigned unfit(double x) { return !(x < infinity()); }
template <class In> DEVICE double some(const In* p, int, double) { return (double)*p; }
template <class In> DEVICE double whole(const In* p) { return (double)*p; }

#else

#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include <immintrin.h>
DEVICE Pack smaller(Pack a, Pack b) { return (Pack)_mm512_min_pd((__m512d)a, (__m512d)b); }
DEVICE Pack larger(Pack a, Pack b) { return (Pack)_mm512_max_pd((__m512d)a, (__m512d)b); }
DEVICE unsigned at_least(Pack a, Pack b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_GE_OQ); }
DEVICE unsigned above(Pack a, Pack b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_GT_OQ); }
DEVICE unsigned unfit(Pack x) { return _mm512_cmp_pd_mask((__m512d)x, _mm512_set1_pd(infinity()), _CMP_NLT_UQ); }
DEVICE double largest(Pack a) { return _mm512_reduce_max_pd((__m512d)a); }
DEVICE Pack some(const float* p, int count, double fill) {
  const __mmask8 k = count < W ? (1u << count) - 1 : 0xff;
  return (Pack)_mm512_mask_cvtps_pd(_mm512_set1_pd(fill), k, _mm256_maskz_loadu_ps(k, p));
}
DEVICE Pack some(const double* p, int count, double fill) {
  return (Pack)_mm512_mask_loadu_pd(_mm512_set1_pd(fill), count < W ? (1u << count) - 1 : 0xff, p);
}
#else
template <class F> DEVICE unsigned lanes_where(F f) {
  unsigned r = 0;
  for (int l = 0; l < W; ++l) r |= (unsigned)f(l) << l;
  return r;
}
DEVICE Pack smaller(Pack a, Pack b) { return choose(a < b, a, b); }
DEVICE Pack larger(Pack a, Pack b) { return choose(a > b, a, b); }
DEVICE unsigned at_least(Pack a, Pack b) { return lanes_where([&](int l) { return a[l] >= b[l]; }); }
DEVICE unsigned above(Pack a, Pack b) { return lanes_where([&](int l) { return a[l] > b[l]; }); }
DEVICE unsigned unfit(Pack x) { return lanes_where([&](int l) { return !(x[l] < infinity()); }); }
DEVICE double largest(Pack a) {
  double r = a[0];
  for (int l = 1; l < W; ++l) r = a[l] > r ? a[l] : r;
  return r;
}
template <class In> DEVICE Pack some(const In* p, int count, double fill) {
  Pack x;
  for (int l = 0; l < W; ++l) x[l] = l < count ? (double)p[l] : fill;
  return x;
}
#endif

template <class In> DEVICE Pack whole(const In* p) {
  typedef In Few __attribute__((vector_size(sizeof(In) * W)));
  Few few;
  std::memcpy(&few, p, sizeof few);
  return __builtin_convertvector(few, Pack);
}

#endif
