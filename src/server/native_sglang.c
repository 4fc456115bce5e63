/* POST /generate and GET /health_generate in SGLang's shape. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/routes.h"
#include "text/utf8.h"

#define KIND(v) df_json_kind_name(df_json_kind_of(v))

/* ---- meta_info ---- */

static void finish_json(df_json_out *w, const df_task *t, const df_choice *c) {
  df_json_out_key(w, "finish_reason");
  if (!c->done) {
    df_json_out_null(w);
    return;
  }
  const char *word = df_finish_word(c->finish);
  df_json_out_object(w);
  df_json_out_key(w, "type"), df_json_out_cstr(w, word);
  if (strcmp(word, "length") == 0) {
    df_json_out_key(w, "length"), df_json_out_u64(w, c->stats.new_tokens);
  } else if (strcmp(word, "abort") == 0) {
    df_json_out_key(w, "message"), df_json_out_cstr(w, "aborted");
  } else {
    df_json_out_key(w, "matched");
    if (c->matched_string >= 0 && (uint32_t)c->matched_string < t->gen.n_stop)
      df_json_out_cstr(w, t->gen.stop[c->matched_string]);
    else if (c->matched_id >= 0)
      df_json_out_i64(w, c->matched_id);
    else
      df_json_out_null(w);
  }
  df_json_out_close(w);
}

static void spec_json(df_json_out *w, const df_stats *st) {
  df_json_out_key(w, "spec_verify_ct"), df_json_out_u64(w, st->verify_steps);
  df_json_out_key(w, "spec_accept_length");
  df_json_out_f64(w, df_stats_accept_length(st)); /* plain steps do not count */
  df_json_out_key(w, "spec_accept_rate");
  df_json_out_f64(w, st->drafted ? (double)st->accepted / st->drafted : 0);
  df_json_out_key(w, "spec_accept_token_num"), df_json_out_u64(w, st->accepted);
  df_json_out_key(w, "spec_draft_token_num"), df_json_out_u64(w, st->drafted);
  df_json_out_key(w, "spec_num_correct_drafts"), df_json_out_u64(w, st->accepted);
  df_json_out_key(w, "spec_num_proposed_drafts"), df_json_out_u64(w, st->drafted);
  /* H[n] = steps that accepted exactly n drafts; a slot is accepted only behind all before it */
  df_json_out_key(w, "spec_accept_histogram");
  df_json_out_array(w);
  uint32_t last = 0;
  for (uint32_t j = 0; j < DF_MAX_WIDTH; j++) {
    if (st->drafted_at[j]) last = j + 1;
  }
  for (uint32_t n = 0; n <= last && last > 0; n++) {
    const uint32_t at_least = n == 0 ? st->verify_steps : st->accepted_at[n - 1];
    const uint32_t more = n < DF_MAX_WIDTH ? st->accepted_at[n] : 0;
    df_json_out_u64(w, at_least > more ? at_least - more : 0);
  }
  df_json_out_close(w);
}

/* [[logprob, id, text], ...] */
static void token_list(df_json_out *w, const df_task *t, const int32_t *ids, const float *lp, uint32_t n) {
  df_json_out_array(w);
  for (uint32_t i = 0; i < n; i++) {
    df_json_out_array(w);
    if (!lp || lp[i] != lp[i])
      df_json_out_null(w);
    else
      df_logprob_json(w, lp[i]);
    df_json_out_i64(w, ids[i]);
    if (t->gen.return_text_in_logprobs)
      df_token_json(w, t->server, ids[i]);
    else
      df_json_out_null(w);
    df_json_out_close(w);
  }
  df_json_out_close(w);
}

static void top_lists(df_json_out *w, const df_task *t, const df_token_logprob *top, uint32_t n) {
  df_json_out_array(w);
  for (uint32_t i = 0; i < n; i++) {
    df_json_out_array(w);
    for (uint32_t k = 0; top && k < t->gen.n_top; k++) {
      const df_token_logprob *e = &top[(size_t)i * t->gen.n_top + k];
      if (e->id < 0) break;
      df_json_out_array(w);
      df_logprob_json(w, e->logprob);
      df_json_out_i64(w, e->id);
      if (t->gen.return_text_in_logprobs)
        df_token_json(w, t->server, e->id);
      else
        df_json_out_null(w);
      df_json_out_close(w);
    }
    df_json_out_close(w);
  }
  df_json_out_close(w);
}

static void logprobs_json(df_json_out *w, const df_task *t, const df_choice *c) {
  const df_prompt *p = &t->prompts.v[c->prompt];
  const uint32_t n_prompt = t->gen.echo ? (uint32_t)p->n : 0;
  if (!t->gen.logprobs) return;
  df_json_out_key(w, "input_token_logprobs"), token_list(w, t, p->ids, c->prompt_logprobs, n_prompt);
  df_json_out_key(w, "output_token_logprobs"), token_list(w, t, c->ids, c->logprobs, c->n_ids);
  if (t->gen.n_top == 0) return;
  df_json_out_key(w, "input_top_logprobs"), top_lists(w, t, c->prompt_top, n_prompt);
  df_json_out_key(w, "output_top_logprobs"), top_lists(w, t, c->top, c->n_ids);
}

static void choice_json(df_json_out *w, const df_task *t, const df_choice *c) {
  df_json_out_object(w);
  df_json_out_key(w, "text"), df_json_out_str(w, c->text.data ? c->text.data : "", c->text.len);
  df_json_out_key(w, "output_ids");
  df_json_out_array(w);
  for (uint32_t i = 0; i < c->n_ids; i++) df_json_out_i64(w, c->ids[i]);
  df_json_out_close(w);
  df_json_out_key(w, "meta_info");
  df_json_out_object(w);
  char id[DF_TASK_ID_MAX + 16];
  const char *rid = df_json_str(df_json_at(t->rids, c->prompt), NULL);
  if (!rid) rid = t->id;
  const bool own = t->n_choices == 1 || (rid != t->id && t->gen.best_of == 1);
  (void)snprintf(id, sizeof id, own ? "%s" : "%s_%u", rid, c->index);
  df_json_put_cstr(w, "id", id);
  finish_json(w, t, c);
  df_json_out_key(w, "prompt_tokens"), df_json_out_u64(w, c->stats.prompt_tokens);
  df_json_out_key(w, "completion_tokens"), df_json_out_u64(w, c->stats.new_tokens);
  df_json_out_key(w, "cached_tokens"), df_json_out_u64(w, c->stats.cached_tokens);
  df_json_out_key(w, "weight_version"), df_json_out_cstr(w, "default");
  df_json_out_key(w, "e2e_latency");
  df_json_out_f64(w, (double)((c->done && c->t_done ? c->t_done : df_now_ns()) - t->x->t_start) / 1e9);
  if (c->done) spec_json(w, &c->stats);
  logprobs_json(w, t, c);
  df_json_out_close(w);
  if (t->n_choices > 1) df_json_out_key(w, "index"), df_json_out_u64(w, c->index);
  df_json_out_close(w);
}

/* ---- the shape ---- */

static df_status sglang_event(df_task *t, df_choice *c, df_error *err) {
  df_json_out w;
  df_sse_begin(t, &w, err);
  choice_json(&w, t, c);
  return df_sse_end(t, &w);
}

static df_status sglang_piece(df_task *t, df_choice *c, const df_piece *p, df_error *err) {
  return p->n == 0 && p->text_len == 0 ? DF_OK : sglang_event(t, c, err);
}

static df_status sglang_end(df_task *t, df_error *err) { return df_buf_puts(&t->out, "data: [DONE]\n\n", err); }

static df_status sglang_whole(df_task *t, df_json_out *w, df_error *err) {
  const bool list = t->listed || t->n_choices > 1;
  (void)err;
  if (list) df_json_out_array(w);
  for (uint32_t i = 0; i < t->n_choices; i++) choice_json(w, t, &t->choices[i]);
  if (list) df_json_out_close(w);
  return DF_OK;
}

static const df_shape sglang_shape = {.name = "generate",
                                      .family = DF_FOR_SGLANG,
                                      .piece = sglang_piece,
                                      .finish = sglang_event,
                                      .end = sglang_end,
                                      .whole = sglang_whole};

/* ---- requests ---- */

static df_status check_rid(const df_json *v, df_error *err) {
  size_t n;
  const char *id = df_json_str(v, &n);
  if (!id) return DF_FAIL(err, DF_ERR_FORMAT, "\"rid\" must be a string, not %s", KIND(v));
  if (strlen(id) != n) return DF_FAIL(err, DF_ERR_FORMAT, "\"rid\" holds a zero byte");
  if (df_utf8_count(id, n) > DF_TASK_RID_CHARS)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"rid\" is longer than %d characters", DF_TASK_RID_CHARS);
  return DF_OK;
}

/* A name for the request, or one for each of its prompts. */
static df_status read_rid(df_task *t, const df_json *v, df_error *err) {
  if (df_json_kind_of(v) == DF_JSON_NULL) return DF_OK;
  t->rids = df_json_kind_of(v) == DF_JSON_ARRAY ? v : NULL;
  for (size_t i = 0; i < df_json_size(t->rids); i++) DF_TRY(check_rid(df_json_at(v, i), err));
  if (t->rids) return DF_OK;
  DF_TRY(check_rid(v, err));
  (void)snprintf(t->id, sizeof t->id, "%s", df_json_str(v, NULL));
  return DF_OK;
}

static df_status read_own(df_task *t, const df_json *body, const char **param, df_error *err) {
  df_gen *g = &t->gen;
  int64_t start;
  *param = "stream";
  DF_TRY(df_json_opt_bool(body, "stream", false, &g->stream, err));
  *param = "return_logprob";
  DF_TRY(df_json_opt_bool(body, "return_logprob", false, &g->logprobs, err));
  *param = "top_logprobs_num";
  DF_TRY(df_json_opt_u32(body, "top_logprobs_num", 0, 0, DF_SCHED_MAX_TOP, &g->n_top, err));
  *param = "return_text_in_logprobs";
  DF_TRY(df_json_opt_bool(body, "return_text_in_logprobs", false, &g->return_text_in_logprobs, err));
  *param = "logprob_start_len"; /* anything but "behind the prompt" asks for the prompt's logprobs */
  DF_TRY(df_json_opt_i64(body, "logprob_start_len", -1, -1, INT32_MAX, &start, err));
  g->echo = g->logprobs && start >= 0;
  *param = "rid";
  DF_TRY(read_rid(t, df_json_member(body, "rid"), err));
  *param = NULL;
  return DF_OK;
}

static df_status read_prompts(df_task *t, const df_json *body, const char **param, df_error *err) {
  const df_json *text = df_json_member(body, "text"), *ids = df_json_member(body, "input_ids");
  const bool has_text = df_json_kind_of(text) != DF_JSON_NULL, has_ids = df_json_kind_of(ids) != DF_JSON_NULL;
  *param = has_ids ? "input_ids" : "text";
  if (has_text == has_ids)
    return DF_FAIL(err, DF_ERR_FORMAT, "exactly one of \"text\" and \"input_ids\" must be given");
  const df_json *v = has_text ? text : ids;
  t->listed = df_json_kind_of(v) == DF_JSON_ARRAY && (has_text || df_json_kind_of(df_json_at(v, 0)) == DF_JSON_ARRAY);
  DF_TRY(
      df_prompt_add_json(&t->prompts, t->server->m.model, v, has_text ? DF_PROMPT_TEXT : DF_PROMPT_IDS, *param, err));
  *param = NULL;
  return DF_OK;
}

static df_status read_generate(df_task *t, const df_json *body, const char **param, df_error *err) {
  const df_json *sampling = df_json_member(body, "sampling_params");
  DF_TRY(read_own(t, body, param, err));
  *param = "sampling_params";
  if (df_json_kind_of(sampling) != DF_JSON_NULL) {
    if (df_json_kind_of(sampling) != DF_JSON_OBJECT)
      return DF_FAIL(err, DF_ERR_FORMAT, "\"sampling_params\" must be an object, not %s", KIND(sampling));
    df_status st = df_gen_read(&t->gen, DF_FOR_SGLANG, sampling, err);
    if (st != DF_OK) {
      if (t->gen.param) *param = t->gen.param;
      return st;
    }
    DF_TRY(df_body_grammar(t, sampling, param, err));
  }
  df_status st = df_gen_check(&t->gen, DF_FOR_SGLANG, err);
  if (st != DF_OK) {
    *param = t->gen.param;
    return st;
  }
  return read_prompts(t, body, param, err);
}

void df_handle_generate(df_server *s, df_exchange *x) {
  df_json *body = df_body_parse(x);
  if (!body) return;
  df_error err;
  const char *param = NULL;
  df_task *t = df_task_create(s, x, &sglang_shape, "");
  if (!t) {
    df_json_free(body);
    return;
  }
  t->body = body;
  if (read_generate(t, body, &param, &err) == DF_OK)
    df_task_start(t);
  else
    df_task_fail_error(t, &err, param);
}

/* One token from a fixed prompt: the whole engine works. */
void df_handle_health_generate(df_server *s, df_exchange *x) {
  df_error err;
  df_task *t = df_task_create(s, x, &sglang_shape, "HEALTH_CHECK_");
  if (!t) return;
  t->gen.max_tokens = 1;
  t->gen.cache_prompt = false;
  t->gen.p.ignore_eos = true;
  t->gen.priority = 1000;
  df_status st = df_gen_check(&t->gen, DF_FOR_SGLANG, &err);
  if (st == DF_OK) st = df_prompt_add_text(&t->prompts, s->m.model, "Hello", 5, false, &err);
  if (st == DF_OK)
    df_task_start(t);
  else
    df_task_fail_error(t, &err, NULL);
}
