#include "eval/tally.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void df_eval_row_release(df_eval_row *r) {
  df_free(r->text);
  df_free(r->strict);
  df_free(r->flexible);
  df_free(r->target);
  *r = (df_eval_row){0};
}

/* ---- one line ------------------------------------------------------------------------------------------- */

static void put_positions(df_json_out *w, const char *key, const uint32_t *at) {
  uint32_t n = DF_MAX_WIDTH;
  while (n && at[n - 1] == 0) n--;
  df_json_out_key(w, key), df_json_out_array(w);
  for (uint32_t i = 0; i < n; i++) df_json_out_u64(w, at[i]);
  df_json_out_close(w);
}

static void put_counts(df_json_out *w, const df_stats *st) {
  df_json_put_u64(w, "prompt_n", st->prompt_tokens);
  df_json_put_u64(w, "cache_n", st->cached_tokens);
  df_json_put_u64(w, "predicted_n", st->new_tokens);
  df_json_put_u64(w, "step_n", st->steps);
  df_json_put_u64(w, "verify_n", st->verify_steps);
  df_json_put_u64(w, "draft_n", st->drafted);
  df_json_put_u64(w, "draft_n_accepted", st->accepted);
  df_json_put_u64(w, "emitted_verify", st->emitted_verify);
  put_positions(w, "drafted_at", st->drafted_at);
  put_positions(w, "accepted_at", st->accepted_at);
  df_json_out_key(w, "prompt_ms"), df_json_out_f64(w, st->prefill_ms);
  df_json_out_key(w, "predicted_ms"), df_json_out_f64(w, st->decode_ms);
}

static void put_score(df_json_out *w, const df_eval_row *r) {
  df_json_out_key(w, "target"), df_json_out_cstr(w, r->target);
  df_json_out_key(w, "flexible"), df_json_out_cstr(w, r->flexible);
  df_json_out_key(w, "flexible_valid"), df_json_out_bool(w, r->flexible_valid);
  df_json_out_key(w, "flexible_ok"), df_json_out_bool(w, r->flexible_ok);
  df_json_out_key(w, "strict"), df_json_out_cstr(w, r->strict);
  df_json_out_key(w, "strict_valid"), df_json_out_bool(w, r->strict_valid);
  df_json_out_key(w, "strict_ok"), df_json_out_bool(w, r->strict_ok);
}

df_status df_eval_row_write(const df_eval_row *r, df_buf *out, df_error *err) {
  char hash[20];
  df_json_out w;
  (void)snprintf(hash, sizeof hash, "%016" PRIx64, r->ids_hash);
  df_json_out_begin(&w, out, err);
  df_json_out_object(&w);
  df_json_put_u64(&w, "question", r->index);
  if (r->target) put_score(&w, r);
  df_json_out_key(&w, "finish"), df_json_out_cstr(&w, r->finish);
  df_json_out_key(&w, "ids_hash"), df_json_out_cstr(&w, hash);
  put_counts(&w, &r->stats);
  df_json_out_key(&w, "seconds"), df_json_out_f64(&w, r->seconds);
  df_json_out_key(&w, "text"), df_json_out_str(&w, r->text, r->n_text);
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

static df_status get_u32(const df_json *o, const char *key, uint32_t *out, df_error *err) {
  DF_TRY(df_json_need(o, key, err));
  return df_json_opt_u32(o, key, 0, 0, UINT32_MAX, out, err);
}

static df_status get_text(const df_json *o, const char *key, char **out, size_t *n, df_error *err) {
  size_t len;
  const char *s = df_json_str(df_json_member(o, key), &len);
  if (!s) return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" is missing or no text", key);
  *out = df_alloc(len + 1);
  if (!*out) return DF_OOM(err, "a text", len + 1);
  memcpy(*out, s, len + 1);
  if (n) *n = len;
  return DF_OK;
}

static df_status get_positions(const df_json *o, const char *key, uint32_t *at, df_error *err) {
  const df_json *a;
  DF_TRY(df_json_opt_tree(o, key, DF_JSON_ARRAY, &a, err));
  if (df_json_size(a) > DF_MAX_WIDTH) return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" has too many elements", key);
  for (size_t i = 0; i < df_json_size(a); i++) {
    int64_t v;
    DF_TRY(df_json_to_i64(df_json_at(a, i), key, 0, UINT32_MAX, &v, err));
    at[i] = (uint32_t)v;
  }
  return DF_OK;
}

static df_status get_counts(const df_json *o, df_stats *st, df_error *err) {
  DF_TRY(get_u32(o, "prompt_n", &st->prompt_tokens, err));
  DF_TRY(get_u32(o, "cache_n", &st->cached_tokens, err));
  DF_TRY(get_u32(o, "predicted_n", &st->new_tokens, err));
  DF_TRY(get_u32(o, "step_n", &st->steps, err));
  DF_TRY(get_u32(o, "verify_n", &st->verify_steps, err));
  DF_TRY(get_u32(o, "draft_n", &st->drafted, err));
  DF_TRY(get_u32(o, "draft_n_accepted", &st->accepted, err));
  DF_TRY(get_u32(o, "emitted_verify", &st->emitted_verify, err));
  DF_TRY(get_positions(o, "drafted_at", st->drafted_at, err));
  DF_TRY(get_positions(o, "accepted_at", st->accepted_at, err));
  DF_TRY(df_json_opt_f64(o, "prompt_ms", 0, 0, 1e15, &st->prefill_ms, err));
  return df_json_opt_f64(o, "predicted_ms", 0, 0, 1e15, &st->decode_ms, err);
}

static df_status get_score(const df_json *o, df_eval_row *r, df_error *err) {
  DF_TRY(get_text(o, "target", &r->target, NULL, err));
  DF_TRY(get_text(o, "flexible", &r->flexible, NULL, err));
  DF_TRY(get_text(o, "strict", &r->strict, NULL, err));
  DF_TRY(df_json_opt_bool(o, "flexible_valid", false, &r->flexible_valid, err));
  DF_TRY(df_json_opt_bool(o, "flexible_ok", false, &r->flexible_ok, err));
  DF_TRY(df_json_opt_bool(o, "strict_valid", false, &r->strict_valid, err));
  return df_json_opt_bool(o, "strict_ok", false, &r->strict_ok, err);
}

static df_status read_row(const df_json *o, df_eval_row *r, df_error *err) {
  const char *s;
  char *end;
  if (df_json_kind_of(o) != DF_JSON_OBJECT) return DF_FAIL(err, DF_ERR_FORMAT, "it is no JSON object");
  DF_TRY(get_u32(o, "question", &r->index, err));
  if (df_json_member(o, "target")) DF_TRY(get_score(o, r, err));
  DF_TRY(df_json_opt_str(o, "finish", "", &s, err));
  (void)snprintf(r->finish, sizeof r->finish, "%s", s);
  DF_TRY(df_json_opt_str(o, "ids_hash", "", &s, err));
  r->ids_hash = strtoull(s, &end, 16);
  if (end != s + 16 || *end) return DF_FAIL(err, DF_ERR_FORMAT, "\"ids_hash\" is not 16 hexadecimal digits");
  DF_TRY(get_counts(o, &r->stats, err));
  DF_TRY(df_json_opt_f64(o, "seconds", 0, 0, 1e12, &r->seconds, err));
  return get_text(o, "text", &r->text, &r->n_text, err);
}

df_status df_eval_row_read(const df_json *object, df_eval_row *r, df_error *err) {
  *r = (df_eval_row){0};
  const df_status st = read_row(object, r, err);
  if (st != DF_OK) df_eval_row_release(r);
  return st;
}

/* ---- sums ----------------------------------------------------------------------------------------------- */

void df_eval_tally_add(df_eval_tally *t, const df_eval_row *r) {
  const df_stats *st = &r->stats;
  t->n++;
  t->strict += r->strict_ok;
  t->flexible += r->flexible_ok;
  t->invalid_strict += !r->strict_valid;
  t->invalid_flexible += !r->flexible_valid;
  t->ended_by_length += strcmp(r->finish, "length") == 0;
  t->new_tokens += st->new_tokens;
  t->prompt_tokens += st->prompt_tokens;
  t->cached_tokens += st->cached_tokens;
  t->steps += st->steps;
  t->verify_steps += st->verify_steps;
  t->drafted += st->drafted;
  t->accepted += st->accepted;
  t->emitted_verify += st->emitted_verify;
  for (uint32_t i = 0; i < DF_MAX_WIDTH; i++) {
    t->drafted_at[i] += st->drafted_at[i];
    t->accepted_at[i] += st->accepted_at[i];
  }
  t->seconds += r->seconds;
}

double df_eval_tally_accept_length(const df_eval_tally *t) {
  return t->verify_steps ? (double)t->emitted_verify / (double)t->verify_steps : 1;
}

double df_eval_tally_speed(const df_eval_tally *t) { return t->seconds > 0 ? (double)t->new_tokens / t->seconds : 0; }

double df_share_stderr(uint32_t hits, uint32_t n) {
  if (n < 2) return 0;
  const double p = (double)hits / n;
  return sqrt(p * (1 - p) / (n - 1));
}

double df_mcnemar_p(uint32_t b, uint32_t c) {
  const uint32_t n = b + c, k = b < c ? b : c;
  if (n == 0) return 1;
  double sum = 0, log_choose = 0; /* of n over i */
  for (uint32_t i = 0; i <= k; i++) {
    if (i) log_choose += log((double)(n - i + 1)) - log((double)i);
    sum += exp(log_choose - n * log(2.0));
  }
  return sum * 2 < 1 ? sum * 2 : 1;
}

static void put_share(df_json_out *w, const char *name, uint32_t hits, uint32_t n) {
  df_json_out_key(w, name), df_json_out_object(w);
  df_json_out_key(w, "exact_match"), df_json_out_f64(w, n ? (double)hits / n : 0);
  df_json_out_key(w, "stderr"), df_json_out_f64(w, df_share_stderr(hits, n));
  df_json_out_key(w, "correct"), df_json_out_u64(w, hits);
  df_json_out_close(w);
}

void df_eval_tally_json(df_json_out *w, const df_eval_tally *t) {
  df_json_put_u64(w, "questions", t->n);
  put_share(w, "flexible-extract", t->flexible, t->n);
  put_share(w, "strict-match", t->strict, t->n);
  df_json_out_key(w, "invalid_rate_strict"), df_json_out_f64(w, t->n ? (double)t->invalid_strict / t->n : 0);
  df_json_out_key(w, "invalid_rate_flexible"), df_json_out_f64(w, t->n ? (double)t->invalid_flexible / t->n : 0);
  df_json_put_u64(w, "ended_by_length", t->ended_by_length);
  df_json_out_key(w, "accept_length"), df_json_out_f64(w, df_eval_tally_accept_length(t));
  df_json_out_key(w, "accepted_per_pos"), df_json_out_array(w);
  for (uint32_t i = 0; i < DF_MAX_WIDTH && t->drafted_at[i]; i++)
    df_json_out_f64(w, (double)t->accepted_at[i] / (double)t->drafted_at[i]);
  df_json_out_close(w);
  df_json_put_u64(w, "verify_n", t->verify_steps);
  df_json_put_u64(w, "draft_n", t->drafted);
  df_json_put_u64(w, "draft_n_accepted", t->accepted);
  df_json_put_u64(w, "prompt_n", t->prompt_tokens);
  df_json_put_u64(w, "cache_n", t->cached_tokens);
  df_json_put_u64(w, "predicted_n", t->new_tokens);
  df_json_out_key(w, "seconds"), df_json_out_f64(w, t->seconds);
  df_json_out_key(w, "tokens_per_second"), df_json_out_f64(w, df_eval_tally_speed(t));
  df_json_out_key(w, "seconds_per_question"), df_json_out_f64(w, t->n ? t->seconds / t->n : 0);
}
