/*
 * cli/chat_conv.h - a conversation: a list of messages, optionally led by a system message.
 * Saved as JSON: {"format": "dflash-chat", "version": 1, "model": name, "messages": [{"role", "content"}, ...]}.
 */
#ifndef DF_CLI_CHAT_CONV_H
#define DF_CLI_CHAT_CONV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

typedef struct df_message {
  char *role, *text; /* owned, zero terminated */
  size_t len;        /* bytes of text */
} df_message;

typedef struct df_conv {
  df_message *m; /* owned */
  size_t n, cap;
} df_conv;

void df_conv_release(df_conv *c);
df_status df_conv_put(df_conv *c, const char *role, const char *text, size_t len, df_error *err) DF_CHECK;
void df_conv_pop(df_conv *c); /* removes the last message, if any */
/* Removes everything but a leading system message. */
void df_conv_clear(df_conv *c);
/* Puts, replaces or (empty text) removes the system message. */
df_status df_conv_set_system(df_conv *c, const char *text, df_error *err) DF_CHECK;
bool df_conv_last_is(const df_conv *c, const char *role);
/* Appends the messages as a JSON array. */
df_status df_conv_json(const df_conv *c, df_buf *out, df_error *err) DF_CHECK;

df_status df_conv_save(const df_conv *c, const char *path, const char *model, df_error *err) DF_CHECK;
/* Reads what df_conv_save wrote, or a bare array of messages. On failure *c keeps what it had. */
df_status df_conv_load(df_conv *c, const char *path, df_error *err) DF_CHECK;

#endif
