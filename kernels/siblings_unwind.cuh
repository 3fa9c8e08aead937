// From a filled inside chart of siblings.cuh or grandsiblings.cuh to a tree: spans are taken apart from the whole
// sentence down, `choose` saying where. g is the head of a span's head; the program for siblings alone has one entry
// for all.
#pragma once
#include "grandsiblings.cuh"

enum Kind { RIGHT, LEFT, ARC_RIGHT, ARC_LEFT, BETWEEN };  // R, L, P, Q, X

// The summand of split t in a cell; what all of them are multiplied by is left out.
template <class In> DEVICE typename In::S summand(const In& in, int kind, int d, int i, int g, int t) {
  if (kind == RIGHT) return in.P.cell(t, i, g) * in.R.cell(d - t, i + t, i);         // t = 1..d
  if (kind == LEFT) return in.L.cell(t, i, i + d) * in.Q.cell(d - t, i + t, g);      // t = 0..d-1, and so below
  if (kind == BETWEEN) return in.R.cell(t, i, g) * in.L.cell(d - 1 - t, i + t + 1, g);
  if (kind == ARC_RIGHT)
    return in.row_right(d, t, i, g) *
           (t == 0 ? in.L.cell(d - 1, i + 1, i) : in.P.cell(t, i, g) * in.X.cell(d - t, i + t, i));
  return in.row_left(d, t, i, g) *
         (t == 0 ? in.R.cell(d - 1, i, i + d) : in.Q.cell(t, i + d - t, g) * in.X.cell(d - t, i, i + d));
}

// heads [n+1]; stack: room for 4 * (n + 4) ints. choose(kind, d, i, g, first, last) returns t. With `alone` every lane
// works on a tree of its own; without, the first warp works on one tree together.
template <bool alone, class Choose> DEVICE void unwind(int n, i64* heads, int* stack, Choose choose) {
  if (!alone && !IN_FIRST_WARP) return;
  int top = 0;
  const bool writes = alone || LEADER;
  auto push = [&](int kind, int d, int i, int g) {
    if (d == 0) return;
    int* to = stack + 4 * top++;
    if (writes) to[0] = kind, to[1] = d, to[2] = i, to[3] = g;
  };
  auto attach = [&](int m, int h) { if (writes) heads[m] = h; };
  push(RIGHT, n, 0, 0);
  while (top > 0) {
    if (!alone) WARP_BARRIER();
    const int* at = stack + 4 * --top;
    const int kind = at[0], d = at[1], i = at[2], g = at[3], e = i + d;
    if (!alone) WARP_BARRIER();
    const int t = choose(kind, d, i, g, kind == RIGHT ? 1 : 0, kind == RIGHT ? d : d - 1);
    if (kind == RIGHT) {
      attach(i + t, i);
      push(RIGHT, d - t, i + t, i);
      push(ARC_RIGHT, t, i, g);
    } else if (kind == LEFT) {
      attach(i + t, e);
      push(LEFT, t, i, e);
      push(ARC_LEFT, d - t, i + t, g);
    } else if (kind == BETWEEN) {
      push(RIGHT, t, i, g);
      push(LEFT, d - 1 - t, i + t + 1, g);
    } else if (kind == ARC_RIGHT && t == 0) {
      push(LEFT, d - 1, i + 1, i);
    } else if (kind == ARC_RIGHT) {
      attach(i + t, i);
      push(ARC_RIGHT, t, i, g);
      push(BETWEEN, d - t, i + t, i);
    } else if (t == 0) {
      push(RIGHT, d - 1, i, e);
    } else {
      attach(e - t, e);
      push(ARC_LEFT, t, e - t, g);
      push(BETWEEN, d - t, i, e);
    }
  }
}

// The best tree of a sentence. Ties: the smallest split wins.
template <class Inside, class Parts>
DEVICE void best_tree(Parts scores, i64* heads, double* work, int* stack, int N, int n, int single_root) {
  Inside in(work, n);
  if (fill(in, scores, scores, scores, N, n, single_root, false).some)
    unwind<false>(n, heads, stack, [&](int kind, int d, int i, int g, int first, int last) {
      return warp_argmax(first, last + 1, [&](int t) { return summand(in, kind, d, i, g, t).v; }).index;
    });
}

// Trees drawn for a sentence, each by one lane.
template <class Inside, class Parts>
DEVICE bool draw_trees(Parts scores, Samples samples, double* work, int* stacks, int N, int n, int single_root,
                       bool must_prove) {
  Inside in(work, n);
  const Found z = fill(in, scores, scores, scores, N, n, single_root, must_prove);
  if (z.some) LANES(s, samples.count) {
    Stream random = samples.random(s);
    unwind<true>(n, samples.of(s), stacks + LANE_NUMBER * 4 * (N + 4),
                 [&](int kind, int d, int i, int g, int first, int last) {
      return draw_one<typename Inside::S>(first, last, random.uniform(),
                                          [&](int t) { return summand(in, kind, d, i, g, t); });
    });
  }
  return z.enough;
}
