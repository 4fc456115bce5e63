/* quant.c - GGUF tensor types: names, sizes, exact decoding to float32. */
#include <string.h>

#include "base/bits.h"
#include "kernels/blocks.h"
#include "kernels/layout.h"

typedef struct dtype_info {
  const char *name;
  uint32_t values, bytes;
} dtype_info;

static const dtype_info *dtype_find(int dtype) {
  static const dtype_info k_types[] = {
      [DF_F32] = {"F32", 1, 4},
      [DF_F16] = {"F16", 1, 2},
      [DF_Q4_0] = {"Q4_0", 32, DF_Q4_0_BYTES},
      [DF_Q4_1] = {"Q4_1", 32, DF_Q4_1_BYTES},
      [DF_Q5_0] = {"Q5_0", 32, DF_Q5_0_BYTES},
      [DF_Q5_1] = {"Q5_1", 32, DF_Q5_1_BYTES},
      [DF_Q8_0] = {"Q8_0", 32, DF_Q8_0_BYTES},
      [DF_Q4_K] = {"Q4_K", DF_SUPER, DF_Q4_K_BYTES},
      [DF_Q5_K] = {"Q5_K", DF_SUPER, DF_Q5_K_BYTES},
      [DF_Q6_K] = {"Q6_K", DF_SUPER, DF_Q6_K_BYTES},
      [DF_BF16] = {"BF16", 1, 2},
  };
  static const dtype_info k_f8 = {"F8_E4M3", DF_F8_BLOCK, DF_F8_BYTES};
  if (dtype == DF_F8) return &k_f8;
  if (dtype < 0 || dtype > DF_BF16 || k_types[dtype].name == NULL) return NULL;
  return &k_types[dtype];
}

const char *df_dtype_name(int dtype) {
  const dtype_info *t = dtype_find(dtype);
  return t ? t->name : NULL;
}

bool df_dtype_block(int dtype, uint32_t *values, uint32_t *bytes) {
  const dtype_info *t = dtype_find(dtype);
  if (!t) return false;
  *values = t->values;
  *bytes = t->bytes;
  return true;
}

float df_f16_to_f32(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  const uint32_t exp = (h >> 10) & 31u, man = h & 0x3FFu;
  if (exp == 0) {
    const float f = (float)man * 0x1p-24f; /* exact: zero and subnormal halves are normal floats */
    return sign ? -f : f;
  }
  if (exp == 31)
    return df_float_of_bits(sign | 0x7F800000u | (man << 13) | (man ? 0x400000u : 0u)); /* NaN becomes quiet */
  return df_float_of_bits(sign | ((exp + 112u) << 23) | (man << 13));
}

uint16_t df_f32_to_f16(float f) {
  const uint32_t u = df_bits_of_float(f), sign = (u >> 16) & 0x8000u, a = u & 0x7FFFFFFFu;
  uint32_t r;
  if (a > 0x7F800000u) {
    r = 0x7E00u | ((a >> 13) & 0x3FFu);
  } else if (a >= 0x477FF000u) { /* 65520, half way beyond the largest half */
    r = 0x7C00u;
  } else if (a < 0x38800000u) { /* below 2^-14: the unit of 0.5f is 2^-24, the addition rounds */
    r = df_bits_of_float(df_float_of_bits(a) + 0.5f) - 0x3F000000u;
  } else {
    r = (a + 0xFFFu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
  }
  return (uint16_t)(sign | r);
}

float df_bf16_to_f32(uint16_t h) { return df_float_of_bits((uint32_t)h << 16); }

float df_e4m3_to_f32(uint8_t code) {
  const uint32_t sign = (uint32_t)(code & 0x80u) << 24, mag = code & 0x7Fu;
  if (mag == 0x7F) return df_float_of_bits(sign | 0x7FC00000u);
  if (mag < 8) { /* multiples of 2^-9 */
    const float f = (float)mag * 0x1p-9f;
    return sign ? -f : f;
  }
  return df_float_of_bits(sign | ((mag << 20) + (120u << 23)));
}

static void dequant_q4_0(const uint8_t *b, float *y) {
  const float d = df_load_half(b, 0);
  for (int i = 0; i < 16; i++) {
    y[i] = (float)((b[2 + i] & 15) - 8) * d;
    y[16 + i] = (float)((b[2 + i] >> 4) - 8) * d;
  }
}

static void dequant_q4_1(const uint8_t *b, float *y) {
  const float d = df_load_half(b, 0), m = df_load_half(b, 1);
  for (int i = 0; i < 16; i++) {
    y[i] = (float)(b[4 + i] & 15) * d + m;
    y[16 + i] = (float)(b[4 + i] >> 4) * d + m;
  }
}

static void dequant_q5_0(const uint8_t *b, float *y) {
  const float d = df_load_half(b, 0);
  const uint32_t fifth = df_load32(b + 2);
  for (int i = 0; i < 16; i++) {
    const int lo = (b[6 + i] & 15) | (int)((fifth >> i) & 1) << 4;
    const int hi = (b[6 + i] >> 4) | (int)((fifth >> (16 + i)) & 1) << 4;
    y[i] = (float)(lo - 16) * d;
    y[16 + i] = (float)(hi - 16) * d;
  }
}

static void dequant_q5_1(const uint8_t *b, float *y) {
  const float d = df_load_half(b, 0), m = df_load_half(b, 1);
  const uint32_t fifth = df_load32(b + 4);
  for (int i = 0; i < 16; i++) {
    const int lo = (b[8 + i] & 15) | (int)((fifth >> i) & 1) << 4;
    const int hi = (b[8 + i] >> 4) | (int)((fifth >> (16 + i)) & 1) << 4;
    y[i] = (float)lo * d + m;
    y[16 + i] = (float)hi * d + m;
  }
}

static void dequant_q8_0(const uint8_t *b, float *y) {
  const float d = df_load_half(b, 0);
  for (int i = 0; i < 32; i++) y[i] = (float)(int8_t)b[2 + i] * d;
}

/* `fifth` NULL for Q4_K. Sub-block s: low (s even) or high nibbles of 32 bytes, bit s of the fifth bits. */
static void dequant_k45(const uint8_t *b, const uint8_t *fifth, const uint8_t *nibs, float *y) {
  const float d = df_load_half(b, 0), dmin = df_load_half(b, 1);
  for (uint32_t s = 0; s < 8; s++) {
    uint8_t scale, min;
    df_k_scale_min(b + 4, s, &scale, &min);
    const float ds = d * (float)scale, ms = dmin * (float)min;
    for (int i = 0; i < 32; i++) {
      uint32_t q = (nibs[32 * (s / 2) + (uint32_t)i] >> (4 * (s & 1))) & 15u;
      if (fifth) q |= ((fifth[i] >> s) & 1u) << 4;
      y[32 * s + (uint32_t)i] = ds * (float)q - ms;
    }
  }
}

static void dequant_q4_k(const uint8_t *b, float *y) { dequant_k45(b, NULL, b + 16, y); }
static void dequant_q5_k(const uint8_t *b, float *y) { dequant_k45(b, b + 16, b + 48, y); }

static void dequant_q6_k(const uint8_t *b, float *y) {
  const float d = df_load_half(b + 208, 0);
  for (uint32_t e = 0; e < DF_SUPER; e++) {
    const uint32_t half = e / 128, in = e % 128, l = in % 32, part = in / 32;
    const uint32_t lo = (b[64 * half + in % 64] >> (in >= 64 ? 4 : 0)) & 15u;
    const uint32_t hi = (b[128 + 32 * half + l] >> (2 * part)) & 3u;
    const float ds = d * (float)(int8_t)b[192 + e / 16];
    y[e] = ds * (float)((int)(lo | hi << 4) - 32);
  }
}

static void dequant_f8(const uint8_t *b, float *y) {
  const float scale = df_load_f32(b);
  for (uint32_t e = 0; e < DF_F8_BLOCK; e++) y[e] = df_e4m3_to_f32(b[4 + e]) * scale;
}

void df_dequant(df_dtype type, const void *src, size_t n, float *dst) {
  const uint8_t *p = src;
  void (*block)(const uint8_t *, float *) = NULL;
  switch (type) {
    case DF_F32: memcpy(dst, src, n * sizeof *dst); return;
    case DF_F16:
      for (size_t i = 0; i < n; i++) dst[i] = df_f16_to_f32(df_load16(p + 2 * i));
      return;
    case DF_BF16:
      for (size_t i = 0; i < n; i++) dst[i] = df_bf16_to_f32(df_load16(p + 2 * i));
      return;
    case DF_Q4_0: block = dequant_q4_0; break;
    case DF_Q4_1: block = dequant_q4_1; break;
    case DF_Q5_0: block = dequant_q5_0; break;
    case DF_Q5_1: block = dequant_q5_1; break;
    case DF_Q8_0: block = dequant_q8_0; break;
    case DF_Q4_K: block = dequant_q4_k; break;
    case DF_Q5_K: block = dequant_q5_k; break;
    case DF_Q6_K: block = dequant_q6_k; break;
    case DF_F8: block = dequant_f8; break;
  }
  const dtype_info *t = dtype_find((int)type);
  for (size_t i = 0; i < n; i += t->values, p += t->bytes) block(p, dst + i);
}
