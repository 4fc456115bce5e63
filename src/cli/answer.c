#include "cli/answer.h"

#include <errno.h>
#include <string.h>

#include "format/json.h"

void df_answer_init(df_answer *a, bool quiet) {
  *a = (df_answer){.quiet = quiet};
  df_buf_init(&a->text, 0);
}

void df_answer_release(df_answer *a) { df_buf_release(&a->text); }

static bool on_event(void *user, const df_event *ev) {
  df_answer *a = user;
  if (ev->text_len == 0) return true;
  if (df_buf_put(&a->text, ev->text, ev->text_len, NULL) != DF_OK) {
    a->write_failed = true;
    a->write_errno = ENOMEM;
    return false;
  }
  if (a->quiet) return true;
  errno = 0;
  if (fwrite(ev->text, 1, ev->text_len, stdout) == ev->text_len && fflush(stdout) == 0) return true;
  if (errno == EINTR) { /* a signal during a write to a slow terminal: what is left stays in the buffer */
    clearerr(stdout);
    return true;
  }
  a->write_failed = true;
  a->write_errno = errno;
  return false;
}

df_status df_answer_run(df_answer *a, df_session *s, const int32_t *ids, size_t n, df_generate_params g,
                        df_error *err) {
  g.on_event = on_event;
  g.user = a;
  DF_TRY(df_session_generate(s, ids, n, &g, &a->result, err));
  if (!a->write_failed) return DF_OK;
  return DF_FAIL(err, DF_ERR_IO, "could not write to standard output: %s", strerror(a->write_errno));
}

df_status df_message_put(df_buf *json, const char *role, const char *text, size_t n, df_error *err) {
  df_json_out w;
  df_json_out_begin(&w, json, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "role");
  df_json_out_cstr(&w, role);
  df_json_out_key(&w, "content");
  df_json_out_str(&w, text ? text : "", n);
  df_json_out_close(&w);
  return df_json_out_end(&w);
}

df_status df_prompt_chat(const df_model *m, const char *messages_json, const char *template_override, int32_t **ids,
                         size_t *n, df_error *err) {
  char *text = NULL;
  size_t len = 0;
  DF_TRY(df_model_chat_prompt(m, messages_json, NULL, template_override, true, &text, &len, err));
  df_status st = df_model_tokenize(m, text, len, true, ids, n, err);
  df_text_free(text);
  return st;
}
