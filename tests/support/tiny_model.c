#include "support/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "format/gguf.h"
#include "support/kernel_data.h"
#include "support/tiny_vocab.h"

enum { MAX_TENSORS = 128 };

typedef struct writer {
  df_gguf_writer *w;
  void *held[MAX_TENSORS]; /* data is borrowed until the file is written */
  uint32_t n;
  const char *omit, *bend;
  df_dtype dtype;
  uint64_t rng;
} writer;

tiny_spec tiny_spec_default(void) {
  return (tiny_spec){.arch = "llama",
                     .n_layers = 2,
                     .hidden = 64,
                     .n_heads = 4,
                     .n_kv_heads = 2,
                     .head_dim = 32,
                     .ffn = 96,
                     .vocab = 300,
                     .context = 512,
                     .dtype = DF_F32,
                     .gain = 1.5f,
                     .seed = 1};
}

tiny_draft_spec tiny_draft_default(const tiny_spec *t) {
  return (tiny_draft_spec){.target = t,
                           .n_layers = 1,
                           .n_heads = t->n_heads,
                           .n_kv_heads = t->n_kv_heads,
                           .head_dim = t->head_dim,
                           .ffn = t->ffn,
                           .block_size = 16,
                           .n_taps = 2,
                           .taps = {0, 1},
                           .dtype = t->dtype,
                           .gain = 0.02f,
                           .seed = t->seed + 100};
}

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

static void quantize_q8_0(const float *x, size_t n, uint8_t *out) {
  for (size_t b = 0; b < n / 32; b++, out += 34) {
    float top = 0;
    for (int i = 0; i < 32; i++) top = fmaxf(top, fabsf(x[b * 32 + i]));
    const uint16_t d = df_f32_to_f16(top / 127);
    const float scale = df_f16_to_f32(d);
    memcpy(out, &d, 2);
    for (int i = 0; i < 32; i++) {
      const int8_t q = (int8_t)(scale > 0 ? fmaxf(-127, fminf(127, roundf(x[b * 32 + i] / scale))) : 0);
      memcpy(out + 2 + i, &q, 1);
    }
  }
}

static void *encode(df_dtype type, const float *x, size_t n) {
  uint8_t *out = df_alloc(n * sizeof *x);
  assert_non_null(out);
  if (type == DF_F32) memcpy(out, x, n * sizeof *x);
  for (size_t i = 0; type == DF_F16 && i < n; i++) {
    const uint16_t h = df_f32_to_f16(x[i]);
    memcpy(out + 2 * i, &h, 2);
  }
  for (size_t i = 0; type == DF_BF16 && i < n; i++) {
    uint32_t u;
    memcpy(&u, &x[i], 4);
    u += 0x7FFF + (u >> 16 & 1);
    memcpy(out + 2 * i, (const uint8_t *)&u + 2, 2);
  }
  if (type == DF_Q8_0) quantize_q8_0(x, n, out);
  return out;
}

/* Takes x, of n_out * k values and room for one more row. */
static void put(writer *w, const char *name, df_dtype type, uint32_t n_out, uint32_t k, float *x) {
  df_error err = {0};
  if (w->omit && strcmp(w->omit, name) == 0) {
    df_free(x);
    return;
  }
  const bool bent = w->bend && strcmp(w->bend, name) == 0;
  const uint64_t dims[2] = {n_out ? k : k + bent, n_out + (n_out && bent)};
  void *data = encode(type, x, (size_t)(n_out ? dims[1] : 1) * dims[0]);
  df_free(x);
  assert_true(w->n < MAX_TENSORS);
  w->held[w->n++] = data;
  must(df_gguf_put_tensor(w->w, name, (int)type, n_out ? 2 : 1, dims, data, &err), &err);
}

static float *zeros(size_t n) {
  float *x = df_calloc(n, sizeof *x);
  assert_non_null(x);
  return x;
}

/* Uniform values of the given standard deviation. */
static float *noise(writer *w, uint32_t n_out, uint32_t k, float deviation) {
  const size_t n = (size_t)(n_out + 1) * (k + 1);
  float *x = zeros(n);
  for (size_t i = 0; i < n; i++) x[i] = test_uniform(&w->rng) * deviation * 1.7320508f;
  return x;
}

static void put_random(writer *w, const char *name, uint32_t n_out, uint32_t k, float gain) {
  put(w, name, w->dtype, n_out, k, noise(w, n_out, k, gain / sqrtf((float)k)));
}

/* 1 + noise. */
static void put_norm(writer *w, const char *name, uint32_t k) {
  float *x = noise(w, 0, k, 0.1f);
  for (uint32_t i = 0; i < k; i++) x[i] += 1;
  put(w, name, DF_F32, 0, k, x);
}

static const char *layer_name(char buf[64], uint32_t i, const char *part) {
  (void)snprintf(buf, 64, "blk.%u.%s", i, part);
  return buf;
}

/* ---- metadata ------------------------------------------------------------------------------------------- */

static void put_u32(writer *w, const char *arch, const char *key, uint32_t v) {
  char full[96];
  df_error err = {0};
  (void)snprintf(full, sizeof full, "%s.%s", arch, key);
  must(df_gguf_put_u32(w->w, full, v, &err), &err);
}

static void put_f32(writer *w, const char *arch, const char *key, float v) {
  char full[96];
  df_error err = {0};
  (void)snprintf(full, sizeof full, "%s.%s", arch, key);
  must(df_gguf_put_f32(w->w, full, v, &err), &err);
}

static void put_geometry(writer *w, const char *arch, uint32_t layers, uint32_t hidden, uint32_t heads, uint32_t kv,
                         uint32_t head_dim, uint32_t ffn, uint32_t vocab, uint32_t context) {
  df_error err = {0};
  must(df_gguf_put_cstr(w->w, "general.architecture", arch, &err), &err);
  put_u32(w, arch, "block_count", layers);
  put_u32(w, arch, "embedding_length", hidden);
  put_u32(w, arch, "feed_forward_length", ffn);
  put_u32(w, arch, "attention.head_count", heads);
  put_u32(w, arch, "attention.head_count_kv", kv);
  put_u32(w, arch, "attention.key_length", head_dim);
  put_u32(w, arch, "attention.value_length", head_dim);
  put_u32(w, arch, "vocab_size", vocab);
  put_u32(w, arch, "context_length", context);
  put_f32(w, arch, "attention.layer_norm_rms_epsilon", 1e-5f);
  put_f32(w, arch, "rope.freq_base", 10000);
}

static void put_tokenizer(writer *w, bool other) {
  df_error err = {0};
  tiny_vocab *v = df_calloc(1, sizeof *v);
  assert_non_null(v);
  tiny_init(v, true);
  (void)tiny_token(v, "<|endoftext|>", DF_TOKEN_CONTROL);
  (void)tiny_token(v, "<|im_end|>", DF_TOKEN_CONTROL);
  (void)tiny_token(v, "<|im_start|>", DF_TOKEN_CONTROL);
  (void)tiny_token(v, other ? "<|other|>" : "<|mask|>", DF_TOKEN_CONTROL);
  (void)tiny_merge(v, "t", "h");
  (void)tiny_merge(v, "h", "e");
  (void)tiny_merge(v, "i", "n");
  (void)tiny_merge(v, "a", "n");
  (void)tiny_merge(v, "th", "e");
  assert_int_equal(v->spec.n_tokens, TINY_TOKENS);
  df_gguf_str s[TINY_TOKENS];
  for (uint32_t i = 0; i < v->spec.n_tokens; i++) s[i] = (df_gguf_str){v->tokens[i].p, v->tokens[i].n};
  must(df_gguf_put_cstr(w->w, "tokenizer.ggml.model", "gpt2", &err), &err);
  must(df_gguf_put_cstr(w->w, "tokenizer.ggml.pre", "gpt-2", &err), &err);
  must(df_gguf_put_str_array(w->w, "tokenizer.ggml.tokens", s, v->spec.n_tokens, &err), &err);
  must(df_gguf_put_array(w->w, "tokenizer.ggml.token_type", DF_GGUF_I32, v->types, v->spec.n_tokens, &err), &err);
  for (uint32_t i = 0; i < v->spec.n_merges; i++) s[i] = (df_gguf_str){v->merges[i].p, v->merges[i].n};
  must(df_gguf_put_str_array(w->w, "tokenizer.ggml.merges", s, v->spec.n_merges, &err), &err);
  must(df_gguf_put_u32(w->w, "tokenizer.ggml.eos_token_id", TINY_END, &err), &err);
  df_free(v);
}

static void open_writer(writer *w, df_dtype dtype, uint64_t seed, const char *omit, const char *bend) {
  df_error err = {0};
  *w = (writer){.dtype = dtype, .rng = seed * 0x9E3779B97F4A7C15u + 1, .omit = omit, .bend = bend};
  must(df_gguf_writer_create(&w->w, &err), &err);
}

static void close_writer(writer *w, const char *path) {
  df_error err = {0};
  must(df_gguf_write_file(w->w, NULL, NULL, path, &err), &err);
  df_gguf_writer_free(w->w);
  for (uint32_t i = 0; i < w->n; i++) df_free(w->held[i]);
}

/* ---- target --------------------------------------------------------------------------------------------- */

static void put_rope(writer *w, const tiny_spec *s) {
  df_error err = {0};
  char key[64];
  if (!s->rope_scaling) return;
  (void)snprintf(key, sizeof key, "%s.rope.scaling.type", s->arch);
  must(df_gguf_put_cstr(w->w, key, s->rope_scaling, &err), &err);
  put_f32(w, s->arch, "rope.scaling.factor", s->rope_factor);
  if (s->rope_original) put_u32(w, s->arch, "rope.scaling.original_context_length", s->rope_original);
}

static void put_attention(writer *w, const tiny_spec *s, uint32_t i) {
  char b[64];
  const uint32_t q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim;
  put_norm(w, layer_name(b, i, "attn_norm.weight"), s->hidden);
  put_random(w, layer_name(b, i, "attn_q.weight"), q, s->hidden, 1.5f);
  put_random(w, layer_name(b, i, "attn_k.weight"), kv, s->hidden, 1.5f);
  put_random(w, layer_name(b, i, "attn_v.weight"), kv, s->hidden, 1);
  put_random(w, layer_name(b, i, "attn_output.weight"), s->hidden, q, s->gain);
  if (s->bias) {
    put(w, layer_name(b, i, "attn_q.bias"), DF_F32, 0, q, noise(w, 0, q, 0.5f));
    put(w, layer_name(b, i, "attn_k.bias"), DF_F32, 0, kv, noise(w, 0, kv, 0.5f));
    put(w, layer_name(b, i, "attn_v.bias"), DF_F32, 0, kv, noise(w, 0, kv, 0.5f));
  }
  if (!s->qk_norm) return;
  put_norm(w, layer_name(b, i, "attn_q_norm.weight"), s->head_dim);
  put_norm(w, layer_name(b, i, "attn_k_norm.weight"), s->head_dim);
}

static void put_ffn(writer *w, const char *arch, uint32_t i, uint32_t hidden, uint32_t ffn, float gain) {
  char b[64];
  (void)arch;
  put_norm(w, layer_name(b, i, "ffn_norm.weight"), hidden);
  put_random(w, layer_name(b, i, "ffn_gate.weight"), ffn, hidden, 1.5f);
  put_random(w, layer_name(b, i, "ffn_up.weight"), ffn, hidden, 1.5f);
  put_random(w, layer_name(b, i, "ffn_down.weight"), hidden, ffn, gain);
}

/* The output matrix of an untied target: the embedding with noise, so that tokens still tend to repeat. */
static void put_embedding(writer *w, const tiny_spec *s) {
  float *e = noise(w, s->vocab, s->hidden, 1), *head = NULL;
  if (s->untied) {
    head = noise(w, s->vocab, s->hidden, 0.3f);
    for (size_t i = 0; i < (size_t)s->vocab * s->hidden; i++) head[i] += e[i];
  }
  put(w, "token_embd.weight", w->dtype, s->vocab, s->hidden, e);
  if (head) put(w, "output.weight", w->dtype, s->vocab, s->hidden, head);
}

void tiny_model_write(const tiny_spec *s, const char *path) {
  writer w;
  df_error err = {0};
  open_writer(&w, s->dtype, s->seed, s->omit, s->bend);
  put_geometry(&w, s->arch, s->n_layers, s->hidden, s->n_heads, s->n_kv_heads, s->head_dim, s->ffn, s->vocab,
               s->context);
  must(df_gguf_put_cstr(w.w, "general.name", "tiny", &err), &err);
  put_rope(&w, s);
  put_tokenizer(&w, false);
  if (s->chat_template) must(df_gguf_put_cstr(w.w, "tokenizer.chat_template", s->chat_template, &err), &err);
  put_embedding(&w, s);
  for (uint32_t i = 0; i < s->n_layers; i++) {
    put_attention(&w, s, i);
    put_ffn(&w, s->arch, i, s->hidden, s->ffn, s->gain);
  }
  put_norm(&w, "output_norm.weight", s->hidden);
  close_writer(&w, path);
}

/* ---- draft ---------------------------------------------------------------------------------------------- */

/* identity * scale where row and column agree, on top of noise. */
static float *near_identity(writer *w, uint32_t n_out, uint32_t k, uint32_t period, float scale, float deviation) {
  float *x = noise(w, n_out, k, deviation / sqrtf((float)k));
  for (uint32_t o = 0; o < n_out; o++)
    for (uint32_t i = o; i < k; i += period) x[(size_t)o * k + i] += scale;
  return x;
}

/* V passes the feature's channels through, one KV head each head_dim of them. */
static float *copy_out(writer *w, const tiny_draft_spec *d, uint32_t hidden, float scale) {
  const uint32_t q = d->n_heads * d->head_dim, group = d->n_heads / d->n_kv_heads;
  float *x = noise(w, hidden, q, d->gain / sqrtf((float)q));
  for (uint32_t h = 0; h < d->n_heads; h++)
    for (uint32_t i = 0; i < d->head_dim; i++) {
      const uint32_t channel = h / group * d->head_dim + i;
      if (channel < hidden) x[(size_t)channel * q + h * d->head_dim + i] += scale / (float)group;
    }
  return x;
}

static void put_draft_layer(writer *w, const tiny_draft_spec *d, uint32_t i, uint32_t hidden) {
  char b[64];
  const uint32_t q = d->n_heads * d->head_dim, kv = d->n_kv_heads * d->head_dim;
  put_norm(w, layer_name(b, i, "attn_norm.weight"), hidden);
  put_random(w, layer_name(b, i, "attn_q.weight"), q, hidden, 1);
  put_random(w, layer_name(b, i, "attn_k.weight"), kv, hidden, 1);
  put(w, layer_name(b, i, "attn_v.weight"), w->dtype, kv, hidden, near_identity(w, kv, hidden, hidden, 1, d->gain));
  put(w, layer_name(b, i, "attn_output.weight"), w->dtype, hidden, q, copy_out(w, d, hidden, 6));
  put_norm(w, layer_name(b, i, "attn_q_norm.weight"), d->head_dim);
  put_norm(w, layer_name(b, i, "attn_k_norm.weight"), d->head_dim);
  put_ffn(w, "dflash", i, hidden, d->ffn, d->gain);
}

static void put_draft_keys(writer *w, const tiny_draft_spec *d) {
  df_error err = {0};
  uint32_t taps[4];
  int32_t rank[64];
  for (uint32_t i = 0; i < d->n_taps; i++) taps[i] = d->taps[i] + 1;
  must(df_gguf_put_array(w->w, "dflash.target_layers", DF_GGUF_U32, taps, d->n_taps, &err), &err);
  put_u32(w, "dflash", "block_size", d->block_size);
  if (d->mask >= 0)
    must(df_gguf_put_u32(w->w, "tokenizer.ggml.mask_token_id", d->mask ? (uint32_t)d->mask : TINY_MASK, &err), &err);
  for (int32_t i = 0; i < 64; i++) rank[i] = (i * 37 + 97) % 256;
  if (d->rank_table) must(df_gguf_put_array(w->w, "dflash.draft_token_rank", DF_GGUF_I32, rank, 64, &err), &err);
  if (!d->no_tokenizer) put_tokenizer(w, d->other_tokenizer);
}

void tiny_draft_write(const tiny_draft_spec *d, const char *path) {
  writer w;
  const tiny_spec *t = d->target;
  const uint32_t hidden = d->hidden ? d->hidden : t->hidden;
  open_writer(&w, d->dtype, d->seed, d->omit, d->bend);
  put_geometry(&w, "dflash", d->n_layers, hidden, d->n_heads, d->n_kv_heads, d->head_dim, d->ffn,
               d->vocab ? d->vocab : t->vocab, t->context);
  put_draft_keys(&w, d);
  put(&w, "fc.weight", w.dtype, hidden, d->n_taps * hidden,
      near_identity(&w, hidden, d->n_taps * hidden, hidden, 1, d->gain));
  put_norm(&w, "enc.output_norm.weight", hidden);
  for (uint32_t i = 0; i < d->n_layers; i++) put_draft_layer(&w, d, i, hidden);
  put_norm(&w, "output_norm.weight", hidden);
  close_writer(&w, path);
}
