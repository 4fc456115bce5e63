/*
 * cli/answer.h - one generation whose text goes to standard output as it comes (run, chat, demo).
 */
#ifndef DF_CLI_ANSWER_H
#define DF_CLI_ANSWER_H

#include "base/buf.h"
#include "cli/cli_model.h"

typedef struct df_answer {
  df_buf text; /* the whole answer */
  bool quiet;  /* collect only */
  bool write_failed;
  int write_errno;
  df_result result; /* valid after df_answer_run succeeded; ids borrowed from the session */
} df_answer;

void df_answer_init(df_answer *a, bool quiet);
void df_answer_release(df_answer *a);
/* Continues after ids. Text is written and flushed step by step; a write error stops the generation and is DF_ERR_IO.
 */
df_status df_answer_run(df_answer *a, df_session *s, const int32_t *ids, size_t n, df_generate_params g,
                        df_error *err) DF_CHECK;

/* Renders messages (JSON array text) with the model's template or the override and turns them into ids (df_ids_free).
 */
df_status df_prompt_chat(const df_model *m, const char *messages_json, const char *template_override, int32_t **ids,
                         size_t *n, df_error *err) DF_CHECK;
/* One message as the JSON object text of an array being built. */
df_status df_message_put(df_buf *json, const char *role, const char *text, size_t n, df_error *err) DF_CHECK;

#endif
