// Eisner's program (1996) with scores of siblings in a row, the inside pass, over any number type.
//
//   X(d, i)  what lies between two children i and i+d of a head, one after the other:  sum_t R(t, i) * L(d-1-t, i+t+1)
//   P(d, i)  ended by the arc i -> i+d:  A(d, 0, i) * L(d-1, i+1) + sum_t A(d, t, i) * P(t, i) * X(d-t, i+t)
//   Q(d, i)  ended by the arc i+d -> i:  Z(d, 0, i) * R(d-1, i) + sum_t Z(d, t, i) * Q(t, i+d-t) * X(d-t, i)
//   R(d, i)  complete, headed at i, to the right:  sum_t P(t, i) * R(d-t, i+t)
//   L(d, i)  complete, headed at i+d, to the left: sum_t L(t, i) * Q(d-t, i+t)
//
// A(d, t, i) is the weight of the arc i -> i+d and of its sibling i+t (t = 0: there is none), Z(d, t, i) that of the
// arc i+d -> i and of its sibling i+d-t. With a single root those of its second child are 0.
#pragma once
#include "eisner.cuh"

// Scores of one sentence, or a direction in them; a part of it may be null, for all zeros.
template <class In> struct Parts {
  const In *arcs, *siblings;
  DEVICE Parts at(i64 b, int N) const {
    return Parts{arcs ? arcs + b * N * N : nullptr, siblings ? siblings + b * N * N * N : nullptr};
  }
  DEVICE Pack get(int h, int s, int m, int N) const {
    Pack x = Pack{};
    if (arcs) x = scores_at(arcs + (i64)h * N, m, N);
    if (siblings) x = x + scores_at(siblings + ((i64)h * N + s) * N, m, N);
    return x;
  }
};

// Which lanes of the pack at i are > k.
#if ON_GPU
DEVICE bool lanes_above(int i, int k) { return i > k; }
#else
DEVICE Mask lanes_above(int i, int k) { return (Mask)~lanes_below(i, k + 1); }
#endif

// Which lanes of the pack at m are modifiers of head h after its child s (s = h: none).
DEVICE Mask may_follow(int h, int s, int m, int n) {
  return may_take(h, m, n) & (s == h ? lanes_below(0, W) : s > h ? lanes_above(m, s) : lanes_below(m, s));
}

// Weights by width d, distance t of the sibling and start i, rows one after the other without gaps.
template <class T> struct Triples {
  double* base;
  int n;
  i64 size;
  DEVICE i64 plane() const { return plane_of(size); }
  DEVICE double* at(int d, int t, int i) const {
    const i64 rows = (i64)(n + 1) * d * (d - 1) / 2 - (i64)(d - 1) * d * (2 * d - 1) / 6;
    return base + spread_out<T>(rows + (i64)t * (n + 1 - d) + i);
  }
  DEVICE T get(int d, int t, int i) const { return T::load(at(d, t, i), plane()); }
  DEVICE typename T::Scalar cell(int d, int t, int i) const { return T::Scalar::load(at(d, t, i), plane()); }
};
DEVICE i64 triples_size(int n) { return (i64)n * (n + 1) * (n + 2) / 6 + 2 * PAD; }
template <class T> DEVICE Triples<T> triples(double* work, int n) {
  const i64 size = triples_size(n);
  for (int k = 0; k < PAD; k += W) T::zero().store(work + k, size), T::zero().store(work + size - PAD + k, size);
  return Triples<T>{work + PAD, n, size};
}

// Stores the lanes of a mask alone.
template <class T> DEVICE void put_lanes(Mask valid, T v, double* at, i64 plane) {
#if ON_GPU
  if (valid) v.store(at, plane);
#else
  T::pick(valid, v, T::load(at, plane)).store(at, plane);
#endif
}

// As spread_for, where a word has so many ways to be attached.
DEVICE double spread_over(double ways, int n) { return n > 1 ? fmax(0., log(ways) - 600. / n) : 0.; }

// Charts of the inside pass, or of derivatives by it.
template <class T> struct SiblingCharts {
  Chart<T> R, L, P, Q, X;
  static constexpr int squares = 3;
  DEVICE SiblingCharts(double* work, int n) {
    const i64 size = T::planes * square_size(n);
    R = first_half<T>(work, n), L = second_half<T>(work, n);
    P = first_half<T>(work + size, n), Q = second_half<T>(work + size, n);
    X = first_half<T>(work + 2 * size, n);
    for (int s = 0; s < squares; ++s) clear_pads<T>(work + s * size, n);
  }
};

template <class T> struct SiblingInside : SiblingCharts<T> {
  typedef SiblingCharts<T> Charts;
  typedef typename T::Scalar S;
  using Charts::R, Charts::L, Charts::P, Charts::Q, Charts::X, Charts::squares;
  Triples<T> A, Z;
  double* tops;  // of each word: its greatest score
  static DEVICE i64 doubles(int n) {
    return T::planes * (squares * square_size(n) + 2 * triples_size(n)) + chart_row(n);
  }
  DEVICE SiblingInside(double* work, int n) : Charts(work, n) {
    double* next = work + squares * T::planes * square_size(n);
    A = triples<T>(next, n);
    Z = triples<T>(next + T::planes * triples_size(n), n);
    tops = next + 2 * T::planes * triples_size(n);
  }

  // First every word's scores as they are (and what the directions add to them) to their places, then, in place,
  // weights. A lane works on the same modifiers all the time.
  template <class In>
  DEVICE Range load(Parts<In> scores, Parts<In> u, Parts<In> v, int N, int n, int single_root, double spread) {
    Range mine{0., 0., 0};
    const Pack none = splat<Pack>(-infinity());
    const i64 plane = A.plane();
    PACKS(m, n + 1) unpack(tops + m, none);
    for (int h = 0; h <= n; ++h)
      for (int s = 0; s <= n; ++s)
        PACKS(m, s < h ? s : n + 1) {
          const int end = m + W < n + 1 ? m + W : n + 1;
          const int first = s >= h && m <= s ? s + 1 : m;  // to the right: first..end-1
          const int last = s <= h && end > s ? s : end;    // to the left: m..last-1
          if (s > h && first >= end) continue;
          const Pack x = choose(may_follow(h, s, m, n), scores.get(h, s, m, N), none), best = pack(tops + m);
          const bool one = single_root && h == 0 && s > 0;
          mine.bad |= any((x != x) | (x == -none));
          unpack(tops + m, choose(x > (one ? -none : best), x, best));
          double lanes[(1 + T::order) * W];
          unpack(lanes, one ? none : x);
          if (T::order > 0) unpack(lanes + (T::order > 0) * W, choose(x > none, u.get(h, s, m, N), Pack{}));
          if (T::order > 1) unpack(lanes + (T::order > 1) * 2 * W, choose(x > none, v.get(h, s, m, N), Pack{}));
          auto put = [&](double* to, int k) {
            for (int o = 0; o <= T::order; ++o) to[o * plane] = lanes[o * W + k - m];
          };
          if (s >= h && first < end) {
            double* to = A.at(first - h, s - h, h);
            for (int k = first, d = k - h; k < end; ++k, ++d) {
              put(to, k);
              to += spread_out<T>(d * (n + 1 - d) - (s - h));  // from width d to d + 1
            }
          }
          if (s <= h && m < last) {
            double* to = Z.at(h - m, h - s, m);
            for (int k = m, d = h - k; k < last; ++k, --d) {
              put(to, k);
              to -= spread_out<T>((d - 1) * (n + 2 - d) - (h - s) - 1);  // from width d to d - 1, one to the right
            }
          }
        }
    PACKS(m, n + 1) {
      Pack base = Pack{}, sum = Pack{};
      const Pack best = pack(tops + m);
      if (T::sums) base = choose(best > none, best, Pack{}) + spread;
      auto weigh = [&](double* at, Mask valid) {
        const Pack x = choose(valid, pack(at), none);
        Pack directions[2] = {Pack{}, Pack{}};
        for (int o = 0; o < T::order; ++o) directions[o] = choose(valid, pack(at + (o + 1) * plane), Pack{});
        const T w = T::weight(x - base, directions);
        if (T::sums) sum += w.value();
        put_lanes(valid, w, at, plane);
      };
      for (int d = 1; d <= n; ++d)
        for (int t = 0; t < d; ++t) {
          if (m + W > d) weigh(A.at(d, t, m - d), lanes_below(m, n + 1) & lanes_above(m, d - 1));
          if (m + d <= n) weigh(Z.at(d, t, m), lanes_below(m, n + 1 - d));
        }
      for (int l = 0; T::sums && l < W; ++l)
        if (m + l >= 1 && m + l <= n) {
          mine.shift += lane_of(base, l);
          mine.log_bound += log(fmax(1., lane_of(sum, l)));
        }
    }
    return team_reduce(mine, Plus{});
  }

  // As unwinding reads them.
  DEVICE S row_right(int d, int t, int i) const { return A.cell(d, t, i); }
  DEVICE S row_left(int d, int t, int i) const { return Z.cell(d, t, i); }
  DEVICE S whole(int n) const { return R.cell(n, 0); }

  static DEVICE double ways(double n) { return 0.5 * n * (n + 1.); }
  static DEVICE bool enough(double log_z, Range range, int n) { return proven(log_z, range.log_bound, n); }

  DEVICE void run(int n) {
    PACKS(i, n + 1) { R.put(0, i, n, T::one()); L.put(0, i, n, T::one()); }
    BARRIER();
    for (int d = 1; d <= n; ++d) {
      PACKS(i, n + 1 - d) {
        T x = L.get(d - 1, i + 1), r = T::zero(), l = T::zero();
        T p = A.get(d, 0, i) * x, q = Z.get(d, 0, i) * R.get(d - 1, i);
        for (int t = 1; t < d; ++t) {
          x.mac(R.get(t, i), L.get(d - 1 - t, i + t + 1));
          p.mac(P.get(t, i) * X.get(d - t, i + t), A.get(d, t, i));
          q.mac(Q.get(t, i + d - t) * X.get(d - t, i), Z.get(d, t, i));
          r.mac(P.get(t, i), R.get(d - t, i + t));
          l.mac(L.get(t, i), Q.get(d - t, i + t));
        }
        p = p.normal(), q = q.normal();
        X.put(d, i, n, x.normal());
        P.put(d, i, n, p);
        Q.put(d, i, n, q);
        R.put(d, i, n, (r + p).normal());
        L.put(d, i, n, (l + q).normal());
      }
      BARRIER();
    }
  }
};

// Fills an inside chart of this program, or of that with grandparents.
template <class Inside, class Parts>
DEVICE Found fill(Inside& in, Parts scores, Parts u, Parts v, int N, int n, int single_root, bool must_prove) {
  BARRIER();
  const double spread = must_prove ? spread_over(Inside::ways(n), n) : 0.;
  const Range range = in.load(scores, u, v, N, n, single_root, spread);
  if (range.bad) return unfit();
  in.run(n);
  const double log_z = log_of(in.whole(n).primal());
  return found(log_z, range.shift, !must_prove || Inside::enough(log_z, range, n));
}
