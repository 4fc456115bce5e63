#include "text/grammar_vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "text/tokenizer_parts.h"

typedef struct word {
  df_slice s;
  int32_t id;
} word;

static int compare_words(const void *a, const void *b) {
  const word *x = a, *y = b;
  int c = memcmp(x->s.p, y->s.p, DF_MIN(x->s.n, y->s.n));
  if (c) return c;
  if (x->s.n != y->s.n) return x->s.n < y->s.n ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

static bool is_text(const df_tokenizer *t, int32_t id) {
  df_token_type type = df_tokenizer_type(t, id);
  return (type == DF_TOKEN_NORMAL || type == DF_TOKEN_USER || type == DF_TOKEN_BYTE) && !df_tokenizer_is_eog(t, id);
}

static size_t collect(const df_tokenizer *t, word *words) {
  size_t n = 0;
  for (uint32_t id = 0; id < df_tokenizer_size(t); id++) {
    word *w = &words[n];
    w->id = (int32_t)id;
    if (is_text(t, w->id) && df_tokenizer_piece(t, w->id, &w->s.p, &w->s.n) && w->s.n && w->s.n <= DF_TRIE_MAX_DEPTH)
      n++;
  }
  qsort(words, n, sizeof *words, compare_words);
  return n;
}

static size_t common(df_slice a, df_slice b) {
  size_t n = 0, max = DF_MIN(a.n, b.n);
  while (n < max && a.p[n] == b.p[n]) n++;
  return n;
}

static df_status trie_alloc(df_token_trie *trie, size_t n, uint32_t vocab, df_error *err) {
  trie->nodes = df_calloc(n + 1, sizeof *trie->nodes);
  trie->parent = df_calloc(n + 1, sizeof *trie->parent);
  trie->same = df_calloc(vocab, sizeof *trie->same);
  if (!trie->nodes || !trie->parent || !trie->same)
    return DF_OOM(err, "the trie of the vocabulary", n * sizeof *trie->nodes);
  return DF_OK;
}

/* Words come sorted: each adds nodes behind what it shares with the one before. */
static void fill(df_token_trie *trie, const word *words, size_t n_words) {
  uint32_t path[DF_TRIE_MAX_DEPTH];
  size_t open = 0; /* nodes of path[] whose subtree is not closed */
  for (size_t w = 0; w < n_words; w++) {
    df_slice s = words[w].s;
    size_t shared = w ? common(words[w - 1].s, s) : 0;
    trie->same[words[w].id] = -1;
    if (s.n == 1) trie->spelled[(uint8_t)s.p[0]] = true;
    while (open > shared) trie->nodes[path[--open]].skip = trie->n;
    for (; open < s.n; open++) {
      uint32_t i = trie->n++;
      trie->nodes[i] = (df_trie_node){.token = -1, .depth = (uint16_t)(open + 1), .byte = (uint8_t)s.p[open]};
      trie->parent[i] = open ? path[open - 1] : UINT32_MAX;
      path[open] = i;
    }
    uint32_t last = path[open - 1];
    trie->same[words[w].id] = trie->nodes[last].token;
    trie->nodes[last].token = words[w].id;
  }
  while (open > 0) trie->nodes[path[--open]].skip = trie->n;
}

static df_status build(const df_tokenizer *t, df_token_trie **out, df_error *err) {
  uint32_t vocab = df_tokenizer_size(t);
  df_status s = DF_OK;
  size_t n_words, nodes = 0;
  df_token_trie *trie = df_calloc(1, sizeof *trie);
  word *words = df_calloc(vocab, sizeof *words);
  if (!trie || !words) {
    s = DF_OOM(err, "the trie of the vocabulary", vocab * sizeof *words);
    goto done;
  }
  n_words = collect(t, words);
  for (size_t w = 0; w < n_words; w++) nodes += words[w].s.n - (w ? common(words[w - 1].s, words[w].s) : 0);
  DF_TRY_GOTO(s, trie_alloc(trie, nodes, vocab, err), done);
  fill(trie, words, n_words);
  *out = trie;
  trie = NULL;
done:
  df_token_trie_free(trie);
  df_free(words);
  return s;
}

/* Threads that come at the same time all build; one wins. */
df_status df_token_trie_get(const df_tokenizer *t, const df_token_trie **out, df_error *err) {
  df_tokenizer *owner = (df_tokenizer *)(uintptr_t)t; /* what tokens mean stays constant: the trie is made of them */
  df_token_trie *have = atomic_load_explicit(&owner->trie, memory_order_acquire);
  if (!have) {
    df_token_trie *made = NULL;
    DF_TRY(build(t, &made, err));
    if (atomic_compare_exchange_strong(&owner->trie, &have, made))
      have = made;
    else
      df_token_trie_free(made);
  }
  *out = have;
  return DF_OK;
}

void df_token_trie_free(df_token_trie *trie) {
  if (!trie) return;
  df_free(trie->nodes);
  df_free(trie->parent);
  df_free(trie->same);
  df_free(trie);
}
