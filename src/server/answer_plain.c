/* Stands in for tool_calls.c in builds without it: all text is content. */
#include "server/tool_calls.h"

#ifndef DF_HAVE_TOOL_CALLS
#include "base/mem.h"

struct df_answer_parser {
  bool unused;
};

df_think_mode df_think_mode_of_prompt(const char *prompt, size_t n) {
  (void)prompt, (void)n;
  return DF_THINK_OFF;
}

df_status df_answer_parser_create(const df_answer_params *p, df_answer_parser **out, df_error *err) {
  (void)p;
  *out = df_calloc(1, sizeof **out);
  return *out ? DF_OK : DF_OOM(err, "an answer", sizeof **out);
}

void df_answer_parser_free(df_answer_parser *a) { df_free(a); }

df_status df_answer_parser_push(df_answer_parser *a, const char *text, size_t n, df_answer_sink sink, void *user,
                                df_error *err) {
  const df_answer_event ev = {.kind = DF_ANSWER_CONTENT, .text = text, .n = n};
  (void)a;
  return sink(user, &ev, err);
}

df_status df_answer_parser_finish(df_answer_parser *a, df_answer_sink sink, void *user, df_error *err) {
  (void)a, (void)sink, (void)user, (void)err;
  return DF_OK;
}

uint32_t df_answer_parser_calls(const df_answer_parser *a) {
  (void)a;
  return 0;
}
#endif
