#include "eval/gsm8k.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "eval/eval_file.h"
#include "format/json.h"

const char *const df_gsm8k_stop[3] = {"Question:", "</s>", "<|im_end|>"};

/* ---- data ----------------------------------------------------------------------------------------------- */

/* A member's text with its terminator into the set's buffer; *at = where. */
static df_status keep_text(df_gsm8k_set *s, const df_json *root, const char *key, size_t *at, size_t *n,
                           df_error *err) {
  const char *text = df_json_str(df_json_member(root, key), n);
  if (!text) return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" is missing or no text", key);
  *at = s->text.len;
  return df_buf_put(&s->text, text, *n + 1, err);
}

static df_status keep_line(df_gsm8k_set *s, size_t *offset, const char *line, size_t n, df_error *err) {
  df_json *root;
  df_gsm8k_item *it = &s->items[s->n];
  DF_TRY(df_json_parse(line, n, &root, err));
  df_status st = df_json_kind_of(root) == DF_JSON_OBJECT ? DF_OK : DF_FAIL(err, DF_ERR_FORMAT, "it is no JSON object");
  if (st == DF_OK) st = keep_text(s, root, "question", &offset[2 * s->n], &it->n_question, err);
  if (st == DF_OK) st = keep_text(s, root, "answer", &offset[2 * s->n + 1], &it->n_answer, err);
  df_json_free(root);
  if (st == DF_OK) s->n++;
  return st;
}

static df_status keep_lines(df_gsm8k_set *s, size_t *offset, const df_buf *file, const char *path, df_error *err) {
  uint32_t number = 0;
  for (size_t at = 0; at < file->len;) {
    const char *line = file->data + at;
    const size_t n = df_line_length(file, at);
    number++;
    at += n + 1;
    if (n == 0) continue;
    const df_status st = keep_line(s, offset, line, n, err);
    if (st == DF_OK) continue;
    df_error_prefix(err, "\"%s\" line %u", path, number);
    return st;
  }
  if (s->n == 0) return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" holds no question", path);
  for (uint32_t i = 0; i < s->n; i++) { /* the buffer has stopped moving */
    s->items[i].question = s->text.data + offset[2 * i];
    s->items[i].answer = s->text.data + offset[2 * i + 1];
  }
  return DF_OK;
}

static df_status load_set(df_gsm8k_set *s, const char *dir, const char *name, df_error *err) {
  char path[4096];
  df_buf file;
  size_t lines = 1;
  *s = (df_gsm8k_set){0};
  if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "the folder name \"%.60s...\" is too long", dir);
  df_buf_init(&s->text, 0);
  DF_TRY(df_eval_read_file(path, &file, err));
  for (size_t i = 0; i < file.len; i++) lines += file.data[i] == '\n';
  s->items = df_calloc(lines, sizeof *s->items);
  size_t *offset = df_calloc(lines, 2 * sizeof *offset);
  df_status st =
      s->items && offset ? keep_lines(s, offset, &file, path, err) : DF_OOM(err, "questions", lines * sizeof *s->items);
  df_free(offset);
  df_buf_release(&file);
  return st;
}

static void release_set(df_gsm8k_set *s) {
  df_free(s->items);
  df_buf_release(&s->text);
  *s = (df_gsm8k_set){0};
}

df_status df_gsm8k_load(df_gsm8k *g, const char *dir, bool with_train, df_error *err) {
  *g = (df_gsm8k){0};
  df_status st = load_set(&g->test, dir, "test.jsonl", err);
  if (st == DF_OK && with_train) st = load_set(&g->train, dir, "train.jsonl", err);
  if (st != DF_OK) df_gsm8k_release(g);
  return st;
}

void df_gsm8k_release(df_gsm8k *g) {
  release_set(&g->test);
  release_set(&g->train);
}

/* ---- prompts -------------------------------------------------------------------------------------------- */

df_status df_gsm8k_picker_init(df_gsm8k_picker *p, const df_gsm8k *g, df_fewshot how, uint32_t shots, uint64_t seed,
                               df_error *err) {
  if (shots > DF_GSM8K_MAX_SHOTS || shots > g->train.n)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "%u examples are more than %u", shots,
                   shots > DF_GSM8K_MAX_SHOTS ? (uint32_t)DF_GSM8K_MAX_SHOTS : g->train.n);
  *p = (df_gsm8k_picker){.how = how, .shots = shots};
  df_pyrandom_seed(&p->rnd, seed);
  return DF_OK;
}

df_status df_gsm8k_pick(df_gsm8k_picker *p, const df_gsm8k *g, uint32_t *examples, df_error *err) {
  if (p->how == DF_FEWSHOT_SAMPLED) return df_pyrandom_sample(&p->rnd, g->train.n, p->shots, examples, err);
  for (uint32_t i = 0; i < p->shots; i++) examples[i] = i;
  return DF_OK;
}

df_status df_gsm8k_prompt(const df_gsm8k *g, uint32_t question, const uint32_t *examples, uint32_t shots, df_buf *out,
                          df_error *err) {
  for (uint32_t i = 0; i <= shots; i++) {
    const df_gsm8k_item *it = i < shots ? &g->train.items[examples[i]] : &g->test.items[question];
    DF_TRY(df_buf_puts(out, "Question: ", err));
    DF_TRY(df_buf_put(out, it->question, it->n_question, err));
    DF_TRY(df_buf_puts(out, "\nAnswer:", err));
    if (i == shots) break;
    DF_TRY(df_buf_puts(out, " ", err));
    DF_TRY(df_buf_put(out, it->answer, it->n_answer, err));
    DF_TRY(df_buf_puts(out, "\n\n", err));
  }
  return DF_OK;
}

static void put_message(df_json_out *w, const char *role, const char *text, size_t n) {
  df_json_out_object(w);
  df_json_out_key(w, "role"), df_json_out_cstr(w, role);
  df_json_out_key(w, "content"), df_json_out_str(w, text, n);
  df_json_out_close(w);
}

df_status df_gsm8k_messages(const df_gsm8k *g, uint32_t question, const uint32_t *examples, uint32_t shots, df_buf *out,
                            df_error *err) {
  df_json_out w;
  df_buf turn;
  df_status st = DF_OK;
  df_buf_init(&turn, 0);
  df_json_out_begin(&w, out, err);
  df_json_out_array(&w);
  for (uint32_t i = 0; i <= shots && st == DF_OK; i++) {
    const df_gsm8k_item *it = i < shots ? &g->train.items[examples[i]] : &g->test.items[question];
    turn.len = 0;
    st = df_buf_puts(&turn, "Question: ", err);
    if (st == DF_OK) st = df_buf_put(&turn, it->question, it->n_question, err);
    if (st == DF_OK) st = df_buf_puts(&turn, "\nAnswer:", err);
    if (st != DF_OK) break;
    put_message(&w, "user", turn.data, turn.len);
    if (i < shots) put_message(&w, "assistant", it->answer, it->n_answer);
  }
  df_buf_release(&turn);
  if (st != DF_OK) return st;
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

/* ---- scoring -------------------------------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool in_number(char c) { return is_digit(c) || c == '.' || c == ','; }

/* Length of "#### (\-?[0-9\.\,]+)" at text, 0 when it does not stand there; the group begins at byte 5. */
static size_t strict_at(const char *text, size_t n) {
  if (n < 6 || memcmp(text, "#### ", 5) != 0) return 0;
  size_t i = 5;
  if (text[i] == '-') i++;
  const size_t first = i;
  while (i < n && in_number(text[i])) i++;
  return i > first ? i : 0;
}

/* Length of "(-?[$0-9.,]{2,})|(-?[0-9]+)" at text. A minus is in neither set, so it stands only in front. */
static size_t flexible_at(const char *text, size_t n) {
  const size_t first = n && text[0] == '-' ? 1 : 0;
  size_t i = first;
  while (i < n && (in_number(text[i]) || text[i] == '$')) i++;
  if (i - first >= 2) return i;
  for (i = first; i < n && is_digit(text[i]);) i++;
  return i > first ? i : 0;
}

static void extract(const char *text, size_t n, df_gsm8k_score *out) {
  static const char invalid[] = "[invalid]";
  out->strict = out->flexible = invalid;
  out->n_strict = out->n_flexible = sizeof invalid - 1;
  for (size_t i = 0; i < n && !out->strict_valid; i++) {
    const size_t len = strict_at(text + i, n - i);
    if (!len) continue;
    out->strict = text + i + 5;
    out->n_strict = len - 5;
    out->strict_valid = true;
  }
  for (size_t i = 0; i < n;) {
    const size_t len = flexible_at(text + i, n - i);
    if (len) {
      out->flexible = text + i;
      out->n_flexible = len;
      out->flexible_valid = true;
    }
    i += len ? len : 1;
  }
}

/* The task's regexes_to_ignore in their order, then lower case (nothing but ASCII can meet a number). */
static df_status normalise(const char *text, size_t n, df_buf *out, df_error *err) {
  out->len = 0;
  DF_TRY(df_buf_reserve(out, n + 1, err));
  char *d = out->data;
  size_t m = 0;
  for (size_t i = 0; i < n; i++)
    if (text[i] != ',' && text[i] != '$') d[m++] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]);
  size_t from = 0;
  for (size_t i = 0; i + 5 <= m; i++)
    if (memcmp(d + i, "#### ", 5) == 0) from = i + 5;
  memmove(d, d + from, m - from);
  m -= from;
  if (m && d[m - 1] == '.') { /* "\.$" */
    m--;
  } else if (m > 1 && d[m - 1] == '\n' && d[m - 2] == '.') { /* $ stands before a final line end too */
    d[m - 2] = '\n';
    m--;
  }
  out->len = m;
  return DF_OK;
}

static df_status same_number(const char *a, size_t n, const df_buf *gold, df_buf *tmp, bool *same, df_error *err) {
  DF_TRY(normalise(a, n, tmp, err));
  *same = tmp->len == gold->len && memcmp(tmp->data, gold->data, gold->len) == 0;
  return DF_OK;
}

df_status df_gsm8k_score_answer(const char *answer, size_t n, const char *solution, size_t n_solution,
                                df_gsm8k_score *out, df_error *err) {
  df_gsm8k_score s = {0};
  df_buf gold, tmp;
  df_buf_init(&gold, 0);
  df_buf_init(&tmp, 0);
  extract(answer, n, &s);
  df_status st = normalise(solution, n_solution, &gold, err);
  if (st == DF_OK) st = same_number(s.strict, s.n_strict, &gold, &tmp, &s.strict_ok, err);
  if (st == DF_OK) st = same_number(s.flexible, s.n_flexible, &gold, &tmp, &s.flexible_ok, err);
  df_buf_release(&gold);
  df_buf_release(&tmp);
  if (st == DF_OK) *out = s;
  return st;
}
