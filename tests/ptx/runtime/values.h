// Arithmetic of PTX that C++ has no operator for.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#define INLINE static inline __attribute__((always_inline, unused))

template <class To, class From> INLINE To bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "as many bits as before");
  To y;
  std::memcpy(&y, &x, sizeof y);
  return y;
}

template <class T> struct Wide;
template <> struct Wide<int16_t> { using type = int32_t; };
template <> struct Wide<uint16_t> { using type = uint32_t; };
template <> struct Wide<int32_t> { using type = int64_t; };
template <> struct Wide<uint32_t> { using type = uint64_t; };
template <> struct Wide<int64_t> { using type = __int128; };
template <> struct Wide<uint64_t> { using type = unsigned __int128; };
template <class T> INLINE typename Wide<T>::type mul_wide(T a, T b) {
  using W = typename Wide<T>::type;
  return W(a) * W(b);
}
template <class T> INLINE T mul_high(T a, T b) { return T(mul_wide(a, b) >> (8 * sizeof(T))); }

// Division by zero gives all ones and traps nowhere.
template <class T> INLINE T quotient(T a, T b) { return b == 0 ? T(-1) : b == T(-1) && T(-1) < 0 ? T(0 - a) : T(a / b); }
template <class T> INLINE T remainder_of(T a, T b) { return b == 0 ? a : b == T(-1) && T(-1) < 0 ? T(0) : T(a % b); }

// Shifts by more than the width are shifts by the width.
template <class T> INLINE T left(T a, uint32_t by) { return by >= 8 * sizeof(T) ? T(0) : T(a << by); }
template <class T> INLINE T right(T a, uint32_t by) {
  const uint32_t most = 8 * sizeof(T) - 1;
  return by <= most ? T(a >> by) : T(-1) < 0 ? T(a >> most) : T(0);
}
INLINE uint32_t funnel_left(uint32_t low, uint32_t high, uint32_t by) {
  return uint32_t(((uint64_t(high) << 32 | low) << (by & 31)) >> 32);
}
INLINE uint32_t funnel_right(uint32_t low, uint32_t high, uint32_t by) {
  return uint32_t((uint64_t(high) << 32 | low) >> (by & 31));
}

INLINE uint32_t leading_zeros(uint32_t x) { return x ? uint32_t(__builtin_clz(x)) : 32u; }
INLINE uint32_t leading_zeros(uint64_t x) { return x ? uint32_t(__builtin_clzll(x)) : 64u; }

// `length` bits of `a` from the lowest on, put into `b` at `start`.
template <class T> INLINE T insert_bits(T a, T b, uint32_t start, uint32_t length) {
  start &= 255, length &= 255;
  const T mask = left(length >= 8 * sizeof(T) ? T(~T(0)) : T((T(1) << length) - 1), start);
  return T((b & ~mask) | (left(a, start) & mask));
}

// To the integer T, clamped to its range; not a number is 0, or the lowest int64_t where the number was a double.
template <class T, class F> INLINE T to_integer(F x) {
  using L = std::numeric_limits<T>;
  if (x != x) return sizeof(T) == 8 && sizeof(F) == 8 ? T(uint64_t(1) << 63) : T(0);
  if (x <= F(L::min())) return L::min();
  return x >= F(L::max()) ? L::max() : T(x);
}

// The hardware's first guess at 1/x: subnormal numbers are 0, and the lower half of the bits is not there.
INLINE double flushed(double x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0, x) : x; }
INLINE double rcp_approx(double x) {
  const double y = flushed(1.0 / flushed(x));
  return std::isfinite(y) ? bits<double>(bits<uint64_t>(y) & 0xffffffff00000000ull) : y;
}

template <class T> INLINE T load(const char* p) {
  T x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
template <class T> INLINE void store(char* p, T x) { std::memcpy(p, &x, sizeof x); }
