/*
 * kernels/expf.h - the constants of df_exp and of the quantiser, shared by all tiers.
 *
 * exp(x), for DF_EXP_MIN <= x <= DF_EXP_MAX, in this order of operations, each rounded to nearest even:
 *   t = fma(x, LOG2E, MAGIC)         the sum's low mantissa bits are n = nearest-even(x * log2 e)
 *   n = t - MAGIC                    exact
 *   r = fma(n, -LN2_HI, x); r = fma(n, -LN2_LO, r)                     |r| <= 0.3467 (Cody and Waite, 1980)
 *   q = C6; q = fma(q, r, C5) ... q = fma(q, r, C2)
 *   p = fma(q, r * r, r) + 1         exp(r), relative error of the polynomial 2^-28.2
 *   result bits = bits(p) + (bits(t) << 23)      p * 2^n, exact: the result is always a normal number
 * x > MAX is replaced by MAX first; x < MIN gives +0; NaN passes through. Written out once per tier instead of
 * shared, because the tiers differ in their vector type only and are tested for equal bits.
 *
 * Coefficients: weighted minimax fit of (exp(r) - 1 - r) / r^2 on |r| <= 0.3473, rounded to float one after the
 * other, lowest first, with a refit of the rest. Measured over every
 * float of [MIN, MAX]: at most 1.013 ulp, monotone (tests/kernels/test_vec.c checks a sample).
 *
 * Threads: constants only.
 */
#ifndef DF_KERNELS_EXPF_H
#define DF_KERNELS_EXPF_H

#define DF_EXP_MIN (-87.33654f) /* smallest argument with a normal result */
#define DF_EXP_MAX 88.0f
#define DF_EXP_LOG2E 0x1.715476p+0f
#define DF_EXP_MAGIC 0x1.8p+23f /* adding it rounds to an integer kept in the low bits */
#define DF_EXP_LN2_HI 0x1.62e430p-1f
#define DF_EXP_LN2_LO (-0x1.05c610p-29f) /* ln 2 - LN2_HI */
#define DF_EXP_C2 0x1.fffffcp-2f
#define DF_EXP_C3 0x1.555492p-3f
#define DF_EXP_C4 0x1.5558bcp-5f
#define DF_EXP_C5 0x1.1239c6p-7f
#define DF_EXP_C6 0x1.6a4154p-10f

/* Quantiser: blocks whose largest magnitude is below this become zero, so that every scale is a normal number. */
#define DF_QUANT_MIN 0x1p-119f
#define DF_QUANT_NAN_BITS 0x7fc00000u /* scale of a block that holds an infinity or NaN */

#endif
