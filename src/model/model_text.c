/* The text side of the public API: tokens, detokenised text, chat prompts. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "model/model.h"

df_status df_model_tokenize(const df_model *m, const char *text, size_t len, bool parse_special, int32_t **ids,
                            size_t *n, df_error *err) {
  df_ids out = {0};
  const unsigned flags = DF_ENCODE_ADD_BOS | (parse_special ? DF_ENCODE_PARSE_SPECIAL : 0u);
  const df_status s = df_tokenizer_encode(m->tok, text, len, flags, &out, err);
  if (s != DF_OK) {
    df_free(out.v);
    return s;
  }
  *ids = out.v;
  *n = out.n;
  return DF_OK;
}

void df_ids_free(int32_t *ids) { df_free(ids); }

static df_status take_text(df_buf *b, char **text, size_t *len, df_error *err) {
  DF_TRY(df_buf_put(b, "", 0, err)); /* an empty result is still a string */
  *len = b->len;
  *text = df_buf_take(b);
  return DF_OK;
}

df_status df_model_detokenize(const df_model *m, const int32_t *ids, size_t n, bool show_special, char **text,
                              size_t *len, df_error *err) {
  df_buf b;
  df_buf_init(&b, 0);
  df_status s = df_tokenizer_decode(m->tok, ids, n, show_special ? DF_DECODE_SHOW_SPECIAL : 0u, &b, err);
  if (s == DF_OK) s = take_text(&b, text, len, err);
  if (s != DF_OK) df_buf_release(&b);
  return s;
}

void df_text_free(char *text) { df_free(text); }

bool df_model_has_chat_template(const df_model *m) { return m->chat != NULL; }

bool df_model_is_end_token(const df_model *m, int32_t id) { return df_tokenizer_is_eog(m->tok, id); }

/* A JSON string of the token's text, or "" for a missing one. */
static df_status put_token(df_buf *b, const df_model *m, const char *key, int32_t id, df_error *err) {
  const df_slice t = id >= 0 ? df_tokenizer_text(m->tok, id) : (df_slice){"", 0};
  DF_TRY(df_buf_printf(b, err, ",\"%s\":\"", key));
  for (size_t i = 0; i < t.n; i++) {
    const char c = t.p[i];
    if (c == '"' || c == '\\') DF_TRY(df_buf_put(b, "\\", 1, err));
    if ((unsigned char)c < 0x20)
      DF_TRY(df_buf_printf(b, err, "\\u%04x", c));
    else
      DF_TRY(df_buf_put(b, &c, 1, err));
  }
  return df_buf_puts(b, "\"", err);
}

static df_status chat_context(const df_model *m, const char *messages, const char *tools, bool add_prompt, df_buf *b,
                              df_error *err) {
  DF_TRY(df_buf_puts(b, "{\"messages\":", err));
  DF_TRY(df_buf_puts(b, messages, err));
  DF_TRY(df_buf_puts(b, ",\"tools\":", err));
  DF_TRY(df_buf_puts(b, tools ? tools : "null", err));
  DF_TRY(df_buf_printf(b, err, ",\"add_generation_prompt\":%s", add_prompt ? "true" : "false"));
  DF_TRY(put_token(b, m, "bos_token", df_tokenizer_bos(m->tok), err));
  DF_TRY(put_token(b, m, "eos_token", df_tokenizer_eos(m->tok), err));
  return df_buf_puts(b, "}", err);
}

static df_status render(const df_model *m, const df_chat_template *t, const char *messages, const char *tools,
                        bool add_prompt, df_buf *out, df_error *err) {
  df_buf ctx;
  df_buf_init(&ctx, 0);
  df_status s = chat_context(m, messages, tools, add_prompt, &ctx, err);
  if (s == DF_OK) {
    const df_render_options opt = {.now_unix = (int64_t)time(NULL)};
    s = df_chat_template_render(t, ctx.data, ctx.len, &opt, out, err);
  }
  df_buf_release(&ctx);
  return s;
}

df_status df_model_chat_prompt(const df_model *m, const char *messages_json, const char *tools_json,
                               const char *template_override, bool add_generation_prompt, char **text, size_t *len,
                               df_error *err) {
  df_chat_template *own = NULL;
  if (template_override) DF_TRY(df_chat_template_parse(template_override, strlen(template_override), &own, err));
  const df_chat_template *t = own ? own : m->chat;
  if (!t) {
    df_error_set(err, DF_ERR_UNSUPPORTED, __FILE__, __LINE__, "\"%s\" has no usable chat template%s%s", m->path,
                 m->chat_error ? ": " : "", m->chat_error ? m->chat_error : "");
    df_error_hint(err, "use a raw prompt, or give a template file");
    return DF_ERR_UNSUPPORTED;
  }
  df_buf b;
  df_buf_init(&b, 0);
  df_status s = render(m, t, messages_json, tools_json, add_generation_prompt, &b, err);
  if (s == DF_OK) s = take_text(&b, text, len, err);
  if (s != DF_OK) df_buf_release(&b);
  df_chat_template_free(own);
  return s;
}
