/* text/jinja_exec.c - execution of statements. */
#include <string.h>

#include "text/jinja_eval.h"
#include "text/jinja_filters.h"

/* ---- output ---- */

df_status df_jx_emit(df_jctx *c, const char *p, size_t n) {
  DF_TRY(df_jx_bytes(c, n));
  if (c->capture) return df_jbuf_put(c->capture, p, n, c->err);
  return df_buf_put(c->out, p, n, c->err);
}

df_status df_jx_emit_value(df_jctx *c, df_jv v) {
  const df_jstr *s;
  if (v.t == JT_UNDEF) return DF_OK;
  DF_TRY(df_jx_to_str(c, v, &s));
  return df_jx_emit(c, s->data, s->len);
}

/* ---- scopes ---- */

df_status df_jx_scope_new(df_jctx *c, df_jscope *parent, df_jscope **out) {
  df_jscope *s;
  DF_TRY(df_jarena_get(&c->arena, sizeof *s, &s, c->err));
  *s = (df_jscope){.parent = parent};
  *out = s;
  return DF_OK;
}

df_status df_jx_set_var(df_jctx *c, df_jscope *s, const df_jstr *name, df_jv v) {
  for (uint32_t i = 0; i < s->n; i++)
    if (s->vars[i].name == name) {
      s->vars[i].v = v;
      return DF_OK;
    }
  if (s->n == s->cap) {
    uint32_t cap = s->cap ? s->cap * 2 : 4;
    DF_TRY(df_jarena_grow(&c->arena, &s->vars, s->n * sizeof *s->vars, s->cap * sizeof *s->vars, cap * sizeof *s->vars,
                          c->err));
    s->cap = cap;
  }
  s->vars[s->n++] = (df_jvar){.name = name, .v = v};
  return DF_OK;
}

static df_status assign_attr(df_jctx *c, const df_jnode *t, df_jv v) {
  df_jnode name = {.kind = JN_NAME, .line = t->line, .name = t->name};
  df_jv ns;
  DF_TRY(df_jx_eval(c, &name, &ns));
  if (ns.t != JT_NS) return JX_FAIL(c, "cannot assign an attribute of \"%s\", which is no namespace", t->name->data);
  return df_jmap_put(&c->arena, ns.u.m, t->val, v, c->err);
}

df_status df_jx_assign(df_jctx *c, const df_jnode *t, df_jv v) {
  if (t->kind == JN_NAME) return df_jx_set_var(c, c->scope, t->name, v);
  if (t->kind == JN_NSREF) return assign_attr(c, t, v);
  df_jv *items;
  uint32_t n, i = 0;
  if (v.t == JT_UNDEF) return df_jx_undefined(c, v);
  DF_TRY(df_jx_elements(c, v, &items, &n));
  const df_jnode *e = t->list;
  for (; e && i < n; e = e->next, i++) DF_TRY(df_jx_assign(c, e, items[i]));
  if (e || i < n) return JX_FAIL(c, "cannot unpack %u values into these names", n);
  return DF_OK;
}

/* ---- loops ---- */

df_status df_jx_loop_fetch(df_jctx *c, df_jloop *l, uint32_t i, bool *have) {
  if (!l->node->c) {
    *have = i < l->n_src;
    return DF_OK;
  }
  df_jscope *was = c->scope;
  while (l->n_items <= i && l->next_src < l->n_src) {
    df_jv v = l->src[l->next_src++], yes;
    /* The condition sees the loop variables, but neither "loop" nor what the body sets. */
    DF_TRY(df_jx_scope_new(c, l->outer, &c->scope));
    DF_TRY(df_jx_assign(c, l->node->a, v));
    DF_TRY(df_jx_eval(c, l->node->c, &yes));
    if (df_jx_truth(yes)) l->items[l->n_items++] = v;
  }
  c->scope = was;
  *have = i < l->n_items;
  return DF_OK;
}

static df_status loop_turns(df_jctx *c, df_jloop *l, df_jv self) {
  for (;; l->index0++) {
    bool have;
    DF_TRY(df_jx_step(c, 1));
    DF_TRY(df_jx_loop_fetch(c, l, l->index0, &have));
    if (!have) return DF_OK;
    l->inner->n = 0;
    c->scope = l->inner;
    DF_TRY(df_jx_set_var(c, l->inner, c->names->loop, self));
    DF_TRY(df_jx_assign(c, l->node->a, l->items[l->index0]));
    DF_TRY(df_jx_exec(c, l->node->list));
    uint8_t flow = c->flow;
    c->flow = JFLOW_NONE;
    c->scope = l->outer;
    if (flow == JFLOW_BREAK) {
      l->index0++;
      return DF_OK;
    }
  }
}

df_status df_jx_loop_run(df_jctx *c, const df_jnode *n, df_jscope *outer, df_jv over, int level) {
  df_jloop *l;
  df_jscope *was = c->scope;
  DF_TRY(df_jarena_get(&c->arena, sizeof *l, &l, c->err));
  *l = (df_jloop){.node = n, .outer = outer, .level = level};
  DF_TRY(df_jx_elements(c, over, &l->src, &l->n_src));
  l->items = l->src;
  if (n->c) DF_TRY(df_jarena_get(&c->arena, l->n_src * sizeof *l->items, &l->items, c->err));
  DF_TRY(df_jx_scope_new(c, outer, &l->inner));
  c->scope = outer;
  DF_TRY(loop_turns(c, l, (df_jv){.t = JT_LOOP, .u.p = l}));
  c->scope = outer;
  if (l->index0 == 0 && n->other) {
    DF_TRY(df_jx_scope_new(c, outer, &c->scope));
    DF_TRY(df_jx_exec(c, n->other));
  }
  c->scope = was;
  return DF_OK;
}

static df_status exec_for(df_jctx *c, const df_jnode *n) {
  df_jv over;
  DF_TRY(df_jx_eval(c, n->b, &over));
  c->line = n->line;
  return df_jx_loop_run(c, n, c->scope, over, 0);
}

/* ---- other statements ---- */

static df_status exec_if(df_jctx *c, const df_jnode *n) {
  for (;;) {
    df_jv v;
    DF_TRY(df_jx_eval(c, n->a, &v));
    if (df_jx_truth(v)) return df_jx_exec(c, n->list);
    if (!n->other || n->other->kind != JN_IF || n->other->op != 1) return df_jx_exec(c, n->other);
    n = n->other;
  }
}

static df_status exec_scoped(df_jctx *c, const df_jnode *list) {
  df_jscope *was = c->scope;
  DF_TRY(df_jx_scope_new(c, was, &c->scope));
  DF_TRY(df_jx_exec(c, list));
  c->scope = was;
  return DF_OK;
}

/* Runs a body and hands back what it wrote. */
static df_status capture_scoped(df_jctx *c, const df_jnode *list, df_jv *out) {
  df_jbuf b, *was = c->capture;
  df_jbuf_init(&b, &c->arena);
  c->capture = &b;
  df_status s = exec_scoped(c, list);
  c->capture = was;
  if (s != DF_OK) return s;
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}

/* A chain of filters whose innermost input is v. */
static df_status filter_chain(df_jctx *c, const df_jnode *f, df_jv v, df_jv *out) {
  df_jargs args;
  DF_TRY(df_jx_step(c, 1));
  if (++c->depth > JINJA_MAX_EVAL_DEPTH) return DF_FAIL(c->err, DF_ERR_LIMIT, "evaluation nested too deeply");
  if (f->a) DF_TRY(filter_chain(c, f->a, v, &v));
  c->depth--;
  DF_TRY(df_jx_args(c, f->list, &args));
  c->line = f->line;
  if (f->fn < 0) return JX_FAIL(c, "unknown filter \"%s\"", f->name->data);
  return df_jfilter_call(c, f->fn, v, &args, out);
}

static df_status exec_set_block(df_jctx *c, const df_jnode *n) {
  df_jv v;
  DF_TRY(capture_scoped(c, n->list, &v));
  if (n->b) DF_TRY(filter_chain(c, n->b, v, &v));
  return df_jx_assign(c, n->a, v);
}

static df_status exec_filter_block(df_jctx *c, const df_jnode *n) {
  df_jv v;
  DF_TRY(capture_scoped(c, n->list, &v));
  DF_TRY(filter_chain(c, n->a, v, &v));
  return df_jx_emit_value(c, v);
}

static df_status exec_with(df_jctx *c, const df_jnode *n) {
  df_jscope *was = c->scope, *inner;
  DF_TRY(df_jx_scope_new(c, was, &inner));
  for (const df_jnode *p = n->params; p; p = p->next) { /* values are evaluated outside */
    df_jv v;
    c->scope = was;
    DF_TRY(df_jx_eval(c, p->a, &v));
    c->scope = inner;
    DF_TRY(df_jx_assign(c, p->b, v));
  }
  c->scope = inner;
  DF_TRY(df_jx_exec(c, n->list));
  c->scope = was;
  return DF_OK;
}

static df_status new_macro(df_jctx *c, const df_jnode *n, df_jv *out) {
  df_jmacro *m;
  DF_TRY(df_jarena_get(&c->arena, sizeof *m, &m, c->err));
  *m = (df_jmacro){.node = n, .scope = c->scope};
  *out = (df_jv){.t = JT_MACRO, .u.p = m};
  return DF_OK;
}

static df_status exec_call_block(df_jctx *c, const df_jnode *n) {
  df_jv callee, caller, v;
  df_jargs args;
  DF_TRY(df_jx_eval(c, n->a->a, &callee));
  DF_TRY(df_jx_args(c, n->a->list, &args));
  DF_TRY(new_macro(c, n, &caller));
  df_jkw *kw;
  DF_TRY(df_jarena_get(&c->arena, (args.nkw + 1u) * sizeof *kw, &kw, c->err));
  if (args.nkw) memcpy(kw, args.kw, args.nkw * sizeof *kw);
  kw[args.nkw++] = (df_jkw){.name = c->names->caller, .v = caller};
  args.kw = kw;
  c->line = n->line;
  DF_TRY(df_jx_call(c, callee, &args, &v));
  return df_jx_emit_value(c, v);
}

static df_status exec_one(df_jctx *c, const df_jnode *n) {
  df_jv v;
  switch (n->kind) {
    case JN_DATA: return df_jx_emit(c, n->val.u.s->data, n->val.u.s->len);
    case JN_OUTPUT: DF_TRY(df_jx_eval(c, n->a, &v)); return df_jx_emit_value(c, v);
    case JN_FOR: return exec_for(c, n);
    case JN_IF: return exec_if(c, n);
    case JN_SET: DF_TRY(df_jx_eval(c, n->b, &v)); return df_jx_assign(c, n->a, v);
    case JN_SET_BLOCK: return exec_set_block(c, n);
    case JN_MACRO: DF_TRY(new_macro(c, n, &v)); return df_jx_set_var(c, c->scope, n->name, v);
    case JN_CALL_BLOCK: return exec_call_block(c, n);
    case JN_FILTER_BLOCK: return exec_filter_block(c, n);
    case JN_WITH: return exec_with(c, n);
    case JN_SCOPE: return exec_scoped(c, n->list);
    case JN_BREAK: c->flow = JFLOW_BREAK; return DF_OK;
    case JN_CONTINUE: c->flow = JFLOW_CONTINUE; return DF_OK;
    default: return DF_FAIL(c->err, DF_ERR_INTERNAL, "unexpected node %d", n->kind);
  }
}

df_status df_jx_exec(df_jctx *c, const df_jnode *list) {
  if (!list) return DF_OK;
  if (++c->depth > JINJA_MAX_EVAL_DEPTH) return DF_FAIL(c->err, DF_ERR_LIMIT, "evaluation nested too deeply");
  for (const df_jnode *n = list; n && c->flow == JFLOW_NONE; n = n->next) {
    c->line = n->line;
    DF_TRY(df_jx_step(c, 1));
    DF_TRY(exec_one(c, n));
  }
  c->depth--;
  return DF_OK;
}
