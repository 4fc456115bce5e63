#include "text/grammar.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/grammar_state.h"

/* Place of a matcher whose text has ended. */
#define ENDED (UINT32_MAX - 1)

struct df_grammar {
  _Atomic uint32_t refs;
  pthread_mutex_t lock; /* over places */
  const df_tokenizer *tokenizer;
  df_pda pda;
  df_places places;
  uint32_t start;
};

struct df_matcher {
  df_grammar *g;
  uint32_t *trail; /* [n + 1] places behind 0..n tokens, each with one reference */
  uint32_t n, cap;
  uint64_t *mask;
};

static void grammar_free(df_grammar *g) {
  df_places_release(&g->places);
  df_pda_release(&g->pda);
  pthread_mutex_destroy(&g->lock);
  df_free(g);
}

df_status df_grammar_from_gbnf(const df_tokenizer *t, const char *text, size_t n, df_grammar **out, df_error *err) {
  df_gast ast;
  const df_token_trie *trie;
  df_grammar *g = NULL;
  df_status s = df_gast_parse(text, n, &ast, err);
  if (s != DF_OK) goto done;
  DF_TRY_GOTO(s, df_token_trie_get(t, &trie, err), done);
  g = df_calloc(1, sizeof *g);
  if (!g) {
    s = DF_OOM(err, "a grammar", sizeof *g);
    goto done;
  }
  if (pthread_mutex_init(&g->lock, NULL) != 0) {
    df_free(g);
    g = NULL;
    s = DF_FAIL(err, DF_ERR_MEMORY, "could not make a lock");
    goto done;
  }
  atomic_init(&g->refs, 1);
  g->tokenizer = t;
  DF_TRY_GOTO(s, df_pda_compile(&ast, trie->spelled, &g->pda, err), done);
  DF_TRY_GOTO(s, df_places_init(&g->places, &g->pda, t, &g->start, err), done);
  *out = g;
  g = NULL;
done:
  if (g) grammar_free(g);
  df_gast_release(&ast);
  return s;
}

df_grammar *df_grammar_retain(df_grammar *g) {
  if (g) atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
  return g;
}

void df_grammar_release(df_grammar *g) {
  if (g && atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) == 1) grammar_free(g);
}

/* ---- matchers ------------------------------------------------------------------------------------------ */

df_status df_matcher_create(df_grammar *g, df_matcher **out, df_error *err) {
  enum { FIRST_TRAIL = 64 };
  df_matcher *m = df_calloc(1, sizeof *m);
  uint32_t *trail = df_alloc(FIRST_TRAIL * sizeof *trail);
  uint64_t *mask = df_calloc(g->places.words, sizeof *mask);
  if (!m || !trail || !mask) {
    df_free(m);
    df_free(trail);
    df_free(mask);
    return DF_OOM(err, "a matcher", g->places.words * sizeof *mask);
  }
  *m = (df_matcher){.g = df_grammar_retain(g), .trail = trail, .cap = FIRST_TRAIL, .mask = mask};
  trail[0] = g->start;
  pthread_mutex_lock(&g->lock);
  df_places_at(&g->places, g->start)->refs++;
  pthread_mutex_unlock(&g->lock);
  *out = m;
  return DF_OK;
}

static void drop_last(df_matcher *m, uint32_t n) {
  pthread_mutex_lock(&m->g->lock);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t place = m->trail[m->n - i];
    if (place != ENDED) df_places_at(&m->g->places, place)->refs--;
  }
  pthread_mutex_unlock(&m->g->lock);
}

void df_matcher_free(df_matcher *m) {
  if (!m) return;
  drop_last(m, m->n + 1);
  df_grammar_release(m->g);
  df_free(m->trail);
  df_free(m->mask);
  df_free(m);
}

df_status df_matcher_mask(df_matcher *m, const uint64_t **mask, df_error *err) {
  df_grammar *g = m->g;
  uint32_t place = m->trail[m->n];
  const uint64_t *bits = NULL;
  df_status s = DF_OK;
  if (place == ENDED) {
    memset(m->mask, 0, g->places.words * sizeof *m->mask);
    *mask = m->mask;
    return DF_OK;
  }
  pthread_mutex_lock(&g->lock);
  df_places_sweep(&g->places);
  s = df_places_mask(&g->places, place, &bits, err);
  if (s == DF_OK) memcpy(m->mask, bits, g->places.words * sizeof *bits);
  pthread_mutex_unlock(&g->lock);
  if (s == DF_OK) *mask = m->mask;
  return s;
}

/* Where a token leads; DEAD when it is not allowed. */
static df_status follow(df_grammar *g, uint32_t place, int32_t id, uint32_t *to, df_error *err) {
  const char *bytes;
  size_t n;
  df_token_type type = df_tokenizer_type(g->tokenizer, id);
  *to = DF_PLACE_DEAD;
  if (df_tokenizer_is_eog(g->tokenizer, id)) {
    if (df_places_at(&g->places, place)->may_end) *to = ENDED;
    return DF_OK;
  }
  if (type != DF_TOKEN_NORMAL && type != DF_TOKEN_USER && type != DF_TOKEN_BYTE) return DF_OK;
  if (!df_tokenizer_piece(g->tokenizer, id, &bytes, &n) || n == 0 || n > DF_TRIE_MAX_DEPTH) return DF_OK;
  for (size_t i = 0; i < n && place != DF_PLACE_DEAD; i++)
    DF_TRY(df_places_go(&g->places, place, g->pda.classes[(uint8_t)bytes[i]], &place, err));
  *to = place;
  return DF_OK;
}

df_status df_matcher_accept(df_matcher *m, int32_t id, bool *accepted, df_error *err) {
  df_grammar *g = m->g;
  uint32_t to = DF_PLACE_DEAD;
  df_status s = DF_OK;
  if (m->trail[m->n] == ENDED) {
    *accepted = false;
    return DF_OK;
  }
  DF_TRY(df_garray_grow(&m->trail, &m->cap, m->n + 1, 1, sizeof *m->trail, UINT32_MAX / 2, "tokens", err));
  pthread_mutex_lock(&g->lock);
  df_places_sweep(&g->places);
  s = follow(g, m->trail[m->n], id, &to, err);
  if (s == DF_OK && to != DF_PLACE_DEAD && to != ENDED) df_places_at(&g->places, to)->refs++;
  pthread_mutex_unlock(&g->lock);
  if (s != DF_OK) return s;
  *accepted = to != DF_PLACE_DEAD;
  if (*accepted) m->trail[++m->n] = to;
  return DF_OK;
}

void df_matcher_rollback(df_matcher *m, uint32_t n) {
  n = DF_MIN(n, m->n);
  drop_last(m, n);
  m->n -= n;
}

uint32_t df_matcher_length(const df_matcher *m) { return m->n; }

/* may: the text may end; more: something other than the end may come. */
static void look(const df_matcher *m, bool *may, bool *more) {
  uint32_t place = m->trail[m->n];
  *may = true;
  *more = false;
  if (place == ENDED) return;
  pthread_mutex_lock(&m->g->lock);
  const df_gplace *p = df_places_at(&m->g->places, place);
  *may = p->may_end;
  *more = p->n > 0;
  pthread_mutex_unlock(&m->g->lock);
}

bool df_matcher_may_end(const df_matcher *m) {
  bool may, more;
  look(m, &may, &more);
  return may;
}

bool df_matcher_must_end(const df_matcher *m) {
  bool may, more;
  look(m, &may, &more);
  return may && !more;
}
