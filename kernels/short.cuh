// Numbers for scores in float32 on a GPU, made of integers: most cards have one unit for doubles where they have 64 for
// these. numbers.cuh says which.
//
//   Fixed   a score, in units of 2^-32: sums and differences of scores are exact
//   Short   m * 2^e, sums of products of what is not negative: 31 bits of each are kept, whatever its size
#pragma once
#include "lanes.cuh"

// Scores are between LOWEST and HIGHEST. One that is higher, or no number, is `wrong`, and its sentence is left to the
// doubles. One that is lower is taken for LOWEST: a proof after the fact shows that nothing that matters has it.
struct Fixed {
  static constexpr float LOWEST = -8388608.f, HIGHEST = 2097152.f;  // -2^23, 2^21
  static constexpr i64 NONE = -(1LL << 58), WRONG = 1LL << 61;      // are known in sums of three, too
  i64 v;
  static DEVICE Fixed of(float x) {
    const float low = fmaxf(x, LOWEST), whole = rintf(low);
    const i64 near = ((i64)__float2int_rn(whole) << 32) + __float2int_rn((low - whole) * 4294967296.f);
    return Fixed{!(x <= HIGHEST) ? WRONG : x < -3.4028235e38f ? NONE : near};
  }
  DEVICE Fixed operator+(Fixed o) const { return Fixed{v + o.v}; }
  DEVICE Fixed operator-(Fixed o) const { return Fixed{v - o.v}; }
  DEVICE bool operator>(Fixed o) const { return v > o.v; }
};
DEVICE Fixed choose(bool m, Fixed a, Fixed b) { return Fixed{m ? a.v : b.v}; }
template <> DEVICE Fixed forbidden<Fixed>() { return Fixed{Fixed::NONE}; }
DEVICE Fixed score_of(float x, Fixed) { return Fixed::of(x); }
template <class X> DEVICE X splat(Fixed x) { return x; }
DEVICE Fixed pack(const Fixed* p) { return *p; }
DEVICE void unpack(Fixed* p, Fixed v) { *p = v; }
DEVICE bool some(Fixed x) { return x.v > 3 * (Fixed::NONE / 4); }
DEVICE bool wrong(Fixed x) { return x.v > Fixed::WRONG / 4; }
DEVICE bool too_low(Fixed shift) { return shift.v < -((i64)Fixed::HIGHEST << 32); }  // what is taken for LOWEST is not
DEVICE double nats(Fixed x) { return (double)x.v * 2.3283064365386963e-10; }        // far enough below this

struct Short {
  typedef float V;
  typedef Fixed Score;
  typedef Short Scalar;
  static constexpr int planes = 1, order = 0;
  static constexpr bool sums = true;
  static constexpr int NOTHING = -(1 << 29), LEAST = -(1 << 28);  // exponents of zero, and of the least above it
  // At rest m is 0, or has 31 bits. A sum on its way has up to 64, and is at rest again after normal().
  u64 m;
  int e;
  static DEVICE Short lift(Short s) { return s; }
  static DEVICE Short zero() { return Short{0, NOTHING}; }
  static DEVICE Short one() { return Short{1u << 30, -30}; }
  static DEVICE Short load(const double* p, i64) {
    const uint2 both = *(const uint2*)p;
    return Short{both.x, (int)both.y};
  }
  DEVICE void store(double* p, i64) const { *(uint2*)p = make_uint2((unsigned)m, (unsigned)e); }
  static DEVICE Short pick(bool which, Short a, Short b) { return which ? a : b; }

  static DEVICE u64 shifted(u64 x, int by) {  // to the right; by 64 and more, too
    u64 y;
    asm("shr.u64 %0, %1, %2;" : "=l"(y) : "l"(x), "r"(by));
    return y;
  }
  DEVICE int bits() const { return 64 - __clzll((i64)m); }
  // The sum gets 46 bits, or the product of up to 62 at pe does: there is room for larger ones, and for many.
  DEVICE void make_room(int pe) {
    const int own = m ? e + bits() : NOTHING, top = own > pe + 62 ? own : pe + 62, by = top - 46 - e;
    m = by > 0 ? shifted(m, by) : m << -by;
    e = top - 46;
  }
  // + p * 2^pe
  DEVICE void add(u64 p, int pe) {
    if (e < pe || (unsigned)(m >> 32) - 1u >= 0x7fffffffu) {
      if (p == 0) return;
      make_room(pe);
    }
    m += shifted(p, e - pe);
  }
  // From here on all operands are at rest, *this in mac and + excepted.
  static DEVICE u64 product(Short a, Short b) { return (u64)(unsigned)a.m * (unsigned)b.m; }
  DEVICE void mac(Short a, Short b) { add(product(a, b), a.e + b.e); }
  DEVICE Short operator*(Short o) const { return Short{product(*this, o), e + o.e}.normal(); }
  DEVICE Short operator+(Short o) const {
    Short r = *this;
    r.add(o.m << 31, o.e - 31);
    return r.normal();
  }
  // What is below zero by rounding is zero.
  DEVICE Short operator-(Short o) const {
    Short r = *this;
    r.make_room(o.e - 31);
    const u64 less = shifted(o.m << 31, r.e - o.e + 31);
    r.m = r.m > less ? r.m - less : 0;
    return r.normal();
  }
  DEVICE Short inverse() const {
    const float x = 1.f / (float)(unsigned)m;
    const u64 y = (u64)(unsigned)(x * 2305843009213693952.f);  // 2^61 / m, to 22 bits
    const i64 rest = (1LL << 61) - (i64)(y * (unsigned)m);
    return Short{y + (i64)__float2int_rn((float)(int)(rest >> 8) * 256.f * x), -61 - e};
  }
  DEVICE Short normal() const {
    const int left = __clzll((i64)m), up = e + 33 - left;
    const unsigned high = (unsigned)(m << (left & 63) >> 32), half = (high >> 1) + (high & 1);
    const bool any = m != 0 && up > LEAST;
    return Short{any ? half : 0u, any ? up : NOTHING};
  }
  DEVICE V value() const {
    const int most = e < 96 ? e : 96, up = most > -190 ? most : -190, half = up / 2;
    return (float)(unsigned)m * __int_as_float((half + 127) << 23) * __int_as_float((up - half + 127) << 23);
  }
  DEVICE V top() const { return value(); }
  DEVICE Short primal() const { return *this; }
  // exp(x), x <= 0
  static DEVICE Short weight(Score x, const Score*) {
    // y = -x * log2(e), whose binary digits after the first 1 are c, d
    const unsigned c = 0x71547652u, d = 0xb82fe177u;
    const u64 u = (u64)-x.v;
    const unsigned high = (unsigned)(u >> 32), low = (unsigned)u;
    const u64 y = u + (u64)high * c + __umulhi(low, c) + __umulhi(high, d);
    const unsigned part = (unsigned)y;
    // 2^-part = sum of (-log(2) * part)^k / k!
    const unsigned by_k[11] = {2977044472u, 1031764991u, 238388332u, 41309550u, 5726720u, 661577u,
                               65510u,      5676u,       437u,       30u,       2u};
    unsigned p = by_k[10];
#pragma unroll
    for (int k = 9; k >= 0; --k) p = by_k[k] - __umulhi(p, part);
    const u64 m = (1ULL << 32) - __umulhi(p, part);
    return some(x) ? Short{(m + 1) >> 1, -31 - (int)(y >> 32)} : zero();
  }
};

template <class Shuffle> DEVICE Short by_words(Short mine, Shuffle shuffle) {  // at rest
  return Short{(unsigned)shuffle((int)mine.m), shuffle(mine.e)};
}
