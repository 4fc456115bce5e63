/* The answer of a model, byte by byte. */
#include "server/tool_calls.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "server/tool_calls_json.h"

#define TAG_CALL "<tool_call>"
#define TAG_CALL_END "</tool_call>"
#define TAG_THINK "<think>"
#define TAG_THINK_END "</think>"

typedef enum answer_mode {
  MODE_START, /* <think> may come */
  MODE_THINK, /* inside reasoning */
  MODE_CONTENT,
  MODE_CALL_HEAD, /* behind <tool_call> */
  MODE_CALL_JSON,
  MODE_CALL_TAIL /* behind a call: </tool_call> may come */
} answer_mode;

struct df_answer_parser {
  df_answer_params params;
  answer_mode mode;
  size_t matched; /* characters of the tag that the mode looks for */
  df_buf space;   /* white space that is held back */
  df_buf piece;   /* text to go out */
  df_answer_kind piece_kind;
  df_buf raw;       /* all text of a call, white space before it included */
  bool skip_space;  /* nothing of the content has come yet behind reasoning */
  bool behind_call; /* the space follows a call */
  bool thought;     /* some reasoning has come */
  bool begun;       /* the call's BEGIN is out */
  size_t sent;      /* of its arguments */
  uint32_t n_calls, n_begun;
  char id[DF_TOOL_ID_SIZE];
  df_call_json call;
  df_answer_sink sink;
  void *user;
};

df_think_mode df_think_mode_of_prompt(const char *prompt, size_t n) {
  size_t tag = strlen(TAG_THINK);
  while (n > 0 && (prompt[n - 1] == ' ' || prompt[n - 1] == '\n' || prompt[n - 1] == '\r' || prompt[n - 1] == '\t'))
    n--;
  return n >= tag && memcmp(prompt + n - tag, TAG_THINK, tag) == 0 ? DF_THINK_OPEN : DF_THINK_AUTO;
}

df_status df_answer_parser_create(const df_answer_params *p, df_answer_parser **out, df_error *err) {
  df_answer_parser *a = df_calloc(1, sizeof *a);
  if (!a) return DF_OOM(err, "an answer", sizeof *a);
  a->params = *p;
  a->mode = p->think == DF_THINK_OPEN ? MODE_THINK : p->think == DF_THINK_AUTO ? MODE_START : MODE_CONTENT;
  *out = a;
  return DF_OK;
}

void df_answer_parser_free(df_answer_parser *a) {
  if (!a) return;
  df_buf_release(&a->space);
  df_buf_release(&a->piece);
  df_buf_release(&a->raw);
  df_call_json_release(&a->call);
  df_free(a);
}

uint32_t df_answer_parser_calls(const df_answer_parser *a) { return a->n_calls; }

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* ---- events -------------------------------------------------------------------------------------------- */

static df_status flush_piece(df_answer_parser *a, df_error *err) {
  df_answer_event ev = {.kind = a->piece_kind, .text = a->piece.data, .n = a->piece.len};
  if (a->piece.len == 0) return DF_OK;
  df_status s = a->sink(a->user, &ev, err);
  a->piece.len = 0;
  return s;
}

static df_status put_text(df_answer_parser *a, df_answer_kind kind, const char *text, size_t n, df_error *err) {
  if (n == 0) return DF_OK;
  if (a->piece_kind != kind) DF_TRY(flush_piece(a, err));
  a->piece_kind = kind;
  return df_buf_put(&a->piece, text, n, err);
}

static df_status send_call(df_answer_parser *a, df_answer_kind kind, const char *text, size_t n, df_error *err) {
  df_answer_event ev = {.kind = kind, .text = text, .n = n, .index = a->n_calls, .id = a->id, .name = a->call.name};
  DF_TRY(flush_piece(a, err));
  return a->sink(a->user, &ev, err);
}

/* Ids are numbered by calls that began, so that a broken one never lends its id to the next. */
static void make_id(df_answer_parser *a) {
  uint64_t key[2] = {a->params.id_seed, a->n_begun++};
  uint64_t h = df_hash_bytes(key, sizeof key, 1), k = df_hash_bytes(key, sizeof key, 2);
  (void)snprintf(a->id, sizeof a->id, "call_%016llx%08llx", (unsigned long long)h, (unsigned long long)(k >> 32));
}

/* BEGIN goes out at the byte that allows it, so that events do not depend on how the text was cut. */
static df_status send_begin(df_answer_parser *a, df_error *err) {
  bool done = a->call.state == DF_CALL_DONE;
  if (a->begun || !a->call.has_name || (!done && (a->params.hold_calls || a->call.args.len == 0))) return DF_OK;
  make_id(a);
  a->begun = true;
  return send_call(a, DF_ANSWER_CALL_BEGIN, NULL, 0, err);
}

static df_status send_args(df_answer_parser *a, df_error *err) {
  size_t from = a->sent;
  if (!a->begun || from >= a->call.args.len) return DF_OK;
  a->sent = a->call.args.len;
  return send_call(a, DF_ANSWER_CALL_ARGS, a->call.args.data + from, a->sent - from, err);
}

/* ---- modes --------------------------------------------------------------------------------------------- */

static df_status hold_space(df_answer_parser *a, char c, df_error *err) { return df_buf_put(&a->space, &c, 1, err); }

static void enter(df_answer_parser *a, answer_mode mode) {
  a->mode = mode;
  a->matched = 0;
}

static df_status put_content(df_answer_parser *a, const char *text, size_t n, df_error *err) {
  DF_TRY(put_text(a, DF_ANSWER_CONTENT, a->space.data, a->space.len, err));
  a->space.len = 0;
  a->skip_space = a->behind_call = false;
  return put_text(a, DF_ANSWER_CONTENT, text, n, err);
}

static df_status begin_call(df_answer_parser *a, df_error *err) {
  a->raw.len = 0;
  DF_TRY(df_buf_put(&a->raw, a->space.data, a->space.len, err));
  DF_TRY(df_buf_puts(&a->raw, TAG_CALL, err));
  a->space.len = 0;
  a->begun = false;
  a->sent = 0;
  df_call_json_init(&a->call);
  enter(a, MODE_CALL_HEAD);
  return DF_OK;
}

static df_status content_byte(df_answer_parser *a, char c, df_error *err) {
  const char *tag = TAG_CALL;
  if (!a->params.tools) {
    if (a->skip_space && is_space(c)) return DF_OK;
    return put_content(a, &c, 1, err);
  }
  if (c == tag[a->matched]) {
    if (tag[++a->matched] != '\0') return DF_OK;
    if (a->n_calls < DF_TOOL_MAX_CALLS) return begin_call(a, err);
    a->matched = 0;
    return put_content(a, tag, strlen(tag), err);
  }
  if (a->matched) DF_TRY(put_content(a, tag, a->matched, err));
  a->matched = c == tag[0];
  if (a->matched) return DF_OK;
  if (!is_space(c)) return put_content(a, &c, 1, err);
  return a->skip_space ? DF_OK : hold_space(a, c, err);
}

/* What looked like the beginning of another tag is content. */
static df_status reread(df_answer_parser *a, const char *tag, char c, df_error *err) {
  size_t n = a->matched;
  enter(a, MODE_CONTENT);
  for (size_t i = 0; i < n; i++) DF_TRY(content_byte(a, tag[i], err));
  return content_byte(a, c, err);
}

static df_status start_byte(df_answer_parser *a, char c, df_error *err) {
  if (a->matched == 0 && is_space(c)) return hold_space(a, c, err);
  if (c != TAG_THINK[a->matched]) return reread(a, TAG_THINK, c, err);
  if (TAG_THINK[++a->matched] != '\0') return DF_OK;
  a->space.len = 0;
  enter(a, MODE_THINK);
  return DF_OK;
}

static df_status put_reasoning(df_answer_parser *a, const char *text, size_t n, df_error *err) {
  if (a->thought) DF_TRY(put_text(a, DF_ANSWER_REASONING, a->space.data, a->space.len, err));
  a->space.len = 0;
  a->thought = true;
  return put_text(a, DF_ANSWER_REASONING, text, n, err);
}

static df_status think_byte(df_answer_parser *a, char c, df_error *err) {
  const char *tag = TAG_THINK_END;
  if (c == tag[a->matched]) {
    if (tag[++a->matched] != '\0') return DF_OK;
    a->space.len = 0;
    a->skip_space = true;
    enter(a, MODE_CONTENT);
    return DF_OK;
  }
  if (a->matched) DF_TRY(put_reasoning(a, tag, a->matched, err));
  a->matched = c == tag[0];
  if (a->matched) return DF_OK;
  return is_space(c) ? hold_space(a, c, err) : put_reasoning(a, &c, 1, err);
}

/* The text of the call so far is content. */
static df_status give_up(df_answer_parser *a, df_error *err) {
  DF_TRY(send_args(a, err));
  if (a->begun) DF_TRY(send_call(a, DF_ANSWER_CALL_BROKEN, NULL, 0, err));
  enter(a, MODE_CONTENT);
  DF_TRY(put_content(a, a->raw.data, a->raw.len, err));
  a->raw.len = 0;
  return DF_OK;
}

static df_status call_byte(df_answer_parser *a, char c, df_error *err) {
  bool head = a->mode == MODE_CALL_HEAD;
  bool broken = a->raw.len >= DF_TOOL_MAX_CALL_BYTES;
  if (head && is_space(c) && !broken) return df_buf_put(&a->raw, &c, 1, err);
  if (head && c != '{') broken = true;
  a->mode = MODE_CALL_JSON;
  if (!broken) {
    DF_TRY(df_call_json_byte(&a->call, c, err));
    broken = a->call.state == DF_CALL_BROKEN;
  }
  if (broken) {
    DF_TRY(give_up(a, err));
    return content_byte(a, c, err);
  }
  DF_TRY(df_buf_put(&a->raw, &c, 1, err));
  DF_TRY(send_begin(a, err));
  if (a->call.state != DF_CALL_DONE) return DF_OK;
  DF_TRY(send_args(a, err));
  DF_TRY(send_call(a, DF_ANSWER_CALL_END, a->call.args.data, a->call.args.len, err));
  a->n_calls++;
  a->raw.len = 0;
  a->behind_call = true;
  a->skip_space = false;
  enter(a, MODE_CALL_TAIL);
  return DF_OK;
}

static df_status tail_byte(df_answer_parser *a, char c, df_error *err) {
  if (a->matched == 0 && is_space(c)) return hold_space(a, c, err);
  if (c != TAG_CALL_END[a->matched]) return reread(a, TAG_CALL_END, c, err);
  if (TAG_CALL_END[++a->matched] != '\0') return DF_OK;
  a->space.len = 0;
  enter(a, MODE_CONTENT);
  return DF_OK;
}

static df_status one_byte(df_answer_parser *a, char c, df_error *err) {
  switch (a->mode) {
    case MODE_START: return start_byte(a, c, err);
    case MODE_THINK: return think_byte(a, c, err);
    case MODE_CONTENT: return content_byte(a, c, err);
    case MODE_CALL_HEAD:
    case MODE_CALL_JSON: return call_byte(a, c, err);
    case MODE_CALL_TAIL: return tail_byte(a, c, err);
  }
  return DF_OK;
}

df_status df_answer_parser_push(df_answer_parser *a, const char *text, size_t n, df_answer_sink sink, void *user,
                                df_error *err) {
  a->sink = sink;
  a->user = user;
  for (size_t i = 0; i < n; i++) DF_TRY(one_byte(a, text[i], err));
  if (a->mode == MODE_CALL_JSON) DF_TRY(send_args(a, err));
  return flush_piece(a, err);
}

df_status df_answer_parser_finish(df_answer_parser *a, df_answer_sink sink, void *user, df_error *err) {
  size_t n = a->matched;
  a->sink = sink;
  a->user = user;
  switch (a->mode) {
    case MODE_START: DF_TRY(put_content(a, TAG_THINK, n, err)); break;
    case MODE_THINK:
      if (n) DF_TRY(put_reasoning(a, TAG_THINK_END, n, err));
      break;
    case MODE_CALL_HEAD:
    case MODE_CALL_JSON: DF_TRY(give_up(a, err)); break;
    case MODE_CONTENT:
      if (n || !a->behind_call) DF_TRY(put_content(a, TAG_CALL, n, err));
      break;
    case MODE_CALL_TAIL: /* half a closing tag is no text that anybody wants */ break;
  }
  return flush_piece(a, err);
}
