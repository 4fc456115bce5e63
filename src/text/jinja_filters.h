/*
 * text/jinja_filters.h - the filter and test tables.
 *
 * Threads: the tables are constant. Calls work on one df_jctx.
 * Source:  names, parameters and results follow the built-in filters and tests of Jinja 3.1; tojson is json.dumps with
 *          ensure_ascii off, as chat templates expect.
 */
#ifndef DF_TEXT_JINJA_FILTERS_H
#define DF_TEXT_JINJA_FILTERS_H

#include "text/jinja_eval.h"

typedef df_status (*df_jfilter_fn)(df_jctx *c, df_jv in, const df_jargs *args, const df_jv *arg, df_jv *out);

typedef struct df_jfilter {
  const char *name;
  df_jfilter_fn fn;
  const char *params; /* comma-separated names; NULL: the function reads args itself */
  uint8_t min;        /* arguments that must be given */
} df_jfilter;

extern const df_jfilter df_jfilters_text[];
extern const size_t df_jfilters_text_n;
extern const df_jfilter df_jfilters_seq[];
extern const size_t df_jfilters_seq_n;

/* Index over both tables, -1 when unknown. */
int df_jfilter_find(const df_jstr *name);
df_status df_jfilter_call(df_jctx *c, int index, df_jv in, const df_jargs *args, df_jv *out) DF_CHECK;

int df_jtest_find(const df_jstr *name);
df_status df_jtest_call(df_jctx *c, int index, df_jv in, const df_jargs *args, bool *out) DF_CHECK;

/* Integer argument with a default for JT_UNSET and none. */
df_status df_jfilter_int(df_jctx *c, df_jv v, const char *what, int64_t dflt, int64_t *out) DF_CHECK;

#endif
