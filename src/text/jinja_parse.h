/*
 * text/jinja_parse.h - tokens to a tree. Internal to the template engine.
 *
 * Ownership: nodes go to the arena given; the parser's own memory is released before df_jparse returns.
 * Threads:   no shared state.
 * Source:    the grammar of Jinja 3.1 without inheritance, imports and line statements.
 */
#ifndef DF_TEXT_JINJA_PARSE_H
#define DF_TEXT_JINJA_PARSE_H

#include <stdbool.h>

#include "base/map.h"
#include "text/jinja_ast.h"
#include "text/jinja_lex.h"

typedef struct df_jparser {
  df_jarena *a;
  df_error *err;
  const char *src;
  const df_jtoken *tok; /* the current token; the last one is TK_EOF */
  df_map names;         /* bytes of a name in src -> index in interned */
  const df_jstr **interned;
  uint32_t n_interned, cap_interned;
  int depth;    /* nesting of expressions and blocks */
  int loops;    /* for loops around, within the current macro */
  bool soft;    /* inside a branch: an unknown filter is an error only when reached */
  uint8_t uses; /* df_jmacro_uses of the macro body being parsed */
} df_jparser;

/* Parses the whole source (see df_jlex for what it must be). */
df_status df_jparse(df_jarena *a, const char *src, size_t n, df_jnode **body, df_jnames *names, df_error *err) DF_CHECK;

/* ---- shared by the two halves of the parser ---- */

df_status df_jparse_fail(df_jparser *p, const char *fmt, ...) DF_PRINTF(2, 3);
df_status df_jparse_enter(df_jparser *p) DF_CHECK; /* depth check; leave with p->depth-- */
df_status df_jparse_node(df_jparser *p, df_jkindof kind, df_jnode **out) DF_CHECK;
df_status df_jparse_intern(df_jparser *p, const df_jtoken *t, const df_jstr **out) DF_CHECK;
bool df_jparse_is_name(const df_jparser *p, const df_jtoken *t, const char *name);
bool df_jparse_skip(df_jparser *p, df_jtok type);
bool df_jparse_skip_name(df_jparser *p, const char *name);
df_status df_jparse_expect(df_jparser *p, df_jtok type) DF_CHECK;
df_status df_jparse_unexpected(df_jparser *p);

/* One expression; cond: inline if allowed. */
df_status df_jparse_expr(df_jparser *p, bool cond, df_jnode **out) DF_CHECK;
/* One expression, or a tuple when commas follow. In brackets an empty tuple is allowed. */
df_status df_jparse_tuple(df_jparser *p, bool cond, bool brackets, df_jnode **out) DF_CHECK;
/* An assignment target: name, tuple of targets, or (ns) namespace attribute. */
df_status df_jparse_target(df_jparser *p, bool ns, df_jnode **out) DF_CHECK;
/* "| name(args) | ..." applied to node; start: the first name stands at the current token without "|". */
df_status df_jparse_filters(df_jparser *p, df_jnode *node, bool start, df_jnode **out) DF_CHECK;

#endif
