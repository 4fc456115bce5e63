/* What the two config readers share: defaults, consistency checks, the tap rule. */
#include "format/config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "format/config_internal.h"

const char *df_config_supported_archs(void) { return "llama, qwen2, qwen3, dflash"; }

void df_config_note_unsupported(df_config *c, const char *fmt, ...) {
  if (c->unsupported[0]) return;
  va_list ap;
  va_start(ap, fmt);
  (void)vsnprintf(c->unsupported, sizeof c->unsupported, fmt, ap);
  va_end(ap);
}

df_status df_config_check_supported(const df_config *c, const char *label, df_error *err) {
  if (!c->unsupported[0]) return DF_OK;
  return DF_FAIL(err, DF_ERR_UNSUPPORTED, "could not use \"%s\": %s is not supported", label, c->unsupported);
}

df_status df_config_default_taps(uint32_t n_target_layers, uint32_t k, uint32_t *taps, df_error *err) {
  if (k == 0 || k > DF_LIMIT_TAPS || n_target_layers < 4 || n_target_layers < k)
    return DF_FAIL(err, DF_ERR_ARGUMENT,
                   "could not choose %u taps of %u target layers: 1 to %d taps of at least 4 layers", k,
                   n_target_layers, DF_LIMIT_TAPS);
  if (k == 1) {
    taps[0] = n_target_layers / 2;
    return DF_OK;
  }
  /* round_half_even(1 + i * (n - 4) / (k - 1)) in integers. */
  uint64_t span = n_target_layers - 4, parts = k - 1;
  for (uint64_t i = 0; i < k; i++) {
    uint64_t q = 1 + i * span / parts, r = i * span % parts;
    if (2 * r > parts || (2 * r == parts && q % 2 == 1)) q++;
    taps[i] = (uint32_t)q;
  }
  return DF_OK;
}

void df_config_init(df_config *c) {
  memset(c, 0, sizeof *c);
  c->mask_token_id = -1;
  c->logit_scale = 1;
  c->embedding_scale = 1;
  c->rope = (df_rope_config){.base = 10000,
                             .factor = 1,
                             .low_freq_factor = 1,
                             .high_freq_factor = 4,
                             .beta_fast = 32,
                             .beta_slow = 1,
                             .attention_factor = 1,
                             .mscale = 1,
                             .mscale_all_dim = 1};
}

static df_status in_range(const char *label, const char *what, uint64_t v, uint64_t min, uint64_t max, df_error *err) {
  if (v >= min && v <= max) return DF_OK;
  return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": %s is %llu, expected %llu to %llu", label, what,
                 (unsigned long long)v, (unsigned long long)min, (unsigned long long)max);
}

static df_status check_geometry(const df_config *c, const char *label, df_error *err) {
  DF_TRY(in_range(label, "the number of layers", c->n_layers, 1, DF_LIMIT_LAYERS, err));
  DF_TRY(in_range(label, "the hidden size", c->hidden, 1, DF_LIMIT_HIDDEN, err));
  DF_TRY(in_range(label, "the number of heads", c->n_heads, 1, DF_LIMIT_HEADS, err));
  DF_TRY(in_range(label, "the number of kv heads", c->n_kv_heads, 1, DF_LIMIT_HEADS, err));
  DF_TRY(in_range(label, "the head width", c->head_dim, 1, DF_LIMIT_HEAD_DIM, err));
  DF_TRY(in_range(label, "the feed-forward width", c->ffn, 1, DF_LIMIT_FFN, err));
  DF_TRY(in_range(label, "the vocabulary size", c->vocab, c->is_draft ? 0 : 1, DF_LIMIT_VOCAB, err));
  DF_TRY(in_range(label, "the context length", c->context_length, 0, DF_LIMIT_CONTEXT, err));
  if (c->n_heads % c->n_kv_heads != 0)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": %u heads are not a multiple of %u kv heads", label,
                   c->n_heads, c->n_kv_heads);
  if (!(c->rms_eps >= 0 && c->rms_eps < 1))
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": the norm epsilon is %g", label, (double)c->rms_eps);
  return DF_OK;
}

static df_status check_rope(const df_rope_config *r, uint32_t head_dim, const char *label, df_error *err) {
  if (r->dim == 0 || r->dim > head_dim || r->dim % 2 != 0)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": %u rotating channels of a head of %u", label, r->dim,
                   head_dim);
  /* The correction range of YaRN divides by ln(base). */
  if (!(r->base > 1 && isfinite(r->base)))
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": the rope base is %g", label, (double)r->base);
  if (!(r->factor > 0 && isfinite(r->factor)))
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": the rope factor is %g", label, (double)r->factor);
  if (r->scaling == DF_ROPE_LLAMA3 && !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor))
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": rope frequency factors are %g and %g", label,
                   (double)r->low_freq_factor, (double)r->high_freq_factor);
  if (r->scaling == DF_ROPE_YARN && !(r->beta_slow > 0 && r->beta_fast >= r->beta_slow))
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": rope betas are %g and %g", label, (double)r->beta_fast,
                   (double)r->beta_slow);
  if (r->scaling >= DF_ROPE_LLAMA3 && (r->original_context == 0 || r->original_context > DF_LIMIT_CONTEXT))
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": the original context of the rope scaling is %u", label,
                   r->original_context);
  return DF_OK;
}

static df_status check_draft(const df_config *c, const char *label, df_error *err) {
  DF_TRY(in_range(label, "the block size", c->block_size, 1, DF_LIMIT_BLOCK_SIZE, err));
  DF_TRY(in_range(label, "the number of tapped layers", c->n_taps, 1, DF_LIMIT_TAPS, err));
  uint32_t end = c->n_target_layers ? c->n_target_layers : DF_LIMIT_LAYERS;
  for (uint32_t i = 0; i < c->n_taps; i++) DF_TRY(in_range(label, "a tapped layer", c->taps[i], 0, end - 1, err));
  int64_t last = (c->vocab ? c->vocab : (uint32_t)DF_LIMIT_VOCAB) - 1;
  if (c->mask_token_id < -1 || c->mask_token_id > last)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": the mask token id is %lld, expected 0 to %lld", label,
                   (long long)c->mask_token_id, (long long)last);
  return DF_OK;
}

df_status df_config_finish(df_config *c, const char *label, df_error *err) {
  DF_TRY(check_geometry(c, label, err));
  bool any = false;
  for (uint32_t i = 0; i < c->n_layers; i++) any = any || c->sliding[i];
  if (any && c->sliding_window == 0)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not read \"%s\": sliding layers without a window size", label);
  if (!any) c->sliding_window = 0;
  if (c->rope.dim == 0) c->rope.dim = c->head_dim;
  if (c->rope.original_context == 0) c->rope.original_context = c->context_length;
  DF_TRY(check_rope(&c->rope, c->head_dim, label, err));
  return c->is_draft ? check_draft(c, label, err) : DF_OK;
}
