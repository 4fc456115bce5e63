/* Prompt sets of dflash bench: JSON lines. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/answer.h"
#include "cli/bench_report.h"
#include "cli/cli_text.h"
#include "cli/known.h"
#include "format/json.h"

static df_status chat_ids(const df_model *m, const char *text, size_t n, int32_t **ids, size_t *n_ids, df_error *err) {
  df_buf json;
  df_buf_init(&json, 0);
  df_status s = df_buf_puts(&json, "[", err);
  if (s == DF_OK) s = df_message_put(&json, "user", text, n, err);
  if (s == DF_OK) s = df_buf_puts(&json, "]", err);
  if (s == DF_OK) s = df_prompt_chat(m, json.data, NULL, ids, n_ids, err);
  df_buf_release(&json);
  return s;
}

static df_status one_line(df_bench_set *s, const df_model *m, const char *line, size_t n, df_error *err) {
  df_json *root;
  DF_TRY(df_json_parse(line, n, &root, err));
  size_t len = 0;
  const df_json *chat = df_json_member(root, "chat"), *raw = df_json_member(root, "raw");
  const char *text = df_json_str(chat ? chat : raw, &len);
  df_status st = DF_OK;
  if (!text)
    st = DF_FAIL(err, DF_ERR_FORMAT, "neither \"chat\" nor \"raw\" holds a text");
  else if (chat && df_model_has_chat_template(m))
    st = chat_ids(m, text, len, &s->prompt[s->n], &s->n_prompt[s->n], err);
  else
    st = df_model_tokenize(m, text, len, false, &s->prompt[s->n], &s->n_prompt[s->n], err);
  if (st == DF_OK) s->n++;
  df_json_free(root);
  return st;
}

df_status df_bench_prompts_find(const df_opts *o, char **out, df_error *err) {
  DF_TRY(df_shipped_find(df_opt_text(o, OPT_BENCH_PROMPTS, NULL), "bench/prompts", out, err));
  if (*out) return DF_OK;
  return DF_FAIL(err, DF_ERR_IO,
                 "could not find the prompt sets: no folder bench/prompts here or beside the program; "
                 "name it with --prompts-dir DIR");
}

df_status df_bench_set_load(df_bench_set *s, const df_model *m, const char *dir, const char *name, uint32_t most,
                            df_error *err) {
  char path[1024];
  df_buf b;
  df_buf_init(&b, DF_TEXT_MAX);
  s->name = name;
  if (snprintf(path, sizeof path, "%s/%s.jsonl", dir, name) >= (int)sizeof path)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "the name of prompt set \"%.60s\" is too long", name);
  df_status st = df_text_read(path, &b, err);
  size_t line = 0;
  for (size_t at = 0; st == DF_OK && at < b.len && s->n < most && s->n < DF_BENCH_PROMPTS; line++) {
    const char *end = memchr(b.data + at, '\n', b.len - at);
    const size_t n = end ? (size_t)(end - b.data) - at : b.len - at;
    if (n) {
      st = one_line(s, m, b.data + at, n, err);
      if (st != DF_OK) df_error_prefix(err, "\"%s\" line %zu", path, line + 1);
    }
    at += n + 1;
  }
  df_buf_release(&b);
  if (st == DF_OK && s->n == 0) st = DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" holds no prompt", path);
  return st;
}

void df_bench_set_release(df_bench_set *s) {
  for (uint32_t i = 0; i < s->n; i++) df_ids_free(s->prompt[i]);
}
