/* mm_ref_unpack.c - scalar reading of packed weights. */
#include "kernels/blocks.h"
#include "kernels/layout.h"
#include "kernels/ref/mm_ref.h"

static void read_bytes(const uint8_t *p, uint32_t lane, uint8_t code[32]) {
  for (uint32_t i = 0; i < 32; i++) code[i] = p[64 * (i / 4) + 4 * lane + i % 4];
}

static void read_nibs(const uint8_t *p, uint32_t lane, uint8_t code[32]) {
  for (uint32_t i = 0; i < 16; i++) {
    const uint8_t b = p[64 * (i / 4) + 4 * lane + i % 4];
    code[i] = b & 15;
    code[16 + i] = b >> 4;
  }
}

static void read_pairs(const uint8_t *p, uint32_t lane, uint8_t code[32]) {
  for (uint32_t i = 0; i < 32; i++) {
    const uint8_t b = p[64 * (i / 16) + 4 * lane + i % 4];
    code[i] |= (uint8_t)(((b >> (2 * (i / 4 % 4))) & 3) << 4);
  }
}

static void read_q4k(const uint8_t *strip, uint32_t kb, uint32_t lane, df_ref_block *out) {
  const uint8_t *super = strip + (size_t)(kb / 8) * DF_Q4K_BLOCK, *scales = super + DF_Q4K_SCALES + 32 * (kb % 8);
  read_nibs(super + DF_Q4K_NIBS + DF_NIBS_BLOCK * (kb % 8), lane, out->code);
  out->scale[0] = out->scale[1] = df_load_half(super, lane) * (float)scales[lane];
  out->min = -(df_load_half(super + DF_HALVES, lane) * (float)scales[16 + lane]);
  out->has_min = true;
}

static void read_q6k(const uint8_t *strip, uint32_t k, uint32_t kb, uint32_t lane, df_ref_block *out) {
  const uint8_t *super = strip + (size_t)(kb / 8) * DF_Q6K_BLOCK, *sub = super + DF_Q6K_CODES + DF_Q6K_SUB * (kb % 8);
  const uint8_t *d_all = strip + (size_t)(k / DF_SUPER) * DF_Q6K_BLOCK;
  const float d = df_load_half(d_all + (size_t)(kb / 8) * DF_HALVES, lane);
  read_nibs(sub, lane, out->code);
  read_pairs(sub + DF_NIBS_BLOCK, lane, out->code);
  out->offset = 32;
  out->scale[0] = d * (float)(int8_t)super[32 * (kb % 8) + lane];
  out->scale[1] = d * (float)(int8_t)super[32 * (kb % 8) + 16 + lane];
  out->split = true;
}

void df_ref_block_read(const df_weights *w, uint32_t strip, uint32_t kb, uint32_t lane, df_ref_block *out) {
  const uint8_t *p = w->data + (size_t)strip * w->strip_bytes;
  const size_t nkb = w->k / DF_QBLOCK;
  out->offset = 0;
  out->min = 0;
  out->has_min = out->split = false;
  switch (w->pack) {
    case DF_PACK_Q8:
      read_bytes(p + kb * (size_t)DF_BYTES_BLOCK, lane, out->code);
      out->scale[0] = out->scale[1] = df_load_half(p + nkb * DF_BYTES_BLOCK + kb * (size_t)DF_HALVES, lane);
      out->offset = 128;
      break;
    case DF_PACK_Q4:
      read_nibs(p + kb * (size_t)DF_NIBS_BLOCK, lane, out->code);
      out->scale[0] = out->scale[1] = df_load_half(p + nkb * DF_NIBS_BLOCK + kb * (size_t)DF_HALVES, lane);
      out->offset = 8;
      break;
    case DF_PACK_Q4M:
      p += kb * (size_t)DF_Q4M_BLOCK;
      read_nibs(p, lane, out->code);
      out->scale[0] = out->scale[1] = df_load_half(p + DF_Q4M_SCALES, lane);
      out->min = df_load_half(p + DF_Q4M_SCALES + DF_HALVES, lane);
      out->has_min = true;
      break;
    case DF_PACK_Q8M:
      p += kb * (size_t)DF_Q8M_BLOCK;
      read_bytes(p, lane, out->code);
      out->scale[0] = out->scale[1] = df_load_f32(p + DF_Q8M_SCALES + 4 * lane);
      out->min = df_load_f32(p + DF_Q8M_SCALES + 64 + 4 * lane);
      out->has_min = true;
      break;
    case DF_PACK_Q4K: read_q4k(p, kb, lane, out); break;
    case DF_PACK_Q6K: read_q6k(p, w->k, kb, lane, out); break;
    default: break;
  }
}

float df_ref_float(const df_weights *w, uint32_t strip, uint32_t i, uint32_t lane) {
  const uint8_t *p = w->data + (size_t)strip * w->strip_bytes;
  const size_t at = (size_t)i * DF_LANES + lane;
  switch (w->pack) {
    case DF_PACK_F16: return df_f16_to_f32(df_load16(p + 2 * at));
    case DF_PACK_BF16: return df_bf16_to_f32(df_load16(p + 2 * at));
    case DF_PACK_F8: {
      const uint8_t *block = p + (size_t)(i / DF_F8_BLOCK) * DF_F8_STEP;
      return df_e4m3_to_f32(block[64 * (i % DF_F8_BLOCK / 4) + 4 * lane + i % 4]);
    }
    default: return df_load_f32(p + 4 * at);
  }
}

float df_ref_f8_scale(const df_weights *w, uint32_t strip, uint32_t block, uint32_t lane) {
  return df_load_f32(w->data + strip * w->strip_bytes + (size_t)block * DF_F8_STEP + DF_F8_SCALES + 4 * lane);
}

void df_unpack_row__ref(const df_weights *w, uint32_t r, float *out) {
  const uint32_t strip = r / DF_LANES, lane = r % DF_LANES;
  if (w->pack == DF_PACK_F8) {
    for (uint32_t i = 0; i < w->k; i++)
      out[i] = df_ref_float(w, strip, i, lane) * df_ref_f8_scale(w, strip, i / DF_F8_BLOCK, lane);
    return;
  }
  if (!df_pack_wants_q8(w->pack)) {
    for (uint32_t i = 0; i < w->k; i++) out[i] = df_ref_float(w, strip, i, lane);
    return;
  }
  for (uint32_t kb = 0; kb < w->k / DF_QBLOCK; kb++, out += DF_QBLOCK) {
    df_ref_block b;
    df_ref_block_read(w, strip, kb, lane, &b);
    for (int i = 0; i < DF_QBLOCK; i++) {
      const float v = (float)(b.code[i] - b.offset) * b.scale[i / 16]; /* exact: at most 24 bits */
      out[i] = b.has_min ? v + b.min : v;                              /* -0 must survive where there is no min */
    }
  }
}
