/*
 * text/jinja_eval.h - the evaluator: one df_jctx per render, and what filters, tests and methods share.
 *
 * Ownership: values live in the arena of the context. Threads: a context belongs to one thread; the tree is shared.
 * Errors:    functions fail with a bare message; the render call puts "could not render the chat template: line N" in
 *            front. DF_ERR_TEMPLATE: the template did something that cannot be done, or raised an error itself.
 *            DF_ERR_LIMIT: one of jinja_limits.h. DF_ERR_MEMORY.
 */
#ifndef DF_TEXT_JINJA_EVAL_H
#define DF_TEXT_JINJA_EVAL_H

#include "base/buf.h"
#include "text/jinja_ast.h"

typedef struct df_jvar {
  const df_jstr *name; /* interned in the template */
  df_jv v;
} df_jvar;

typedef struct df_jscope {
  struct df_jscope *parent;
  df_jvar *vars;
  uint32_t n, cap;
} df_jscope;

typedef struct df_jctx {
  df_jarena arena;
  df_error *err;    /* never NULL */
  df_buf *out;      /* the rendered text */
  df_jbuf *capture; /* where output goes instead, inside macros and set blocks; or NULL */
  df_jscope *scope;
  const df_jmap *context;
  const df_jnames *names;
  uint64_t budget; /* what is left, in 1/JINJA_STEP_BYTES of a step */
  int depth;       /* nested evaluations */
  int calls;       /* nested macro calls */
  uint32_t line;   /* of the node being evaluated */
  int64_t now_unix;
  uint8_t flow; /* JFLOW_BREAK or JFLOW_CONTINUE while leaving blocks */
} df_jctx;

enum { JFLOW_NONE, JFLOW_BREAK, JFLOW_CONTINUE };

typedef struct df_jkw {
  const df_jstr *name;
  df_jv v;
} df_jkw;

typedef struct df_jargs {
  df_jv *pos;
  df_jkw *kw;
  uint32_t npos, nkw;
} df_jargs;

typedef struct df_jmacro {
  const df_jnode *node; /* JN_MACRO or JN_CALL_BLOCK */
  df_jscope *scope;     /* where it was defined */
} df_jmacro;

typedef struct df_jmethod {
  df_jv self;
  int id; /* index in the method table */
} df_jmethod;

typedef struct df_jloop {
  const df_jnode *node;
  df_jscope *outer; /* scope around the loop */
  df_jscope *inner;
  df_jv *src; /* all elements */
  uint32_t n_src, next_src;
  df_jv *items; /* those that passed the condition so far */
  uint32_t n_items;
  uint32_t index0;
  int level; /* 0 for the outermost of a recursive loop */
  bool has_changed;
  df_jv changed;
} df_jloop;

typedef struct df_jobj {
  bool is_cycler; /* else a joiner */
  df_jlist *items;
  df_jv sep;
  uint32_t pos;
} df_jobj;

enum { JARGS_MAX = 6 }; /* named parameters of one filter, test or method */

/* ---- shared by all parts ---- */

#define JX_FAIL(c, ...) DF_FAIL((c)->err, DF_ERR_TEMPLATE, __VA_ARGS__)

/* Uses up n steps. DF_ERR_LIMIT. */
df_status df_jx_step(df_jctx *c, uint64_t n) DF_CHECK;
df_status df_jx_bytes(df_jctx *c, uint64_t n) DF_CHECK; /* the steps of n bytes read or written */
df_status df_jx_chars(df_jctx *c, uint64_t n) DF_CHECK; /* the steps of n characters looked at one by one */
df_status df_jx_items(df_jctx *c, uint64_t n) DF_CHECK; /* the steps of n elements */
/* Name of the type of a value for messages: "string", "list", ... */
const char *df_jx_type(df_jv v);
/* DF_ERR_TEMPLATE "x is undefined" for an undefined value. */
df_status df_jx_undefined(df_jctx *c, df_jv v);
df_status df_jx_str(df_jctx *c, const char *p, size_t n, df_jv *out) DF_CHECK;

/* Binds arguments to the comma-separated parameter names; missing ones become JT_UNSET. */
df_status df_jx_bind(df_jctx *c, const char *what, const char *params, const df_jargs *args,
                     df_jv out[JARGS_MAX]) DF_CHECK;

/* ---- jinja_eval.c, jinja_exec.c, jinja_call.c ---- */

df_status df_jx_eval(df_jctx *c, const df_jnode *n, df_jv *out) DF_CHECK;
df_status df_jx_args(df_jctx *c, const df_jnode *list, df_jargs *out) DF_CHECK;
df_status df_jx_exec(df_jctx *c, const df_jnode *list) DF_CHECK;
df_status df_jx_emit(df_jctx *c, const char *p, size_t n) DF_CHECK;
/* Writes str(v). */
df_status df_jx_emit_value(df_jctx *c, df_jv v) DF_CHECK;
df_status df_jx_call(df_jctx *c, df_jv callee, const df_jargs *args, df_jv *out) DF_CHECK;
/* Body of a for node over a value, as a new level of a recursive loop. */
df_status df_jx_loop_run(df_jctx *c, const df_jnode *n, df_jscope *outer, df_jv over, int level) DF_CHECK;
/* Elements of a loop up to index i; false in *have when there are fewer. */
df_status df_jx_loop_fetch(df_jctx *c, df_jloop *l, uint32_t i, bool *have) DF_CHECK;
df_status df_jx_loop_attr(df_jctx *c, df_jloop *l, const df_jstr *name, df_jv *out) DF_CHECK;
df_status df_jx_assign(df_jctx *c, const df_jnode *target, df_jv v) DF_CHECK;
df_status df_jx_set_var(df_jctx *c, df_jscope *s, const df_jstr *name, df_jv v) DF_CHECK;
df_status df_jx_scope_new(df_jctx *c, df_jscope *parent, df_jscope **out) DF_CHECK;
df_status df_jx_function(df_jctx *c, int index, const df_jargs *args, df_jv *out) DF_CHECK;
/* Index of a global function (range, namespace, ...), -1 when there is none of that name. */
int df_jx_function_find(const df_jstr *name);
df_status df_jx_strftime(df_jctx *c, const df_jstr *fmt, df_jv *out) DF_CHECK;

/* ---- jinja_access.c ---- */

df_status df_jx_attr(df_jctx *c, df_jv obj, const df_jstr *name, df_jv *out) DF_CHECK;
df_status df_jx_item(df_jctx *c, df_jv obj, df_jv key, df_jv *out) DF_CHECK;
/* lo, hi and step may be none. */
df_status df_jx_slice(df_jctx *c, df_jv obj, df_jv lo, df_jv hi, df_jv step, df_jv *out) DF_CHECK;
/* "a.b.0": each part looked up as x[part]. key may also be an int. */
df_status df_jx_path(df_jctx *c, df_jv obj, df_jv key, df_jv *out) DF_CHECK;
/* All elements of something that can be looped over; the array may be shared and must not be changed. */
df_status df_jx_elements(df_jctx *c, df_jv v, df_jv **items, uint32_t *n) DF_CHECK;

/* ---- jinja_ops.c ---- */

bool df_jx_truth(df_jv v);
df_status df_jx_equal(df_jctx *c, df_jv a, df_jv b, bool *out) DF_CHECK;
/* -1, 0, 1; fails for types without order. NaN compares as 2. */
df_status df_jx_order(df_jctx *c, df_jv a, df_jv b, int *out) DF_CHECK;
df_status df_jx_compare(df_jctx *c, uint8_t op, df_jv a, df_jv b, bool *out) DF_CHECK;
df_status df_jx_contains(df_jctx *c, df_jv seq, df_jv v, bool *out) DF_CHECK;
df_status df_jx_binary(df_jctx *c, uint8_t op, df_jv a, df_jv b, df_jv *out) DF_CHECK;
df_status df_jx_unary(df_jctx *c, uint8_t op, df_jv a, df_jv *out) DF_CHECK;

/* ---- jinja_print.c ---- */

df_status df_jx_print(df_jctx *c, df_jv v, df_jbuf *b) DF_CHECK; /* str(v) */
df_status df_jx_repr(df_jctx *c, df_jv v, df_jbuf *b) DF_CHECK;  /* repr(v) */
/* str(v) as a string; strings are returned as they are. */
df_status df_jx_to_str(df_jctx *c, df_jv v, const df_jstr **out) DF_CHECK;

typedef struct df_jdump {
  const char *indent; /* one level, NULL = on one line */
  size_t indent_len;
  const char *item_sep, *key_sep;
  size_t item_len, key_len;
  bool ascii, sort_keys;
} df_jdump;
df_status df_jx_json(df_jctx *c, df_jv v, const df_jdump *how, df_jbuf *b) DF_CHECK;

/* ---- jinja_strings.c, jinja_methods.c ---- */

/* Index of a method of the type of obj, -1 without, -2 for one that would change the object. */
int df_jx_method_find(df_jv obj, const df_jstr *name);
df_status df_jx_method_call(df_jctx *c, const df_jmethod *m, const df_jargs *args, df_jv *out) DF_CHECK;

enum { JSTRIP_LEFT = 1, JSTRIP_RIGHT = 2 };
/* chars NULL: white space. */
df_status df_jx_strip(df_jctx *c, const df_jstr *s, const df_jstr *chars, int sides, df_jv *out) DF_CHECK;
typedef enum df_jcase { JCASE_UPPER, JCASE_LOWER, JCASE_TITLE, JCASE_CAPITAL, JCASE_SWAP, JCASE_TITLE_WORDS } df_jcase;
df_status df_jx_case(df_jctx *c, const df_jstr *s, df_jcase how, df_jv *out) DF_CHECK;
/* count < 0: all. */
df_status df_jx_replace(df_jctx *c, const df_jstr *s, const df_jstr *from, const df_jstr *to, int64_t count,
                        df_jv *out) DF_CHECK;
/* sep NULL: runs of white space. max < 0: no limit. */
df_status df_jx_split(df_jctx *c, const df_jstr *s, const df_jstr *sep, int64_t max, bool from_right,
                      df_jv *out) DF_CHECK;
df_status df_jx_splitlines(df_jctx *c, const df_jstr *s, bool keep_ends, df_jlist **out) DF_CHECK;
/* Byte offset of needle in s[from …], SIZE_MAX without. */
size_t df_jx_find(const df_jstr *s, size_t from, const df_jstr *needle);
/* width in code points. align: '<', '>' or '^'. */
df_status df_jx_pad(df_jctx *c, const df_jstr *s, int64_t width, char align, const char *fill, df_jv *out) DF_CHECK;
/* printf-style "…" % args. */
df_status df_jx_percent(df_jctx *c, const df_jstr *fmt, df_jv args, df_jv *out) DF_CHECK;
/* "…".format(args) with plain {} {0} {name} fields. */
df_status df_jx_format(df_jctx *c, const df_jstr *fmt, const df_jargs *args, df_jv *out) DF_CHECK;

#endif
