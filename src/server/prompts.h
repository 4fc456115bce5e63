/*
 * server/prompts.h - from what a request says to the ids of its prompts: plain text, ids, lists of either, and
 * conversations through the chat template.
 *
 * Ownership: a df_prompt_list owns its arrays (df_prompt_list_release). Threads: no state.
 */
#ifndef DF_SERVER_PROMPTS_H
#define DF_SERVER_PROMPTS_H

#include "format/json.h"
#include "model/model.h"

enum { DF_PROMPTS_MAX = 128 };

typedef struct df_prompt {
  int32_t *ids; /* df_free */
  size_t n;
  char *text; /* what was tokenised, NULL when ids were given; df_free */
  size_t len;
  bool too_long; /* not tokenised: more bytes than any context of tokens */
} df_prompt;

typedef struct df_prompt_list {
  df_prompt *v;
  uint32_t n;
  size_t max_bytes; /* of a text, 0 = any: longer ones are not tokenised, as that would hold up the loop for nothing */
} df_prompt_list;

void df_prompt_list_release(df_prompt_list *l);

/* Adds a text; special: control tokens written in it count, and BOS is added when the model's file asks for it. */
df_status df_prompt_add_text(df_prompt_list *l, const df_model *m, const char *text, size_t n, bool special,
                             df_error *err) DF_CHECK;
enum { DF_PROMPT_TEXT = 1, DF_PROMPT_IDS = 2, DF_PROMPT_ANY = 3 };

/* Adds what a "prompt" may be: a string, an array of ids, or an array of strings or of such arrays (mixed is allowed);
 * kinds: DF_PROMPT_*, which of these. Ids are integers inside the vocabulary, 5.0 is one. name: the field, for
 * messages. DF_ERR_FORMAT, DF_ERR_MEMORY. */
df_status df_prompt_add_json(df_prompt_list *l, const df_model *m, const df_json *v, unsigned kinds, const char *name,
                             df_error *err) DF_CHECK;

/* The messages of a chat request as the template wants them: content as a string (parts are joined), "developer" as
 * "system", the arguments of tool calls as objects. Appends a JSON array. DF_ERR_FORMAT naming the message. */
df_status df_messages_write(const df_json *messages, df_buf *out, df_error *err) DF_CHECK;
/* One of them, as a value. at: its place, for messages ("messages[3]"). */
df_status df_message_write(df_json_out *w, const df_json *m, const char *at, df_error *err) DF_CHECK;

typedef struct df_chat_input {
  const char *messages;  /* JSON array text from df_messages_write */
  const df_json *tools;  /* NULL, or the array of the request */
  const df_json *kwargs; /* NULL, or more variables for the template */
  bool add_generation_prompt;
} df_chat_input;

/* Renders a conversation and appends the text. t: the model's template or another. DF_ERR_UNSUPPORTED when NULL;
 * errors of df_chat_template_render. */
df_status df_chat_render(const df_model *m, const df_chat_template *t, const df_chat_input *in, df_buf *out,
                         df_error *err) DF_CHECK;

#endif
