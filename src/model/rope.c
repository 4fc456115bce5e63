#include "model/rope.h"

#include <math.h>

#include "base/mem.h"
#include "base/size.h"

static const double k_pi = 3.14159265358979323846;

/* Llama-3: long wavelengths are slowed by factor, short ones stay, a linear blend between. */
static double llama3_frequency(const df_rope_config *r, double f) {
  const double wave = 2 * k_pi / f;
  const double low = r->original_context / r->low_freq_factor, high = r->original_context / r->high_freq_factor;
  if (wave < high) return f;
  if (wave > low) return f / r->factor;
  const double blend = (r->original_context / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
  return (1 - blend) * f / r->factor + blend * f;
}

/* Pair index at which `rotations` full turns fit the original context. */
static double yarn_dim(const df_rope_config *r, double rotations) {
  return r->dim * log(r->original_context / (rotations * 2 * k_pi)) / (2 * log(r->base));
}

static double yarn_frequency(const df_rope_config *r, uint32_t i, double f) {
  const double low = fmax(floor(yarn_dim(r, r->beta_fast)), 0);
  double high = fmin(ceil(yarn_dim(r, r->beta_slow)), r->dim - 1.0);
  if (high == low) high += 0.001;
  const double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
  return f * (1 - ramp) + f / r->factor * ramp;
}

double df_rope_frequency(const df_config *cfg, uint32_t i) {
  const df_rope_config *r = &cfg->rope;
  const double f = pow(r->base, -2.0 * i / r->dim);
  switch (r->scaling) {
    case DF_ROPE_NONE: return f;
    case DF_ROPE_LINEAR: return f / r->factor;
    case DF_ROPE_LLAMA3: return llama3_frequency(r, f);
    case DF_ROPE_YARN: return yarn_frequency(r, i, f);
  }
  return f;
}

static double yarn_scale(double s, double m) { return s <= 1 ? 1 : 0.1 * m * log(s) + 1; }

double df_rope_attention_factor(const df_config *cfg) {
  const df_rope_config *r = &cfg->rope;
  if (r->scaling != DF_ROPE_YARN) return 1;
  if (r->has_mscale && r->has_mscale_all_dim && r->mscale != 0 && r->mscale_all_dim != 0)
    return yarn_scale(r->factor, r->mscale) / yarn_scale(r->factor, r->mscale_all_dim);
  if (r->has_attention_factor) return r->attention_factor;
  return yarn_scale(r->factor, 1);
}

df_status df_rope_init(df_rope *r, const df_config *cfg, const float *factors, uint32_t n_positions, df_device *device,
                       df_error *err) {
  if (cfg->rope.dim != cfg->head_dim)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "partial rotation (%u of %u channels) is not supported", cfg->rope.dim,
                   cfg->head_dim);
  df_rope t = {.n_positions = n_positions, .half = cfg->head_dim / 2, .device = device};
  t.bytes = (size_t)n_positions * t.half * sizeof(float);
  t.cos = df_pages_alloc(t.bytes);
  t.sin = df_pages_alloc(t.bytes);
  if (!t.cos || !t.sin) {
    const size_t bytes = t.bytes;
    df_rope_release(&t);
    return DF_OOM(err, "rotation tables", 2 * bytes);
  }
  const double scale = df_rope_attention_factor(cfg);
  for (uint32_t i = 0; i < t.half; i++) {
    const double f = df_rope_frequency(cfg, i) / (factors ? factors[i] : 1.0);
    for (uint32_t p = 0; p < n_positions; p++) {
      t.cos[(size_t)p * t.half + i] = (float)(cos(p * f) * scale);
      t.sin[(size_t)p * t.half + i] = (float)(sin(p * f) * scale);
    }
  }
  df_status s = df_device_map(device, t.cos, t.bytes, DF_MEM_CONST, "rotation tables", err);
  if (s == DF_OK) s = df_device_map(device, t.sin, t.bytes, DF_MEM_CONST, "rotation tables", err);
  if (s != DF_OK) {
    df_rope_release(&t);
    return s;
  }
  *r = t;
  return DF_OK;
}

void df_rope_release(df_rope *r) {
  df_device_unmap(r->device, r->cos);
  df_device_unmap(r->device, r->sin);
  df_pages_free(r->cos, r->bytes);
  df_pages_free(r->sin, r->bytes);
  *r = (df_rope){0};
}
