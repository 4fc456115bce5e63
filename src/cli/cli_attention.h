/*
 * cli/cli_attention.h - options about attention, pages, recorded programs and drafting as session parameters.
 */
#ifndef DF_CLI_ATTENTION_H
#define DF_CLI_ATTENTION_H

#include "cli/options.h"
#include "dflash/session.h"

enum { DF_BATCH_SIZES_MAX = 64 };

/* "1,2,4-8": ascending numbers and ranges from 1 to 64. Writes at most DF_BATCH_SIZES_MAX entries (no longer list is
 * possible). ARGUMENT with one line that says what is wrong where. */
df_status df_batch_sizes_parse(const char *text, uint32_t *out, uint32_t *n, df_error *err) DF_CHECK;

/* Refuses a device, backend names, a page size or a list of batch sizes that nobody knows, in one line that names
 * option, value and remedy. The model is not needed for this, so it comes before loading. */
df_status df_attention_opts_check(const df_opts *o, df_error *err) DF_CHECK;

/* All session parameters. sizes [DF_BATCH_SIZES_MAX] is the storage of a list of batch sizes and outlives *sp. */
df_status df_session_params_from_opts(const df_opts *o, df_session_params *sp, uint32_t *sizes, df_error *err) DF_CHECK;

/* Drafted tokens from either option; -1 = the draft's default. */
int32_t df_draft_max_from_opts(const df_opts *o);

#endif
