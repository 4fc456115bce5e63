/*
 * text/grammar_state.h - places in a grammar's texts, and the tokens allowed there. For the files grammar*.c only.
 *
 * A place is a set of stacks of automaton states, kept in one canonical form, so that equal places have one number.
 * Stacks are linked lists with shared ends. Where a byte leads is worked out once for each place and class of bytes:
 * the automaton turns into a deterministic one as it is used, and a walk over the vocabulary costs one look-up a node.
 *
 * Masks: what a token may do within the rule on top of a stack does not depend on what lies below. So a mask is first
 * made for the top alone, with the nodes of the trie below which the rule is left on the side; for a place with the
 * same top only these are walked. The inside of a JSON string has the same top everywhere.
 *
 * Memory: places that no matcher holds are dropped when there are too many.
 * Ownership: df_places_release. Threads: one at a time (the grammar's lock).
 */
#ifndef DF_TEXT_GRAMMAR_STATE_H
#define DF_TEXT_GRAMMAR_STATE_H

#include "text/grammar_pda.h"
#include "text/grammar_vocab.h"

enum {
  DF_PLACE_DEAD = 0,               /* no text goes on here */
  DF_PLACES_MAX_STACKS = 1 << 14,  /* of one place: grammars that are too ambiguous end here */
  DF_PLACES_SOFT_BYTES = 24 << 20, /* more than this is swept, */
  DF_PLACES_MAX_WORK = 1 << 21,    /* closure entries of one mask or token: a fraction of a second */
  DF_PLACES_HARD_BYTES = 96 << 20, /* and so much more is refused */
  DF_PLACES_MASK_BYTES = 12 << 20  /* masks kept */
};

typedef struct df_gstack { /* one entry, shared by all stacks that end in it */
  uint32_t state, parent;  /* parent: BELOW_ALL, BELOW_TOP or another entry */
  uint32_t next;           /* in its bucket, or in the free list */
  bool marked;
} df_gstack;

typedef struct df_gplace {
  uint64_t hash;
  uint32_t next; /* in its bucket */
  uint32_t refs; /* from matchers */
  uint32_t n;    /* stacks, all of whose top states have BYTE edges */
  uint32_t mask; /* slot, or NONE */
  uint32_t top;  /* the place of the tops alone; NONE = not made yet, DEAD = of no use */
  bool may_end;
  bool leaves;  /* some stack came to its unknown end */
  uint32_t *to; /* [classes] places; NONE = not known yet; or NULL */
  uint32_t stacks[];
} df_gplace;

typedef struct df_gmask {
  uint32_t place; /* NONE = free */
  uint64_t *bits;
  uint32_t *nodes; /* of the trie: below these the unknown end is left */
  uint32_t n_nodes, cap_nodes;
} df_gmask;

typedef struct df_gitem {
  uint32_t state, parent;
} df_gitem;

typedef struct df_gvisit {
  uint64_t key;
  uint32_t stamp;
} df_gvisit;

typedef struct df_places {
  const df_pda *pda;
  const df_token_trie *trie;
  const df_tokenizer *tokenizer;
  size_t words; /* of a mask */
  df_gstack *stacks;
  uint32_t n_stacks, cap_stacks, free_stack;
  uint32_t *stack_heads, stack_buckets; /* buckets: a power of two */
  df_gplace **places;
  uint32_t n_places, cap_places, free_place; /* numbers below free_place are taken */
  uint32_t *place_heads, place_buckets;
  size_t bytes, sweep_at;
  df_gmask *masks;
  uint32_t n_masks, next_mask;
  /* scratch */
  df_gitem *items;
  uint32_t n_items, cap_items;
  df_gvisit *visits;
  uint32_t n_visits, cap_visits, stamp;
  uint32_t *found;
  uint32_t n_found, cap_found;
  uint32_t walk[DF_TRIE_MAX_DEPTH + 1];
  bool may_end, leaves;
  uint32_t work; /* closure entries since the caller's operation began */
} df_places;

/* pda and tokenizer are borrowed. *start gets one reference. Release *p in any case. */
df_status df_places_init(df_places *p, const df_pda *pda, const df_tokenizer *t, uint32_t *start,
                         df_error *err) DF_CHECK;
void df_places_release(df_places *p);

/* Where a byte class leads; may be DEAD. DF_ERR_LIMIT, DF_ERR_MEMORY: nothing has changed. */
df_status df_places_step(df_places *p, uint32_t from, uint32_t class_of_byte, uint32_t *to, df_error *err) DF_CHECK;
/* The place of the tops of a place's stacks alone. */
df_status df_places_top(df_places *p, uint32_t place, uint32_t *top, df_error *err) DF_CHECK;
/* Before every operation: drops what nobody holds when there is too much, and counts work anew. Not while places
 * without references are in use. */
void df_places_sweep(df_places *p);
/* Words of the tokens allowed at a place; valid until the next call of anything here. */
df_status df_places_mask(df_places *p, uint32_t place, const uint64_t **bits, df_error *err) DF_CHECK;

static inline df_gplace *df_places_at(const df_places *p, uint32_t place) { return p->places[place]; }

/* The same with a look at what is known already. */
static inline df_status df_places_go(df_places *p, uint32_t from, uint32_t class_of_byte, uint32_t *to, df_error *err) {
  const uint32_t *known = p->places[from]->to;
  if (known && known[class_of_byte] != DF_GRAMMAR_NONE) {
    *to = known[class_of_byte];
    return DF_OK;
  }
  return df_places_step(p, from, class_of_byte, to, err);
}

#endif
