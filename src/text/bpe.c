#include "text/bpe.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

/* Up to this many bytes the quadratic scan is faster than the heap; nearly all pieces are shorter. */
enum { SHORT_PIECE = 48 };

#define NO_RANK UINT32_MAX
#define FREE_SLOT UINT64_MAX

struct df_bpe_symbol {
  int32_t id; /* -1 once merged into its left neighbour */
  int32_t prev, next;
};

struct df_bpe_entry {
  uint32_t rank;
  uint32_t at; /* index of the left symbol */
};

void df_ids_release(df_ids *ids) {
  df_free(ids->v);
  *ids = (df_ids){0};
}

df_status df_ids_reserve(df_ids *ids, size_t extra, df_error *err) {
  size_t need, bytes;
  if (!df_add_size(ids->n, extra, &need)) return DF_OOM(err, "token ids", SIZE_MAX);
  if (need <= ids->cap) return DF_OK;
  size_t cap = ids->cap ? ids->cap : 32;
  while (cap < need) cap = cap > SIZE_MAX / 2 ? need : cap * 2;
  if (!df_mul_size(cap, sizeof *ids->v, &bytes)) return DF_OOM(err, "token ids", SIZE_MAX);
  int32_t *v = df_realloc(ids->v, bytes);
  if (!v) return DF_OOM(err, "token ids", bytes);
  ids->v = v;
  ids->cap = cap;
  return DF_OK;
}

df_status df_ids_push(df_ids *ids, int32_t id, df_error *err) {
  if (ids->n == ids->cap) DF_TRY(df_ids_reserve(ids, 1, err));
  ids->v[ids->n++] = id;
  return DF_OK;
}

df_status df_bpe_init(df_bpe *b, size_t n_merges, df_error *err) {
  size_t cap = 16, bytes;
  while (cap / 2 < n_merges && cap <= SIZE_MAX / 4) cap *= 2;
  if (cap / 2 < n_merges || !df_mul_size(cap, sizeof *b->slots, &bytes)) return DF_OOM(err, "merges", SIZE_MAX);
  df_bpe_slot *slots = df_alloc(bytes);
  if (!slots) return DF_OOM(err, "merges", bytes);
  *b = (df_bpe){.slots = slots, .mask = cap - 1};
  for (size_t i = 0; i < cap; i++) slots[i].pair = FREE_SLOT;
  for (int i = 0; i < 256; i++) b->byte_id[i] = -1;
  return DF_OK;
}

void df_bpe_release(df_bpe *b) {
  df_free(b->slots);
  *b = (df_bpe){0};
}

static uint64_t pair_key(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

static df_bpe_slot *find_slot(const df_bpe *b, uint64_t key) {
  uint64_t h = key * 0x9E3779B97F4A7C15u;
  size_t i = (size_t)(h ^ h >> 32) & b->mask;
  while (b->slots[i].pair != FREE_SLOT && b->slots[i].pair != key) i = (i + 1) & b->mask;
  return &b->slots[i];
}

void df_bpe_add(df_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t made) {
  assert(left >= 0 && right >= 0 && made >= 0 && b->count <= b->mask / 2);
  df_bpe_slot *s = find_slot(b, pair_key(left, right));
  if (s->pair != FREE_SLOT) return;
  *s = (df_bpe_slot){.pair = pair_key(left, right), .rank = rank, .made = made};
  b->count++;
}

static uint32_t rank_of(const df_bpe *b, int32_t left, int32_t right, int32_t *made) {
  const df_bpe_slot *s = find_slot(b, pair_key(left, right));
  if (s->pair == FREE_SLOT) return NO_RANK;
  *made = s->made;
  return s->rank;
}

/* Plain form of the definition, on arrays: rank[i] and made[i] belong to the pair (id[i], id[i + 1]). */
static df_status encode_short(const df_bpe *b, const char *piece, size_t n, df_ids *out, df_error *err) {
  int32_t id[SHORT_PIECE], made[SHORT_PIECE];
  uint32_t rank[SHORT_PIECE];
  size_t m = 0;
  for (size_t i = 0; i < n; i++) {
    int32_t t = b->byte_id[(uint8_t)piece[i]];
    if (t >= 0) id[m++] = t;
  }
  for (size_t i = 0; i + 1 < m; i++) rank[i] = rank_of(b, id[i], id[i + 1], &made[i]);
  while (m > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < m; i++)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == NO_RANK) break;
    id[best] = made[best];
    m--;
    memmove(id + best + 1, id + best + 2, (m - best - 1) * sizeof *id);
    memmove(rank + best, rank + best + 1, (m - best - 1) * sizeof *rank);
    memmove(made + best, made + best + 1, (m - best - 1) * sizeof *made);
    if (best + 1 < m) rank[best] = rank_of(b, id[best], id[best + 1], &made[best]);
    if (best > 0) rank[best - 1] = rank_of(b, id[best - 1], id[best], &made[best - 1]);
  }
  DF_TRY(df_ids_reserve(out, m, err));
  if (m) memcpy(out->v + out->n, id, m * sizeof *id);
  out->n += m;
  return DF_OK;
}

static bool entry_less(struct df_bpe_entry a, struct df_bpe_entry b) {
  return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void heap_push(struct df_bpe_entry *heap, size_t *count, struct df_bpe_entry e) {
  size_t i = (*count)++;
  while (i > 0 && entry_less(e, heap[(i - 1) / 2])) {
    heap[i] = heap[(i - 1) / 2];
    i = (i - 1) / 2;
  }
  heap[i] = e;
}

static struct df_bpe_entry heap_pop(struct df_bpe_entry *heap, size_t *count) {
  struct df_bpe_entry top = heap[0], last = heap[--*count];
  size_t n = *count, i = 0;
  for (size_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && entry_less(heap[child + 1], heap[child])) child++;
    if (!entry_less(heap[child], last)) break;
    heap[i] = heap[child];
  }
  heap[i] = last;
  return top;
}

static df_status scratch_reserve(df_bpe_scratch *s, size_t n, df_error *err) {
  if (n > s->symbols_cap) {
    struct df_bpe_symbol *p = df_realloc(s->symbols, n * sizeof *p);
    if (!p) return DF_OOM(err, "a long piece of text", n * sizeof *p);
    s->symbols = p;
    s->symbols_cap = n;
  }
  /* n - 1 pairs at first; every merge removes one entry and adds at most two. */
  if (2 * n > s->heap_cap) {
    struct df_bpe_entry *p = df_realloc(s->heap, 2 * n * sizeof *p);
    if (!p) return DF_OOM(err, "a long piece of text", 2 * n * sizeof *p);
    s->heap = p;
    s->heap_cap = 2 * n;
  }
  return DF_OK;
}

void df_bpe_scratch_release(df_bpe_scratch *s) {
  df_free(s->symbols);
  df_free(s->heap);
  *s = (df_bpe_scratch){0};
}

static void push_pair(const df_bpe *b, df_bpe_scratch *s, size_t *count, int32_t at) {
  const struct df_bpe_symbol *sym = s->symbols;
  int32_t made, next = at < 0 ? -1 : sym[at].next;
  if (next < 0) return;
  uint32_t rank = rank_of(b, sym[at].id, sym[next].id, &made);
  if (rank != NO_RANK) heap_push(s->heap, count, (struct df_bpe_entry){.rank = rank, .at = (uint32_t)at});
}

/* Linked list of symbols and a heap of candidate pairs. Entries are not removed when a neighbour changes: an entry
 * counts only if the pair now at its place still has its rank. */
static df_status encode_long(const df_bpe *b, const char *piece, size_t n, df_bpe_scratch *s, df_ids *out,
                             df_error *err) {
  DF_TRY(scratch_reserve(s, n, err));
  struct df_bpe_symbol *sym = s->symbols;
  int32_t m = 0;
  for (size_t i = 0; i < n; i++) {
    int32_t t = b->byte_id[(uint8_t)piece[i]];
    if (t < 0) continue;
    sym[m] = (struct df_bpe_symbol){.id = t, .prev = m - 1, .next = m + 1};
    m++;
  }
  if (m == 0) return DF_OK;
  sym[m - 1].next = -1;
  size_t count = 0;
  for (int32_t i = 0; i + 1 < m; i++) push_pair(b, s, &count, i);
  while (count > 0) {
    struct df_bpe_entry e = heap_pop(s->heap, &count);
    struct df_bpe_symbol *left = &sym[e.at];
    int32_t made = 0;
    if (left->id < 0 || left->next < 0 || rank_of(b, left->id, sym[left->next].id, &made) != e.rank) continue;
    struct df_bpe_symbol *right = &sym[left->next];
    left->id = made;
    left->next = right->next;
    right->id = -1;
    if (left->next >= 0) sym[left->next].prev = (int32_t)e.at;
    push_pair(b, s, &count, (int32_t)e.at);
    push_pair(b, s, &count, left->prev);
  }
  for (int32_t i = 0; i >= 0; i = sym[i].next) DF_TRY(df_ids_push(out, sym[i].id, err));
  return DF_OK;
}

df_status df_bpe_encode(const df_bpe *b, const char *piece, size_t n, df_bpe_scratch *scratch, df_ids *out,
                        df_error *err) {
  if (n <= SHORT_PIECE) return encode_short(b, piece, n, out, err);
  if (n > INT32_MAX / 2)
    return DF_FAIL(err, DF_ERR_LIMIT, "could not tokenise a word of %zu bytes: the limit is %d", n, INT32_MAX / 2);
  return encode_long(b, piece, n, scratch, out, err);
}
