// Sums over many numbers, in an order that is the same on every machine: WAYS of them, each of every WAYS-th number, then
// halves added to halves.
#pragma once
#include "weights.cuh"

constexpr int WAYS = 64;

// Every e = 0..size-1, and the way k that it goes, which is always that of the same lane; every i and j below N.
#if ON_GPU
#define WAYS_OVER(k, e, size) LANES(k, WAYS) for (int e = k; e < (size); e += WAYS)
#define CELLS(i, j, N) LANES(flat_, (N) * (N)) if (const int i = flat_ / (N), j = flat_ % (N); true)
#define ROOM __shared__
#else
#define WAYS_OVER(k, e, size)                   \
  for (int from_ = 0; from_ < (size); from_ += WAYS) \
    for (int k = 0, stop_ = (size) - from_ < WAYS ? (size) - from_ : WAYS; k < stop_; ++k) \
      if (const int e = from_ + k; true)
#define CELLS(i, j, N) for (int i = 0; i < (N); ++i) for (int j = 0; j < (N); ++j)
#define ROOM
#endif

DEVICE void clear(double* ways) { LANES(k, WAYS) ways[k] = 0; }

// The sum of each of some ways, in their first places.
template <class... Ways> DEVICE void add_up(Ways*... ways) {
  BARRIER();
#pragma GCC unroll 8
  for (int half = WAYS / 2; half; half /= 2) {
    LANES(k, half) ((ways[k] += ways[k + half]), ...);
    BARRIER();
  }
}
