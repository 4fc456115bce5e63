/*
 * Any text as an answer, cut in several ways: the events must be the same, arguments must be JSON objects, and without
 * calls and reasoning the content must be the text. The first byte holds the options, the second one the cuts.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/json.h"
#include "server/tool_calls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(x)     \
  do {                 \
    if (!(x)) abort(); \
  } while (0)

typedef struct log {
  df_buf all, content, args;
  int last;
  uint32_t begun, ended;
  bool open, quiet; /* a call is open; nothing but content came */
} log;

static void put(df_buf *b, const void *p, size_t n) { REQUIRE(df_buf_put(b, p, n, NULL) == DF_OK); }

static void check_args(log *l, const df_answer_event *ev) {
  df_json *v = NULL;
  df_error err = {0};
  REQUIRE(ev->n == l->args.len && memcmp(ev->text, l->args.data, ev->n) == 0);
  df_status s = df_json_parse(ev->text, ev->n, &v, &err);
  /* What the reader of JSON minds beyond the grammar: repeated members, halves of surrogate pairs, huge numbers, bytes
   * that are no UTF-8. */
  if (s == DF_OK) REQUIRE(df_json_kind_of(v) == DF_JSON_OBJECT);
  REQUIRE(s == DF_OK || strstr(err.msg, "duplicate") || strstr(err.msg, "Unicode") ||
          strstr(err.msg, "unable to decode") || strstr(err.msg, "overflow") || strstr(err.msg, "too big") ||
          strstr(err.msg, "invalid"));
  df_json_free(v);
}

static df_status note(void *user, const df_answer_event *ev, df_error *err) {
  log *l = user;
  char kind = (char)('0' + ev->kind);
  bool joined = l->last == (int)ev->kind && ev->kind != DF_ANSWER_CALL_BEGIN && ev->kind != DF_ANSWER_CALL_END;
  (void)err;
  if (!joined) put(&l->all, &kind, 1);
  put(&l->all, ev->text, ev->n);
  l->last = (int)ev->kind;
  l->quiet = l->quiet && ev->kind == DF_ANSWER_CONTENT;
  switch (ev->kind) {
    case DF_ANSWER_CONTENT: put(&l->content, ev->text, ev->n); /* fall through */
    case DF_ANSWER_REASONING: REQUIRE(ev->n > 0 && !l->open); break;
    case DF_ANSWER_CALL_BEGIN:
      REQUIRE(!l->open && ev->index == l->ended && strlen(ev->id) == 29 && *ev->name);
      put(&l->all, ev->name, strlen(ev->name));
      put(&l->all, ev->id, 29);
      l->open = true;
      l->args.len = 0;
      break;
    case DF_ANSWER_CALL_ARGS:
      REQUIRE(l->open && ev->n > 0);
      put(&l->args, ev->text, ev->n);
      break;
    case DF_ANSWER_CALL_END:
      REQUIRE(l->open);
      check_args(l, ev);
      l->open = false;
      l->ended++;
      break;
    case DF_ANSWER_CALL_BROKEN:
      REQUIRE(l->open);
      l->open = false;
      break;
  }
  return DF_OK;
}

static void run(const df_answer_params *p, const uint8_t *text, size_t n, uint64_t cut, log *l) {
  df_answer_parser *a = NULL;
  *l = (log){.last = -1, .quiet = true};
  put(&l->all, "", 0);
  put(&l->content, "", 0);
  put(&l->args, "", 0);
  REQUIRE(df_answer_parser_create(p, &a, NULL) == DF_OK);
  for (size_t i = 0; i < n;) {
    cut = cut * 6364136223846793005u + 1442695040888963407u;
    size_t k = cut == 1442695040888963407u ? n : 1 + (cut >> 33) % 7;
    k = k < n - i ? k : n - i;
    REQUIRE(df_answer_parser_push(a, (const char *)text + i, k, note, l, NULL) == DF_OK);
    i += k;
  }
  REQUIRE(df_answer_parser_finish(a, note, l, NULL) == DF_OK);
  REQUIRE(!l->open && l->ended == df_answer_parser_calls(a));
  df_answer_parser_free(a);
}

static void release(log *l) {
  df_buf_release(&l->all);
  df_buf_release(&l->content);
  df_buf_release(&l->args);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  log whole, cut;
  if (size < 2 || size > 8192) return 0;
  df_answer_params p = {
      .think = (df_think_mode)(data[0] % 3), .tools = data[0] & 4, .hold_calls = data[0] & 8, .id_seed = 3};
  const uint8_t *text = data + 2;
  size_t n = size - 2;
  run(&p, text, n, 0, &whole);
  run(&p, text, n, data[1] + 1u, &cut);
  REQUIRE(whole.all.len == cut.all.len && memcmp(whole.all.data, cut.all.data, cut.all.len) == 0);
  if (whole.quiet && p.think == DF_THINK_OFF)
    REQUIRE(whole.content.len == n && memcmp(whole.content.data, text, n) == 0);
  release(&whole);
  release(&cut);
  return 0;
}
