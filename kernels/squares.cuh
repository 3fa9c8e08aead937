// Packs on a CPU as rows of small squares.
#pragma once
#include "weights.cuh"
#if !ON_GPU

template <int c> DEVICE Pack spread(Pack v) {  // lane c in all lanes
  if constexpr (W == 8) return __builtin_shufflevector(v, v, c, c, c, c, c, c, c, c);
  else return __builtin_shufflevector(v, v, c, c, c, c);
}
template <class V> DEVICE V zip_low(V a, V b) {  // a0 b0 a1 b1 ...
  if constexpr (sizeof(V) == 64) return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  else return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
template <class V> DEVICE V zip_high(V a, V b) {  // the same of their second halves
  if constexpr (sizeof(V) == 64) return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
  else return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
struct Square { Pack row[W]; };
DEVICE Square transposed(Square a) {
#pragma GCC unroll 8
  for (int done = 1; done < W; done *= 2) {
    Square b;
#pragma GCC unroll 8
    for (int r = 0; r < W / 2; ++r) {
      b.row[2 * r] = zip_low(a.row[r], a.row[r + W / 2]);
      b.row[2 * r + 1] = zip_high(a.row[r], a.row[r + W / 2]);
    }
    a = b;
  }
  return a;
}
DEVICE Pack sums_of_rows(Square a) {  // lane r: the sum of row r
#pragma GCC unroll 8
  for (int half = W / 2; half > 0; half /= 2)
#pragma GCC unroll 8
    for (int r = 0; r < half; ++r) a.row[r] = zip_low(a.row[r], a.row[r + half]) + zip_high(a.row[r], a.row[r + half]);
  return a.row[0];
}
// step(lane) for all lanes, upwards or downwards.
template <int c> struct Lane { static constexpr int number = c; };
#define LANE decltype(lane)::number
template <bool up, int c = 0, class Step> DEVICE void each_lane(Step step) {
  if constexpr (c < W) {
    step(Lane<up ? c : W - 1 - c>{});
    each_lane<up, c + 1>(step);
  }
}

// A pack of scores or results of another type.
template <class In> struct FewOf { typedef In type __attribute__((vector_size(sizeof(In) * W))); };
template <class In> using Few = typename FewOf<In>::type;
template <class In> DEVICE Few<In> few(const In* p) { Few<In> v; std::memcpy(&v, p, sizeof v); return v; }
#endif
