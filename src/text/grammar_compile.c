/* The tree of a grammar to raw states and edges. */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/grammar_pda.h"
#include "text/utf8.h"

/* A repeated item of more edges than this becomes a rule of its own: each repetition is then one call. */
enum { INLINE_COST = 6 };

typedef struct hoisted {
  uint32_t node, rule;
} hoisted;

typedef struct compiler {
  const df_gast *ast;
  const bool *spelled;
  df_pda *pda;
  uint32_t rule; /* being compiled */
  bool bytes_missing;
  hoisted *todo; /* bodies of rules made on the way */
  uint32_t n_todo, cap_todo;
  uint32_t continuations[3], continued; /* states 1..3 continuation bytes before `continued` */
  df_error *err;
} compiler;

#define GROW(c, a, field, more, max) \
  df_garray_grow(&(a)->field, &(a)->cap_##field, (a)->n_##field, (more), sizeof *(a)->field, (max), #field, (c)->err)

static df_status new_state(compiler *c, uint32_t *out) {
  df_pda *d = c->pda;
  DF_TRY(GROW(c, d, states, 1, DF_GRAMMAR_MAX_STATES));
  d->states[d->n_states] = (df_gstate){.rule = c->rule};
  *out = d->n_states++;
  return DF_OK;
}

static df_status put_edge(compiler *c, df_gedge e) {
  DF_TRY(GROW(c, c->pda, edges, 1, DF_GRAMMAR_MAX_EDGES));
  c->pda->edges[c->pda->n_edges++] = e;
  return DF_OK;
}

static df_status put_empty(compiler *c, uint32_t from, uint32_t to) {
  return put_edge(c, (df_gedge){.from = from, .to = to, .kind = DF_GEDGE_EMPTY});
}

/* Only the bytes that the vocabulary spells. */
static df_status put_bytes(compiler *c, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to) {
  while (lo <= hi) {
    uint32_t end = lo;
    if (!c->spelled[lo]) {
      c->bytes_missing = true;
      lo++;
      continue;
    }
    while (end < hi && c->spelled[end + 1]) end++;
    DF_TRY(
        put_edge(c, (df_gedge){.from = from, .to = to, .kind = DF_GEDGE_BYTE, .lo = (uint8_t)lo, .hi = (uint8_t)end}));
    lo = end + 1;
  }
  return DF_OK;
}

static df_status emit(compiler *c, uint32_t node, uint32_t from, uint32_t to);

/* ---- classes ------------------------------------------------------------------------------------------- */

/* The state from which any n continuation bytes lead to `to`; made once for each n while `to` stays the same. */
static df_status continuation(compiler *c, uint32_t n, uint32_t to, uint32_t *out) {
  if (c->continued != to) {
    c->continued = to;
    for (int i = 0; i < 3; i++) c->continuations[i] = DF_GRAMMAR_NONE;
  }
  for (uint32_t i = 0; i < n; i++) {
    uint32_t behind = i ? c->continuations[i - 1] : to;
    if (c->continuations[i] != DF_GRAMMAR_NONE) continue;
    DF_TRY(new_state(c, &c->continuations[i]));
    DF_TRY(put_bytes(c, c->continuations[i], 0x80, 0xBF, behind));
  }
  *out = n ? c->continuations[n - 1] : to;
  return DF_OK;
}

/* Characters lo..hi that have n bytes in UTF-8, of which the first n - left are the same in both and done. */
static df_status emit_utf8(compiler *c, uint32_t from, uint32_t lo, uint32_t hi, uint32_t n, uint32_t left,
                           uint32_t to) {
  static const uint8_t lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
  uint32_t shift = 6 * (left - 1), low_bits = ((uint32_t)1 << shift) - 1;
  uint32_t mark = left == n ? lead[n] : 0x80, mask = left == n ? (n == 1 ? 0x7F : 0xFFu >> (n + 1)) : 0x3F;
  uint32_t a = lo >> shift, b = hi >> shift;
  if (left == 1) return put_bytes(c, from, mark | (a & mask), mark | (b & mask), to);
  if ((lo & low_bits) != 0 && a != b) { /* a first part that is not whole */
    DF_TRY(emit_utf8(c, from, lo, lo | low_bits, n, left, to));
    a++;
  } else if (a == b && ((lo & low_bits) != 0 || (hi & low_bits) != low_bits)) {
    uint32_t next;
    DF_TRY(new_state(c, &next));
    DF_TRY(put_bytes(c, from, mark | (a & mask), mark | (a & mask), next));
    return emit_utf8(c, next, lo, hi, n, left - 1, to);
  }
  if ((hi & low_bits) != low_bits) {
    DF_TRY(emit_utf8(c, from, hi & ~low_bits, hi, n, left, to));
    if (b == 0 || b - 1 < a) return DF_OK;
    b--;
  }
  uint32_t next;
  if (a > b) return DF_OK;
  DF_TRY(continuation(c, left - 1, to, &next));
  return put_bytes(c, from, mark | (a & mask), mark | (b & mask), next);
}

static df_status emit_class(compiler *c, const df_gnode *node, uint32_t from, uint32_t to) {
  static const df_grange by_length[4] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xFFFF}, {0x10000, 0x10FFFF}};
  for (uint32_t i = 0; i < node->b; i++) {
    df_grange r = c->ast->ranges[node->a + i];
    for (uint32_t n = 1; n <= 4; n++) {
      uint32_t lo = DF_MAX(r.lo, by_length[n - 1].lo), hi = DF_MIN(r.hi, by_length[n - 1].hi);
      if (lo <= hi) DF_TRY(emit_utf8(c, from, lo, hi, n, n, to));
    }
  }
  return DF_OK;
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

static df_status emit_string(compiler *c, const df_gnode *node, uint32_t from, uint32_t to) {
  if (node->b == 0) return put_empty(c, from, to);
  for (uint32_t i = 0; i < node->b; i++) {
    uint32_t next = to, byte = c->ast->bytes[node->a + i];
    if (i + 1 < node->b) DF_TRY(new_state(c, &next));
    DF_TRY(put_bytes(c, from, byte, byte, next));
    from = next;
  }
  return DF_OK;
}

static df_status emit_sequence(compiler *c, uint32_t child, uint32_t from, uint32_t to) {
  if (child == DF_GRAMMAR_NONE) return put_empty(c, from, to);
  for (; child != DF_GRAMMAR_NONE; child = c->ast->nodes[child].next) {
    uint32_t next = to;
    if (c->ast->nodes[child].next != DF_GRAMMAR_NONE) DF_TRY(new_state(c, &next));
    DF_TRY(emit(c, child, from, next));
    from = next;
  }
  return DF_OK;
}

/* Edges of a node, roughly; counting stops above INLINE_COST. */
static uint32_t cost(const df_gast *a, uint32_t node, uint32_t depth) {
  const df_gnode *g = &a->nodes[node];
  uint32_t sum = 0;
  switch (g->kind) {
    case DF_GNODE_RULE: return 1;
    case DF_GNODE_BYTES: return g->b;
    case DF_GNODE_CLASS:
      for (uint32_t i = 0; i < g->b && sum <= INLINE_COST; i++) sum += a->ranges[g->a + i].hi < 0x80 ? 1 : INLINE_COST;
      return sum;
    case DF_GNODE_REPEAT: return INLINE_COST + 1;
    case DF_GNODE_SEQ:
    case DF_GNODE_ALT: break;
  }
  if (depth > 4) return INLINE_COST + 1;
  for (uint32_t k = g->a; k != DF_GRAMMAR_NONE && sum <= INLINE_COST; k = a->nodes[k].next)
    sum += cost(a, k, depth + 1);
  return sum;
}

/* One repetition of an item that is repeated `times` times: itself, or a call of the rule that it has become. */
typedef struct repeated {
  uint32_t node, rule;
} repeated;

static df_status prepare(compiler *c, uint32_t node, uint64_t times, repeated *out) {
  *out = (repeated){node, DF_GRAMMAR_NONE};
  if (times < 2 || cost(c->ast, node, 0) <= INLINE_COST) return DF_OK;
  DF_TRY(GROW(c, c->pda, rules, 1, DF_GRAMMAR_MAX_RULES));
  DF_TRY(GROW(c, c, todo, 1, DF_GRAMMAR_MAX_RULES));
  out->rule = c->pda->n_rules++;
  c->pda->rules[out->rule] = (df_gpda_rule){DF_GRAMMAR_NONE, DF_GRAMMAR_NONE};
  c->todo[c->n_todo++] = (hoisted){node, out->rule};
  return DF_OK;
}

static df_status emit_one(compiler *c, repeated r, uint32_t from, uint32_t to) {
  if (r.rule == DF_GRAMMAR_NONE) return emit(c, r.node, from, to);
  return put_edge(c, (df_gedge){.from = from, .to = to, .rule = r.rule, .kind = DF_GEDGE_CALL});
}

static df_status emit_repeat(compiler *c, const df_gnode *node, uint32_t from, uint32_t to) {
  uint32_t min = node->b, max = node->c, next, behind;
  repeated item;
  bool endless = max == DF_GRAMMAR_NONE;
  uint32_t copies = endless && min ? min - 1 : min; /* the loop holds one */
  DF_TRY(prepare(c, node->a, endless ? DF_MAX(min, 1) : max, &item));
  for (uint32_t i = 0; i < copies; i++, from = next) {
    DF_TRY(new_state(c, &next));
    DF_TRY(emit_one(c, item, from, next));
  }
  if (endless) { /* the loop has a state of its own, as `from` and `to` may be shared with alternatives */
    DF_TRY(new_state(c, &next));
    behind = next;
    if (min) DF_TRY(new_state(c, &behind));
    DF_TRY(put_empty(c, from, next));
    DF_TRY(emit_one(c, item, next, behind));
    if (min) DF_TRY(put_empty(c, behind, next));
    return put_empty(c, behind, to);
  }
  for (uint32_t i = min; i < max; i++, from = next) {
    DF_TRY(put_empty(c, from, to));
    DF_TRY(new_state(c, &next));
    DF_TRY(emit_one(c, item, from, next));
  }
  return put_empty(c, from, to);
}

/* Adds edges so that what the node stands for leads from one state to the other. Recursion: nesting of groups. */
static df_status emit(compiler *c, uint32_t index, uint32_t from, uint32_t to) {
  const df_gnode *node = &c->ast->nodes[index];
  switch (node->kind) {
    case DF_GNODE_SEQ: return emit_sequence(c, node->a, from, to);
    case DF_GNODE_ALT:
      for (uint32_t k = node->a; k != DF_GRAMMAR_NONE; k = c->ast->nodes[k].next) DF_TRY(emit(c, k, from, to));
      return DF_OK;
    case DF_GNODE_BYTES: return emit_string(c, node, from, to);
    case DF_GNODE_CLASS: return emit_class(c, node, from, to);
    case DF_GNODE_RULE: return put_edge(c, (df_gedge){.from = from, .to = to, .rule = node->a, .kind = DF_GEDGE_CALL});
    case DF_GNODE_REPEAT: return emit_repeat(c, node, from, to);
  }
  return DF_OK;
}

static df_status emit_rule(compiler *c, uint32_t rule, uint32_t body) {
  df_gpda_rule r;
  c->rule = rule;
  c->continued = DF_GRAMMAR_NONE;
  DF_TRY(new_state(c, &r.entry));
  DF_TRY(new_state(c, &r.final));
  c->pda->states[r.final].final = true;
  c->pda->rules[rule] = r;
  return emit(c, body, r.entry, r.final);
}

static df_status compile(compiler *c) {
  const df_gast *a = c->ast;
  DF_TRY(GROW(c, c->pda, rules, a->n_rules, DF_GRAMMAR_MAX_RULES));
  c->pda->n_rules = a->n_rules;
  c->pda->root = a->root;
  for (uint32_t i = 0; i < a->n_rules; i++) DF_TRY(emit_rule(c, i, a->rules[i].body));
  while (c->n_todo) {
    hoisted h = c->todo[--c->n_todo];
    DF_TRY(emit_rule(c, h.rule, h.node));
  }
  return df_pda_finish(c->pda, a->rules, a->n_rules, c->bytes_missing, c->err);
}

df_status df_pda_compile(const df_gast *a, const bool spelled[256], df_pda *out, df_error *err) {
  compiler c = {.ast = a, .spelled = spelled, .pda = out, .err = err};
  *out = (df_pda){0};
  df_status s = compile(&c);
  df_free(c.todo);
  return s;
}

void df_pda_release(df_pda *d) {
  df_free(d->edges);
  df_free(d->states);
  df_free(d->rules);
  *d = (df_pda){0};
}
