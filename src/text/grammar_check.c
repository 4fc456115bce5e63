/* Raw states and edges to an automaton without dead ends and left recursion, in linear time. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/grammar_pda.h"

/* Items 0..n in buckets: bucket b holds items[at[b] .. at[b + 1]). */
typedef struct buckets {
  uint32_t *at, *items;
} buckets;

typedef struct checker {
  df_pda *d;
  uint32_t *queue; /* states to be looked at; each enters once */
  uint32_t n_queue;
  bool *seen;        /* [states] */
  buckets by_to;     /* edges by the state they lead to */
  buckets by_callee; /* CALL edges by rule */
  uint8_t *needs;    /* [edges] CALL: what is missing yet */
  uint32_t *where;   /* [rules] scratch of the search for cycles */
  uint8_t *colour;   /* [rules] */
  bool *nullable;    /* [rules] */
  df_error *err;
} checker;

static void buckets_release(buckets *b) {
  df_free(b->at);
  df_free(b->items);
}

typedef uint32_t (*bucket_of)(const df_gedge *e);
static uint32_t bucket_to(const df_gedge *e) { return e->to; }
static uint32_t bucket_callee(const df_gedge *e) { return e->kind == DF_GEDGE_CALL ? e->rule : DF_GRAMMAR_NONE; }

static df_status buckets_fill(buckets *b, const df_pda *d, uint32_t n, bucket_of of, df_error *err) {
  b->at = df_calloc((size_t)n + 2, sizeof *b->at);
  b->items = df_calloc((size_t)d->n_edges + 1, sizeof *b->items);
  if (!b->at || !b->items) return DF_OOM(err, "a grammar", (size_t)d->n_edges * sizeof *b->items);
  for (uint32_t e = 0; e < d->n_edges; e++)
    if (of(&d->edges[e]) != DF_GRAMMAR_NONE) b->at[of(&d->edges[e]) + 2]++;
  for (uint32_t i = 2; i <= n + 1; i++) b->at[i] += b->at[i - 1];
  for (uint32_t e = 0; e < d->n_edges; e++)
    if (of(&d->edges[e]) != DF_GRAMMAR_NONE) b->items[b->at[of(&d->edges[e]) + 1]++] = e;
  return DF_OK;
}

static void visit(checker *c, uint32_t state) {
  if (c->seen[state]) return;
  c->seen[state] = true;
  c->queue[c->n_queue++] = state;
}

/* ---- dead ends ----------------------------------------------------------------------------------------- */

static void satisfy(checker *c, uint32_t edge) {
  if (--c->needs[edge] == 0) visit(c, c->d->edges[edge].from);
}

/* Afterwards `seen` holds the states that can reach the end of their rule. */
static void find_productive(checker *c) {
  df_pda *d = c->d;
  /* A call needs its rule and the state behind it, other edges the state they lead to. */
  for (uint32_t e = 0; e < d->n_edges; e++) c->needs[e] = d->edges[e].kind == DF_GEDGE_CALL ? 2 : 1;
  for (uint32_t r = 0; r < d->n_rules; r++) visit(c, d->rules[r].final);
  for (uint32_t head = 0; head < c->n_queue; head++) {
    uint32_t s = c->queue[head], rule = d->states[s].rule;
    for (uint32_t k = c->by_to.at[s]; k < c->by_to.at[s + 1]; k++) satisfy(c, c->by_to.items[k]);
    if (d->rules[rule].entry != s) continue;
    for (uint32_t k = c->by_callee.at[rule]; k < c->by_callee.at[rule + 1]; k++) satisfy(c, c->by_callee.items[k]);
  }
}

static void drop_dead_edges(checker *c) {
  df_pda *d = c->d;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < d->n_edges; i++) {
    const df_gedge *e = &d->edges[i];
    if (!c->seen[e->to] || (e->kind == DF_GEDGE_CALL && !c->seen[d->rules[e->rule].entry])) continue;
    d->edges[kept++] = *e;
  }
  d->n_edges = kept;
}

/* ---- order --------------------------------------------------------------------------------------------- */

/* Edges by the state they leave, BYTE edges first. */
static df_status sort_edges(df_pda *d, df_error *err) {
  df_gedge *sorted = df_calloc((size_t)d->n_edges + 1, sizeof *sorted);
  uint32_t at = 0;
  if (!sorted) return DF_OOM(err, "a grammar", d->n_edges * sizeof *sorted);
  for (uint32_t i = 0; i < d->n_edges; i++) d->states[d->edges[i].from].n_edges++;
  for (uint32_t s = 0; s < d->n_states; s++) {
    d->states[s].first = at;
    at += d->states[s].n_edges;
    d->states[s].n_edges = 0;
  }
  for (int bytes = 1; bytes >= 0; bytes--)
    for (uint32_t i = 0; i < d->n_edges; i++) {
      const df_gedge *e = &d->edges[i];
      df_gstate *s = &d->states[e->from];
      if ((e->kind == DF_GEDGE_BYTE) != (bytes == 1)) continue;
      sorted[s->first + s->n_edges++] = *e;
      s->n_bytes += bytes == 1;
    }
  df_free(d->edges);
  d->edges = sorted;
  d->cap_edges = d->n_edges + 1;
  return DF_OK;
}

/* ---- left recursion ------------------------------------------------------------------------------------ */

/* Afterwards `seen` holds the states that their rule reaches without a byte, `nullable` the rules that need none. */
static void find_openings(checker *c) {
  df_pda *d = c->d;
  memset(c->seen, 0, d->n_states);
  c->n_queue = 0;
  for (uint32_t r = 0; r < d->n_rules; r++) visit(c, d->rules[r].entry);
  for (uint32_t head = 0; head < c->n_queue; head++) {
    const df_gstate *s = &d->states[c->queue[head]];
    if (s->final && !c->nullable[s->rule]) {
      c->nullable[s->rule] = true;
      for (uint32_t k = c->by_callee.at[s->rule]; k < c->by_callee.at[s->rule + 1]; k++) {
        const df_gedge *e = &d->edges[c->by_callee.items[k]];
        if (c->seen[e->from]) visit(c, e->to);
      }
    }
    for (uint32_t k = s->first + s->n_bytes; k < s->first + s->n_edges; k++) {
      const df_gedge *e = &d->edges[k];
      if (e->kind == DF_GEDGE_EMPTY || c->nullable[e->rule]) visit(c, e->to);
    }
  }
}

static df_status fail_recursion(const checker *c, uint32_t rule, const df_grule *names, uint32_t n_names) {
  df_status s =
      rule < n_names
          ? DF_FAIL(c->err, DF_ERR_FORMAT, "could not use the grammar: rule \"%.*s\" can begin with itself",
                    (int)DF_MIN(names[rule].name.n, (size_t)64), names[rule].name.p)
          : DF_FAIL(c->err, DF_ERR_FORMAT, "could not use the grammar: a repeated group can begin with itself");
  if (c->err) df_error_hint(c->err, "write left recursion as a repetition: list ::= item (\",\" item)*");
  return s;
}

/* Rules in the order of a search in depth; calls of a rule from openings are by_from[rule]. */
static df_status find_cycle(checker *c, const df_grule *names, uint32_t n_names) {
  df_pda *d = c->d;
  buckets calls = {0};
  df_status status = DF_OK;
  uint32_t *stack = c->queue; /* at most one entry for each rule, and there are more states than rules */
  calls.at = df_calloc((size_t)d->n_rules + 2, sizeof *calls.at);
  calls.items = df_calloc((size_t)d->n_edges + 1, sizeof *calls.items);
  if (!calls.at || !calls.items) {
    status = DF_OOM(c->err, "a grammar", (size_t)d->n_edges * sizeof *calls.items);
    goto done;
  }
#define OPENING(e) ((e)->kind == DF_GEDGE_CALL && c->seen[(e)->from])
  for (uint32_t i = 0; i < d->n_edges; i++)
    if (OPENING(&d->edges[i])) calls.at[d->states[d->edges[i].from].rule + 2]++;
  for (uint32_t r = 2; r <= d->n_rules + 1; r++) calls.at[r] += calls.at[r - 1];
  for (uint32_t i = 0; i < d->n_edges; i++)
    if (OPENING(&d->edges[i])) calls.items[calls.at[d->states[d->edges[i].from].rule + 1]++] = d->edges[i].rule;
#undef OPENING
  for (uint32_t r = 0; r < d->n_rules; r++) c->where[r] = calls.at[r];
  for (uint32_t start = 0; start < d->n_rules; start++) {
    uint32_t n = 0;
    if (c->colour[start]) continue;
    c->colour[start] = 1;
    stack[n++] = start;
    while (n) {
      uint32_t r = stack[n - 1];
      if (c->where[r] == calls.at[r + 1]) {
        c->colour[r] = 2;
        n--;
        continue;
      }
      uint32_t to = calls.items[c->where[r]++];
      if (c->colour[to] == 1) {
        status = fail_recursion(c, to, names, n_names);
        goto done;
      }
      if (c->colour[to] == 0) {
        c->colour[to] = 1;
        stack[n++] = to;
      }
    }
  }
done:
  buckets_release(&calls);
  return status;
}

/* ---- the rest ------------------------------------------------------------------------------------------ */

static void find_tails(df_pda *d) {
  /* One empty edge to a tail. States are made from the front to the back of a rule, mostly, so a few rounds suffice;
   * a tail that is missed costs a stack entry, nothing else. */
  for (int round = 0; round < 4; round++)
    for (uint32_t s = d->n_states; s-- > 0;) {
      df_gstate *g = &d->states[s];
      if (g->final && g->n_edges == 0)
        g->tail = true;
      else if (!g->final && g->n_edges == 1 && g->n_bytes == 0 && d->edges[g->first].kind == DF_GEDGE_EMPTY)
        g->tail = d->states[d->edges[g->first].to].tail;
    }
}

static void find_classes(df_pda *d) {
  bool cut[257] = {false};
  for (uint32_t i = 0; i < d->n_edges; i++)
    if (d->edges[i].kind == DF_GEDGE_BYTE) cut[d->edges[i].lo] = cut[d->edges[i].hi + 1] = true;
  d->n_classes = 0;
  for (uint32_t b = 0; b < 256; b++) {
    if (b == 0 || cut[b]) d->example[d->n_classes++] = (uint8_t)b;
    d->classes[b] = (uint8_t)(d->n_classes - 1);
  }
}

static df_status checker_init(checker *c) {
  const df_pda *d = c->d;
  c->queue = df_calloc((size_t)d->n_states + 1, sizeof *c->queue);
  c->seen = df_calloc(d->n_states, sizeof *c->seen);
  c->needs = df_calloc((size_t)d->n_edges + 1, sizeof *c->needs);
  c->where = df_calloc(d->n_rules, sizeof *c->where);
  c->colour = df_calloc(d->n_rules, sizeof *c->colour);
  c->nullable = df_calloc(d->n_rules, sizeof *c->nullable);
  if (!c->queue || !c->seen || !c->needs || !c->where || !c->colour || !c->nullable)
    return DF_OOM(c->err, "a grammar", d->n_states * sizeof *c->queue);
  DF_TRY(buckets_fill(&c->by_to, d, d->n_states, bucket_to, c->err));
  return buckets_fill(&c->by_callee, d, d->n_rules, bucket_callee, c->err);
}

static void checker_release(checker *c) {
  buckets_release(&c->by_to);
  buckets_release(&c->by_callee);
  df_free(c->queue);
  df_free(c->seen);
  df_free(c->needs);
  df_free(c->where);
  df_free(c->colour);
  df_free(c->nullable);
}

df_status df_pda_finish(df_pda *d, const df_grule *names, uint32_t n_names, bool bytes_missing, df_error *err) {
  checker c = {.d = d, .err = err};
  df_status s = checker_init(&c);
  if (s != DF_OK) goto done;
  find_productive(&c);
  if (!c.seen[d->rules[d->root].entry]) {
    s = bytes_missing
            ? DF_FAIL(err, DF_ERR_UNSUPPORTED, "could not use the grammar: the vocabulary spells no text of it")
            : DF_FAIL(err, DF_ERR_FORMAT, "could not use the grammar: it admits no text that ends");
    goto done;
  }
  drop_dead_edges(&c);
  DF_TRY_GOTO(s, sort_edges(d, err), done);
  buckets_release(&c.by_callee);
  c.by_callee = (buckets){0};
  DF_TRY_GOTO(s, buckets_fill(&c.by_callee, d, d->n_rules, bucket_callee, err), done);
  find_openings(&c);
  DF_TRY_GOTO(s, find_cycle(&c, names, n_names), done);
  find_tails(d);
  find_classes(d);
done:
  checker_release(&c);
  return s;
}
