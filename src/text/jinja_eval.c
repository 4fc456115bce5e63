/* text/jinja_eval.c - evaluation of expressions. */
#include "text/jinja_eval.h"

#include <string.h>

#include "text/jinja_filters.h"

/* ---- shared ---- */

/* The budget counts 1/JINJA_STEP_BYTES of a step, so that many small pieces of work add up instead of rounding to
 * none. */
static df_status spend(df_jctx *c, uint64_t n, uint64_t each) {
  if (n > c->budget / each) {
    c->budget = 0;
    return DF_FAIL(c->err, DF_ERR_LIMIT, "more evaluation steps than allowed");
  }
  c->budget -= n * each;
  return DF_OK;
}

df_status df_jx_step(df_jctx *c, uint64_t n) { return spend(c, n, JINJA_STEP_BYTES); }

df_status df_jx_bytes(df_jctx *c, uint64_t n) { return spend(c, n, 1); }

df_status df_jx_chars(df_jctx *c, uint64_t n) { return spend(c, n, JINJA_STEP_BYTES / JINJA_STEP_CHARS); }

df_status df_jx_items(df_jctx *c, uint64_t n) { return spend(c, n, JINJA_STEP_BYTES / JINJA_STEP_ITEMS); }

const char *df_jx_type(df_jv v) {
  static const char *const names[] = {"missing value", "undefined value", "none",     "boolean", "integer",   "float",
                                      "integer",       "string",          "list",     "map",     "namespace", "loop",
                                      "macro",         "method",          "function", "object"};
  static const char *const kinds[] = {"list", "tuple", "range", "iterator", "keys view", "values view", "items view"};
  return v.t == JT_LIST ? kinds[v.u.l->kind] : names[v.t];
}

df_status df_jx_str(df_jctx *c, const char *p, size_t n, df_jv *out) {
  DF_TRY(df_jx_bytes(c, n));
  out->t = JT_STR;
  out->aux = 0;
  return df_jstr_new(&c->arena, p, n, &out->u.s, c->err);
}

/* Index of name in "a,b,c"; -1 without. *count = number of names. */
static int param_index(const char *params, const df_jstr *name, uint32_t *count) {
  int found = -1;
  *count = 0;
  for (const char *p = params; *p;) {
    size_t n = strcspn(p, ",");
    if (name && name->len == n && memcmp(name->data, p, n) == 0) found = (int)*count;
    (*count)++;
    p += n + (p[n] == ',');
  }
  return found;
}

df_status df_jx_bind(df_jctx *c, const char *what, const char *params, const df_jargs *args, df_jv out[JARGS_MAX]) {
  uint32_t n;
  for (int i = 0; i < JARGS_MAX; i++) out[i] = (df_jv){.t = JT_UNSET};
  (void)param_index(params, NULL, &n);
  if (args->npos > n) return JX_FAIL(c, "\"%s\" takes at most %u arguments, got %u", what, n, args->npos);
  for (uint32_t i = 0; i < args->npos; i++) out[i] = args->pos[i];
  for (uint32_t i = 0; i < args->nkw; i++) {
    int at = param_index(params, args->kw[i].name, &n);
    if (at < 0) return JX_FAIL(c, "\"%s\" has no parameter \"%s\"", what, args->kw[i].name->data);
    if (out[at].t != JT_UNSET) return JX_FAIL(c, "\"%s\" got \"%s\" twice", what, args->kw[i].name->data);
    out[at] = args->kw[i].v;
  }
  return DF_OK;
}

/* ---- arguments ---- */

static df_status push_kw(df_jctx *c, df_jargs *a, uint32_t *cap, const df_jstr *name, df_jv v) {
  for (uint32_t i = 0; i < a->nkw; i++)
    if (df_jstr_eq(a->kw[i].name, name)) return JX_FAIL(c, "argument \"%s\" is given twice", name->data);
  DF_TRY(df_jx_step(c, 1 + a->nkw / 16));
  if (a->nkw == *cap) {
    uint32_t now = *cap ? *cap * 2 : 4;
    DF_TRY(
        df_jarena_grow(&c->arena, &a->kw, a->nkw * sizeof *a->kw, *cap * sizeof *a->kw, now * sizeof *a->kw, c->err));
    *cap = now;
  }
  a->kw[a->nkw++] = (df_jkw){.name = name, .v = v};
  return DF_OK;
}

static df_status spread_map(df_jctx *c, df_jv v, df_jargs *a, uint32_t *cap) {
  if (v.t != JT_MAP) return JX_FAIL(c, "\"**\" needs a map, not a %s", df_jx_type(v));
  for (uint32_t i = 0; i < v.u.m->n; i++) {
    if (v.u.m->e[i].key.t != JT_STR) return JX_FAIL(c, "\"**\" needs string keys");
    DF_TRY(push_kw(c, a, cap, v.u.m->e[i].key.u.s, v.u.m->e[i].val));
  }
  return DF_OK;
}

df_status df_jx_args(df_jctx *c, const df_jnode *list, df_jargs *out) {
  *out = (df_jargs){0};
  if (!list) return DF_OK;
  df_jlist *pos;
  uint32_t kw_cap = 0;
  DF_TRY(df_jlist_new(&c->arena, 4, JK_LIST, &pos, c->err));
  for (const df_jnode *n = list; n; n = n->next) {
    df_jv v;
    DF_TRY(df_jx_eval(c, n->a, &v));
    if (n->op == JARG_POS) {
      DF_TRY(df_jlist_push(&c->arena, pos, v, c->err));
    } else if (n->op == JARG_KEYWORD) {
      DF_TRY(push_kw(c, out, &kw_cap, n->name, v));
    } else if (n->op == JARG_STAR2) {
      DF_TRY(spread_map(c, v, out, &kw_cap));
    } else {
      df_jv *items;
      uint32_t count;
      DF_TRY(df_jx_elements(c, v, &items, &count));
      DF_TRY(df_jx_items(c, count));
      for (uint32_t i = 0; i < count; i++) DF_TRY(df_jlist_push(&c->arena, pos, items[i], c->err));
    }
  }
  out->pos = pos->items;
  out->npos = pos->n;
  return DF_OK;
}

/* ---- expressions ---- */

static df_status eval_name(df_jctx *c, const df_jnode *n, df_jv *out) {
  uint32_t looked_at = 0;
  for (const df_jscope *s = c->scope; s; s = s->parent) {
    DF_TRY(df_jx_items(c, looked_at += s->n)); /* scopes are small; a template that makes a large one pays */
    for (uint32_t i = 0; i < s->n; i++)
      if (s->vars[i].name == n->name) {
        *out = s->vars[i].v;
        return DF_OK;
      }
  }
  const df_jv *v = df_jmap_get_str(c->context, n->name);
  int f = v ? -1 : df_jx_function_find(n->name);
  *out = v ? *v : f >= 0 ? (df_jv){.t = JT_FUNC, .u.i = f} : df_jv_undef(n->name, JU_NAME);
  return DF_OK;
}

static df_status eval_list(df_jctx *c, const df_jnode *n, df_jv *out) {
  df_jlist *l;
  DF_TRY(df_jlist_new(&c->arena, 0, n->kind == JN_TUPLE ? JK_TUPLE : JK_LIST, &l, c->err));
  for (const df_jnode *e = n->list; e; e = e->next) {
    df_jv v;
    DF_TRY(df_jx_eval(c, e, &v));
    DF_TRY(df_jlist_push(&c->arena, l, v, c->err));
  }
  *out = df_jv_list(l);
  return DF_OK;
}

static df_status eval_dict(df_jctx *c, const df_jnode *n, df_jv *out) {
  df_jmap *m;
  DF_TRY(df_jmap_new(&c->arena, 0, &m, c->err));
  for (const df_jnode *e = n->list; e; e = e->next) {
    df_jv k, v;
    DF_TRY(df_jx_eval(c, e->a, &k));
    DF_TRY(df_jx_eval(c, e->b, &v));
    DF_TRY(df_jmap_put(&c->arena, m, k, v, c->err));
  }
  *out = df_jv_map(m);
  return DF_OK;
}

static df_status eval_concat(df_jctx *c, const df_jnode *n, df_jv *out) {
  df_jbuf b;
  /* All operands first: what they allocate would keep the text from growing in place. */
  df_jv parts;
  DF_TRY(eval_list(c, n, &parts));
  df_jbuf_init(&b, &c->arena);
  for (uint32_t i = 0; i < parts.u.l->n; i++) DF_TRY(df_jx_print(c, parts.u.l->items[i], &b));
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

static df_status eval_logic(df_jctx *c, const df_jnode *n, df_jv *out) {
  DF_TRY(df_jx_eval(c, n->a, out));
  if (df_jx_truth(*out) == (n->kind == JN_OR)) return DF_OK;
  return df_jx_eval(c, n->b, out);
}

static df_status eval_compare(df_jctx *c, const df_jnode *n, df_jv *out) {
  df_jv left, right;
  bool yes = true;
  DF_TRY(df_jx_eval(c, n->a, &left));
  for (const df_jnode *o = n->list; o && yes; o = o->next) {
    DF_TRY(df_jx_eval(c, o->a, &right));
    c->line = n->line;
    DF_TRY(df_jx_compare(c, o->op, left, right, &yes));
    left = right;
  }
  *out = df_jv_bool(yes);
  return DF_OK;
}

static df_status eval_cond(df_jctx *c, const df_jnode *n, df_jv *out) {
  df_jv v;
  DF_TRY(df_jx_eval(c, n->a, &v));
  if (df_jx_truth(v)) return df_jx_eval(c, n->b, out);
  if (n->c) return df_jx_eval(c, n->c, out);
  *out = df_jv_undef(NULL, JU_NAME);
  return DF_OK;
}

static df_status eval_access(df_jctx *c, const df_jnode *n, df_jv *out) {
  df_jv obj, k[3] = {df_jv_none(), df_jv_none(), df_jv_none()};
  const df_jnode *const part[3] = {n->b, n->c, n->d};
  DF_TRY(df_jx_eval(c, n->a, &obj));
  for (int i = 0; i < 3; i++)
    if (part[i]) DF_TRY(df_jx_eval(c, part[i], &k[i]));
  c->line = n->line;
  if (n->kind == JN_ATTR) return df_jx_attr(c, obj, n->name, out);
  if (n->kind == JN_ITEM) return df_jx_item(c, obj, k[0], out);
  return df_jx_slice(c, obj, k[0], k[1], k[2], out);
}

static df_status eval_apply(df_jctx *c, const df_jnode *n, df_jv *out) {
  df_jv v;
  df_jargs args;
  bool yes;
  DF_TRY(df_jx_eval(c, n->a, &v));
  DF_TRY(df_jx_args(c, n->list, &args));
  c->line = n->line;
  if (n->kind == JN_CALL) return df_jx_call(c, v, &args, out);
  if (n->fn < 0) return JX_FAIL(c, "unknown %s \"%s\"", n->kind == JN_FILTER ? "filter" : "test", n->name->data);
  if (n->kind == JN_FILTER) return df_jfilter_call(c, n->fn, v, &args, out);
  DF_TRY(df_jtest_call(c, n->fn, v, &args, &yes));
  *out = df_jv_bool(yes != (n->op == 1));
  return DF_OK;
}

static df_status eval_operator(df_jctx *c, const df_jnode *n, df_jv *out) {
  df_jv a, b;
  DF_TRY(df_jx_eval(c, n->a, &a));
  if (n->kind == JN_NOT) {
    *out = df_jv_bool(!df_jx_truth(a));
    return DF_OK;
  }
  if (n->kind == JN_BINARY) DF_TRY(df_jx_eval(c, n->b, &b));
  c->line = n->line;
  return n->kind == JN_BINARY ? df_jx_binary(c, n->op, a, b, out) : df_jx_unary(c, n->op, a, out);
}

static df_status dispatch(df_jctx *c, const df_jnode *n, df_jv *out) {
  switch (n->kind) {
    case JN_NAME: return eval_name(c, n, out);
    case JN_TUPLE:
    case JN_LIST: return eval_list(c, n, out);
    case JN_DICT: return eval_dict(c, n, out);
    case JN_CONCAT: return eval_concat(c, n, out);
    case JN_AND:
    case JN_OR: return eval_logic(c, n, out);
    case JN_COMPARE: return eval_compare(c, n, out);
    case JN_COND: return eval_cond(c, n, out);
    case JN_ATTR:
    case JN_ITEM:
    case JN_SLICE: return eval_access(c, n, out);
    case JN_FILTER:
    case JN_TEST:
    case JN_CALL: return eval_apply(c, n, out);
    case JN_UNARY:
    case JN_BINARY:
    case JN_NOT: return eval_operator(c, n, out);
    default: return DF_FAIL(c->err, DF_ERR_INTERNAL, "unexpected node %d", n->kind);
  }
}

df_status df_jx_eval(df_jctx *c, const df_jnode *n, df_jv *out) {
  c->line = n->line;
  DF_TRY(df_jx_step(c, 1));
  if (n->kind == JN_CONST) {
    *out = n->val;
    return DF_OK;
  }
  if (++c->depth > JINJA_MAX_EVAL_DEPTH) return DF_FAIL(c->err, DF_ERR_LIMIT, "evaluation nested too deeply");
  *out = (df_jv){.t = JT_UNDEF};
  df_status s = dispatch(c, n, out);
  c->depth--;
  return s;
}
