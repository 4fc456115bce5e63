#include "text/grammar_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

/* The first two stack entries are ends: of the whole text, and of what is known. */
enum { BELOW_ALL = 0, BELOW_TOP = 1, FIRST_STACK = 2 };

static uint64_t mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0x9E3779B97F4A7C15u;
  h ^= h >> 29;
  h *= 0xBF58476D1CE4E5B9u;
  return h ^ h >> 32;
}

static uint64_t pair(uint32_t a, uint32_t b) { return (uint64_t)a << 32 | b; }

static df_status refuse_more(const df_places *p, df_error *err) {
  if (p->bytes <= p->sweep_at + DF_PLACES_HARD_BYTES) return DF_OK;
  return DF_FAIL(err, DF_ERR_LIMIT, "could not follow the grammar: it has too many places here");
}

/* ---- stacks -------------------------------------------------------------------------------------------- */

static void link_stack(df_places *p, uint32_t i) {
  uint32_t *head = &p->stack_heads[mix(pair(p->stacks[i].state, p->stacks[i].parent)) & (p->stack_buckets - 1)];
  p->stacks[i].next = *head;
  *head = i;
}

static df_status more_stacks(df_places *p, df_error *err) {
  uint32_t cap = p->cap_stacks ? p->cap_stacks * 2 : 256;
  uint32_t *heads;
  df_gstack *stacks = df_realloc(p->stacks, cap * sizeof *stacks);
  if (!stacks) return DF_OOM(err, "the places of a grammar", cap * sizeof *stacks);
  p->stacks = stacks;
  heads = df_alloc(cap * sizeof *heads);
  if (!heads) return DF_OOM(err, "the places of a grammar", cap * sizeof *heads);
  memset(heads, 0xFF, cap * sizeof *heads);
  df_free(p->stack_heads);
  p->stack_heads = heads;
  p->stack_buckets = cap;
  p->cap_stacks = cap;
  for (uint32_t i = FIRST_STACK; i < p->n_stacks; i++) link_stack(p, i); /* no entry is free now */
  return DF_OK;
}

static df_status intern_stack(df_places *p, uint32_t state, uint32_t parent, uint32_t *out, df_error *err) {
  uint32_t i = p->stack_heads[mix(pair(state, parent)) & (p->stack_buckets - 1)];
  while (i != DF_GRAMMAR_NONE && (p->stacks[i].state != state || p->stacks[i].parent != parent)) i = p->stacks[i].next;
  if (i == DF_GRAMMAR_NONE) {
    DF_TRY(refuse_more(p, err));
    if (p->free_stack != DF_GRAMMAR_NONE) {
      i = p->free_stack;
      p->free_stack = p->stacks[i].next;
    } else {
      if (p->n_stacks == p->cap_stacks) DF_TRY(more_stacks(p, err));
      i = p->n_stacks++;
    }
    p->stacks[i] = (df_gstack){.state = state, .parent = parent};
    link_stack(p, i);
    p->bytes += sizeof *p->stacks + sizeof *p->stack_heads;
  }
  *out = i;
  return DF_OK;
}

/* ---- closure ------------------------------------------------------------------------------------------- */

static df_status more_visits(df_places *p, df_error *err) {
  uint32_t cap = p->cap_visits ? p->cap_visits * 2 : 64;
  df_gvisit *old = p->visits, *grown = df_calloc(cap, sizeof *grown);
  if (!grown) return DF_OOM(err, "the places of a grammar", cap * sizeof *grown);
  for (uint32_t i = 0; i < p->cap_visits; i++) {
    if (old[i].stamp != p->stamp) continue;
    uint32_t k = (uint32_t)mix(old[i].key) & (cap - 1);
    while (grown[k].stamp == p->stamp) k = (k + 1) & (cap - 1);
    grown[k] = old[i];
  }
  df_free(old);
  p->visits = grown;
  p->cap_visits = cap;
  return DF_OK;
}

/* Enters (state, parent) into the closure unless it was there. */
static df_status enter(df_places *p, uint32_t state, uint32_t parent, df_error *err) {
  uint64_t key = pair(state, parent);
  if (p->n_visits * 2 >= p->cap_visits) DF_TRY(more_visits(p, err));
  uint32_t k = (uint32_t)mix(key) & (p->cap_visits - 1);
  for (; p->visits[k].stamp == p->stamp; k = (k + 1) & (p->cap_visits - 1))
    if (p->visits[k].key == key) return DF_OK;
  if (p->n_visits >= 4 * DF_PLACES_MAX_STACKS)
    return DF_FAIL(err, DF_ERR_LIMIT, "could not follow the grammar: it is too ambiguous here");
  if (++p->work > DF_PLACES_MAX_WORK)
    return DF_FAIL(err, DF_ERR_LIMIT, "could not follow the grammar: it takes too much work here");
  p->visits[k] = (df_gvisit){key, p->stamp};
  p->n_visits++;
  DF_TRY(df_garray_grow(&p->items, &p->cap_items, p->n_items, 1, sizeof *p->items, UINT32_MAX / 2, "items", err));
  p->items[p->n_items++] = (df_gitem){state, parent};
  return DF_OK;
}

static df_status keep(df_places *p, df_gitem it, df_error *err) {
  uint32_t stack;
  DF_TRY(intern_stack(p, it.state, it.parent, &stack, err));
  DF_TRY(
      df_garray_grow(&p->found, &p->cap_found, p->n_found, 1, sizeof *p->found, DF_PLACES_MAX_STACKS, "stacks", err));
  p->found[p->n_found++] = stack;
  return DF_OK;
}

static df_status expand(df_places *p, df_gitem it, df_error *err) {
  const df_gstate *s = &p->pda->states[it.state];
  if (s->n_bytes) DF_TRY(keep(p, it, err));
  if (s->final) {
    if (it.parent == BELOW_ALL) {
      p->may_end = true;
    } else if (it.parent == BELOW_TOP) {
      p->leaves = true;
    } else {
      df_gstack up = p->stacks[it.parent];
      DF_TRY(enter(p, up.state, up.parent, err));
    }
  }
  for (uint32_t k = s->first + s->n_bytes; k < s->first + s->n_edges; k++) {
    const df_gedge *e = &p->pda->edges[k];
    uint32_t parent = it.parent;
    if (e->kind == DF_GEDGE_EMPTY) {
      DF_TRY(enter(p, e->to, it.parent, err));
      continue;
    }
    if (!p->pda->states[e->to].tail) DF_TRY(intern_stack(p, e->to, it.parent, &parent, err));
    DF_TRY(enter(p, p->pda->rules[e->rule].entry, parent, err));
  }
  return DF_OK;
}

static void begin_closure(df_places *p) {
  p->n_items = p->n_visits = p->n_found = 0;
  p->may_end = p->leaves = false;
  if (++p->stamp == 0) {
    memset(p->visits, 0, p->cap_visits * sizeof *p->visits);
    p->stamp = 1;
  }
}

static df_status run_closure(df_places *p, df_error *err) {
  while (p->n_items) DF_TRY(expand(p, p->items[--p->n_items], err));
  return DF_OK;
}

/* ---- places -------------------------------------------------------------------------------------------- */

static int compare_u32(const void *a, const void *b) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

static void sort_found(df_places *p) {
  uint32_t *v = p->found, n = p->n_found;
  if (n > 24) {
    qsort(v, n, sizeof *v, compare_u32);
    return;
  }
  for (uint32_t i = 1; i < n; i++)
    for (uint32_t k = i, x = v[i]; k > 0 && v[k - 1] > x; k--) {
      v[k] = v[k - 1];
      v[k - 1] = x;
    }
}

static void link_place(df_places *p, uint32_t i) {
  uint32_t *head = &p->place_heads[p->places[i]->hash & (p->place_buckets - 1)];
  p->places[i]->next = *head;
  *head = i;
}

static df_status more_places(df_places *p, df_error *err) {
  uint32_t cap = p->cap_places ? p->cap_places * 2 : 64;
  uint32_t *heads;
  df_gplace **places = df_realloc(p->places, cap * sizeof *places);
  if (!places) return DF_OOM(err, "the places of a grammar", cap * sizeof *places);
  p->places = places;
  heads = df_alloc(cap * sizeof *heads);
  if (!heads) return DF_OOM(err, "the places of a grammar", cap * sizeof *heads);
  memset(heads, 0xFF, cap * sizeof *heads);
  df_free(p->place_heads);
  p->place_heads = heads;
  p->place_buckets = cap;
  p->cap_places = cap;
  for (uint32_t i = 1; i < p->n_places; i++)
    if (p->places[i]) link_place(p, i);
  return DF_OK;
}

static size_t place_bytes(const df_places *p, const df_gplace *g) {
  return sizeof *g + g->n * sizeof *g->stacks + (g->to ? p->pda->n_classes * sizeof *g->to : 0) + 32;
}

static bool same_place(const df_places *p, const df_gplace *g, uint64_t hash) {
  return g->hash == hash && g->n == p->n_found && g->may_end == p->may_end && g->leaves == p->leaves &&
         memcmp(g->stacks, p->found, g->n * sizeof *g->stacks) == 0;
}

static uint64_t hash_found(const df_places *p) {
  uint64_t h = p->may_end | (uint64_t)p->leaves << 1;
  for (uint32_t i = 0; i < p->n_found; i++) h = mix(h + p->found[i] + 0x632BE59Bu);
  return h;
}

/* The place of what the closure found. */
static df_status intern_place(df_places *p, uint32_t *out, df_error *err) {
  sort_found(p);
  if (p->n_found == 0 && !p->may_end && !p->leaves) {
    *out = DF_PLACE_DEAD;
    return DF_OK;
  }
  uint64_t hash = hash_found(p);
  uint32_t i = p->place_heads[hash & (p->place_buckets - 1)];
  while (i != DF_GRAMMAR_NONE && !same_place(p, p->places[i], hash)) i = p->places[i]->next;
  if (i == DF_GRAMMAR_NONE) {
    DF_TRY(refuse_more(p, err));
    while (p->free_place < p->n_places && p->places[p->free_place]) p->free_place++;
    if (p->free_place == p->cap_places) DF_TRY(more_places(p, err));
    df_gplace *g = df_alloc(sizeof *g + p->n_found * sizeof *g->stacks);
    if (!g) return DF_OOM(err, "a place of a grammar", sizeof *g);
    *g = (df_gplace){.hash = hash, .n = p->n_found, .may_end = p->may_end, .leaves = p->leaves};
    g->mask = g->top = DF_GRAMMAR_NONE;
    if (g->n) memcpy(g->stacks, p->found, g->n * sizeof *g->stacks);
    i = p->free_place;
    p->n_places = DF_MAX(p->n_places, i + 1);
    p->places[i] = g;
    link_place(p, i);
    p->bytes += place_bytes(p, g);
  }
  *out = i;
  return DF_OK;
}

df_status df_places_step(df_places *p, uint32_t from, uint32_t class_of_byte, uint32_t *to, df_error *err) {
  df_gplace *g = p->places[from];
  uint8_t byte = p->pda->example[class_of_byte];
  if (!g->to) {
    size_t bytes = p->pda->n_classes * sizeof *g->to;
    DF_TRY(refuse_more(p, err));
    g->to = df_alloc(bytes);
    if (!g->to) return DF_OOM(err, "a place of a grammar", bytes);
    memset(g->to, 0xFF, bytes);
    p->bytes += bytes;
  }
  begin_closure(p);
  for (uint32_t i = 0; i < g->n; i++) {
    df_gstack top = p->stacks[g->stacks[i]];
    const df_gstate *s = &p->pda->states[top.state];
    for (uint32_t k = s->first; k < s->first + s->n_bytes; k++) {
      const df_gedge *e = &p->pda->edges[k];
      if (e->lo <= byte && byte <= e->hi) DF_TRY(enter(p, e->to, top.parent, err));
    }
  }
  DF_TRY(run_closure(p, err));
  DF_TRY(intern_place(p, to, err));
  p->places[from]->to[class_of_byte] = *to;
  return DF_OK;
}

df_status df_places_top(df_places *p, uint32_t place, uint32_t *top, df_error *err) {
  df_gplace *g = p->places[place];
  begin_closure(p);
  for (uint32_t i = 0; i < g->n; i++) {
    df_gstack s = p->stacks[g->stacks[i]];
    DF_TRY(enter(p, s.state, s.parent == BELOW_ALL ? BELOW_ALL : BELOW_TOP, err));
  }
  /* These are closed already: what the empty edges of the tops lead to is among them, or below the top. */
  while (p->n_items) DF_TRY(keep(p, p->items[--p->n_items], err));
  return intern_place(p, top, err);
}

df_status df_places_init(df_places *p, const df_pda *pda, const df_tokenizer *t, uint32_t *start, df_error *err) {
  *p = (df_places){.pda = pda, .tokenizer = t, .sweep_at = DF_PLACES_SOFT_BYTES};
  p->free_stack = DF_GRAMMAR_NONE;
  p->words = ((size_t)df_tokenizer_size(t) + 63) / 64;
  DF_TRY(df_token_trie_get(t, &p->trie, err));
  DF_TRY(more_stacks(p, err));
  DF_TRY(more_places(p, err));
  p->n_stacks = FIRST_STACK;
  p->places[DF_PLACE_DEAD] = df_calloc(1, sizeof(df_gplace));
  if (!p->places[DF_PLACE_DEAD]) return DF_OOM(err, "a place of a grammar", sizeof(df_gplace));
  p->places[DF_PLACE_DEAD]->mask = DF_GRAMMAR_NONE;
  p->places[DF_PLACE_DEAD]->top = DF_PLACE_DEAD;
  p->n_places = 1;
  p->n_masks = (uint32_t)DF_MIN(DF_MAX(DF_PLACES_MASK_BYTES / (p->words * 8), (size_t)16), (size_t)1024);
  p->masks = df_calloc(p->n_masks, sizeof *p->masks);
  if (!p->masks) return DF_OOM(err, "the masks of a grammar", p->n_masks * sizeof *p->masks);
  for (uint32_t i = 0; i < p->n_masks; i++) p->masks[i].place = DF_GRAMMAR_NONE;
  begin_closure(p);
  DF_TRY(enter(p, pda->rules[pda->root].entry, BELOW_ALL, err));
  DF_TRY(run_closure(p, err));
  DF_TRY(intern_place(p, start, err));
  p->places[*start]->refs++;
  return DF_OK;
}

/* ---- dropping ------------------------------------------------------------------------------------------ */

static void mark_stacks(df_places *p, const df_gplace *g) {
  for (uint32_t i = 0; i < g->n; i++)
    for (uint32_t k = g->stacks[i]; k >= FIRST_STACK && !p->stacks[k].marked; k = p->stacks[k].parent)
      p->stacks[k].marked = true;
}

static void sweep_places(df_places *p) {
  memset(p->place_heads, 0xFF, p->place_buckets * sizeof *p->place_heads);
  for (uint32_t i = 1; i < p->n_places; i++) {
    df_gplace *g = p->places[i];
    if (!g) continue;
    df_free(g->to);
    g->to = NULL;
    if (g->refs == 0 && g->mask == DF_GRAMMAR_NONE) {
      df_free(g);
      p->places[i] = NULL;
      continue;
    }
    if (g->top != DF_PLACE_DEAD) g->top = DF_GRAMMAR_NONE;
    mark_stacks(p, g);
    link_place(p, i);
    p->bytes += place_bytes(p, g);
  }
  p->free_place = 1;
}

void df_places_sweep(df_places *p) {
  p->work = 0;
  if (p->bytes <= p->sweep_at) return;
  p->bytes = 0;
  sweep_places(p);
  memset(p->stack_heads, 0xFF, p->stack_buckets * sizeof *p->stack_heads);
  p->free_stack = DF_GRAMMAR_NONE;
  for (uint32_t i = FIRST_STACK; i < p->n_stacks; i++) {
    if (p->stacks[i].marked) {
      p->stacks[i].marked = false;
      link_stack(p, i);
      p->bytes += sizeof *p->stacks + sizeof *p->stack_heads;
    } else {
      p->stacks[i].next = p->free_stack;
      p->free_stack = i;
    }
  }
  p->sweep_at = DF_MAX((size_t)DF_PLACES_SOFT_BYTES, p->bytes * 2);
}

void df_places_release(df_places *p) {
  for (uint32_t i = 0; i < p->n_places; i++) {
    if (!p->places[i]) continue;
    df_free(p->places[i]->to);
    df_free(p->places[i]);
  }
  for (uint32_t i = 0; p->masks && i < p->n_masks; i++) {
    df_free(p->masks[i].bits);
    df_free(p->masks[i].nodes);
  }
  df_free(p->masks);
  df_free(p->places);
  df_free(p->place_heads);
  df_free(p->stacks);
  df_free(p->stack_heads);
  df_free(p->items);
  df_free(p->visits);
  df_free(p->found);
  *p = (df_places){0};
}
