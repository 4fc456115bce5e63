/*
 * eval/run_log.h - the file of a run: JSON lines, the first with the settings, then one for every answered question,
 * each written whole and synced before the next question counts as done. A run that was killed goes on from there.
 *
 * A last line without its end, or that is no whole row, is cut off (the write was interrupted); a broken one before it
 * is refused with its number: somebody edited the file. A file whose settings differ is refused, naming the first
 * difference. The file is locked while it is open.
 *
 * Ownership: the log owns its rows. Threads: one owner.
 */
#ifndef DF_EVAL_RUN_LOG_H
#define DF_EVAL_RUN_LOG_H

#include "eval/tally.h"

typedef struct df_run_log {
  df_eval_row *rows; /* in file order */
  uint32_t n, cap;
  df_json *header; /* the whole first line: "settings", "command", ... */
  int fd;          /* -1: read only, or closed */
  size_t size;     /* bytes of whole lines in the file */
  char *path;
  uint32_t cut_line; /* number of the line that was cut off; 0 = none */
} df_run_log;

/* Opens or begins a run. header: one JSON object with a member "settings" (an object), written as the first line of a
 * new file. IO, FORMAT, MISMATCH (other settings), BUSY (another process holds it), MEMORY. On failure *l is empty. */
df_status df_run_log_open(df_run_log *l, const char *path, const char *header, df_error *err) DF_CHECK;
/* Reads a run without changing it: a broken last line is left out. */
df_status df_run_log_read(df_run_log *l, const char *path, df_error *err) DF_CHECK;
/* Takes the row over on success: written and synced; with fd -1 it is only kept. After an IO error the file ends in
 * what the next open cuts off. */
df_status df_run_log_add(df_run_log *l, df_eval_row *row, df_error *err) DF_CHECK;
/* The row of a question, or NULL. */
const df_eval_row *df_run_log_find(const df_run_log *l, uint32_t index);
/* Sums over the questions below `limit`. */
df_eval_tally df_run_log_tally(const df_run_log *l, uint32_t limit);
void df_run_log_close(df_run_log *l); /* an empty one is fine */

#endif
