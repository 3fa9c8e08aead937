// Eisner's algorithm on a CPU, in doubles: the sums of eisner.cuh as products of matrices, [start, end] of spans i..j,
//
//   X(i, j) = sum_k R(i, k-1) * L(k, j)     R(i, j) = sum_k P(i, k) * R(k, j)     L(i, j) = sum_k L(i, k) * Q(k, j)
//
// and the outside pass as their transposes. Charts are made of tiles of W x W numbers. What a tile takes from others is
// a product of whole tiles, summed in registers; then its rows are finished one after the other, cell by cell. Tiles on
// a diagonal need nothing of each other, so up to three are finished at once, one working where the other waits.
#pragma once
#include "eisner.cuh"
#include "squares.cuh"
#if !ON_GPU

// Word k lies at place k + ROOT of a row, so that tiles begin with a word: the root is the last of the first tile.
constexpr int ROOT = W - 1, TILE = W * W;
DEVICE int tiles_of(int n) { return (n + W - 1) / W + 1; }
DEVICE i64 tile_index(int I, int J) { return I < J ? (i64)J * (J + 1) / 2 + I : (i64)I * (I + 1) / 2 + J; }

// All charts of a pair I <= J: the weights A, Z of eisner.cuh [head, modifier] (both in A where I = J); the inside
// charts, and before(i, j) = R(i, j-1); some transposed, with after(j, i) = L(i+1, j); derivatives of log Z.
struct Tile {
  double A[TILE], Z[TILE], R[TILE], L[TILE], P[TILE], Q[TILE], before[TILE];
  double Rt[TILE], Qt[TILE], after[TILE], dR[TILE], dL[TILE], dX[TILE];
};
typedef double (Tile::*TileChart)[TILE];
DEVICE Pack row_of(const double* tile, int r) { return pack(tile + r * W); }
DEVICE void put_row(double* tile, int r, Pack v) { unpack(tile + r * W, v); }

DEVICE Pack rotated(Pack v, int by) {  // lane 0 in lane `by`
  Pack r;
  for (int l = 0; l < W; ++l) r[(l + by) % W] = v[l];
  return r;
}
template <int k> struct Count { static constexpr int number = k; };
// Rows of several tiles, each lane of all of them before the next: one works where the other waits.
template <bool up, int c = 0, class... Row> DEVICE void step_together(Row&... rows) {
  if constexpr (c < W) {
    (rows.template step<up ? c : W - 1 - c>(), ...);
    step_together<up, c + 1>(rows...);
  } else {
    (rows.finish(), ...);
  }
}
template <bool up, class Make> DEVICE void side_by_side(Make make, Count<1>) {
  auto a = make(0);
  step_together<up>(a);
}
template <bool up, class Make> DEVICE void side_by_side(Make make, Count<2>) {
  auto a = make(0);
  auto b = make(1);
  step_together<up>(a, b);
}
template <bool up, class Make> DEVICE void side_by_side(Make make, Count<3>) {
  auto a = make(0);
  auto b = make(1);
  auto c = make(2);
  step_together<up>(a, b, c);
}
#define GROUP decltype(many)::number
template <class Run> DEVICE void in_groups(int from, int to, Run run) {
  for (; from + 3 <= to; from += 3) run(Count<3>{}, from);
  for (; from + 2 <= to; from += 2) run(Count<2>{}, from);
  if (from < to) run(Count<1>{}, from);
}

// Rows of a tile; of the first tile of a column there is only the root's.
struct Rows {
  Pack row[W];
  // += the sum of a(r, k) * b(k) over the places k of the tiles a(K) and b(K), K in [from, to); `transposed`: a(k, r).
  // Of the first tile that is the root's place, of the last one the first `last` places.
  template <bool root, bool transposed, class A, class B>
  DEVICE void add(int from, int to, int last, A a, TileChart of_a, B b, TileChart of_b) {
    Pack s[W];
    for (int r = root ? ROOT : 0; r < W; ++r) s[r] = row[r];
    for (int K = from; K < to; ++K) {
      const double *x = a(K)->*of_a, *y = b(K)->*of_b;
      auto place = [&](int k) INLINED {
        const Pack v = row_of(y, k);
#pragma GCC unroll 8
        for (int r = root ? ROOT : 0; r < W; ++r) s[r] += splat<Pack>(x[transposed ? k * W + r : r * W + k]) * v;
      };
      if (transposed && K == 0) {
        place(ROOT);
      } else if (last < W && K + 1 == to) {
        for (int k = 0; k < last; ++k) place(k);
      } else {
#pragma GCC unroll 8
        for (int k = 0; k < W; ++k) place(k);
      }
    }
    for (int r = root ? ROOT : 0; r < W; ++r) row[r] = s[r];
  }
};

struct Tiles {
  int n, tiles, width, single_root;  // width: words in the last tile
  Tile* base;
  DEVICE Tiles(double* work, int n, int single_root)
      : n(n), tiles(tiles_of(n)), width((n - 1) % W + 1), single_root(single_root), base((Tile*)work) {}
  DEVICE int width_of(int J) const { return J + 1 == tiles ? width : W; }
  DEVICE Tile* at(int I, int J) const { return base + tile_index(I, J); }
  DEVICE double* modifiers_left(int J, int I) const { return I == J ? at(I, J)->A : at(J, I)->Z; }

  template <class In> DEVICE Range load(Given<In> arcs, int N, Pack spread) {
    return load_weights<Lin<Pack>>(arcs, N, n, spread, [&](int h, int m, Lin<Pack> w) INLINED {
      const int H = (h + ROOT) / W, r = (h + ROOT) % W, M = m / W;
      auto tile = [&](int to) INLINED { return H <= to ? at(H, to)->A : modifiers_left(H, to); };
      const Pack v = w.v;
      if (M > 0) tile(M)[r * W + ROOT] = v[0];
      if (M + 1 < tiles) put_row(tile(M + 1), r, choose(lane_is(0, ROOT), Pack{}, rotated(v, ROOT)));
    });
  }

  // With a single root: see without_partial_root of Inside.
  DEVICE Pack whole_root(Pack r, int J) const {
    return single_root ? choose(lane_is(J * W, n + ROOT), r, Pack{}) : r;
  }

  struct Sums { Rows x, r, l, q; };

  template <bool root> DEVICE void inside_others(Sums& s, int I, int J) const {
    s = Sums{};
    auto row = [&](int K) INLINED { return at(I, K); };
    auto below = [&](int K) INLINED { return at(K, J); };
    s.x.add<root, false>(I + 1, J, W, row, &Tile::before, below, &Tile::L);
    s.r.add<root, false>(I + 1, J, W, row, &Tile::P, below, &Tile::R);
    s.l.add<root, false>(I + 1, J, W, row, &Tile::L, below, &Tile::Q);
  }

  // A row of a tile being finished, lane by lane from the left.
  template <bool root, bool diagonal> struct InsideRow {
    const Tiles& in;
    int I, J, r, end;
    double *rs, *ls, *ps, *qs, *bs, *rt, *qt, *at;
    const double *own_r, *own_l, *own_q, *a, *z;
    Pack x, right, left, q;
    DEVICE InsideRow(const Tiles& in, const Sums& s, int I, int J, int r)
        : in(in), I(I), J(J), r(r), end(in.width_of(J)) {
      rs = in.at(I, J)->R, ls = in.at(I, J)->L, ps = in.at(I, J)->P, qs = in.at(I, J)->Q, bs = in.at(I, J)->before;
      own_r = in.at(J, J)->R, own_l = in.at(J, J)->L, own_q = in.at(J, J)->Q;
      a = in.at(I, J)->A + r * W, z = in.modifiers_left(J, I) + r;
      rt = in.at(J, I)->Rt + r, qt = in.at(J, I)->Qt + r;
      at = r > 0 ? in.at(J, I)->after + r - 1 : in.at(J, I - 1)->after + ROOT;
      x = s.x.row[r], right = s.r.row[r], left = s.l.row[r], q = Pack{};
      if (diagonal) return;
      const double *b = in.at(I, I)->before + r * W, *p = in.at(I, I)->P + r * W, *l = in.at(I, I)->L + r * W;
      for (int k = r + 1; k < W; ++k) {
        x += splat<Pack>(b[k]) * row_of(ls, k);
        right += splat<Pack>(p[k]) * row_of(rs, k);
        left += splat<Pack>(l[k]) * row_of(qs, k);
      }
      x += splat<Pack>(bs[r * W]) * row_of(own_l, 0);
    }
    template <int c> DEVICE void step() {
      if (c >= end || (diagonal && c < r)) return;
      if (diagonal && c == r) {
        if (c + 1 < W) x = row_of(own_l, c + 1);
        right = left = choose(lane_is(0, c) & lanes_below(J * W, in.n + ROOT + 1), splat<Pack>(1.), Pack{});
        rt[c * W] = 1.;
        if (!root) at[c * W] = 1.;
        return;
      }
      const Pack here = spread<c>(x), p = here * a[c], here_q = root ? Pack{} : here * z[c * W];
      const Pack here_l = spread<c>(left) + here_q;
      Pack here_r = spread<c>(right) + p;
      if (root && in.single_root && J * W + c < in.n + ROOT) here_r = Pack{};
      q = choose(lane_is(0, c), here_q, q);
      if (c + 1 < W) x += here_r * row_of(own_l, c + 1);
      right += p * row_of(own_r, c);
      left += here_l * row_of(own_q, c);
      rt[c * W] = here_r[0], qt[c * W] = here_q[0];
      if (!root) at[c * W] = here_l[0];
    }
    DEVICE void finish() {
      if (root && !diagonal) right = in.whole_root(right, J);
      const Pack ahead = rotated(right, 1);
      put_row(bs, r, choose(lane_is(0, 0), diagonal ? Pack{} : row_of(bs, r), ahead));
      if (J + 1 < in.tiles) in.at(I, J + 1)->before[r * W] = ahead[0];
      put_row(ps, r, x * pack(a));
      put_row(qs, r, q);
      put_row(rs, r, right);
      put_row(ls, r, left + q);
    }
  };

  template <int many, bool root, bool diagonal> DEVICE void inside_tiles(int I, int J) const {
    Sums s[many];
    for (int t = 0; t < many; ++t) inside_others<root>(s[t], I + t, J + t);
    for (int r = (diagonal && many == 1 && !root ? width_of(J) : W) - 1; r >= (root ? ROOT : 0); --r)
      side_by_side<true>([&](int t) INLINED {
        return InsideRow<root, diagonal>(*this, s[t], I + t, J + t, r);
      }, Count<many>{});
  }

  DEVICE void inside() const {
    if (width < W) put_row(at(tiles - 1, tiles - 1)->L, width, Pack{});
    for (int J = 0; J < tiles; ++J)
      for (int r = 0; r < W; ++r) {
        put_row(at(J, J)->Rt, r, Pack{});
        put_row(at(J, J)->Qt, r, Pack{});
        put_row(at(J, J)->after, r, Pack{});
      }
    inside_tiles<1, true, true>(0, 0);
    in_groups(1, tiles - 1, [&](auto many, int I) INLINED { inside_tiles<GROUP, false, true>(I, I); });
    inside_tiles<1, false, true>(tiles - 1, tiles - 1);
    for (int D = 1; D < tiles; ++D) {
      in_groups(1, tiles - D, [&](auto many, int I) INLINED { inside_tiles<GROUP, false, false>(I, I + D); });
      inside_tiles<1, true, false>(0, D);
    }
  }
  DEVICE double whole() const { return at(0, tiles - 1)->R[ROOT * W + (n - 1) % W]; }  // R(0, n) = Z'

  template <bool root> DEVICE void outside_others(Sums& s, int I, int J) const {
    s = Sums{};
    auto row = [&](int K) INLINED { return at(I, K); };
    auto column = [&](int K) INLINED { return at(K, I); };
    auto below = [&](int K) INLINED { return at(K, J); };
    s.r.add<root, false>(J + 1, tiles, width, row, &Tile::dX, below, &Tile::after);
    s.l.add<root, false>(J + 1, tiles, width, row, &Tile::dL, below, &Tile::Qt);
    s.x.add<root, false>(J + 1, tiles, width, row, &Tile::dR, below, &Tile::Rt);
    s.r.add<root, true>(0, I, W, column, &Tile::P, below, &Tile::dR);
    s.l.add<root, true>(0, I, W, column, &Tile::before, below, &Tile::dX);
    s.q.add<root, true>(0, I, W, column, &Tile::L, below, &Tile::dL);
  }

  // The same from the right; put(i, j, right, v) as of Outside, for spans from i to the ends that are the pack at j.
  template <bool root, bool diagonal, class Put> struct OutsideRow {
    const Tiles& in;
    int I, J, r, end;
    Put put;
    double *rs, *ls, *xs;
    const double *own_r, *own_q, *own_a, *a, *z;
    Pack x, right, left, p, q;
    DEVICE OutsideRow(const Tiles& in, const Sums& s, int I, int J, int r, Put put)
        : in(in), I(I), J(J), r(r), end(in.width_of(J)), put(put) {
      rs = in.at(I, J)->dR, ls = in.at(I, J)->dL, xs = in.at(I, J)->dX;
      own_r = in.at(J, J)->Rt, own_q = in.at(J, J)->Qt, own_a = in.at(J, J)->after;
      a = in.at(I, J)->A + r * W, z = in.modifiers_left(J, I) + r;
      right = s.r.row[r], left = s.l.row[r], p = s.x.row[r], q = s.q.row[r], x = Pack{};
      if (root) {
        right = in.whole_root(right + choose(lane_is(J * W, in.n + ROOT), splat<Pack>(1. / in.whole()), Pack{}), J);
        return;
      }
      const double *before_i = in.at(I, I)->before + r, *p_i = in.at(I, I)->P + r, *l_i = in.at(I, I)->L + r;
      for (int k = 0; k < r; ++k) {
        right += splat<Pack>(p_i[k * W]) * row_of(rs, k);
        left += splat<Pack>(before_i[k * W]) * row_of(xs, k);
        q += splat<Pack>(l_i[k * W]) * row_of(ls, k);
      }
    }
    template <int c> DEVICE void step() {
      if (c >= end || (diagonal && c <= r)) return;
      Pack here_r = spread<c>(right);
      if (root && in.single_root && J * W + c < in.n + ROOT) here_r = Pack{};
      const Pack here_l = spread<c>(left), here_p = spread<c>(p) + here_r, here_q = spread<c>(q) + here_l;
      const Pack here = root ? here_p * a[c] : here_p * a[c] + here_q * z[c * W];
      x = choose(lane_is(0, c), here, x);
      if (c > 0) right += here * row_of(own_a, c);
      left += here_l * row_of(own_q, c);
      p += here_r * row_of(own_r, c);
    }
    DEVICE void finish() {
      put_row(rs, r, root ? in.whole_root(right, J) : right);
      put_row(ls, r, left);
      put_row(xs, r, x);
      put(I * W + r - ROOT, J * W - ROOT, true, row_of(in.at(I, J)->P, r) * p);
      if (!root) put(I * W + r - ROOT, J * W - ROOT, false, row_of(in.at(I, J)->Q, r) * (q + left));
    }
  };

  template <int many, bool root, bool diagonal, class Put> DEVICE void outside_tiles(int I, int J, Put put) const {
    Sums s[many];
    for (int t = 0; t < many; ++t) outside_others<root>(s[t], I + t, J + t);
    for (int r = root ? ROOT : 0; r < (diagonal && many == 1 ? width_of(J) : W); ++r)
      side_by_side<false>([&](int t) INLINED {
        return OutsideRow<root, diagonal, Put>(*this, s[t], I + t, J + t, r, put);
      }, Count<many>{});
  }

  template <class Put> DEVICE void outside(Put put) const {
    for (int D = tiles - 1; D >= 1; --D) {
      outside_tiles<1, true, false>(0, D, put);
      in_groups(1, tiles - D, [&](auto many, int I) INLINED { outside_tiles<GROUP, false, false>(I, I + D, put); });
    }
    in_groups(1, tiles - 1, [&](auto many, int I) INLINED { outside_tiles<GROUP, false, true>(I, I, put); });
    outside_tiles<1, false, true>(tiles - 1, tiles - 1, put);
  }
};

template <class In>
DEVICE bool sum_tiles(Given<In> arcs, Results<In, 1> results, double* work, int N, int n, int single_root) {
  Tiles tiles(work, n, single_root);
  const Range range = tiles.load(arcs, N, splat<Pack>(spread_for(n)));
  Found z = unfit<Lin<Pack>>();
  if (!range.bad) {
    tiles.inside();
    const double log_z = log(tiles.whole());
    z = found(log_z, range.shift, proven<Lin<Pack>>(log_z, range.log_bound, n));
  }
  if (!results.take(z)) return z.enough;
  In* out = results.out[0];
  tiles.outside([&](int i, int j, bool right, Pack v) INLINED {
    In* row = out + (i64)i * N + j;
    In* column = out + (i64)j * N + i;
    typedef In Few __attribute__((vector_size(sizeof(In) * W)));
    const Few x = __builtin_convertvector(v, Few);
    if (i < j && j + W <= n + 1) {
      if (right) std::memcpy(row, &x, sizeof x);
      else for (int c = 0; c < W; ++c) column[(i64)c * N] = x[c];
    } else {
      for (int c = 0; c < W && j + c <= n; ++c)
        if (j + c > i) *(right ? row + c : column + (i64)c * N) = x[c];
    }
  });
  return true;
}
#endif
