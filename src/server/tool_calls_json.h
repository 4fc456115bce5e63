/*
 * server/tool_calls_json.h - one call's JSON, read byte by byte: {"name": "...", "arguments": {...}}. For the files
 * tool_calls*.c only.
 *
 * Ownership: df_call_json_release. Threads: one owner.
 */
#ifndef DF_SERVER_TOOL_CALLS_JSON_H
#define DF_SERVER_TOOL_CALLS_JSON_H

#include "server/tool_calls.h"

typedef enum df_call_state { DF_CALL_OPEN, DF_CALL_DONE, DF_CALL_BROKEN } df_call_state;

typedef struct df_call_json {
  df_call_state state;             /* DONE: the object is closed and is a call */
  df_buf key;                      /* raw text of the top member's key or of a top string, without quotes */
  char name[DF_TOOL_MAX_NAME + 1]; /* once has_name */
  df_buf args;                     /* text of the arguments so far; "{}" when there are none at the end */
  bool has_name, has_args;
  /* the reader */
  uint8_t expect; /* what may come next outside of strings and words */
  uint8_t member; /* which member of the call is being read */
  bool in_string, escaped, is_key;
  uint8_t hex_left;
  uint32_t depth;
  uint8_t is_object[DF_TOOL_MAX_DEPTH / 8 + 1]; /* bit per open level */
  char word[128];                               /* number or literal being read */
  uint32_t n_word;
} df_call_json;

void df_call_json_init(df_call_json *j);
void df_call_json_release(df_call_json *j);
/* One byte of the object, from its "{" on; afterwards j->state says where it stands. DF_ERR_MEMORY. */
df_status df_call_json_byte(df_call_json *j, char c, df_error *err) DF_CHECK;

#endif
