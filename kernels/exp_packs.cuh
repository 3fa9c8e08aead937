// exp(x) of a pack on a CPU: x = k * ln 2 / STEPS + r, so that exp(x) = 2^(k / STEPS) * exp(r). What k is within a power
// of two picks a number from two registers, the rest of it goes to the exponent, and r is so small that few terms do.
#pragma once

constexpr int STEPS = 2 * W, STEP_BITS = W == 8 ? 4 : 3;

// 2^(i / STEPS), i = 0..STEPS-1, each less what i adds to its bits when k is added to them.
static const struct Roots {
  PackBits low, high;
  Roots() {
    for (int i = 0; i < STEPS; ++i)
      (i < W ? low : high)[i % W] = bits(std::exp2((double)i / STEPS)) - ((i64)i << (52 - STEP_BITS));
  }
} roots_of_two;

DEVICE Pack exp_in_range(Pack x) {
  const double magic = 6755399441055744.;  // as in exp_parts
  const Pack near = x * (STEPS * 1.4426950408889634) + magic, k = near - magic;
  const Pack r = (x - k * (0.6931471803691238 / STEPS)) - k * (1.9082149292705877e-10 / STEPS);
  Pack p = splat<Pack>(1.984126984126984e-04);
  if (W < 8) p = 2.48015873015873e-05 * r + p;  // 1/8!
  p = p * r + 1.3888888888888889e-03;
  p = p * r + 8.333333333333333e-03;
  p = p * r + 4.1666666666666664e-02;
  p = p * r + 1.6666666666666666e-01;
  p = p * r + 0.5;
  p = p * r + 1.;
  p = p * r + 1.;
#if defined(__clang__)
  PackBits root;
  for (int l = 0; l < W; ++l) root[l] = (bits(near)[l] & W ? roots_of_two.high : roots_of_two.low)[bits(near)[l] % W];
#else
  const PackBits root = __builtin_shuffle(roots_of_two.low, roots_of_two.high, bits(near));
#endif
  return choose(x > splat<Pack>(-708.), p * from_bits(root + (bits(near) << (52 - STEP_BITS))), Pack{});
}
