// From a filled inside chart of cky.cuh to a tree: cells are taken apart from the whole sentence down, left ones first.
#pragma once
#include "cky.cuh"

// One way to make a cell: rule number k of those sorted by parent, with t words on the left.
struct Way { int k, t; };

// rows [2n - 1, 4]: first word, last word, symbol, last word of the left child (-1: a tag). stack: 3 * (n + 2) ints.
// root() chooses a symbol, way(s, w, i) a Way. With `alone` every lane works on a tree of its own; without, the team
// works on one tree together.
template <bool alone, class Root, class Choose>
DEVICE void take_apart(Rules g, int n, i64* rows, int* stack, Root root, Choose choose_way) {
  const Order by = g.by(0);
  const bool writes = alone || LEADER;
  int top = 0, made = 0;
  auto push = [&](int s, int w, int i) {
    if (writes) stack[3 * top] = s, stack[3 * top + 1] = w, stack[3 * top + 2] = i;
    ++top;
  };
  push(root(), n, 0);
  while (top > 0) {
    if (!alone) BARRIER();
    --top;
    const int s = stack[3 * top], w = stack[3 * top + 1], i = stack[3 * top + 2];
    if (!alone) BARRIER();
    Way way{0, 0};
    if (w > 1) {
      way = choose_way(s, w, i);
      push(by.other[way.k], w - way.t, i + way.t);
      push(by.one[way.k], way.t, i);
    }
    if (writes) {
      i64* row = rows + 4 * (i64)made;
      row[0] = i, row[1] = i + w - 1, row[2] = s, row[3] = w > 1 ? i + way.t - 1 : -1;
    }
    ++made;
  }
}

// What a way adds to its cell, but for the weight of the span, which all of them have.
template <class C> DEVICE typename C::S_ summand(const C& c, Order by, Way way, int w, int i) {
  return c.rules.cell(by.rule[way.k]) * c.in.one(by.one[way.k], way.t, i) *
         c.in.one(by.other[way.k], w - way.t, i + way.t);
}
