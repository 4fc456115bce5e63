/*
 * engine/timings.h - the figures of a generation as clients read them: speeds, and the members of a "timings" object
 * (llama-server's names; verify_n, accept_length and accepted_per_pos are ours).
 *
 * Ownership: nothing is kept. Threads: no state.
 */
#ifndef DF_ENGINE_TIMINGS_H
#define DF_ENGINE_TIMINGS_H

#include "dflash/session.h"
#include "format/json.h"

/* Tokens per second; 0 when nothing was timed. Cached prompt tokens do not count. */
double df_stats_prompt_speed(const df_stats *st);
double df_stats_generation_speed(const df_stats *st);

/* The members, into an open object. */
void df_stats_timings(df_json_out *w, const df_stats *st);

#endif
