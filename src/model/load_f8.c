#include "model/load_f8.h"

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"

static float scale_value(const df_scale_view *s, uint64_t i) {
  const size_t size = s->dtype == DF_F32 ? 4 : 2;
  float v;
  df_dequant((df_dtype)s->dtype, (const uint8_t *)s->data + i * size, 1, &v);
  return v;
}

df_status df_f8_check(const df_tensor_view *t, df_error *err) {
  for (uint32_t i = 0; i < t->scale.count; i++) {
    const float v = scale_value(&t->scale, i);
    if (!(v >= 0 && v <= 3.0e38f))
      return DF_FAIL(err, DF_ERR_FORMAT, "scale %u of tensor \"%.200s\" is %g, expected a number from 0 on", i,
                     t->scale.name, (double)v);
  }
  const uint8_t *codes = t->data;
  uint32_t bad = 0;
  for (size_t i = 0; i < t->n_bytes; i++) bad |= (codes[i] & 0x7Fu) == 0x7Fu;
  if (bad) return DF_FAIL(err, DF_ERR_FORMAT, "tensor \"%.200s\" has values that are no numbers", t->name);
  return DF_OK;
}

void df_f8_row(const df_tensor_view *t, uint64_t row, uint8_t *blocks) {
  const df_scale_view *s = &t->scale;
  const uint64_t k = t->dims[0], first = row / s->rows_each * s->cols;
  const uint8_t *codes = (const uint8_t *)t->data + row * k;
  for (uint64_t i = 0; i < k; i += DF_F8_BLOCK, blocks += 4 + DF_F8_BLOCK) {
    const float scale = scale_value(s, first + (s->cols > 1 ? i / DF_SCALE_BLOCK : 0));
    memcpy(blocks, &scale, 4);
    memcpy(blocks + 4, codes + i, DF_F8_BLOCK);
  }
}
