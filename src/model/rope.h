/* model/rope.h - tables of rotation angles, in double, rounded once.
 * Sources: RoPE arXiv 2104.09864; YaRN arXiv 2309.00071; the Llama-3 rule as in its published config. */
#ifndef DF_MODEL_ROPE_H
#define DF_MODEL_ROPE_H

#include "device/device.h"
#include "format/config.h"

typedef struct df_rope {
  float *cos, *sin; /* [n_positions][head_dim / 2] */
  uint32_t n_positions, half;
  size_t bytes;      /* of each table */
  df_device *device; /* borrowed; NULL = the host */
} df_rope;

/* factors: NULL or [head_dim / 2] divisors of the frequencies (tensor rope_freqs.weight). The tables are mapped on a
 * device (NULL = the host). */
df_status df_rope_init(df_rope *r, const df_config *cfg, const float *factors, uint32_t n_positions, df_device *device,
                       df_error *err) DF_CHECK;
void df_rope_release(df_rope *r);
/* Angle speed of pair i and the scale of cos and sin (YaRN; else 1). Exposed for tests. */
double df_rope_frequency(const df_config *cfg, uint32_t i);
double df_rope_attention_factor(const df_config *cfg);

#endif
