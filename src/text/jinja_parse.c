/* text/jinja_parse.c - parser of statements, and what both halves of the parser share. */
#include "text/jinja_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* ---- shared ---- */

df_status df_jparse_fail(df_jparser *p, const char *fmt, ...) {
  char what[400];
  va_list ap;
  va_start(ap, fmt);
  (void)vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  return DF_FAIL(p->err, DF_ERR_FORMAT, "could not render the chat template: line %u: %s", p->tok->line, what);
}

df_status df_jparse_enter(df_jparser *p) {
  if (++p->depth <= JINJA_MAX_NESTING) return DF_OK;
  return DF_FAIL(p->err, DF_ERR_LIMIT, "could not render the chat template: line %u: nested deeper than %d levels",
                 p->tok->line, JINJA_MAX_NESTING);
}

df_status df_jparse_node(df_jparser *p, df_jkindof kind, df_jnode **out) {
  df_jnode *n;
  DF_TRY(df_jarena_get(p->a, sizeof *n, &n, p->err));
  *n = (df_jnode){.kind = (uint8_t)kind, .fn = -1, .line = p->tok->line};
  *out = n;
  return DF_OK;
}

static df_status intern(df_jparser *p, const char *s, uint32_t len, const df_jstr **out) {
  uint32_t at;
  if (df_map_get(&p->names, s, len, &at)) {
    *out = p->interned[at];
    return DF_OK;
  }
  if (p->n_interned == p->cap_interned) {
    uint32_t cap = p->cap_interned ? p->cap_interned * 2 : 64;
    const df_jstr **v = df_realloc(p->interned, cap * sizeof *v);
    if (!v) return DF_OOM(p->err, "template names", cap * sizeof *v);
    p->interned = v;
    p->cap_interned = cap;
  }
  const df_jstr *str;
  DF_TRY(df_jstr_new(p->a, s, len, &str, p->err));
  ((df_jstr *)(uintptr_t)str)->hash = df_jstr_hash(str); /* still private to the parser */
  DF_TRY(df_map_put(&p->names, s, len, p->n_interned, NULL, p->err));
  p->interned[p->n_interned++] = str;
  *out = str;
  return DF_OK;
}

df_status df_jparse_intern(df_jparser *p, const df_jtoken *t, const df_jstr **out) {
  return intern(p, p->src + t->off, t->len, out);
}

bool df_jparse_is_name(const df_jparser *p, const df_jtoken *t, const char *name) {
  size_t n = strlen(name);
  return t->type == TK_NAME && t->len == n && memcmp(p->src + t->off, name, n) == 0;
}

bool df_jparse_skip(df_jparser *p, df_jtok type) {
  if (p->tok->type != (uint32_t)type) return false;
  if (type != TK_EOF) p->tok++;
  return true;
}

bool df_jparse_skip_name(df_jparser *p, const char *name) {
  if (!df_jparse_is_name(p, p->tok, name)) return false;
  p->tok++;
  return true;
}

df_status df_jparse_unexpected(df_jparser *p) {
  const df_jtoken *t = p->tok;
  if (t->type == TK_NAME) return df_jparse_fail(p, "unexpected \"%.*s\"", (int)t->len, p->src + t->off);
  return df_jparse_fail(p, "unexpected %s", df_jtok_name(t->type));
}

df_status df_jparse_expect(df_jparser *p, df_jtok type) {
  if (df_jparse_skip(p, type)) return DF_OK;
  const df_jtoken *t = p->tok;
  if (t->type == TK_NAME)
    return df_jparse_fail(p, "expected %s, found \"%.*s\"", df_jtok_name(type), (int)t->len, p->src + t->off);
  return df_jparse_fail(p, "expected %s, found %s", df_jtok_name(type), df_jtok_name(t->type));
}

/* ---- targets and parameters ---- */

static df_status one_target(df_jparser *p, bool ns, df_jnode **out) {
  if (p->tok->type == TK_LPAREN || p->tok->type == TK_LBRACKET) {
    df_jtok close = p->tok->type == TK_LPAREN ? TK_RPAREN : TK_RBRACKET;
    p->tok++;
    DF_TRY(df_jparse_enter(p));
    DF_TRY(df_jparse_target(p, ns, out));
    p->depth--;
    return df_jparse_expect(p, close);
  }
  static const char *const reserved[] = {"true", "True", "false", "False", "none", "None"};
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    if (df_jparse_is_name(p, p->tok, reserved[i])) return df_jparse_fail(p, "cannot assign to \"%s\"", reserved[i]);
  const df_jtoken *t = p->tok;
  DF_TRY(df_jparse_expect(p, TK_NAME));
  DF_TRY(df_jparse_node(p, JN_NAME, out));
  DF_TRY(df_jparse_intern(p, t, &(*out)->name));
  if (!ns || !df_jparse_skip(p, TK_DOT)) return DF_OK;
  const df_jstr *attr;
  t = p->tok;
  DF_TRY(df_jparse_expect(p, TK_NAME));
  DF_TRY(df_jparse_intern(p, t, &attr));
  (*out)->kind = JN_NSREF;
  (*out)->val = df_jv_str(attr);
  return DF_OK;
}

df_status df_jparse_target(df_jparser *p, bool ns, df_jnode **out) {
  df_jnode *first, *tuple;
  DF_TRY(one_target(p, ns, &first));
  *out = first;
  if (p->tok->type != TK_COMMA) return DF_OK;
  DF_TRY(df_jparse_node(p, JN_TUPLE, &tuple));
  tuple->list = first;
  for (df_jnode **tail = &first->next; df_jparse_skip(p, TK_COMMA); tail = &(*tail)->next) {
    if (p->tok->type != TK_NAME && p->tok->type != TK_LPAREN && p->tok->type != TK_LBRACKET) break;
    if (df_jparse_is_name(p, p->tok, "in")) break;
    DF_TRY(one_target(p, ns, tail));
  }
  *out = tuple;
  return DF_OK;
}

/* (a, b=1) of a macro or call block. */
static df_status parse_signature(df_jparser *p, df_jnode **list) {
  bool defaults = false, first = true;
  DF_TRY(df_jparse_expect(p, TK_LPAREN));
  for (df_jnode **tail = list; p->tok->type != TK_RPAREN; tail = &(*tail)->next, first = false) {
    if (!first) DF_TRY(df_jparse_expect(p, TK_COMMA));
    DF_TRY(df_jparse_node(p, JN_ARG, tail));
    const df_jtoken *t = p->tok;
    DF_TRY(df_jparse_expect(p, TK_NAME));
    DF_TRY(df_jparse_intern(p, t, &(*tail)->name));
    if (df_jparse_skip(p, TK_ASSIGN)) {
      defaults = true;
      DF_TRY(df_jparse_expr(p, true, &(*tail)->a));
    } else if (defaults) {
      return df_jparse_fail(p, "a parameter without default follows one with");
    }
  }
  return df_jparse_expect(p, TK_RPAREN);
}

/* ---- statements ---- */

static df_status parse_body(df_jparser *p, const char *const *ends, df_jnode **out);

/* Body up to {% end %}, the end included. */
static df_status body_until(df_jparser *p, const char *end, df_jnode **out) {
  const char *ends[] = {end, NULL};
  DF_TRY(df_jparse_expect(p, TK_BLOCK_END));
  DF_TRY(parse_body(p, ends, out));
  p->tok++;
  return df_jparse_expect(p, TK_BLOCK_END);
}

static df_status parse_for(df_jparser *p, df_jnode *n) {
  static const char *const ends[] = {"else", "endfor", NULL};
  n->kind = JN_FOR;
  bool soft = p->soft;
  p->soft = false;
  DF_TRY(df_jparse_target(p, false, &n->a));
  if (!df_jparse_skip_name(p, "in")) return df_jparse_fail(p, "expected \"in\" in a for loop");
  DF_TRY(df_jparse_tuple(p, false, false, &n->b));
  if (df_jparse_skip_name(p, "if")) DF_TRY(df_jparse_expr(p, true, &n->c));
  if (df_jparse_skip_name(p, "recursive")) n->op = 1;
  DF_TRY(df_jparse_expect(p, TK_BLOCK_END));
  p->loops++;
  DF_TRY(parse_body(p, ends, &n->list));
  p->loops--;
  bool has_else = df_jparse_is_name(p, p->tok, "else");
  p->tok++;
  if (has_else)
    DF_TRY(body_until(p, "endfor", &n->other));
  else
    DF_TRY(df_jparse_expect(p, TK_BLOCK_END));
  p->soft = soft;
  return DF_OK;
}

static df_status parse_if(df_jparser *p, df_jnode *n) {
  static const char *const ends[] = {"elif", "else", "endif", NULL};
  bool soft = p->soft;
  for (;;) { /* an elif is an if in the else body */
    n->kind = JN_IF;
    p->soft = true;
    DF_TRY(df_jparse_tuple(p, false, false, &n->a));
    DF_TRY(df_jparse_expect(p, TK_BLOCK_END));
    DF_TRY(parse_body(p, ends, &n->list));
    if (df_jparse_skip_name(p, "elif")) {
      DF_TRY(df_jparse_node(p, JN_IF, &n->other));
      n->other->op = 1; /* part of a chain: evaluated in a loop, not deeper */
      n = n->other;
      continue;
    }
    bool has_else = df_jparse_is_name(p, p->tok, "else");
    p->tok++;
    if (has_else)
      DF_TRY(body_until(p, "endif", &n->other));
    else
      DF_TRY(df_jparse_expect(p, TK_BLOCK_END));
    p->soft = soft;
    return DF_OK;
  }
}

static df_status parse_set(df_jparser *p, df_jnode *n) {
  DF_TRY(df_jparse_target(p, true, &n->a));
  if (df_jparse_skip(p, TK_ASSIGN)) {
    n->kind = JN_SET;
    return df_jparse_tuple(p, true, false, &n->b);
  }
  n->kind = JN_SET_BLOCK;
  DF_TRY(df_jparse_filters(p, NULL, false, &n->b));
  DF_TRY(df_jparse_expect(p, TK_BLOCK_END));
  static const char *const ends[] = {"endset", NULL};
  DF_TRY(parse_body(p, ends, &n->list));
  p->tok++;
  return DF_OK;
}

/* The body of a macro or call block: loops outside cannot be left from inside. */
static df_status macro_body(df_jparser *p, df_jnode *n, const char *end) {
  int loops = p->loops;
  uint8_t uses = p->uses;
  bool soft = p->soft;
  p->loops = 0;
  p->uses = 0;
  p->soft = false;
  DF_TRY(body_until(p, end, &n->list));
  n->op = p->uses;
  p->uses |= uses;
  p->loops = loops;
  p->soft = soft;
  p->tok--; /* the caller expects the end of the tag */
  return DF_OK;
}

static df_status parse_macro(df_jparser *p, df_jnode *n) {
  n->kind = JN_MACRO;
  const df_jtoken *t = p->tok;
  DF_TRY(df_jparse_expect(p, TK_NAME));
  DF_TRY(df_jparse_intern(p, t, &n->name));
  DF_TRY(parse_signature(p, &n->params));
  return macro_body(p, n, "endmacro");
}

static df_status parse_call_block(df_jparser *p, df_jnode *n) {
  n->kind = JN_CALL_BLOCK;
  if (p->tok->type == TK_LPAREN) DF_TRY(parse_signature(p, &n->params));
  DF_TRY(df_jparse_expr(p, true, &n->a));
  if (n->a->kind != JN_CALL) return df_jparse_fail(p, "expected a call");
  return macro_body(p, n, "endcall");
}

static df_status parse_with(df_jparser *p, df_jnode *n) {
  n->kind = JN_WITH;
  for (df_jnode **tail = &n->params; p->tok->type != TK_BLOCK_END; tail = &(*tail)->next) {
    if (n->params) DF_TRY(df_jparse_expect(p, TK_COMMA));
    DF_TRY(df_jparse_node(p, JN_ARG, tail));
    DF_TRY(one_target(p, false, &(*tail)->b));
    DF_TRY(df_jparse_expect(p, TK_ASSIGN));
    DF_TRY(df_jparse_expr(p, true, &(*tail)->a));
  }
  DF_TRY(body_until(p, "endwith", &n->list));
  p->tok--;
  return DF_OK;
}

static df_status parse_print(df_jparser *p, df_jnode *n) {
  n->kind = JN_SCOPE; /* without assignments a scope is only a sequence */
  for (df_jnode **tail = &n->list; p->tok->type != TK_BLOCK_END; tail = &(*tail)->next) {
    if (n->list) DF_TRY(df_jparse_expect(p, TK_COMMA));
    DF_TRY(df_jparse_node(p, JN_OUTPUT, tail));
    DF_TRY(df_jparse_expr(p, true, &(*tail)->a));
  }
  return DF_OK;
}

static df_status parse_simple(df_jparser *p, df_jnode *n, const df_jtoken *word, bool *known) {
  *known = true;
  if (df_jparse_is_name(p, word, "set")) return parse_set(p, n);
  if (df_jparse_is_name(p, word, "macro")) return parse_macro(p, n);
  if (df_jparse_is_name(p, word, "call")) return parse_call_block(p, n);
  if (df_jparse_is_name(p, word, "with")) return parse_with(p, n);
  if (df_jparse_is_name(p, word, "print")) return parse_print(p, n);
  if (df_jparse_is_name(p, word, "generation")) { /* marks what the model wrote, for training: only a scope here */
    n->kind = JN_SCOPE;
    DF_TRY(body_until(p, "endgeneration", &n->list));
    p->tok--;
    return DF_OK;
  }
  if (df_jparse_is_name(p, word, "filter")) {
    n->kind = JN_FILTER_BLOCK;
    DF_TRY(df_jparse_filters(p, NULL, true, &n->a));
    DF_TRY(body_until(p, "endfilter", &n->list));
    p->tok--;
    return DF_OK;
  }
  bool brk = df_jparse_is_name(p, word, "break");
  if (brk || df_jparse_is_name(p, word, "continue")) {
    if (p->loops == 0) return df_jparse_fail(p, "\"%s\" outside of a loop", brk ? "break" : "continue");
    n->kind = brk ? JN_BREAK : JN_CONTINUE;
    return DF_OK;
  }
  *known = false;
  return DF_OK;
}

/* Behind "{%"; takes the "%}" too. */
static df_status parse_statement(df_jparser *p, df_jnode **out) {
  const df_jtoken *word = p->tok;
  df_jnode *n;
  if (word->type != TK_NAME) return df_jparse_fail(p, "expected the name of a tag, found %s", df_jtok_name(word->type));
  DF_TRY(df_jparse_node(p, JN_SCOPE, &n));
  *out = n;
  p->tok++;
  if (df_jparse_is_name(p, word, "for")) return parse_for(p, n);
  if (df_jparse_is_name(p, word, "if")) return parse_if(p, n);
  bool known;
  DF_TRY(parse_simple(p, n, word, &known));
  if (!known) {
    p->tok = word;
    return df_jparse_fail(p, "unknown tag \"%.*s\"", (int)word->len, p->src + word->off);
  }
  return df_jparse_expect(p, TK_BLOCK_END);
}

static bool is_end(const df_jparser *p, const char *const *ends) {
  for (; ends && *ends; ends++)
    if (df_jparse_is_name(p, p->tok, *ends)) return true;
  return false;
}

/* Nodes until a tag named in `ends`, which stays the current token; until the end of the text when ends is NULL. */
static df_status parse_body(df_jparser *p, const char *const *ends, df_jnode **out) {
  DF_TRY(df_jparse_enter(p));
  for (df_jnode **tail = out;; tail = &(*tail)->next) {
    const df_jtoken *t = p->tok;
    if (t->type == TK_EOF) {
      if (!ends) break;
      while (ends[1]) ends++; /* the last one closes the block */
      return df_jparse_fail(p, "missing \"%s\"", ends[0]);
    }
    p->tok++;
    if (t->type == TK_DATA) {
      const df_jstr *s;
      DF_TRY(df_jstr_new(p->a, p->src + t->off, t->len, &s, p->err));
      DF_TRY(df_jparse_node(p, JN_DATA, tail));
      (*tail)->val = df_jv_str(s);
    } else if (t->type == TK_VAR_BEGIN) {
      DF_TRY(df_jparse_node(p, JN_OUTPUT, tail));
      DF_TRY(df_jparse_tuple(p, true, false, &(*tail)->a));
      DF_TRY(df_jparse_expect(p, TK_VAR_END));
    } else {
      if (is_end(p, ends)) break;
      DF_TRY(parse_statement(p, tail));
    }
  }
  p->depth--;
  return DF_OK;
}

static df_status intern_own(df_jparser *p, df_jnames *names) {
  DF_TRY(intern(p, "loop", 4, &names->loop));
  DF_TRY(intern(p, "caller", 6, &names->caller));
  DF_TRY(intern(p, "varargs", 7, &names->varargs));
  return intern(p, "kwargs", 6, &names->kwargs);
}

df_status df_jparse(df_jarena *a, const char *src, size_t n, df_jnode **body, df_jnames *names, df_error *err) {
  df_jtokens toks;
  df_jparser p = {.a = a, .err = err, .src = src};
  *body = NULL;
  DF_TRY(df_jlex(src, n, &toks, err));
  p.tok = toks.v;
  df_status s;
  DF_TRY_GOTO(s, df_map_init(&p.names, 64, err), out);
  DF_TRY_GOTO(s, intern_own(&p, names), out);
  s = parse_body(&p, NULL, body);
out:
  df_map_release(&p.names);
  df_free(p.interned);
  df_jtokens_release(&toks);
  return s;
}
