/*
 * cli/chat_input.h - what the user types in chat: lines through libedit with history on a terminal, plain lines from
 * a pipe; on top of both, blocks between three double quotes and lines continued by a backslash.
 *
 * Threads: main thread; one reader at a time. Signals: see interrupt.h; a signal while reading gives DF_INPUT_BREAK.
 */
#ifndef DF_CLI_CHAT_INPUT_H
#define DF_CLI_CHAT_INPUT_H

#include "base/buf.h"
#include "cli/verbs.h"

typedef struct df_input df_input;

typedef enum df_input_kind {
  DF_INPUT_TEXT,  /* a line */
  DF_INPUT_BLOCK, /* several lines, or a quoted one: never a command */
  DF_INPUT_END,   /* end of the input */
  DF_INPUT_BREAK, /* interrupted; what was typed is gone */
  DF_INPUT_ERROR
} df_input_kind;

/* interactive: prompt, editing and history (both standard streams are terminals). */
df_status df_input_create(const df_cli *cli, bool interactive, df_input **out, df_error *err) DF_CHECK;
void df_input_free(df_input *in); /* NULL is fine; writes the history */

/* Reads one line or block into *text (replaced; without the final line end, zero-terminated). */
df_input_kind df_input_next(df_input *in, df_buf *text, df_error *err);

/* Exposed for tests: feeds one physical line (without line end) to the assembly of lines and blocks. Returns true
 * when *text is complete; *block tells whether it was quoted or continued. State lives in *st, zero at the start. */
typedef struct df_block_state {
  bool quoted;    /* between three double quotes */
  bool continued; /* the line before ended in a backslash */
} df_block_state;
df_status df_block_feed(df_block_state *st, const char *line, size_t n, df_buf *text, bool *done, bool *block,
                        df_error *err) DF_CHECK;

#endif
