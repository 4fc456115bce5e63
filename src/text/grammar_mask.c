/* Walks over the vocabulary: the tokens allowed at a place. */
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/grammar_state.h"

static void set_bit(uint64_t *bits, int32_t id) { bits[id / 64] |= (uint64_t)1 << (id % 64); }

/* Nodes below which the known part of a stack is left; the walk for one place stops at them. */
static df_status put_aside(df_gmask *m, uint32_t node, df_error *err) {
  DF_TRY(df_garray_grow(&m->nodes, &m->cap_nodes, m->n_nodes, 1, sizeof *m->nodes, UINT32_MAX / 2, "nodes", err));
  m->nodes[m->n_nodes++] = node;
  return DF_OK;
}

/* Nodes first..end of the trie, all below the depth for which p->walk is filled. aside: NULL for places that are known
 * to their end. The tables of the places on the way are at hand, so that a known step is one look-up. */
static df_status walk(df_places *p, uint32_t first, uint32_t end, uint64_t *bits, df_gmask *aside, df_error *err) {
  const df_trie_node *nodes = p->trie->nodes;
  const uint8_t *classes = p->pda->classes;
  const uint32_t *tables[DF_TRIE_MAX_DEPTH + 1];
  if (first < end) tables[nodes[first].depth - 1] = p->places[p->walk[nodes[first].depth - 1]]->to;
  for (uint32_t i = first; i < end;) {
    const df_trie_node node = nodes[i];
    const uint32_t *table = tables[node.depth - 1];
    uint32_t class = classes[node.byte], to = table ? table[class] : DF_GRAMMAR_NONE;
    if (to == DF_GRAMMAR_NONE) {
      DF_TRY(df_places_step(p, p->walk[node.depth - 1], class, &to, err));
      tables[node.depth - 1] = p->places[p->walk[node.depth - 1]]->to;
    }
    if (to == DF_PLACE_DEAD) {
      i = node.skip;
      continue;
    }
    if (node.token >= 0) {
      set_bit(bits, node.token);
      for (int32_t id = p->trie->same[node.token]; id >= 0; id = p->trie->same[id]) set_bit(bits, id);
    }
    if (aside && p->places[to]->leaves) {
      if (node.skip > i + 1) DF_TRY(put_aside(aside, i, err));
      i = node.skip;
      continue;
    }
    i++;
    if (node.skip == i) continue; /* nothing below */
    p->walk[node.depth] = to;
    tables[node.depth] = p->places[to]->to;
  }
  return DF_OK;
}

/* The bytes from the root to a node, which the place allows. */
static df_status walk_to(df_places *p, uint32_t place, uint32_t node, df_error *err) {
  const df_token_trie *t = p->trie;
  uint32_t path[DF_TRIE_MAX_DEPTH], n = t->nodes[node].depth;
  for (uint32_t i = node, k = n; k > 0; i = t->parent[i]) path[--k] = i;
  p->walk[0] = place;
  for (uint32_t k = 0; k < n; k++)
    DF_TRY(df_places_go(p, p->walk[k], p->pda->classes[t->nodes[path[k]].byte], &p->walk[k + 1], err));
  return DF_OK;
}

static void drop_mask(df_places *p, df_gmask *m) {
  if (m->place != DF_GRAMMAR_NONE) p->places[m->place]->mask = DF_GRAMMAR_NONE;
  m->place = DF_GRAMMAR_NONE;
  m->n_nodes = 0;
}

/* The oldest slot, but not the one of `but`. It belongs to nobody until `own`. */
static df_status take_slot(df_places *p, uint32_t but, uint32_t *slot, df_error *err) {
  if (p->masks[p->next_mask].place == but && but != DF_GRAMMAR_NONE) p->next_mask = (p->next_mask + 1) % p->n_masks;
  *slot = p->next_mask;
  df_gmask *m = &p->masks[*slot];
  drop_mask(p, m);
  if (!m->bits) m->bits = df_alloc(p->words * sizeof *m->bits);
  if (!m->bits) return DF_OOM(err, "the masks of a grammar", p->words * sizeof *m->bits);
  return DF_OK;
}

static void own(df_places *p, uint32_t slot, uint32_t place) {
  p->masks[slot].place = place;
  p->places[place]->mask = slot;
  p->next_mask = (slot + 1) % p->n_masks;
}

/* The mask of tops alone, with the nodes where they are left. */
static df_status make_top_mask(df_places *p, uint32_t top, df_error *err) {
  uint32_t slot;
  size_t aside = 0;
  if (p->places[top]->mask != DF_GRAMMAR_NONE) return DF_OK;
  DF_TRY(take_slot(p, DF_GRAMMAR_NONE, &slot, err));
  df_gmask *m = &p->masks[slot];
  memset(m->bits, 0, p->words * sizeof *m->bits);
  p->walk[0] = top;
  DF_TRY(walk(p, 0, p->trie->n, m->bits, m, err));
  for (uint32_t i = 0; i < m->n_nodes; i++) aside += p->trie->nodes[m->nodes[i]].skip - m->nodes[i];
  if (aside > p->trie->n / 4) { /* it leaves nearly everything open: walk places with this top at once */
    p->places[top]->top = DF_PLACE_DEAD;
    m->n_nodes = 0;
    return DF_OK;
  }
  own(p, slot, top);
  return DF_OK;
}

static df_status fill_from_top(df_places *p, uint32_t place, uint32_t top, uint64_t *bits, df_error *err) {
  const df_gmask *known = &p->masks[p->places[top]->mask];
  memcpy(bits, known->bits, p->words * sizeof *bits);
  for (uint32_t i = 0; i < known->n_nodes; i++) {
    uint32_t node = known->nodes[i];
    DF_TRY(walk_to(p, place, node, err));
    DF_TRY(walk(p, node + 1, p->trie->nodes[node].skip, bits, NULL, err));
  }
  return DF_OK;
}

/* Finds or makes the mask of the place's tops. *top = DEAD when that does not help. */
static df_status prepare_top(df_places *p, uint32_t place, uint32_t *top, df_error *err) {
  if (p->places[place]->top == DF_GRAMMAR_NONE) {
    uint32_t made;
    DF_TRY(df_places_top(p, place, &made, err));
    p->places[place]->top = made == place ? DF_PLACE_DEAD : made;
  }
  *top = p->places[place]->top;
  if (*top == DF_PLACE_DEAD) return DF_OK;
  if (p->places[*top]->top != DF_PLACE_DEAD) DF_TRY(make_top_mask(p, *top, err));
  if (p->places[*top]->top == DF_PLACE_DEAD) *top = DF_PLACE_DEAD;
  return DF_OK;
}

df_status df_places_mask(df_places *p, uint32_t place, const uint64_t **bits, df_error *err) {
  uint32_t top, slot;
  if (p->places[place]->mask != DF_GRAMMAR_NONE) {
    *bits = p->masks[p->places[place]->mask].bits;
    return DF_OK;
  }
  DF_TRY(prepare_top(p, place, &top, err));
  DF_TRY(take_slot(p, top == DF_PLACE_DEAD ? DF_GRAMMAR_NONE : top, &slot, err));
  df_gmask *m = &p->masks[slot];
  if (top != DF_PLACE_DEAD) {
    DF_TRY(fill_from_top(p, place, top, m->bits, err));
  } else {
    memset(m->bits, 0, p->words * sizeof *m->bits);
    p->walk[0] = place;
    DF_TRY(walk(p, 0, p->trie->n, m->bits, NULL, err));
  }
  if (p->places[place]->may_end) {
    size_t n;
    const int32_t *ids = df_tokenizer_eog_ids(p->tokenizer, &n);
    for (size_t i = 0; i < n; i++) set_bit(m->bits, ids[i]);
  }
  own(p, slot, place);
  *bits = m->bits;
  return DF_OK;
}
