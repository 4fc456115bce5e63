/*
 * The smallest program that generates text: generate MODEL [DRAFT]
 *   cc generate.c $(pkg-config --cflags --libs --static dflash) -o generate
 */
#include <stdio.h>

#include "dflash/dflash.h"

static bool print_piece(void *user, const df_event *ev) {
  (void)user;
  return fwrite(ev->text, 1, ev->text_len, stdout) == ev->text_len && fflush(stdout) == 0;
}

int main(int argc, char **argv) {
  static const char messages[] = "[{\"role\": \"user\", \"content\": \"Why is the sky blue?\"}]";
  df_model *model = NULL;
  df_draft *draft = NULL;
  df_session *session = NULL;
  char *prompt = NULL;
  int32_t *ids = NULL;
  size_t len, n;
  df_error err;
  df_result result;
  df_status st = DF_ERR_ARGUMENT;
  if (argc < 2) {
    fprintf(stderr, "usage: %s MODEL [DRAFT]\n", argv[0]);
    return 2;
  }
  df_model_params mp = df_model_params_default();
  df_draft_params dp = df_draft_params_default();
  df_session_params sp = df_session_params_default();
  df_generate_params gp = df_generate_params_default();
  gp.max_tokens = 128;
  gp.on_event = print_piece;

  if ((st = df_model_open(argv[1], &mp, &model, &err)) != DF_OK) goto done;
  if (argc > 2 && (st = df_draft_open(argv[2], model, &dp, &draft, &err)) != DF_OK) goto done;
  if ((st = df_session_create(model, draft, &sp, &session, &err)) != DF_OK) goto done;
  if ((st = df_model_chat_prompt(model, messages, NULL, NULL, true, &prompt, &len, &err)) != DF_OK) goto done;
  if ((st = df_model_tokenize(model, prompt, len, true, &ids, &n, &err)) != DF_OK) goto done;
  if ((st = df_session_generate(session, ids, n, &gp, &result, &err)) != DF_OK) goto done;
  fprintf(stderr, "\n%u tokens, %.1f tok/s, accept length %.2f\n", result.stats.new_tokens,
          result.stats.new_tokens * 1000.0 / result.stats.decode_ms, df_stats_accept_length(&result.stats));
done:
  if (st != DF_OK) fprintf(stderr, "error: %s\n", err.msg);
  df_ids_free(ids);
  df_text_free(prompt);
  df_session_free(session);
  df_draft_close(draft);
  df_model_close(model);
  return st == DF_OK ? 0 : 1;
}
