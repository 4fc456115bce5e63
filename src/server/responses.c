/* POST /v1/responses in OpenAI's shape, text only: whole replies and the stream of named events. Nothing is stored. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/routes.h"

static void item_id(df_json_out *w, const char *key, const df_task *t) {
  char id[DF_TASK_ID_MAX + 8];
  (void)snprintf(id, sizeof id, "msg_%s", t->id + strlen("resp_"));
  df_json_out_key(w, key);
  df_json_out_cstr(w, id);
}

/* ---- objects ---- */

/* Member "logprobs" of tokens [first, first + n): empty unless they were asked for. */
static void logprobs_json(df_json_out *w, const df_task *t, const df_choice *c, uint32_t first, uint32_t n) {
  df_json_out_key(w, "logprobs");
  df_logprob_list_json(w, t, c, first, t->gen.logprobs ? n : 0);
}

static void part_json(df_json_out *w, const df_task *t, const df_choice *c, bool with_text) {
  df_json_out_object(w);
  df_json_put_cstr(w, "type", "output_text");
  df_json_out_key(w, "text"), df_json_out_str(w, c->text.data ? c->text.data : "", with_text ? c->text.len : 0);
  df_json_out_key(w, "annotations");
  df_json_out_array(w);
  df_json_out_close(w);
  logprobs_json(w, t, c, 0, with_text ? c->n_ids : 0);
  df_json_out_close(w);
}

static const char *status_of(const df_choice *c) {
  if (!c->done) return "in_progress";
  return strcmp(df_finish_word(c->finish), "stop") == 0 ? "completed" : "incomplete";
}

static void item_json(df_json_out *w, const df_task *t, const df_choice *c, bool with_text) {
  df_json_out_object(w);
  item_id(w, "id", t);
  df_json_put_cstr(w, "type", "message");
  df_json_put_cstr(w, "status", status_of(c));
  df_json_put_cstr(w, "role", "assistant");
  df_json_out_key(w, "content");
  df_json_out_array(w);
  if (with_text) part_json(w, t, c, true);
  df_json_out_close(w);
  df_json_out_close(w);
}

/* A member of the request, or what stands for its absence. */
static void repeat(df_json_out *w, const df_task *t, const char *key, const char *absent) {
  const df_json *v = df_json_member(t->body, key);
  df_json_out_key(w, key);
  if (df_json_kind_of(v) != DF_JSON_NULL)
    df_json_out_value(w, v);
  else
    df_json_out_raw(w, absent, strlen(absent));
}

static void response_json(df_json_out *w, const df_task *t) {
  const df_choice *c = &t->choices[0];
  const char *status = status_of(c);
  df_json_out_object(w);
  df_json_put_cstr(w, "id", t->id);
  df_json_put_cstr(w, "object", "response");
  df_json_out_key(w, "created_at"), df_json_out_i64(w, t->created);
  df_json_put_cstr(w, "status", status);
  df_json_put_null(w, "error");
  df_json_out_key(w, "incomplete_details");
  if (c->done && strcmp(status, "incomplete") == 0) {
    df_json_out_object(w);
    df_json_put_cstr(w, "reason", c->finish == DF_FINISH_CANCELLED ? "cancelled" : "max_output_tokens");
    df_json_out_close(w);
  } else {
    df_json_out_null(w);
  }
  repeat(w, t, "instructions", "null");
  repeat(w, t, "max_output_tokens", "null");
  df_json_put_cstr(w, "model", t->server->m.alias);
  df_json_out_key(w, "output");
  df_json_out_array(w);
  if (c->done) item_json(w, t, c, true);
  df_json_out_close(w);
  df_json_out_key(w, "parallel_tool_calls"), df_json_out_bool(w, true);
  df_json_put_null(w, "previous_response_id");
  df_json_out_key(w, "reasoning"), df_json_out_raw(w, "{\"effort\":null,\"summary\":null}", 30);
  df_json_out_key(w, "store"), df_json_out_bool(w, false);
  df_json_out_key(w, "temperature"), df_json_out_f64(w, (double)t->gen.p.sampling.temperature);
  repeat(w, t, "text", "{\"format\":{\"type\":\"text\"}}");
  df_json_put_cstr(w, "tool_choice", "auto");
  df_json_out_key(w, "tools");
  df_json_out_array(w);
  df_json_out_close(w);
  df_json_out_key(w, "top_p"), df_json_out_f64(w, (double)t->gen.p.sampling.top_p);
  df_json_put_cstr(w, "truncation", "disabled");
  if (c->done) {
    df_usage_json(w, t);
    df_timings_json(w, t);
  } else {
    df_json_put_null(w, "usage");
  }
  repeat(w, t, "user", "null");
  repeat(w, t, "metadata", "{}");
  df_json_out_close(w);
}

/* ---- events ---- */

/* "event: NAME", then an open object with type and sequence_number. */
static void event_open(df_task *t, df_json_out *w, const char *name, df_error *err) {
  df_status st = df_buf_printf(&t->out, err, "event: %s\n", name);
  df_sse_begin(t, w, err);
  if (st != DF_OK) w->status = st;
  df_json_out_object(w);
  df_json_put_cstr(w, "type", name);
  df_json_out_key(w, "sequence_number"), df_json_out_u64(w, t->sequence++);
}

static df_status event_close(df_task *t, df_json_out *w) {
  df_json_out_close(w);
  return df_sse_end(t, w);
}

static df_status response_event(df_task *t, const char *name, df_error *err) {
  df_json_out w;
  event_open(t, &w, name, err);
  df_json_out_key(&w, "response");
  response_json(&w, t);
  return event_close(t, &w);
}

static df_status item_event(df_task *t, const char *name, bool done, df_error *err) {
  df_json_out w;
  event_open(t, &w, name, err);
  df_json_out_key(&w, "output_index"), df_json_out_u64(&w, 0);
  df_json_out_key(&w, "item");
  item_json(&w, t, &t->choices[0], done);
  return event_close(t, &w);
}

static void where(df_json_out *w, const df_task *t) {
  item_id(w, "item_id", t);
  df_json_out_key(w, "output_index"), df_json_out_u64(w, 0);
  df_json_out_key(w, "content_index"), df_json_out_u64(w, 0);
}

static df_status part_event(df_task *t, const char *name, bool with_text, df_error *err) {
  df_json_out w;
  event_open(t, &w, name, err);
  where(&w, t);
  df_json_out_key(&w, "part");
  part_json(&w, t, &t->choices[0], with_text);
  return event_close(t, &w);
}

/* text: all that `key` holds, which is that of tokens [first, first + n). */
static df_status text_event(df_task *t, const char *name, const char *key, df_slice text, uint32_t first, uint32_t n,
                            df_error *err) {
  df_json_out w;
  event_open(t, &w, name, err);
  where(&w, t);
  df_json_out_key(&w, key), df_json_out_str(&w, text.p, text.n);
  logprobs_json(&w, t, &t->choices[0], first, n);
  return event_close(t, &w);
}

static df_status responses_begin(df_task *t, df_error *err) {
  DF_TRY(response_event(t, "response.created", err));
  DF_TRY(response_event(t, "response.in_progress", err));
  DF_TRY(item_event(t, "response.output_item.added", false, err));
  return part_event(t, "response.content_part.added", false, err);
}

/* Tokens whose text is held back go with the text that comes next. */
static df_status responses_piece(df_task *t, df_choice *c, const df_piece *p, df_error *err) {
  const uint32_t first = c->n_told;
  if (p->text_len == 0) return DF_OK;
  c->n_told = p->first + p->n;
  return text_event(t, "response.output_text.delta", "delta", (df_slice){p->text, p->text_len}, first,
                    c->n_told - first, err);
}

static df_status responses_finish(df_task *t, df_choice *c, df_error *err) {
  const df_slice text = {c->text.data ? c->text.data : "", c->text.len};
  DF_TRY(text_event(t, "response.output_text.done", "text", text, 0, c->n_ids, err));
  DF_TRY(part_event(t, "response.content_part.done", true, err));
  DF_TRY(item_event(t, "response.output_item.done", true, err));
  const bool complete = strcmp(status_of(c), "completed") == 0;
  return response_event(t, complete ? "response.completed" : "response.incomplete", err);
}

static df_status responses_end(df_task *t, df_error *err) {
  (void)t, (void)err; /* response.completed is the end */
  return DF_OK;
}

static df_status responses_whole(df_task *t, df_json_out *w, df_error *err) {
  (void)err;
  response_json(w, t);
  return DF_OK;
}

static const df_shape responses_shape = {.name = "responses",
                                         .family = DF_FOR_RESPONSES,
                                         .begin = responses_begin,
                                         .piece = responses_piece,
                                         .finish = responses_finish,
                                         .end = responses_end,
                                         .whole = responses_whole};

/* ---- requests ---- */

/* One item of the input, a message. */
static df_status write_item(df_json_out *w, const df_json *item, size_t i, df_error *err) {
  char at[40];
  const df_json *type = df_json_member(item, "type");
  (void)snprintf(at, sizeof at, "input[%zu]", i);
  if (df_json_str(type, NULL) && !df_json_equals(type, "message"))
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "%s of type \"%.40s\" is not supported", at, df_json_str(type, NULL));
  if (df_json_kind_of(type) != DF_JSON_NULL && !df_json_str(type, NULL))
    return DF_FAIL(err, DF_ERR_FORMAT, "%s.type must be a string, not %s", at,
                   df_json_kind_name(df_json_kind_of(type)));
  return df_message_write(w, item, at, err);
}

/* The input as an array of chat messages: a string is one message of the user. */
static df_status write_input(const df_json *body, const df_json *instructions, df_buf *out, df_error *err) {
  const df_json *input = df_json_member(body, "input");
  size_t n, n_messages = 0;
  const char *text = df_json_str(input, &n);
  df_json_out w;
  if (!text && df_json_kind_of(input) != DF_JSON_ARRAY)
    return DF_FAIL(err, DF_ERR_FORMAT, "\"input\" must be a string or an array, not %s",
                   df_json_kind_name(df_json_kind_of(input)));
  if (!text && df_json_size(input) == 0) return DF_FAIL(err, DF_ERR_FORMAT, "\"input\" is empty");
  df_json_out_begin(&w, out, err);
  df_json_out_array(&w);
  if (instructions) {
    df_json_out_object(&w);
    df_json_put_cstr(&w, "role", "system");
    df_json_out_key(&w, "content"), df_json_out_value(&w, instructions);
    df_json_out_close(&w);
  }
  if (text) {
    df_json_out_object(&w);
    df_json_put_cstr(&w, "role", "user");
    df_json_out_key(&w, "content"), df_json_out_str(&w, text, n);
    df_json_out_close(&w);
    n_messages++;
  }
  for (size_t i = 0; i < df_json_size(input); i++) {
    const df_json *item = df_json_at(input, i);
    if (df_json_equals(df_json_member(item, "type"), "reasoning"))
      continue; /* the model is not shown its earlier one */
    DF_TRY(write_item(&w, item, i, err));
    n_messages++;
  }
  if (n_messages == 0) return DF_FAIL(err, DF_ERR_FORMAT, "\"input\" holds no message");
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

static df_status read_input(df_task *t, const df_json *body, const df_json *instructions, const df_json *kwargs,
                            df_error *err) {
  df_buf messages, text;
  df_buf_init(&messages, 0);
  df_buf_init(&text, 0);
  df_status st = write_input(body, instructions, &messages, err);
  const df_chat_input in = {.messages = messages.data, .kwargs = kwargs, .add_generation_prompt = true};
  if (st == DF_OK) st = df_chat_render(t->server->m.model, t->server->chat, &in, &text, err);
  if (st == DF_OK) t->think = df_think_mode_of_prompt(text.data ? text.data : "", text.len);
  if (st == DF_OK)
    st = df_prompt_add_text(&t->prompts, t->server->m.model, text.data ? text.data : "", text.len, true, err);
  df_buf_release(&messages);
  df_buf_release(&text);
  return st;
}

/* What would change the answer and does not exist here is refused, not ignored. */
static df_status refuse_unknown(const df_json *body, const char **param, df_error *err) {
  const df_json *tools;
  bool background;
  *param = "previous_response_id";
  if (df_json_kind_of(df_json_member(body, *param)) != DF_JSON_NULL)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "responses are not stored here: send the whole conversation as \"input\"");
  *param = "tools";
  DF_TRY(df_json_opt_tree(body, "tools", DF_JSON_ARRAY, &tools, err));
  if (df_json_size(tools) > 0)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED, "tools are supported by /v1/chat/completions only");
  *param = "background";
  DF_TRY(df_json_opt_bool(body, "background", false, &background, err));
  return background ? DF_FAIL(err, DF_ERR_UNSUPPORTED, "responses cannot be made in the background here") : DF_OK;
}

/* "include" may ask for logprobs; what else it can name does not exist here, and is nothing that the answer needs. */
static df_status read_include(df_task *t, const df_json *body, df_error *err) {
  const df_json *include;
  DF_TRY(df_json_opt_tree(body, "include", DF_JSON_ARRAY, &include, err));
  for (size_t i = 0; i < df_json_size(include); i++) {
    const df_json *e = df_json_at(include, i);
    if (df_json_kind_of(e) != DF_JSON_STRING)
      return DF_FAIL(err, DF_ERR_FORMAT, "\"include\"[%zu] must be a string, not %s", i,
                     df_json_kind_name(df_json_kind_of(e)));
    t->gen.logprobs |= df_json_equals(e, "message.output_text.logprobs");
  }
  return DF_OK;
}

static df_status read_responses(df_task *t, const df_json *body, const char **param, df_error *err) {
  const df_json *instructions, *kwargs;
  DF_TRY(refuse_unknown(body, param, err));
  *param = "instructions";
  DF_TRY(df_json_opt_tree(body, "instructions", DF_JSON_STRING, &instructions, err));
  *param = "chat_template_kwargs";
  DF_TRY(df_json_opt_tree(body, "chat_template_kwargs", DF_JSON_OBJECT, &kwargs, err));
  *param = "include";
  DF_TRY(read_include(t, body, err));
  *param = "input";
  DF_TRY(read_input(t, body, instructions, kwargs, err));
  return df_body_grammar(t, body, param, err);
}

void df_handle_responses(df_server *s, df_exchange *x) {
  df_body_generate(s, x, &responses_shape, "resp_", read_responses);
}
