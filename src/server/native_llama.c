/* llama-server's own endpoints: /completion, /tokenize, /detokenize, /apply-template. */
#include <string.h>

#include "base/mem.h"
#include "server/routes.h"
#include "text/utf8.h"

/* ---- /completion ---- */

static const char *stop_type(const df_choice *c) {
  switch (c->finish) {
    case DF_FINISH_EOS: return "eos";
    case DF_FINISH_ID:
    case DF_FINISH_STRING: return "word";
    case DF_FINISH_LENGTH:
    case DF_FINISH_CONTEXT: return "limit";
    default: return "none";
  }
}

static void probabilities(df_json_out *w, const df_task *t, const df_choice *c, uint32_t first, uint32_t n) {
  const uint32_t n_top = t->gen.n_top;
  if (!t->gen.logprobs || !c->logprobs || n == 0) return;
  df_json_out_key(w, "completion_probabilities");
  df_json_out_array(w);
  for (uint32_t i = first; i < first + n; i++) {
    df_json_out_object(w);
    df_json_out_key(w, "id"), df_json_out_i64(w, c->ids[i]);
    df_json_out_key(w, "token"), df_token_json(w, t->server, c->ids[i]);
    df_json_out_key(w, "bytes"), df_token_bytes_json(w, t->server, c->ids[i]);
    df_json_out_key(w, "logprob"), df_logprob_json(w, c->logprobs[i]);
    df_json_out_key(w, "top_logprobs");
    df_json_out_array(w);
    for (uint32_t k = 0; c->top && k < n_top; k++) {
      const df_token_logprob *e = &c->top[(size_t)i * n_top + k];
      if (e->id < 0) break;
      df_json_out_object(w);
      df_json_out_key(w, "id"), df_json_out_i64(w, e->id);
      df_json_out_key(w, "token"), df_token_json(w, t->server, e->id);
      df_json_out_key(w, "bytes"), df_token_bytes_json(w, t->server, e->id);
      df_json_out_key(w, "logprob"), df_logprob_json(w, e->logprob);
      df_json_out_close(w);
    }
    df_json_out_close(w);
    df_json_out_close(w);
  }
  df_json_out_close(w);
}

static void ids_json(df_json_out *w, const int32_t *ids, size_t n) {
  df_json_out_array(w);
  for (size_t i = 0; i < n; i++) df_json_out_i64(w, ids[i]);
  df_json_out_close(w);
}

static void settings_json(df_json_out *w, const df_task *t) {
  const df_gen *g = &t->gen;
  const df_sampling_params *p = &g->p.sampling;
  df_json_out_key(w, "generation_settings");
  df_json_out_object(w);
  df_json_out_key(w, "n_predict"), df_json_out_i64(w, g->max_tokens);
  df_json_out_key(w, "seed"), df_json_out_i64(w, g->seed_given ? (int64_t)p->seed : -1);
  df_json_out_key(w, "temperature"), df_json_out_f64(w, (double)p->temperature);
  df_json_out_key(w, "top_k"), df_json_out_i64(w, p->top_k);
  df_json_out_key(w, "top_p"), df_json_out_f64(w, (double)p->top_p);
  df_json_out_key(w, "min_p"), df_json_out_f64(w, (double)p->min_p);
  df_json_out_key(w, "repeat_penalty"), df_json_out_f64(w, (double)p->repetition_penalty);
  df_json_out_key(w, "presence_penalty"), df_json_out_f64(w, (double)p->presence_penalty);
  df_json_out_key(w, "frequency_penalty"), df_json_out_f64(w, (double)p->frequency_penalty);
  df_json_out_key(w, "ignore_eos"), df_json_out_bool(w, g->p.ignore_eos);
  df_json_out_key(w, "stream"), df_json_out_bool(w, g->stream);
  df_json_out_key(w, "n_probs"), df_json_out_u64(w, g->n_top);
  df_json_out_key(w, "stop");
  df_json_out_array(w);
  for (uint32_t i = 0; i < g->n_stop; i++) df_json_out_cstr(w, g->stop[i]);
  df_json_out_close(w);
  df_json_out_close(w);
}

/* What is said once, with the last bytes. */
static void final_members(df_json_out *w, const df_task *t, const df_choice *c) {
  const df_prompt *p = &t->prompts.v[c->prompt];
  const bool word =
      c->finish == DF_FINISH_STRING && c->matched_string >= 0 && (uint32_t)c->matched_string < t->gen.n_stop;
  settings_json(w, t);
  df_json_out_key(w, "prompt"), df_json_out_str(w, p->text ? p->text : "", p->text ? p->len : 0);
  df_json_out_key(w, "has_new_line");
  df_json_out_bool(w, c->text.len && memchr(c->text.data, '\n', c->text.len));
  df_json_out_key(w, "truncated"), df_json_out_bool(w, false);
  df_json_out_key(w, "stop_type"), df_json_out_cstr(w, stop_type(c));
  df_json_out_key(w, "stopping_word"), df_json_out_cstr(w, word ? t->gen.stop[c->matched_string] : "");
  df_json_out_key(w, "tokens_cached"), df_json_out_u64(w, (uint64_t)c->stats.prompt_tokens + c->stats.new_tokens);
  df_timings_of_stats(w, &c->stats);
}

static void stem(df_json_out *w, const df_task *t, const df_choice *c, bool stop) {
  df_json_out_key(w, "id_slot"), df_json_out_i64(w, -1);
  df_json_out_key(w, "stop"), df_json_out_bool(w, stop);
  df_json_out_key(w, "model"), df_json_out_cstr(w, t->server->m.alias);
  df_json_out_key(w, "tokens_predicted"), df_json_out_u64(w, c->stats.new_tokens);
  df_json_out_key(w, "tokens_evaluated"), df_json_out_u64(w, c->stats.prompt_tokens);
}

static void whole_choice(df_json_out *w, const df_task *t, const df_choice *c) {
  df_json_out_object(w);
  df_json_out_key(w, "index"), df_json_out_u64(w, c->index);
  df_json_out_key(w, "content"), df_json_out_str(w, c->text.data ? c->text.data : "", c->text.len);
  df_json_out_key(w, "tokens"), ids_json(w, c->ids, t->gen.return_tokens ? c->n_ids : 0);
  stem(w, t, c, true);
  final_members(w, t, c);
  probabilities(w, t, c, 0, c->n_ids);
  df_json_out_close(w);
}

static df_status llama_whole(df_task *t, df_json_out *w, df_error *err) {
  (void)err;
  if (t->n_choices > 1) df_json_out_array(w);
  for (uint32_t i = 0; i < t->n_choices; i++) whole_choice(w, t, &t->choices[i]);
  if (t->n_choices > 1) df_json_out_close(w);
  return DF_OK;
}

static df_status llama_piece(df_task *t, df_choice *c, const df_piece *p, df_error *err) {
  df_json_out w;
  if (p->text_len == 0 && p->n == 0) return DF_OK;
  df_sse_begin(t, &w, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "index"), df_json_out_u64(&w, c->index);
  df_json_out_key(&w, "content"), df_json_out_str(&w, p->text, p->text_len);
  df_json_out_key(&w, "tokens"), ids_json(&w, c->ids ? c->ids + p->first : NULL, p->n);
  stem(&w, t, c, false);
  probabilities(&w, t, c, p->first, p->n);
  df_json_out_close(&w);
  return df_sse_end(t, &w);
}

static df_status llama_finish(df_task *t, df_choice *c, df_error *err) {
  df_json_out w;
  df_sse_begin(t, &w, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "index"), df_json_out_u64(&w, c->index);
  df_json_out_key(&w, "content"), df_json_out_cstr(&w, "");
  df_json_out_key(&w, "tokens"), ids_json(&w, NULL, 0);
  stem(&w, t, c, true);
  final_members(&w, t, c);
  df_json_out_close(&w);
  return df_sse_end(t, &w);
}

static df_status llama_end(df_task *t, df_error *err) {
  (void)t, (void)err; /* no end marker here: the last event says "stop": true */
  return DF_OK;
}

static const df_shape llama_shape = {.name = "llama",
                                     .family = DF_FOR_LLAMA,
                                     .piece = llama_piece,
                                     .finish = llama_finish,
                                     .end = llama_end,
                                     .whole = llama_whole};

static df_status read_completion(df_task *t, const df_json *body, const char **param, df_error *err) {
  const df_json *prompt = df_json_member(body, "prompt");
  *param = "prompt";
  if (df_json_kind_of(prompt) == DF_JSON_NULL) return DF_FAIL(err, DF_ERR_FORMAT, "\"prompt\" is missing");
  DF_TRY(df_prompt_add_json(&t->prompts, t->server->m.model, prompt, DF_PROMPT_ANY, "prompt", err));
  return df_body_grammar(t, body, param, err);
}

void df_handle_llama_completion(df_server *s, df_exchange *x) {
  df_body_generate(s, x, &llama_shape, "cmpl-", read_completion);
}

/* ---- /tokenize: "content" as llama-server has it, "prompt" as vLLM and SGLang have it ---- */

static void tokens_json(df_json_out *w, const df_server *s, const int32_t *ids, size_t n, bool pieces) {
  df_json_out_key(w, "tokens");
  df_json_out_array(w);
  for (size_t i = 0; i < n; i++) {
    if (!pieces) {
      df_json_out_i64(w, ids[i]);
      continue;
    }
    const char *p;
    size_t len;
    (void)df_tokenizer_piece(s->m.model->tok, ids[i], &p, &len);
    df_json_out_object(w);
    df_json_out_key(w, "id"), df_json_out_i64(w, ids[i]);
    df_json_out_key(w, "piece"); /* a string, or its bytes when it is no whole UTF-8 */
    if (df_utf8_valid(p, len))
      df_json_out_str(w, p, len);
    else
      df_token_bytes_json(w, s, ids[i]);
    df_json_out_close(w);
  }
  df_json_out_close(w);
}

typedef struct tokenize_input {
  const char *text;
  size_t n;
  bool special, add, pieces;
} tokenize_input;

/* A member that must be a string; *text is NULL when it is absent. */
static df_status opt_text(const df_json *body, const char *name, const char **text, size_t *n, df_error *err) {
  const df_json *v = df_json_member(body, name);
  *text = df_json_str(v, n);
  if (*text || df_json_kind_of(v) == DF_JSON_NULL) return DF_OK;
  return DF_FAIL(err, DF_ERR_FORMAT, "\"%s\" must be a string, not %s", name, df_json_kind_name(df_json_kind_of(v)));
}

static df_status read_tokenize(const df_json *body, tokenize_input *in, const char **param, df_error *err) {
  const char *prompt;
  size_t n_prompt = 0;
  *param = "prompt";
  DF_TRY(opt_text(body, "prompt", &prompt, &n_prompt, err));
  *param = "content";
  DF_TRY(opt_text(body, "content", &in->text, &in->n, err));
  const bool vllm = !in->text;
  if (vllm && !prompt) return DF_FAIL(err, DF_ERR_FORMAT, "\"content\" is missing");
  if (vllm) in->text = prompt, in->n = n_prompt;
  *param = "add_special";
  DF_TRY(df_json_opt_bool(body, "add_special", vllm, &in->add, err));
  *param = "add_special_tokens";
  DF_TRY(df_json_opt_bool(body, "add_special_tokens", in->add, &in->add, err));
  *param = "parse_special";
  DF_TRY(df_json_opt_bool(body, "parse_special", true, &in->special, err));
  *param = "with_pieces";
  return df_json_opt_bool(body, "with_pieces", false, &in->pieces, err);
}

void df_handle_tokenize(df_server *s, df_exchange *x) {
  df_json *body = df_body_parse(x);
  if (!body) return;
  df_error err;
  tokenize_input in = {0};
  const char *param = NULL;
  df_ids ids = {0};
  df_buf b;
  df_json_out w;
  df_status st = read_tokenize(body, &in, &param, &err);
  if (st == DF_OK) {
    const unsigned flags = (in.special ? DF_ENCODE_PARSE_SPECIAL : 0u) | (in.add ? DF_ENCODE_ADD_BOS : 0u);
    st = df_tokenizer_encode(s->m.model->tok, in.text, in.n, flags, &ids, &err);
    param = NULL;
  }
  if (st != DF_OK) {
    df_reply_failed(s, x, &err, param);
  } else {
    df_buf_init(&b, 0);
    df_json_out_begin(&w, &b, NULL);
    df_json_out_object(&w);
    tokens_json(&w, s, ids.v, ids.n, in.pieces);
    df_json_out_key(&w, "count"), df_json_out_u64(&w, ids.n);
    df_json_out_key(&w, "max_model_len"), df_json_out_u64(&w, s->n_ctx);
    df_json_out_close(&w);
    df_reply_json(x, &b, df_json_out_end(&w));
  }
  df_free(ids.v);
  df_json_free(body);
}

void df_handle_detokenize(df_server *s, df_exchange *x) {
  df_json *body = df_body_parse(x);
  if (!body) return;
  df_error err;
  df_prompt_list list = {0};
  df_buf text, b;
  df_json_out w;
  const df_json *v = df_json_member(body, "tokens");
  df_buf_init(&text, 0);
  const df_json_kind first = df_json_kind_of(df_json_at(v, 0));
  df_status st =
      df_json_kind_of(v) != DF_JSON_ARRAY || (df_json_size(v) && first != DF_JSON_INT && first != DF_JSON_REAL)
          ? DF_FAIL(&err, DF_ERR_FORMAT, "\"tokens\" must be an array of token ids")
          : DF_OK;
  if (st == DF_OK && df_json_size(v)) st = df_prompt_add_json(&list, s->m.model, v, DF_PROMPT_IDS, "tokens", &err);
  if (st == DF_OK && list.n)
    st = df_tokenizer_decode(s->m.model->tok, list.v[0].ids, list.v[0].n, DF_DECODE_SHOW_SPECIAL, &text, &err);
  if (st != DF_OK) {
    df_reply_failed(s, x, &err, "tokens");
  } else {
    static const char *const names[] = {"content", "text", "prompt"}; /* llama-server's, SGLang's, vLLM's */
    df_buf_init(&b, 0);
    df_json_out_begin(&w, &b, NULL);
    df_json_out_object(&w);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
      df_json_out_key(&w, names[i]), df_json_out_str(&w, text.data ? text.data : "", text.len);
    df_json_out_close(&w);
    df_reply_json(x, &b, df_json_out_end(&w));
  }
  df_buf_release(&text);
  df_prompt_list_release(&list);
  df_json_free(body);
}

void df_handle_apply_template(df_server *s, df_exchange *x) {
  df_json *body = df_body_parse(x);
  if (!body) return;
  df_error err;
  df_buf text, b;
  df_json_out w;
  const char *param = "add_generation_prompt";
  bool add;
  df_buf_init(&text, 0);
  df_status st = df_json_opt_bool(body, "add_generation_prompt", true, &add, &err);
  if (st == DF_OK) st = df_chat_prompt_text(s, body, add, &text, &param, &err);
  if (st != DF_OK) {
    df_reply_failed(s, x, &err, param);
  } else {
    df_buf_init(&b, 0);
    df_json_out_begin(&w, &b, NULL);
    df_json_out_object(&w);
    df_json_out_key(&w, "prompt"), df_json_out_str(&w, text.data ? text.data : "", text.len);
    df_json_out_close(&w);
    df_reply_json(x, &b, df_json_out_end(&w));
  }
  df_buf_release(&text);
  df_json_free(body);
}
