/* POST /v1/completions in OpenAI's older shape: several prompts, echo, logprobs of the prompt, best_of. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "server/routes.h"
#include "text/utf8.h"

/* ---- logprobs ---- */

/* Characters that a token adds to the text. */
static uint64_t token_chars(df_choice *c, int32_t id) {
  df_buf b;
  uint64_t n = 0;
  df_buf_init(&b, 0);
  if (df_detok_push(&c->offsets, id, &b, NULL) == DF_OK) {
    n = df_utf8_count(b.data, b.len);
  }
  df_buf_release(&b);
  return n;
}

/* Tokens with what is known about them. */
typedef struct token_run {
  const int32_t *ids;
  const float *logprobs;       /* NULL = not known */
  const df_token_logprob *top; /* [n][n_top] or NULL */
  uint32_t n;
} token_run;

/* {"token": logprob, ...}, the token itself among them. */
static void top_json(df_json_out *w, const df_server *s, const token_run *r, uint32_t i, uint32_t n_top) {
  char text[DF_TOKEN_TEXT_MAX];
  bool seen = false;
  if (!r->logprobs || isnan(r->logprobs[i])) {
    df_json_out_null(w);
    return;
  }
  df_json_out_object(w);
  for (uint32_t k = 0; r->top && k < n_top; k++) {
    const df_token_logprob *e = &r->top[(size_t)i * n_top + k];
    if (e->id < 0) break;
    seen = seen || e->id == r->ids[i];
    df_token_key(s, e->id, text);
    df_json_out_key(w, text), df_logprob_json(w, e->logprob);
  }
  if (!seen) {
    df_token_key(s, r->ids[i], text);
    df_json_out_key(w, text), df_logprob_json(w, r->logprobs[i]);
  }
  df_json_out_close(w);
}

/* Member "logprobs" for two runs, one behind the other (the prompt's may be empty). */
static void logprobs_json(df_json_out *w, df_task *t, df_choice *c, const token_run *prompt, const token_run *answer) {
  const token_run *runs[2] = {prompt, answer};
  const df_server *s = t->server;
  df_json_out_key(w, "logprobs");
  if (!t->gen.logprobs) {
    df_json_out_null(w);
    return;
  }
  df_json_out_object(w);
  df_json_out_key(w, "tokens");
  df_json_out_array(w);
  for (int r = 0; r < 2; r++) {
    for (uint32_t i = 0; i < runs[r]->n; i++) df_token_json(w, s, runs[r]->ids[i]);
  }
  df_json_out_close(w);
  df_json_out_key(w, "token_logprobs");
  df_json_out_array(w);
  for (int r = 0; r < 2; r++) {
    for (uint32_t i = 0; i < runs[r]->n; i++) {
      if (!runs[r]->logprobs || isnan(runs[r]->logprobs[i]))
        df_json_out_null(w);
      else
        df_logprob_json(w, runs[r]->logprobs[i]);
    }
  }
  df_json_out_close(w);
  df_json_out_key(w, "top_logprobs");
  df_json_out_array(w);
  for (int r = 0; r < 2 && t->gen.n_top > 0; r++) {
    for (uint32_t i = 0; i < runs[r]->n; i++) top_json(w, s, runs[r], i, t->gen.n_top);
  }
  df_json_out_close(w);
  df_json_out_key(w, "text_offset");
  df_json_out_array(w);
  for (int r = 0; r < 2; r++) {
    for (uint32_t i = 0; i < runs[r]->n; i++) {
      df_json_out_u64(w, c->text_chars);
      c->text_chars += token_chars(c, runs[r]->ids[i]);
    }
  }
  df_json_out_close(w);
  df_json_out_close(w);
}

static token_run answer_run(const df_task *t, const df_choice *c, uint32_t first, uint32_t n) {
  if (n == 0) return (token_run){0};
  return (token_run){.ids = c->ids + first,
                     .logprobs = c->logprobs ? c->logprobs + first : NULL,
                     .top = c->top ? c->top + (size_t)first * t->gen.n_top : NULL,
                     .n = n};
}

static token_run prompt_run(const df_task *t, const df_choice *c) {
  const df_prompt *p = &t->prompts.v[c->prompt];
  if (!t->gen.echo) return (token_run){0};
  return (token_run){.ids = p->ids, .logprobs = c->prompt_logprobs, .top = c->prompt_top, .n = (uint32_t)p->n};
}

/* The prompt as text, for echo. */
static df_status prompt_text(const df_task *t, const df_choice *c, df_buf *out, df_error *err) {
  const df_prompt *p = &t->prompts.v[c->prompt];
  if (p->text) return df_buf_put(out, p->text, p->len, err);
  return df_tokenizer_decode(t->server->m.model->tok, p->ids, p->n, DF_DECODE_SHOW_SPECIAL, out, err);
}

/* ---- streams ---- */

static df_status chunk(df_task *t, df_choice *c, const char *text, size_t n, const token_run *prompt, const df_piece *p,
                       const char *finish, df_error *err) {
  df_json_out w;
  const token_run answer = p ? answer_run(t, c, p->first, p->n) : (token_run){0};
  df_sse_begin(t, &w, err);
  df_json_out_object(&w);
  df_reply_stem(&w, t, "text_completion");
  df_json_out_key(&w, "choices");
  df_json_out_array(&w);
  df_json_out_object(&w);
  df_json_out_key(&w, "index"), df_json_out_u64(&w, c->index);
  df_json_out_key(&w, "text"), df_json_out_str(&w, text, n);
  if (finish) {
    df_json_out_key(&w, "logprobs"), df_json_out_null(&w);
    df_json_out_key(&w, "finish_reason"), df_json_out_cstr(&w, finish);
  } else {
    logprobs_json(&w, t, c, prompt, &answer);
    df_json_out_key(&w, "finish_reason"), df_json_out_null(&w);
  }
  if (t->gen.dflash_tokens && p) df_dflash_json(&w, c, p);
  df_json_out_close(&w);
  df_json_out_close(&w);
  if (t->gen.continuous_usage && !finish)
    df_usage_json(&w, t);
  else if (t->gen.include_usage)
    df_json_out_key(&w, "usage"), df_json_out_null(&w);
  if (finish) df_timings_of_stats(&w, &c->stats);
  df_json_out_close(&w);
  return df_sse_end(t, &w);
}

/* With echo the prompts come first. */
static df_status completion_begin(df_task *t, df_error *err) {
  for (uint32_t i = 0; i < t->n_choices && t->gen.echo && !t->gen.logprobs; i++) {
    const token_run none = {0};
    df_buf text;
    df_buf_init(&text, 0);
    df_status st = prompt_text(t, &t->choices[i], &text, err);
    if (st == DF_OK) st = chunk(t, &t->choices[i], text.data ? text.data : "", text.len, &none, NULL, NULL, err);
    df_buf_release(&text);
    DF_TRY(st);
  }
  return DF_OK;
}

/* With echo and logprobs the prompt goes out with the first piece, when its logprobs are known. */
static df_status echo_scored(df_task *t, df_choice *c, df_error *err) {
  if (!t->gen.echo || !t->gen.logprobs || c->echoed) return DF_OK;
  const token_run prompt = prompt_run(t, c);
  df_buf text;
  c->echoed = true;
  df_buf_init(&text, 0);
  df_status st = prompt_text(t, c, &text, err);
  if (st == DF_OK) st = chunk(t, c, text.data ? text.data : "", text.len, &prompt, NULL, NULL, err);
  df_buf_release(&text);
  return st;
}

static df_status completion_piece(df_task *t, df_choice *c, const df_piece *p, df_error *err) {
  const token_run none = {0};
  DF_TRY(echo_scored(t, c, err));
  if (p->text_len == 0 && (p->n == 0 || !(t->gen.logprobs || t->gen.dflash_tokens))) return DF_OK;
  return chunk(t, c, p->text, p->text_len, &none, p, NULL, err);
}

static df_status completion_finish(df_task *t, df_choice *c, df_error *err) {
  DF_TRY(echo_scored(t, c, err));
  return chunk(t, c, "", 0, NULL, NULL, df_finish_word(c->finish), err);
}

static df_status completion_end(df_task *t, df_error *err) { return df_openai_stream_end(t, "text_completion", err); }

/* ---- whole replies ---- */

static df_status choice_json(df_task *t, df_choice *c, df_json_out *w, df_error *err) {
  const token_run prompt = prompt_run(t, c), answer = answer_run(t, c, 0, c->n_ids);
  df_buf text;
  df_buf_init(&text, 0);
  df_status st = t->gen.echo ? prompt_text(t, c, &text, err) : DF_OK;
  if (st == DF_OK && c->text.len) st = df_buf_put(&text, c->text.data, c->text.len, err);
  if (st == DF_OK) {
    df_json_out_object(w);
    df_json_out_key(w, "index"), df_json_out_u64(w, c->index);
    df_json_out_key(w, "text"), df_json_out_str(w, text.data ? text.data : "", text.len);
    logprobs_json(w, t, c, &prompt, &answer);
    df_json_out_key(w, "finish_reason"), df_json_out_cstr(w, df_finish_word(c->finish));
    df_json_out_close(w);
  }
  df_buf_release(&text);
  return st;
}

static df_status completion_whole(df_task *t, df_json_out *w, df_error *err) {
  df_json_out_object(w);
  df_reply_stem(w, t, "text_completion");
  df_json_out_key(w, "choices");
  df_json_out_array(w);
  for (uint32_t i = 0; i < t->n_choices; i++) {
    if (t->choices[i].index != UINT32_MAX) DF_TRY(choice_json(t, &t->choices[i], w, err));
  }
  df_json_out_close(w);
  df_usage_json(w, t);
  df_timings_json(w, t);
  df_json_out_close(w);
  return DF_OK;
}

static const df_shape completion_shape = {.name = "completion",
                                          .family = DF_FOR_COMPLETION,
                                          .begin = completion_begin,
                                          .piece = completion_piece,
                                          .finish = completion_finish,
                                          .end = completion_end,
                                          .whole = completion_whole};

static df_status read_prompt(df_task *t, const df_json *body, const char **param, df_error *err) {
  const df_json *v = df_json_member(body, "prompt");
  *param = "prompt";
  if (df_json_kind_of(v) == DF_JSON_NULL) return DF_FAIL(err, DF_ERR_FORMAT, "\"prompt\" is missing");
  DF_TRY(df_prompt_add_json(&t->prompts, t->server->m.model, v, DF_PROMPT_ANY, "prompt", err));
  *param = "suffix";
  const df_json *suffix = df_json_member(body, "suffix");
  if (df_json_kind_of(suffix) != DF_JSON_NULL && !df_json_equals(suffix, ""))
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "\"suffix\" (insertion) is not supported");
  return df_body_grammar(t, body, param, err);
}

void df_handle_completion(df_server *s, df_exchange *x) {
  df_body_generate(s, x, &completion_shape, "cmpl-", read_prompt);
}
