/*
 * cli/cli_stats.h - statistics of a generation, as text and as JSON.
 *
 * Speeds: prompt tok/s = prompt tokens that were computed (not cached) / prefill time; generation tok/s = new tokens /
 * decode time. Accept length = tokens emitted per verify step, the target's own included.
 */
#ifndef DF_CLI_STATS_H
#define DF_CLI_STATS_H

#include <stdio.h>

#include "cli/term.h"
#include "dflash/session.h"
#include "engine/timings.h"
#include "format/json.h"

/* Block of lines on `out` (standard error colours). could_draft: there was a draft. note: NULL or text for the last
 * line. */
void df_stats_print(FILE *out, const df_term *t, const df_stats *st, df_finish finish, bool could_draft,
                    const char *note);
/* One line for the chat: prompt and generation speed, accept length, context used. */
void df_stats_line(FILE *out, const df_term *t, const df_stats *st, df_finish finish, uint32_t used, uint32_t n_ctx);
/* Acceptance by drafted position as bars; nothing when nothing was drafted. */
void df_stats_bars(FILE *out, const df_stats *st, unsigned columns, const char *bar_on, const char *bar_off);
/* Adds b to a (times and counts). */
void df_stats_add(df_stats *a, const df_stats *b);

/* The members "usage" and "timings" of an open object. */
void df_stats_json(df_json_out *w, const df_stats *st);

/* Why a text ended, for people: "end of text", "512 tokens reached", ... */
const char *df_finish_text(df_finish f);

#endif
