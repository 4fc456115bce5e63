/* Pieces of replies that several shapes share. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/timings.h"
#include "server/server_state.h"
#include "text/utf8.h"

/* ---- errors ---- */

df_status df_error_json(df_buf *out, int status, const char *type, const char *param, const char *message) {
  df_json_out w;
  df_json_out_begin(&w, out, NULL);
  df_json_out_object(&w);
  df_json_out_key(&w, "error");
  df_json_out_object(&w);
  df_json_out_key(&w, "message"), df_json_out_cstr(&w, message);
  df_json_out_key(&w, "type"), df_json_out_cstr(&w, type);
  df_json_out_key(&w, "param");
  if (param)
    df_json_out_cstr(&w, param);
  else
    df_json_out_null(&w);
  df_json_out_key(&w, "code"), df_json_out_i64(&w, status);
  df_json_out_close(&w);
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

void df_reply_error(df_exchange *x, int status, const char *type, const char *param, const char *fmt, ...) {
  char message[1024];
  va_list ap;
  va_start(ap, fmt);
  (void)vsnprintf(message, sizeof message, fmt, ap);
  va_end(ap);
  df_buf b;
  df_buf_init(&b, 0);
  if (status == 429 || status == 503) df_exchange_header(x, "Retry-After", "1");
  if (status == 401) df_exchange_header(x, "WWW-Authenticate", "Bearer");
  if (df_error_json(&b, status, type, param, message) == DF_OK) {
    df_exchange_send(x, status, "application/json", b.data, b.len);
  } else {
    static const char text[] =
        "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,\"code\":503}}";
    df_exchange_send(x, 503, "application/json", text, sizeof text - 1);
  }
  df_buf_release(&b);
}

int df_error_http(const df_server *s, const df_error *err, const char **type) {
  *type = "invalid_request_error";
  switch (err->code) {
    case DF_ERR_ARGUMENT:
    case DF_ERR_FORMAT:
    case DF_ERR_TEMPLATE:
    case DF_ERR_UNSUPPORTED:
    case DF_ERR_MISMATCH: return 400;
    case DF_ERR_LIMIT: return 400;
    case DF_ERR_BUSY:
      *type = s->phase == DF_PHASE_READY ? "rate_limit_error" : "unavailable_error";
      return s->phase == DF_PHASE_READY ? 429 : 503;
    case DF_ERR_DEVICE: /* for good: others can take the request */
    case DF_ERR_MEMORY: *type = "unavailable_error"; return 503;
    default: *type = "server_error"; return 500;
  }
}

void df_reply_failed(df_server *s, df_exchange *x, const df_error *err, const char *param) {
  const char *type;
  int status = df_error_http(s, err, &type);
  if (status == 500)
    df_reply_error(x, status, type, param, "the server could not answer (request %s)", x->id);
  else
    df_reply_error(x, status, type, param, "%s%s%s", err->msg, err->hint[0] ? "; " : "", err->hint);
}

void df_reply_json(df_exchange *x, df_buf *b, df_status st) {
  if (st == DF_OK)
    df_exchange_send(x, 200, "application/json", b->data, b->len);
  else
    df_reply_error(x, 503, "unavailable_error", NULL, "out of memory");
  df_buf_release(b);
}

/* ---- numbers ---- */

df_stats df_task_stats(const df_task *t) {
  df_stats a = {0};
  for (uint32_t i = 0; i < t->n_choices; i++) {
    const df_stats *b = &t->choices[i].stats;
    a.new_tokens += b->new_tokens;
    a.steps += b->steps;
    a.verify_steps += b->verify_steps;
    a.drafted += b->drafted;
    a.accepted += b->accepted;
    a.emitted_verify += b->emitted_verify;
    for (unsigned j = 0; j < DF_MAX_WIDTH; j++) {
      a.drafted_at[j] += b->drafted_at[j];
      a.accepted_at[j] += b->accepted_at[j];
    }
    a.prefill_ms += b->prefill_ms;
    a.decode_ms += b->decode_ms;
    a.first_token_ms = b->first_token_ms > a.first_token_ms ? b->first_token_ms : a.first_token_ms;
    if (i == 0 || t->choices[i].prompt != t->choices[i - 1].prompt) { /* a prompt counts once */
      a.prompt_tokens += b->prompt_tokens;
      a.cached_tokens += b->cached_tokens;
    }
  }
  return a;
}

static uint32_t reasoning_tokens(const df_task *t) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < t->n_choices; i++) n += df_reasoning_tokens(&t->choices[i].thought, t->choices[i].done);
  return n;
}

void df_usage_json(df_json_out *w, const df_task *t) {
  const df_stats a = df_task_stats(t);
  const bool responses = t->shape->family == DF_FOR_RESPONSES;
  uint32_t n_prompt = a.prompt_tokens;
  df_json_out_key(w, "usage");
  df_json_out_object(w);
  df_json_put_u64(w, responses ? "input_tokens" : "prompt_tokens", n_prompt);
  df_json_put_u64(w, responses ? "output_tokens" : "completion_tokens", a.new_tokens);
  df_json_put_u64(w, "total_tokens", (uint64_t)n_prompt + a.new_tokens);
  df_json_out_key(w, responses ? "input_tokens_details" : "prompt_tokens_details");
  df_json_out_object(w);
  df_json_put_u64(w, "cached_tokens", a.cached_tokens);
  df_json_out_close(w);
  df_json_out_key(w, responses ? "output_tokens_details" : "completion_tokens_details");
  df_json_out_object(w);
  df_json_put_u64(w, "reasoning_tokens", reasoning_tokens(t));
  /* not OpenAI's accepted_prediction_tokens: those are predictions of the client */
  df_json_put_u64(w, "draft_tokens", a.drafted);
  df_json_put_u64(w, "draft_tokens_accepted", a.accepted);
  df_json_out_close(w);
  df_json_out_close(w);
}

void df_timings_of_stats(df_json_out *w, const df_stats *st) {
  df_json_out_key(w, "timings");
  df_json_out_object(w);
  df_stats_timings(w, st);
  df_json_out_close(w);
}

void df_timings_json(df_json_out *w, const df_task *t) {
  const df_stats a = df_task_stats(t);
  df_timings_of_stats(w, &a);
}

const char *df_finish_word(df_finish f) {
  switch (f) {
    case DF_FINISH_LENGTH:
    case DF_FINISH_CONTEXT: return "length";
    case DF_FINISH_CANCELLED: return "abort";
    default: return "stop";
  }
}

/* ---- tokens ---- */

/* Returns the length; longer tokens are cut (at a character: they are whole UTF-8 then or in \\x form). */
static size_t token_text(const df_server *s, int32_t id, char *out, size_t cap) {
  const char *p;
  size_t n;
  (void)df_tokenizer_piece(s->m.model->tok, id, &p, &n);
  if (df_utf8_valid(p, n)) {
    if (n >= cap) n = df_utf8_valid_prefix(p, cap - 1);
    memcpy(out, p, n);
    out[n] = '\0';
    return n;
  }
  size_t len = (size_t)snprintf(out, cap, "bytes:");
  for (size_t i = 0; i < n && len + 5 < cap; i++)
    len += (size_t)snprintf(out + len, cap - len, "\\x%02x", (unsigned char)p[i]);
  return len;
}

void df_token_json(df_json_out *w, const df_server *s, int32_t id) {
  char text[DF_TOKEN_TEXT_MAX];
  const size_t n = token_text(s, id, text, sizeof text);
  df_json_out_str(w, text, n);
}

void df_token_key(const df_server *s, int32_t id, char out[DF_TOKEN_TEXT_MAX]) {
  (void)token_text(s, id, out, DF_TOKEN_TEXT_MAX);
}

void df_token_bytes_json(df_json_out *w, const df_server *s, int32_t id) {
  const char *p;
  size_t n;
  (void)df_tokenizer_piece(s->m.model->tok, id, &p, &n);
  df_json_out_array(w);
  for (size_t i = 0; i < n; i++) df_json_out_i64(w, (unsigned char)p[i]);
  df_json_out_close(w);
}

void df_logprob_json(df_json_out *w, float lp) { df_json_out_f64(w, lp > -9999.0f ? (double)lp : -9999.0); }

static void one_token(df_json_out *w, const df_server *s, int32_t id, float lp) {
  df_json_out_key(w, "token"), df_token_json(w, s, id);
  df_json_out_key(w, "logprob"), df_logprob_json(w, lp);
  df_json_out_key(w, "bytes"), df_token_bytes_json(w, s, id);
}

void df_logprob_list_json(df_json_out *w, const df_task *t, const df_choice *c, uint32_t first, uint32_t n) {
  const uint32_t n_top = t->gen.n_top;
  df_json_out_array(w);
  for (uint32_t i = first; i < first + n && c->logprobs; i++) {
    df_json_out_object(w);
    one_token(w, t->server, c->ids[i], c->logprobs[i]);
    df_json_out_key(w, "top_logprobs");
    df_json_out_array(w);
    for (uint32_t k = 0; k < n_top && c->top; k++) {
      const df_token_logprob *e = &c->top[(size_t)i * n_top + k];
      if (e->id < 0) break;
      df_json_out_object(w);
      one_token(w, t->server, e->id, e->logprob);
      df_json_out_close(w);
    }
    df_json_out_close(w);
    df_json_out_close(w);
  }
  df_json_out_close(w);
}

void df_reply_stem(df_json_out *w, const df_task *t, const char *object) {
  df_json_out_key(w, "id"), df_json_out_cstr(w, t->id);
  df_json_out_key(w, "object"), df_json_out_cstr(w, object);
  df_json_out_key(w, "created"), df_json_out_i64(w, t->created);
  df_json_out_key(w, "model"), df_json_out_cstr(w, t->server->m.alias);
  df_json_out_key(w, "system_fingerprint"), df_json_out_cstr(w, t->server->fingerprint);
}

void df_dflash_json(df_json_out *w, df_choice *c, const df_piece *p) {
  df_json_out_key(w, "dflash");
  df_json_out_object(w);
  df_json_put_u64(w, "drafted", p->n_drafted);
  df_json_put_u64(w, "accepted", p->n_accepted);
  df_json_out_key(w, "tokens");
  df_json_out_array(w);
  for (uint32_t i = 0; i < p->n; i++) {
    df_buf text;
    df_buf_init(&text, 0);
    if (df_detok_push(&c->pieces, c->ids[p->first + i], &text, NULL) != DF_OK) text.len = 0;
    df_json_out_object(w);
    df_json_out_key(w, "id"), df_json_out_i64(w, c->ids[p->first + i]);
    df_json_out_key(w, "text"), df_json_out_str(w, text.data ? text.data : "", text.len);
    df_json_out_key(w, "slot"); /* 1, 2, ... of the drafted block; 0 = the target's own token */
    df_json_out_u64(w, i < p->n_accepted ? i + 1 : 0);
    df_json_out_close(w);
    df_buf_release(&text);
  }
  df_json_out_close(w);
  df_json_out_close(w);
}

/* ---- events ---- */

void df_sse_begin(df_task *t, df_json_out *w, df_error *err) {
  df_status st = df_buf_puts(&t->out, "data: ", err);
  df_json_out_begin(w, &t->out, err);
  if (st != DF_OK) w->status = st; /* sticks like a failure of the writer's own */
}

df_status df_sse_end(df_task *t, df_json_out *w) {
  DF_TRY(df_json_out_end(w));
  return df_buf_puts(&t->out, "\n\n", w->err);
}

df_status df_openai_stream_end(df_task *t, const char *object, df_error *err) {
  if (t->gen.include_usage) {
    df_json_out w;
    df_sse_begin(t, &w, err);
    df_json_out_object(&w);
    df_reply_stem(&w, t, object);
    df_json_out_key(&w, "choices");
    df_json_out_array(&w);
    df_json_out_close(&w);
    df_usage_json(&w, t);
    df_timings_json(&w, t);
    df_json_out_close(&w);
    DF_TRY(df_sse_end(t, &w));
  }
  return df_buf_puts(&t->out, "data: [DONE]\n\n", err);
}
