/* POST /v1/chat/completions in OpenAI's shape: whole replies and streams, reasoning and tool calls. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/routes.h"

/* ---- what the model says, taken apart ---- */

/* Without tools and reasoning all text is content. */
static df_status parse_text(df_task *t, df_choice *c, const char *text, size_t n, bool end, df_answer_sink sink,
                            void *user, df_error *err) {
  if (!c->parser) {
    const df_answer_params p = {.think = t->think,
                                .tools = t->tools,
                                .hold_calls = !t->gen.stream,
                                .id_seed = (uint64_t)t->created << 32 ^ c->job};
    DF_TRY(df_answer_parser_create(&p, &c->parser, err));
  }
  if (n > 0) DF_TRY(df_answer_parser_push(c->parser, text, n, sink, user, err));
  return end ? df_answer_parser_finish(c->parser, sink, user, err) : DF_OK;
}

/* Member "logprobs" for tokens [first, first + n) of a choice. */
static void logprobs_json(df_json_out *w, const df_task *t, const df_choice *c, uint32_t first, uint32_t n) {
  df_json_out_key(w, "logprobs");
  if (!t->gen.logprobs || !c->logprobs) {
    df_json_out_null(w);
    return;
  }
  df_json_out_object(w);
  df_json_out_key(w, "content"), df_logprob_list_json(w, t, c, first, n);
  df_json_out_key(w, "refusal"), df_json_out_null(w);
  df_json_out_close(w);
}

/* ---- streams ---- */

/* One chunk; what follows its delta is written by the caller of chunk_close. */
static void chunk_open(df_task *t, df_json_out *w, const df_choice *c, df_error *err) {
  df_sse_begin(t, w, err);
  df_json_out_object(w);
  df_reply_stem(w, t, "chat.completion.chunk");
  df_json_out_key(w, "choices");
  df_json_out_array(w);
  df_json_out_object(w);
  df_json_out_key(w, "index"), df_json_out_u64(w, c->index);
  df_json_out_key(w, "delta");
  df_json_out_object(w);
}

static df_status chunk_close(df_task *t, df_json_out *w) {
  df_json_out_close(w); /* choice */
  df_json_out_close(w); /* choices */
  if (t->gen.continuous_usage) {
    df_usage_json(w, t);
  } else if (t->gen.include_usage) {
    df_json_out_key(w, "usage"), df_json_out_null(w);
  }
  df_json_out_close(w);
  return df_sse_end(t, w);
}

static df_status chat_begin(df_task *t, df_error *err) {
  for (uint32_t i = 0; i < t->n_choices; i++) {
    df_json_out w;
    chunk_open(t, &w, &t->choices[i], err);
    df_json_out_key(&w, "role"), df_json_out_cstr(&w, "assistant");
    df_json_out_key(&w, "content"), df_json_out_null(&w);
    df_json_out_close(&w);
    df_json_out_key(&w, "logprobs"), df_json_out_null(&w);
    df_json_out_key(&w, "finish_reason"), df_json_out_null(&w);
    DF_TRY(chunk_close(t, &w));
  }
  return DF_OK;
}

/* What one push of text writes: chunks for its events; the step's tokens go with the first of them. */
typedef struct chat_sink {
  df_task *t;
  df_choice *c;
  const df_piece *piece; /* NULL once written */
} chat_sink;

static void delta_call(df_json_out *w, const df_answer_event *ev, bool begin) {
  df_json_out_key(w, "tool_calls");
  df_json_out_array(w);
  df_json_out_object(w);
  df_json_out_key(w, "index"), df_json_out_u64(w, ev->index);
  if (begin) {
    df_json_out_key(w, "id"), df_json_out_cstr(w, ev->id);
    df_json_out_key(w, "type"), df_json_out_cstr(w, "function");
  }
  df_json_out_key(w, "function");
  df_json_out_object(w);
  if (begin) df_json_out_key(w, "name"), df_json_out_cstr(w, ev->name);
  df_json_out_key(w, "arguments"), df_json_out_str(w, begin ? "" : ev->text, begin ? 0 : ev->n);
  df_json_out_close(w);
  df_json_out_close(w);
  df_json_out_close(w);
}

static df_status chunk_of_event(chat_sink *k, const df_answer_event *ev, df_error *err) {
  df_json_out w;
  df_task *t = k->t;
  chunk_open(t, &w, k->c, err);
  switch (ev->kind) {
    case DF_ANSWER_REASONING: df_json_out_key(&w, "reasoning_content"), df_json_out_str(&w, ev->text, ev->n); break;
    case DF_ANSWER_CONTENT: df_json_out_key(&w, "content"), df_json_out_str(&w, ev->text, ev->n); break;
    case DF_ANSWER_CALL_BEGIN: delta_call(&w, ev, true); break;
    default: delta_call(&w, ev, false); break;
  }
  df_json_out_close(&w);
  logprobs_json(&w, t, k->c, k->piece ? k->piece->first : 0, k->piece ? k->piece->n : 0);
  df_json_out_key(&w, "finish_reason"), df_json_out_null(&w);
  if (t->gen.dflash_tokens && k->piece) df_dflash_json(&w, k->c, k->piece);
  k->piece = NULL;
  return chunk_close(t, &w);
}

static df_status on_answer(void *user, const df_answer_event *ev, df_error *err) {
  chat_sink *k = user;
  if (ev->kind == DF_ANSWER_CALL_BEGIN) k->c->n_calls++;
  if (ev->kind == DF_ANSWER_CALL_BROKEN && k->c->n_calls > 0) k->c->n_calls--;
  if (ev->kind == DF_ANSWER_CALL_END || ev->kind == DF_ANSWER_CALL_BROKEN) return DF_OK;
  return chunk_of_event(k, ev, err);
}

static df_status chat_piece(df_task *t, df_choice *c, const df_piece *p, df_error *err) {
  chat_sink k = {t, c, p};
  DF_TRY(parse_text(t, c, p->text, p->text_len, false, on_answer, &k, err));
  if (!k.piece || p->n == 0 || !(t->gen.logprobs || t->gen.dflash_tokens)) return DF_OK;
  const df_answer_event nothing = {.kind = DF_ANSWER_CONTENT, .text = ""};
  return chunk_of_event(&k, &nothing, err); /* its text is held back, its tokens are not */
}

static const char *chat_finish_word(const df_choice *c) {
  const char *word = df_finish_word(c->finish);
  return c->n_calls > 0 && strcmp(word, "stop") == 0 ? "tool_calls" : word;
}

static df_status chat_finish(df_task *t, df_choice *c, df_error *err) {
  df_json_out w;
  chat_sink k = {t, c, NULL};
  DF_TRY(parse_text(t, c, "", 0, true, on_answer, &k, err));
  chunk_open(t, &w, c, err);
  df_json_out_close(&w);
  df_json_out_key(&w, "logprobs"), df_json_out_null(&w);
  df_json_out_key(&w, "finish_reason"), df_json_out_cstr(&w, chat_finish_word(c));
  df_json_out_close(&w);
  df_json_out_close(&w);
  if (t->gen.include_usage) df_json_out_key(&w, "usage"), df_json_out_null(&w);
  df_timings_of_stats(&w, &c->stats);
  df_json_out_close(&w);
  return df_sse_end(t, &w);
}

static df_status chat_end(df_task *t, df_error *err) { return df_openai_stream_end(t, "chat.completion.chunk", err); }

/* ---- whole replies ---- */

static df_status collect(void *user, const df_answer_event *ev, df_error *err) {
  df_choice *c = user;
  df_json_out w;
  switch (ev->kind) {
    case DF_ANSWER_REASONING: return df_buf_put(&c->reasoning, ev->text, ev->n, err);
    case DF_ANSWER_CONTENT: return df_buf_put(&c->content, ev->text, ev->n, err);
    case DF_ANSWER_CALL_END: break;
    default: return DF_OK;
  }
  if (c->n_calls++ > 0) DF_TRY(df_buf_puts(&c->calls, ",", err));
  df_json_out_begin(&w, &c->calls, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "id"), df_json_out_cstr(&w, ev->id);
  df_json_out_key(&w, "type"), df_json_out_cstr(&w, "function");
  df_json_out_key(&w, "function");
  df_json_out_object(&w);
  df_json_out_key(&w, "name"), df_json_out_cstr(&w, ev->name);
  df_json_out_key(&w, "arguments"), df_json_out_str(&w, ev->text, ev->n);
  df_json_out_close(&w);
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

static void message_json(df_json_out *w, const df_choice *c) {
  df_json_out_key(w, "message");
  df_json_out_object(w);
  df_json_out_key(w, "role"), df_json_out_cstr(w, "assistant");
  df_json_out_key(w, "content");
  if (c->content.len == 0 && c->n_calls > 0)
    df_json_out_null(w);
  else
    df_json_out_str(w, c->content.data ? c->content.data : "", c->content.len);
  df_json_out_key(w, "refusal"), df_json_out_null(w);
  if (c->reasoning.len)
    df_json_out_key(w, "reasoning_content"), df_json_out_str(w, c->reasoning.data, c->reasoning.len);
  if (c->n_calls > 0) {
    df_json_out_key(w, "tool_calls");
    df_json_out_array(w);
    df_json_out_raw(w, c->calls.data, c->calls.len);
    df_json_out_close(w);
  }
  df_json_out_close(w);
}

static df_status chat_whole(df_task *t, df_json_out *w, df_error *err) {
  df_json_out_object(w);
  df_reply_stem(w, t, "chat.completion");
  df_json_out_key(w, "choices");
  df_json_out_array(w);
  for (uint32_t i = 0; i < t->n_choices; i++) {
    df_choice *c = &t->choices[i];
    if (c->index == UINT32_MAX) continue;
    DF_TRY(parse_text(t, c, c->text.data ? c->text.data : "", c->text.len, true, collect, c, err));
    df_json_out_object(w);
    df_json_out_key(w, "index"), df_json_out_u64(w, c->index);
    message_json(w, c);
    logprobs_json(w, t, c, 0, c->n_ids);
    df_json_out_key(w, "finish_reason"), df_json_out_cstr(w, chat_finish_word(c));
    df_json_out_close(w);
  }
  df_json_out_close(w);
  df_usage_json(w, t);
  df_timings_json(w, t);
  df_json_out_close(w);
  return DF_OK;
}

static const df_shape chat_shape = {.name = "chat",
                                    .family = DF_FOR_CHAT,
                                    .begin = chat_begin,
                                    .piece = chat_piece,
                                    .finish = chat_finish,
                                    .end = chat_end,
                                    .whole = chat_whole};

/* ---- requests ---- */

/* What tools and tool_choice ask for. */
typedef struct tool_wish {
  const char *only; /* this function and no other; NULL = any */
  bool must;        /* the answer can be nothing but calls */
  bool parallel;
} tool_wish;

static df_status read_tool_choice(const df_task *t, const df_json *choice, tool_wish *w, df_error *err) {
  if (df_json_kind_of(choice) == DF_JSON_OBJECT) {
    const df_json *type = df_json_member(choice, "type");
    size_t n = 0;
    w->only = df_json_str(df_json_member(df_json_member(choice, "function"), "name"), &n);
    if (!w->only || strlen(w->only) != n ||
        (df_json_kind_of(type) != DF_JSON_NULL && !df_json_equals(type, "function")))
      return DF_FAIL(err, DF_ERR_FORMAT,
                     "\"tool_choice\" as an object must be {\"type\": \"function\", \"function\": {\"name\": ...}}");
    w->must = true;
  } else if (df_json_equals(choice, "required")) {
    w->must = true;
  } else if (!df_json_equals(choice, "none") && !df_json_equals(choice, "auto")) {
    return DF_FAIL(err, DF_ERR_FORMAT, "\"tool_choice\" must be \"none\", \"auto\", \"required\" or an object");
  }
  if (w->must && !t->tools)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"tool_choice\" asks for a call, but there are no \"tools\"");
  return DF_OK;
}

static df_status read_tools(df_task *t, const df_json *body, tool_wish *w, const char **param, df_error *err) {
  const df_json *tools, *choice = df_json_member(body, "tool_choice");
  *w = (tool_wish){0};
  *param = "parallel_tool_calls";
  DF_TRY(df_json_opt_bool(body, "parallel_tool_calls", true, &w->parallel, err));
  *param = "tools";
  DF_TRY(df_json_opt_tree(body, "tools", DF_JSON_ARRAY, &tools, err));
  t->tools = df_json_size(tools) > 0;
  *param = "tool_choice";
  if (df_json_kind_of(choice) == DF_JSON_NULL) return DF_OK;
  DF_TRY(read_tool_choice(t, choice, w, err));
  if (df_json_equals(choice, "none")) t->tools = false;
  return DF_OK;
}

df_status df_chat_prompt_text(df_server *s, const df_json *body, bool add_generation_prompt, df_buf *out,
                              const char **param, df_error *err) {
  const df_json *tools, *kwargs;
  df_buf messages;
  df_buf_init(&messages, 0);
  *param = "chat_template_kwargs";
  DF_TRY(df_json_opt_tree(body, "chat_template_kwargs", DF_JSON_OBJECT, &kwargs, err));
  *param = "tools";
  DF_TRY(df_json_opt_tree(body, "tools", DF_JSON_ARRAY, &tools, err));
  DF_TRY(df_tools_check(tools, err));
  *param = "messages";
  df_status st = df_json_member(body, "messages") ? df_messages_write(df_json_member(body, "messages"), &messages, err)
                                                  : DF_FAIL(err, DF_ERR_FORMAT, "\"messages\" is missing");
  const df_chat_input in = {.messages = messages.data,
                            .tools = df_json_equals(df_json_member(body, "tool_choice"), "none") ? NULL : tools,
                            .kwargs = kwargs,
                            .add_generation_prompt = add_generation_prompt};
  if (st == DF_OK) st = df_chat_render(s->m.model, s->chat, &in, out, err);
  df_buf_release(&messages);
  if (st == DF_OK) *param = NULL;
  return st;
}

/* tool_choice "required" or a named function: the output can be nothing but calls. */
static df_status force_calls(df_task *t, const df_json *body, const tool_wish *wish, df_error *err) {
  df_buf json, gbnf;
  df_json_out w;
  if (t->grammar)
    return DF_FAIL(err, DF_ERR_FORMAT, "the output is constrained twice: by \"tool_choice\" and a format");
  df_buf_init(&json, 0);
  df_buf_init(&gbnf, 0);
  df_json_out_begin(&w, &json, err);
  df_json_out_value(&w, df_json_member(body, "tools"));
  df_status st = df_json_out_end(&w);
  if (st == DF_OK)
    st = df_tool_calls_gbnf(json.data, json.len, wish->only, wish->parallel && !wish->only, t->think, &gbnf, err);
  if (st == DF_OK) st = df_grammar_from_gbnf(t->server->m.model->tok, gbnf.data, gbnf.len, &t->grammar, err);
  df_buf_release(&json);
  df_buf_release(&gbnf);
  return st;
}

static df_status read_chat(df_task *t, const df_json *body, const char **param, df_error *err) {
  df_buf text;
  tool_wish wish;
  df_buf_init(&text, 0);
  DF_TRY(read_tools(t, body, &wish, param, err));
  df_status st = df_chat_prompt_text(t->server, body, t->gen.add_generation_prompt, &text, param, err);
  if (st == DF_OK) t->think = df_think_mode_of_prompt(text.data ? text.data : "", text.len);
  if (st == DF_OK)
    st = df_prompt_add_text(&t->prompts, t->server->m.model, text.data ? text.data : "", text.len, true, err);
  df_buf_release(&text);
  DF_TRY(st);
  DF_TRY(df_body_grammar(t, body, param, err));
  if (wish.must) {
    *param = "tool_choice";
    DF_TRY(force_calls(t, body, &wish, err));
  }
  *param = NULL;
  return DF_OK;
}

void df_handle_chat(df_server *s, df_exchange *x) { df_body_generate(s, x, &chat_shape, "chatcmpl-", read_chat); }
