// The numbers that the algorithms are written in. An algorithm over sums of products is one template; the number
// type decides what it computes:
//
//   Lin<V>     a double                          fast; the caller proves that its range was enough
//   Dual<T>    a + b*eps, eps^2 = 0              directional derivatives; Dual<Dual<T>> for second ones
//   Ext<T>     m * 2^e, m one of those above     the same to any range of scores
//   Max<V>     (max, +)                          the best tree
//   Short      m * 2^e, both integers            sums for scores in float32 on most GPUs: short.cuh
//
// V is a double or a pack of doubles, and so is a Score, which weights are made of; of Short V is a float. A number lies in
// memory as `planes` times eight bytes, `plane` apart: one after the other on a GPU (one pointer does for all of them), an
// array each on a CPU (for packs).
#pragma once
#include "lanes.cuh"

#if ON_GPU
template <class T> DEVICE i64 spread_out(i64 numbers) { return numbers * T::planes; }  // doubles before that number
DEVICE constexpr i64 plane_of(i64) { return 1; }                                        // of arrays of this many
#else
template <class T> DEVICE i64 spread_out(i64 numbers) { return numbers; }
DEVICE i64 plane_of(i64 numbers) { return numbers; }
#endif

// Scores, which may be -inf; NaN and +inf are wrong.
template <class X> DEVICE X forbidden() { return splat<X>(-infinity()); }
template <class X> DEVICE auto some(X x) { return x > splat<X>(-infinity()); }
template <class X> DEVICE auto wrong(X x) { return (x != x) | (x == splat<X>(infinity())); }
template <class In> DEVICE double score_of(In x, double) { return (double)x; }
DEVICE bool too_low(double) { return false; }
DEVICE double nats(double x) { return x; }

// 2^e for whole e, 0 below -1022; e at most 1023
template <class V> DEVICE V pow2(V e) {
  V low = splat<V>(-1023.);
  e = choose(e > low, e, low);
  return from_bits((bits(e + 6755399441055744.) << 52) + (1023LL << 52));
}

// exp(x) = m * 2^e, m in [0.7, 1.42]; x may not be -inf or NaN
template <class V> struct Power { V m, e; };
template <class V> DEVICE Power<V> exp_parts(V x) {
  const double magic = 6755399441055744.;  // 1.5 * 2^52: adding it rounds to a whole number
  V e = (x * 1.4426950408889634 + magic) - magic;
  V r = (x - e * 0.6931471803691238) - e * 1.9082149292705877e-10;
  V p = splat<V>(1.6059043836821613e-10);  // 1/13!
  p = p * r + 2.08767569878681e-09;
  p = p * r + 2.505210838544172e-08;
  p = p * r + 2.755731922398589e-07;
  p = p * r + 2.7557319223985893e-06;
  p = p * r + 2.48015873015873e-05;
  p = p * r + 1.984126984126984e-04;
  p = p * r + 1.3888888888888889e-03;
  p = p * r + 8.333333333333333e-03;
  p = p * r + 4.1666666666666664e-02;
  p = p * r + 1.6666666666666666e-01;
  p = p * r + 0.5;
  p = p * r + 1.;
  p = p * r + 1.;
  return Power<V>{p, e};
}

// The same for any finite x <= 0. Past -2^50 a double is too coarse for the mantissa to mean anything: it is 1.
template <class V> DEVICE Power<V> exp_parts_far(V x) {
  const double magic = 6755399441055744.;
  V far = splat<V>(-1125899906842624.), y = x * 1.4426950408889634;
  Power<V> p = exp_parts(choose(x > far, x, far));
  V whole = choose(y > splat<V>(-4503599627370496.), 2. * ((0.5 * y + magic) - magic), y);
  return Power<V>{choose(x > far, p.m, splat<V>(1.)), choose(x > far, p.e, whole)};
}

// exp(x); 0 for -inf and what is below the range
template <class V> DEVICE V exp_in_range(V x) {
  V low = splat<V>(-708.);
  Power<V> p = exp_parts(choose(x > low, x, low));
  return choose(x > low, p.m * pow2(p.e), V{});
}

#if !ON_GPU
#include "exp_packs.cuh"  // the same for packs, in half the time
#endif

template <class V_> struct Lin {
  typedef V_ V, Score;
  typedef Lin<double> Scalar;
  static constexpr int planes = 1, order = 0;
  static constexpr bool sums = true;
  V v;
  static DEVICE Lin lift(Scalar s) { return Lin{splat<V>(s.v)}; }  // in every lane
  static DEVICE Lin zero() { return Lin{V{}}; }
  static DEVICE Lin one() { return Lin{splat<V>(1.)}; }
  static DEVICE Lin load(const double* p, i64) { Lin r; load_into(r.v, p); return r; }
  DEVICE void store(double* p, i64) const { unpack(p, v); }
  template <class M> static DEVICE Lin pick(M m, Lin a, Lin b) { return Lin{choose(m, a.v, b.v)}; }
  DEVICE void mac(Lin a, Lin b) { v += a.v * b.v; }
  DEVICE Lin operator*(Lin o) const { return Lin{v * o.v}; }
  DEVICE Lin operator+(Lin o) const { return Lin{v + o.v}; }
  DEVICE Lin scaled(V s) const { return Lin{v * s}; }
  DEVICE Lin inverse() const { return Lin{1. / v}; }
  DEVICE Lin normal() const { return *this; }
  DEVICE V value() const { return v; }
  DEVICE V top() const { return v; }
  DEVICE Lin primal() const { return *this; }
  DEVICE V size() const { return choose(v < V{}, -v, v); }
  static DEVICE Lin seed(V w, const V*) { return Lin{w}; }
  static DEVICE Lin weight(V x, const V*) { return Lin{exp_in_range(x)}; }
 private:
  static DEVICE void load_into(double& r, const double* p) { r = *p; }
#if !ON_GPU
  static DEVICE void load_into(Pack& r, const double* p) { r = pack(p); }
#endif
};

template <class V_> struct Max {
  typedef V_ V, Score;
  typedef Max<double> Scalar;
  static constexpr int planes = 1, order = 0;
  static constexpr bool sums = false;
  V v;
  static DEVICE Max lift(Scalar s) { return Max{splat<V>(s.v)}; }
  static DEVICE Max zero() { return Max{splat<V>(-infinity())}; }
  static DEVICE Max one() { return Max{V{}}; }
  static DEVICE Max load(const double* p, i64) { return Max{Lin<V>::load(p, 0).v}; }
  DEVICE void store(double* p, i64) const { unpack(p, v); }
  template <class M> static DEVICE Max pick(M m, Max a, Max b) { return Max{choose(m, a.v, b.v)}; }
  DEVICE void mac(Max a, Max b) { V s = a.v + b.v; v = choose(s > v, s, v); }
  DEVICE Max operator*(Max o) const { return Max{v + o.v}; }
  DEVICE Max operator+(Max o) const { return Max{choose(o.v > v, o.v, v)}; }
  DEVICE Max normal() const { return *this; }
  DEVICE V value() const { return v; }
  DEVICE Max primal() const { return *this; }
  static DEVICE Max weight(V x, const V*) { return Max{x}; }
};

template <class T> struct Dual {
  typedef typename T::V V, Score;
  typedef Dual<typename T::Scalar> Scalar;
  static constexpr int planes = 2 * T::planes, order = 1 + T::order;
  static constexpr bool sums = true;
  T a, b;
  static DEVICE Dual lift(Scalar s) { return Dual{T::lift(s.a), T::lift(s.b)}; }
  static DEVICE Dual zero() { return Dual{T::zero(), T::zero()}; }
  static DEVICE Dual one() { return Dual{T::one(), T::zero()}; }
  static DEVICE Dual load(const double* p, i64 plane) { return Dual{T::load(p, plane), T::load(p + T::planes * plane, plane)}; }
  DEVICE void store(double* p, i64 plane) const { a.store(p, plane); b.store(p + T::planes * plane, plane); }
  template <class M> static DEVICE Dual pick(M m, Dual x, Dual y) { return Dual{T::pick(m, x.a, y.a), T::pick(m, x.b, y.b)}; }
  DEVICE void mac(Dual x, Dual y) { a.mac(x.a, y.a); b.mac(x.a, y.b); b.mac(x.b, y.a); }
  DEVICE Dual operator*(Dual o) const { return Dual{a * o.a, a * o.b + b * o.a}; }
  DEVICE Dual operator+(Dual o) const { return Dual{a + o.a, b + o.b}; }
  DEVICE Dual scaled(V s) const { return Dual{a.scaled(s), b.scaled(s)}; }
  DEVICE Dual inverse() const { T r = a.inverse(); return Dual{r, (b * r * r).scaled(splat<V>(-1.))}; }
  DEVICE Dual normal() const { return Dual{a.normal(), b.normal()}; }
  DEVICE V value() const { return a.value(); }
  DEVICE V top() const { return b.top(); }                // coefficient of all the eps together
  DEVICE auto primal() const { return a.primal(); }       // without any eps
  DEVICE V size() const { V x = a.size(), y = b.size(); return choose(x > y, x, y); }
  // w * exp(sum of direction * eps)
  static DEVICE Dual seed(V w, const V* directions) {
    T x = T::seed(w, directions + 1);
    return Dual{x, x.scaled(directions[0])};
  }
  static DEVICE Dual weight(V x, const V* directions) { return seed(exp_in_range(x), directions); }
};

// One exponent for all derivatives: they are at most a number of directions' sizes above the value itself.
constexpr double NOTHING = -1e300;  // exponent of zero, below any other

template <class T> struct Ext {
  typedef typename T::V V, Score;
  typedef Ext<typename T::Scalar> Scalar;
  static constexpr int planes = T::planes + 1, order = T::order;
  static constexpr bool sums = true;
  T m;
  V e;
  static DEVICE Ext lift(Scalar s) { return Ext{T::lift(s.m), splat<V>(s.e)}; }
  static DEVICE Ext zero() { return Ext{T::zero(), splat<V>(NOTHING)}; }
  static DEVICE Ext one() { return Ext{T::one(), V{}}; }
  static DEVICE Ext load(const double* p, i64 plane) {
    return Ext{T::load(p, plane), Lin<V>::load(p + T::planes * plane, plane).v};
  }
  DEVICE void store(double* p, i64 plane) const { m.store(p, plane); unpack(p + T::planes * plane, e); }
  template <class M> static DEVICE Ext pick(M k, Ext x, Ext y) { return Ext{T::pick(k, x.m, y.m), choose(k, x.e, y.e)}; }
  DEVICE void add(T pm, V pe) {
    V top = choose(pe > e, pe, e);
    m = m.scaled(pow2(e - top)) + pm.scaled(pow2(pe - top));
    e = top;
  }
  DEVICE void mac(Ext x, Ext y) { add(x.m * y.m, x.e + y.e); }
  DEVICE Ext operator*(Ext o) const { return Ext{m * o.m, e + o.e}.normal(); }
  DEVICE Ext operator+(Ext o) const { Ext r = *this; r.add(o.m, o.e); return r.normal(); }
  DEVICE Ext scaled(V s) const { return Ext{m.scaled(s), e}.normal(); }
  DEVICE Ext inverse() const { return Ext{m.inverse(), -e}.normal(); }
  // A mantissa that has got far from 1 is brought back; zero gets its own exponent. (Not oftener: exponents past 2^53,
  // from scores like -1e30, cannot take a small step.)
  DEVICE Ext normal() const {
    const V size = m.size();
    V k = from_bits(((bits(size) >> 52) & 0x7ffLL) | 0x4330000000000000LL) - 4503599627370496. - 1023.;
    k = choose(k * k > splat<V>(62500.), k, V{});
    auto some = (size != V{});
    return Ext{m.scaled(pow2(choose(some, -k, V{}))), choose(some, e + k, splat<V>(NOTHING))};
  }
  DEVICE V scale() const { V high = splat<V>(1023.); return pow2(choose(e < high, e, high)); }
  DEVICE V value() const { return m.value() * scale(); }
  DEVICE V top() const { return m.top() * scale(); }
  DEVICE auto primal() const { auto p = m.primal(); return Ext<decltype(p)>{p, e}; }
  static DEVICE Ext weight(V x, const V* directions) {
    Power<V> p = exp_parts_far(choose(x > splat<V>(-infinity()), x, V{}));
    return pick(x > splat<V>(-infinity()), Ext{T::seed(p.m, directions), p.e}.normal(), zero());
  }
};

// The plain number type over V that carries `order` derivatives; Ext<> of it is the wide one.
template <class V, int order> struct Derivative { typedef Dual<typename Derivative<V, order - 1>::type> type; };
template <class V> struct Derivative<V, 0> { typedef Lin<V> type; };

// What sums for scores of type In are tried in first; and what they are done in if that proves too little.
template <class In, int order> struct Tried {
  typedef typename Derivative<Pack, order>::type Fast;
  typedef Ext<Fast> Safe;
};
#if ON_GPU
#include "short.cuh"
// P100, V100, A100, H100 and B200 have a unit for doubles to every two for floats, and Short takes more instructions.
#if __CUDA_ARCH__ != 600 && __CUDA_ARCH__ != 700 && __CUDA_ARCH__ != 800 && __CUDA_ARCH__ != 900 && __CUDA_ARCH__ != 1000
template <> struct Tried<float, 0> {
  typedef Short Fast;
  typedef Ext<Lin<double>> Safe;
};
#endif
#endif

// Numbers in memory.
template <class T> struct Numbers {
  typedef typename T::Scalar S;
  double* base;
  i64 size;
  DEVICE double* at(i64 k) const { return base + spread_out<T>(k); }
  DEVICE T get(i64 k) const { return T::load(at(k), plane_of(size)); }
  DEVICE S cell(i64 k) const { return S::load(at(k), plane_of(size)); }
  DEVICE T all(i64 k) const { return T::lift(cell(k)); }  // one number in all lanes
  DEVICE void put(i64 k, T v) const { v.store(at(k), plane_of(size)); }
  DEVICE void put_cell(i64 k, S v) const { v.store(at(k), plane_of(size)); }
};
// The first ones of a workspace, which then begins after them.
template <class T> DEVICE Numbers<T> numbers_from(double*& work, i64 size) {
  Numbers<T> first{work, size};
  work += T::planes * size;
  return first;
}

// The same in rows.
template <class T> struct Table {
  typedef typename T::Scalar S;
  double* base;
  i64 row, size;
  DEVICE i64 plane() const { return plane_of(size); }
  DEVICE double* at(int i, int j) const { return base + spread_out<T>(i * row + j); }
  DEVICE T get(int i, int j) const { return T::load(at(i, j), plane()); }
  DEVICE S cell(int i, int j) const { return S::load(at(i, j), plane()); }
  DEVICE void put(int i, int j, T v) const { v.store(at(i, j), plane()); }
  DEVICE void put_cell(int i, int j, S v) const { v.store(at(i, j), plane()); }
};

// log of a scalar that is not negative; over (max, +) it is one already
DEVICE double log_of(Max<double> x) { return x.v; }
DEVICE double log_of(Lin<double> x) { return log(x.v); }
DEVICE double log_of(Ext<Lin<double>> x) { return x.m.v > 0 ? log(x.m.v) + x.e * 0.6931471805599453 : -infinity(); }
#if ON_GPU
DEVICE double log_of(Short x) { return x.m > 0 ? log((double)(unsigned)x.m) + x.e * 0.6931471805599453 : -infinity(); }
DEVICE bool is_zero(Short x) { return x.m == 0; }
#endif
DEVICE bool is_zero(Lin<double> x) { return x.v == 0; }
DEVICE bool is_zero(Ext<Lin<double>> x) { return x.m.v == 0; }
// part / whole for sampling
DEVICE double share(Lin<double> part, Lin<double> whole) { return part.v / whole.v; }
DEVICE double share(Ext<Lin<double>> part, Ext<Lin<double>> whole) {
  return part.m.v > 0 ? part.m.v / whole.m.v * pow2(part.e - whole.e) : 0.;
}
