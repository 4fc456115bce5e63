/* The JSON form of dflash inspect. */
#include <string.h>

#include "cli/inspect.h"
#include "cli/known.h"

enum { MAX_ELEMENTS = 64 };

static void value_json(df_json_out *w, const df_gguf_kv *kv, bool full) {
  bool array = kv->type == DF_GGUF_ARRAY;
  if (array && kv->count > MAX_ELEMENTS && !full) { /* elided: type and length instead of the elements */
    char kind[48];
    df_json_out_object(w);
    df_json_out_key(w, "elided");
    df_json_out_cstr(w, df_gguf_kind_text(kv, kind, sizeof kind));
    df_json_out_key(w, "count");
    df_json_out_u64(w, kv->count);
    df_json_out_close(w);
    return;
  }
  df_gguf_str_iter it = {0};
  if (kv->elem == DF_GGUF_STRING) it = df_gguf_str_begin(kv);
  if (array) df_json_out_array(w);
  for (uint64_t i = 0; i < kv->count; i++) {
    df_gguf_str s;
    if (kv->elem == DF_GGUF_STRING) {
      if (df_gguf_str_next(&it, &s))
        df_json_out_str(w, s.data, s.len);
      else
        df_json_out_null(w);
    } else if (kv->elem == DF_GGUF_F32 || kv->elem == DF_GGUF_F64) {
      df_json_out_f64(w, df_gguf_float_at(kv, i));
    } else if (kv->elem == DF_GGUF_BOOL) {
      df_json_out_bool(w, df_gguf_int_at(kv, i) != 0);
    } else {
      df_json_out_i64(w, df_gguf_int_at(kv, i));
    }
  }
  if (array) df_json_out_close(w);
}

static void geometry_json(df_json_out *w, const df_config *c) {
  df_json_out_key(w, "geometry");
  df_json_out_object(w);
  df_json_out_key(w, "arch"), df_json_out_cstr(w, c->arch);
  df_json_out_key(w, "is_draft"), df_json_out_bool(w, c->is_draft);
  df_json_put_u64(w, "layers", c->n_layers);
  df_json_put_u64(w, "hidden", c->hidden);
  df_json_put_u64(w, "heads", c->n_heads);
  df_json_put_u64(w, "kv_heads", c->n_kv_heads);
  df_json_put_u64(w, "head_dim", c->head_dim);
  df_json_put_u64(w, "ffn", c->ffn);
  df_json_put_u64(w, "vocab", c->vocab);
  df_json_put_u64(w, "context", c->context_length);
  df_json_out_key(w, "rope_base"), df_json_out_f64(w, (double)c->rope.base);
  df_json_out_key(w, "rms_eps"), df_json_out_f64(w, (double)c->rms_eps);
  if (c->is_draft) {
    df_json_put_u64(w, "block_size", c->block_size);
    df_json_out_key(w, "mask_token_id");
    if (c->mask_token_id >= 0)
      df_json_out_i64(w, c->mask_token_id);
    else
      df_json_out_null(w);
    df_json_out_key(w, "taps"), df_json_out_array(w);
    for (uint32_t i = 0; i < c->n_taps; i++) df_json_out_u64(w, c->taps[i]);
    df_json_out_close(w);
    df_json_put_u64(w, "target_layers", c->n_target_layers);
  }
  if (c->unsupported[0]) df_json_out_key(w, "unsupported"), df_json_out_cstr(w, c->unsupported);
  df_json_out_close(w);
}

static void tensors_json(df_json_out *w, const df_subject *s) {
  uint64_t values = 0, bytes = 0;
  df_json_out_key(w, "tensors");
  df_json_out_array(w);
  for (size_t i = 0; i < df_subject_tensors(s); i++) {
    df_tensor_row r = df_subject_tensor(s, i);
    df_json_out_object(w);
    df_json_out_key(w, "name"), df_json_out_cstr(w, r.name);
    df_json_out_key(w, "type"), df_json_out_cstr(w, r.type);
    df_json_out_key(w, "dims"), df_json_out_array(w);
    for (uint32_t d = 0; d < r.n_dims && d < 4; d++) df_json_out_u64(w, r.dims[d]);
    df_json_out_close(w);
    df_json_put_u64(w, "bytes", r.n_bytes);
    df_json_out_close(w);
    values += r.n_values;
    bytes += r.n_bytes;
  }
  df_json_out_close(w);
  df_json_out_key(w, "totals");
  df_json_out_object(w);
  df_json_put_u64(w, "tensors", df_subject_tensors(s));
  df_json_put_u64(w, "values", values);
  df_json_put_u64(w, "bytes", bytes);
  df_json_out_close(w);
}

void df_fit_json(df_json_out *w, const df_fit_report *fit) {
  static const char *const words[] = {"ok", "differs", "not stated"};
  df_json_out_key(w, "fit");
  df_json_out_object(w);
  df_json_out_key(w, "fits"), df_json_out_bool(w, fit->fits);
  df_json_out_key(w, "items"), df_json_out_array(w);
  for (int i = 0; i < DF_FIT_COUNT; i++) {
    df_json_out_object(w);
    df_json_out_key(w, "name"), df_json_out_cstr(w, fit->item[i].name);
    df_json_out_key(w, "target"), df_json_out_cstr(w, fit->item[i].target);
    df_json_out_key(w, "draft"), df_json_out_cstr(w, fit->item[i].draft);
    df_json_out_key(w, "verdict"), df_json_out_cstr(w, words[fit->item[i].verdict]);
    df_json_out_close(w);
  }
  df_json_out_close(w);
  df_json_out_close(w);
}

df_status df_inspect_json(const df_subject *s, const df_fit_report *fit, bool full, df_error *err) {
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "file"), df_json_out_cstr(&w, s->path);
  df_json_out_key(&w, "format"), df_json_out_cstr(&w, s->gguf ? "gguf" : "safetensors");
  df_json_out_key(&w, "file_bytes");
  if (df_file_bytes(s->path) >= 0)
    df_json_out_i64(&w, df_file_bytes(s->path));
  else
    df_json_out_null(&w);
  df_json_out_key(&w, "tokenizer_hash");
  char hash[20];
  (void)snprintf(hash, sizeof hash, "%016llx", (unsigned long long)s->tok_hash);
  if (s->tok_hash)
    df_json_out_cstr(&w, hash);
  else
    df_json_out_null(&w);
  if (s->why[0]) df_json_out_key(&w, "note"), df_json_out_cstr(&w, s->why);
  if (s->gguf) {
    df_json_out_key(&w, "metadata");
    df_json_out_object(&w);
    for (size_t i = 0; i < df_gguf_kv_count(s->gguf); i++) {
      const df_gguf_kv *kv = df_gguf_kv_at(s->gguf, i);
      df_json_out_key(&w, kv->key);
      value_json(&w, kv, full);
    }
    df_json_out_close(&w);
  }
  if (s->source) geometry_json(&w, df_source_config(s->source));
  tensors_json(&w, s);
  if (fit) df_fit_json(&w, fit);
  df_json_out_close(&w);
  df_status st = df_json_out_end(&w);
  if (st == DF_OK) puts(b.data);
  df_buf_release(&b);
  return st;
}
