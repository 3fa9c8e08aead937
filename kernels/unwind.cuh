// From a filled inside chart to a tree: spans are taken apart from the whole sentence down, `choose` saying where.
#pragma once
#include "eisner.cuh"

enum Kind { RIGHT, LEFT, ARC };  // R(d, i), L(d, i), X(d, i) of eisner.cuh

// The summand of split t in a cell, its factors read from the chart.
template <class T> DEVICE typename T::Scalar summand(const Inside<T>& in, int kind, int d, int i, int t) {
  if (kind == RIGHT) return in.P.cell(t, i) * in.R.cell(d - t, i + t);   // t = 1..d
  if (kind == LEFT) return in.L.cell(t, i) * in.Q.cell(d - t, i + t);    // t = 0..d-1
  return in.R.cell(t, i) * in.L.cell(d - 1 - t, i + t + 1);              // t = 0..d-1
}

// heads [n+1]; stack: room for 3 * (2n + 4) ints. choose(kind, d, i, first, last) returns t. With `alone` every lane
// works on a tree of its own; without, the first warp works on one tree together.
template <bool alone, class Choose> DEVICE void unwind(int n, i64* heads, int* stack, Choose choose) {
  if (!alone && !IN_FIRST_WARP) return;
  int top = 0;
  const bool writes = alone || LEADER;
  auto push = [&](int kind, int d, int i) {
    if (d == 0) return;
    if (writes) stack[3 * top] = kind, stack[3 * top + 1] = d, stack[3 * top + 2] = i;
    ++top;
  };
  push(RIGHT, n, 0);
  while (top > 0) {
    if (!alone) WARP_BARRIER();
    --top;
    const int kind = stack[3 * top], d = stack[3 * top + 1], i = stack[3 * top + 2];
    if (!alone) WARP_BARRIER();
    const int t = choose(kind, d, i, kind == RIGHT ? 1 : 0, kind == RIGHT ? d : d - 1);
    if (kind == RIGHT) {
      if (writes) heads[i + t] = i;
      push(RIGHT, d - t, i + t);
      push(ARC, t, i);
    } else if (kind == LEFT) {
      if (writes) heads[i + t] = i + d;
      push(LEFT, t, i);
      push(ARC, d - t, i + t);
    } else {
      push(RIGHT, t, i);
      push(LEFT, d - 1 - t, i + t + 1);
    }
  }
}
