/* text/jinja_value.c - arena, strings, lists and maps of the template engine. */
#include "text/jinja_value.h"

#include <math.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/size.h"

enum { BLOCK_MIN = 16 << 10, BLOCK_MAX = 1 << 20, ALIGN = 16, MAP_SMALL = 8, KEY_PARTS = 64 };

#define BLOCK_HEAD df_round_up(sizeof(df_jblock), ALIGN)

void df_jarena_init(df_jarena *a, size_t max) { *a = (df_jarena){.max = max}; }

void df_jarena_release(df_jarena *a) {
  df_jblock *b = a->head;
  while (b) {
    df_jblock *next = b->next;
    df_free(b);
    b = next;
  }
  a->head = NULL;
  a->total = 0;
}

static df_status add_block(df_jarena *a, size_t bytes, df_error *err) {
  size_t cap = a->head ? DF_MIN(a->head->cap * 2, (size_t)BLOCK_MAX) : (size_t)BLOCK_MIN;
  if (cap < bytes) cap = bytes;
  if (cap > a->max || a->total > a->max - cap) cap = bytes;
  if (cap > a->max || a->total > a->max - cap)
    return DF_FAIL(err, DF_ERR_LIMIT, "needs more than %zu bytes of memory", a->max);
  df_jblock *b = df_alloc(BLOCK_HEAD + cap);
  if (!b) return DF_OOM(err, "a template's values", BLOCK_HEAD + cap);
  *b = (df_jblock){.next = a->head, .cap = cap};
  a->head = b;
  a->total += cap;
  return DF_OK;
}

df_status df_jarena_get(df_jarena *a, size_t bytes, void *out, df_error *err) {
  if (bytes > a->max) return DF_FAIL(err, DF_ERR_LIMIT, "needs more than %zu bytes of memory", a->max);
  bytes = df_round_up(bytes ? bytes : 1, ALIGN);
  if (!a->head || a->head->cap - a->head->used < bytes) DF_TRY(add_block(a, bytes, err));
  void *p = (char *)a->head + BLOCK_HEAD + a->head->used;
  a->head->used += bytes;
  memcpy(out, &p, sizeof p);
  return DF_OK;
}

df_status df_jarena_grow(df_jarena *a, void *p, size_t used, size_t old_cap, size_t cap, df_error *err) {
  void *old;
  memcpy(&old, p, sizeof old);
  size_t was = df_round_up(old_cap ? old_cap : 1, ALIGN);
  df_jblock *b = a->head;
  if (old && b && cap <= a->max && b->used >= was && (char *)old == (char *)b + BLOCK_HEAD + b->used - was) {
    size_t now = df_round_up(cap, ALIGN);
    if (now - was <= b->cap - b->used) {
      b->used += now - was;
      return DF_OK;
    }
  }
  void *n;
  DF_TRY(df_jarena_get(a, cap, &n, err));
  if (used) memcpy(n, old, used);
  memcpy(p, &n, sizeof n);
  return DF_OK;
}

static size_t count_cp(const char *p, size_t n) {
  size_t c = 0;
  for (size_t i = 0; i < n; i++) c += ((unsigned char)p[i] & 0xC0) != 0x80;
  return c;
}

static df_status str_room(df_jarena *a, size_t n, df_jstr **out, df_error *err) {
  if (n > UINT32_MAX / 2 || n > a->max)
    return DF_FAIL(err, DF_ERR_LIMIT, "needs more than %zu bytes of memory", a->max);
  return df_jarena_get(a, sizeof(df_jstr) + n + 1, out, err);
}

df_status df_jstr_new(df_jarena *a, const char *p, size_t n, const df_jstr **out, df_error *err) {
  df_jstr *s;
  DF_TRY(str_room(a, n, &s, err));
  s->len = (uint32_t)n;
  s->ncp = (uint32_t)count_cp(p, n);
  s->hash = 0;
  if (n) memcpy(s->data, p, n);
  s->data[n] = '\0';
  *out = s;
  return DF_OK;
}

bool df_jstr_eq(const df_jstr *a, const df_jstr *b) {
  return a == b || (a->len == b->len && memcmp(a->data, b->data, a->len) == 0);
}

bool df_jstr_is(const df_jstr *a, const char *s) {
  size_t n = strlen(s);
  return a->len == n && memcmp(a->data, s, n) == 0;
}

int df_jstr_cmp(const df_jstr *a, const df_jstr *b) {
  int c = memcmp(a->data, b->data, DF_MIN(a->len, b->len));
  return c ? c : (a->len > b->len) - (a->len < b->len);
}

uint64_t df_jstr_hash(const df_jstr *s) {
  if (s->hash) return s->hash;
  uint64_t h = df_hash_bytes(s->data, s->len, 0);
  return h ? h : 1;
}

size_t df_jstr_offset(const df_jstr *s, size_t cp) {
  if (s->ncp == s->len) return cp;
  if (cp >= s->ncp) return s->len;
  size_t seen = 0;
  for (size_t i = 0; i < s->len; i++)
    if (((unsigned char)s->data[i] & 0xC0) != 0x80 && seen++ == cp) return i;
  return s->len;
}

df_status df_jlist_new(df_jarena *a, size_t cap, df_jkind kind, df_jlist **out, df_error *err) {
  df_jlist *l;
  size_t bytes;
  if (cap > UINT32_MAX / 2 || !df_mul_size(cap, sizeof(df_jv), &bytes))
    return DF_FAIL(err, DF_ERR_LIMIT, "makes a list of %zu elements", cap);
  DF_TRY(df_jarena_get(a, sizeof *l, &l, err));
  *l = (df_jlist){.cap = (uint32_t)cap, .kind = (uint8_t)kind};
  if (cap) DF_TRY(df_jarena_get(a, bytes, &l->items, err));
  *out = l;
  return DF_OK;
}

df_status df_jlist_push(df_jarena *a, df_jlist *l, df_jv v, df_error *err) {
  if (l->n == l->cap) {
    if (l->cap > UINT32_MAX / 4) return DF_FAIL(err, DF_ERR_LIMIT, "makes a list that is too long");
    uint32_t cap = l->cap ? l->cap * 2 : 4;
    DF_TRY(df_jarena_grow(a, &l->items, l->n * sizeof v, l->cap * sizeof v, cap * sizeof v, err));
    l->cap = cap;
  }
  l->items[l->n++] = v;
  return DF_OK;
}

df_status df_jmap_new(df_jarena *a, size_t cap, df_jmap **out, df_error *err) {
  df_jmap *m;
  size_t bytes;
  if (cap > UINT32_MAX / 4 || !df_mul_size(cap, sizeof(df_jentry), &bytes))
    return DF_FAIL(err, DF_ERR_LIMIT, "makes a map of %zu entries", cap);
  DF_TRY(df_jarena_get(a, sizeof *m, &m, err));
  *m = (df_jmap){.cap = (uint32_t)cap};
  if (cap) DF_TRY(df_jarena_get(a, bytes, &m->e, err));
  *out = m;
  return DF_OK;
}

bool df_jv_number(df_jv v, bool *is_int, int64_t *i, double *f) {
  *is_int = v.t != JT_FLOAT;
  if (v.t == JT_BOOL)
    *i = v.u.b;
  else if (v.t == JT_INT)
    *i = v.u.i;
  else if (v.t == JT_FLOAT)
    *i = 0;
  else
    return false;
  *f = v.t == JT_FLOAT ? v.u.f : (double)*i;
  return true;
}

static uint64_t mix(uint64_t h) {
  h ^= h >> 31;
  h *= UINT64_C(0x9E3779B97F4A7C15);
  return h ^ (h >> 29);
}

/* Tuples share parts, so (t, t) of (t, t) of ... is small in memory and huge in hashing: at most KEY_PARTS parts. */
static bool hash_at(df_jv v, int *budget, uint64_t *out) {
  if (--*budget < 0) return false;
  bool is_int;
  int64_t i;
  double f;
  if (df_jv_number(v, &is_int, &i, &f)) {
    /* 2 and 2.0 are one key. */
    if (!is_int && f >= -9e18 && f <= 9e18 && floor(f) == f) is_int = true, i = (int64_t)f;
    uint64_t bits;
    if (is_int)
      bits = (uint64_t)i;
    else
      memcpy(&bits, &f, sizeof bits);
    *out = mix(bits + 1);
    return true;
  }
  switch (v.t) {
    case JT_STR:
    case JT_BIG: *out = df_jstr_hash(v.u.s); return true;
    case JT_UNDEF:
    case JT_NONE: *out = mix(v.t); return true;
    case JT_MACRO:
    case JT_METHOD:
    case JT_LOOP:
    case JT_OBJ: *out = mix((uint64_t)(uintptr_t)v.u.p); return true;
    case JT_NS: *out = mix((uint64_t)(uintptr_t)v.u.m); return true;
    case JT_FUNC: *out = mix((uint64_t)v.u.i + 77); return true;
    case JT_LIST: break;
    default: return false;
  }
  if (v.u.l->kind != JK_TUPLE) return false;
  uint64_t h = v.u.l->kind;
  for (uint32_t k = 0; k < v.u.l->n; k++) {
    uint64_t e;
    if (!hash_at(v.u.l->items[k], budget, &e)) return false;
    h = mix(h ^ e) + k;
  }
  *out = h;
  return true;
}

bool df_jv_hash(df_jv v, uint64_t *out) {
  int budget = KEY_PARTS;
  return hash_at(v, &budget, out);
}

bool df_jv_key_eq(df_jv a, df_jv b) {
  bool ai, bi;
  int64_t ia, ib;
  double fa, fb;
  if (df_jv_number(a, &ai, &ia, &fa)) {
    if (!df_jv_number(b, &bi, &ib, &fb)) return false;
    return ai && bi ? ia == ib : fa == fb;
  }
  if (a.t != b.t) return false;
  switch (a.t) {
    case JT_STR:
    case JT_BIG: return df_jstr_eq(a.u.s, b.u.s);
    case JT_UNDEF:
    case JT_NONE: return true;
    case JT_FUNC: return a.u.i == b.u.i;
    case JT_LIST: break;
    case JT_NS: return a.u.m == b.u.m;
    default: return a.u.p == b.u.p;
  }
  /* Bounded: df_jv_hash accepted both before. */
  if (a.u.l == b.u.l) return true;
  if (a.u.l->kind != b.u.l->kind || a.u.l->n != b.u.l->n) return false;
  for (uint32_t i = 0; i < a.u.l->n; i++)
    if (!df_jv_key_eq(a.u.l->items[i], b.u.l->items[i])) return false;
  return true;
}

static df_status rebuild_index(df_jarena *a, df_jmap *m, df_error *err) {
  uint32_t cap = 32;
  while (cap < m->cap * 2) cap *= 2;
  DF_TRY(df_jarena_get(a, cap * sizeof *m->index, &m->index, err));
  memset(m->index, 0, cap * sizeof *m->index);
  m->index_cap = cap;
  for (uint32_t i = 0; i < m->n; i++) {
    uint32_t s = (uint32_t)m->e[i].hash & (cap - 1);
    while (m->index[s]) s = (s + 1) & (cap - 1);
    m->index[s] = i + 1;
  }
  return DF_OK;
}

static df_jentry *find(const df_jmap *m, df_jv key, uint64_t hash) {
  if (!m->index) {
    for (uint32_t i = 0; i < m->n; i++)
      if (m->e[i].hash == hash && df_jv_key_eq(m->e[i].key, key)) return &m->e[i];
    return NULL;
  }
  for (uint32_t s = (uint32_t)hash & (m->index_cap - 1); m->index[s]; s = (s + 1) & (m->index_cap - 1)) {
    df_jentry *e = &m->e[m->index[s] - 1];
    if (e->hash == hash && df_jv_key_eq(e->key, key)) return e;
  }
  return NULL;
}

df_status df_jmap_put(df_jarena *a, df_jmap *m, df_jv key, df_jv val, df_error *err) {
  uint64_t hash;
  if (!df_jv_hash(key, &hash)) return DF_FAIL(err, DF_ERR_TEMPLATE, "a list or map cannot be a key");
  df_jentry *e = find(m, key, hash);
  if (e) {
    e->val = val;
    return DF_OK;
  }
  if (m->n == m->cap) {
    if (m->cap > UINT32_MAX / 8) return DF_FAIL(err, DF_ERR_LIMIT, "makes a map that is too large");
    uint32_t cap = m->cap ? m->cap * 2 : 4;
    DF_TRY(df_jarena_grow(a, &m->e, m->n * sizeof *e, m->cap * sizeof *e, cap * sizeof *e, err));
    m->cap = cap;
    m->index = NULL;
  }
  m->e[m->n++] = (df_jentry){.key = key, .val = val, .hash = hash};
  if (m->n <= MAP_SMALL) return DF_OK;
  if (!m->index) return rebuild_index(a, m, err);
  uint32_t s = (uint32_t)hash & (m->index_cap - 1);
  while (m->index[s]) s = (s + 1) & (m->index_cap - 1);
  m->index[s] = m->n;
  return DF_OK;
}

const df_jv *df_jmap_get(const df_jmap *m, df_jv key) {
  uint64_t hash;
  if (m->n == 0 || !df_jv_hash(key, &hash)) return NULL;
  const df_jentry *e = find(m, key, hash);
  return e ? &e->val : NULL;
}

const df_jv *df_jmap_get_str(const df_jmap *m, const df_jstr *key) { return df_jmap_get(m, df_jv_str(key)); }

/* The header of the final string is laid down with the first bytes, so that taking it copies nothing. */
df_status df_jbuf_put(df_jbuf *b, const char *p, size_t n, df_error *err) {
  size_t need;
  if (n > b->a->max || !df_add_size(b->len, n, &need) || need > b->a->max)
    return DF_FAIL(err, DF_ERR_LIMIT, "needs more than %zu bytes of memory", b->a->max);
  need += sizeof(df_jstr) + 1;
  if (need > b->cap) {
    size_t cap = b->cap ? b->cap : 96;
    while (cap < need) cap *= 2;
    DF_TRY(df_jarena_grow(b->a, &b->p, b->len ? sizeof(df_jstr) + b->len : 0, b->cap, cap, err));
    b->cap = cap;
  }
  if (n) memcpy(b->p + sizeof(df_jstr) + b->len, p, n);
  b->len += n;
  return DF_OK;
}

df_status df_jbuf_puts(df_jbuf *b, const char *s, df_error *err) { return df_jbuf_put(b, s, strlen(s), err); }

df_status df_jbuf_put_cp(df_jbuf *b, uint32_t cp, df_error *err) {
  char t[4];
  return df_jbuf_put(b, t, df_jutf8_put(cp, t), err);
}

df_status df_jbuf_take(df_jbuf *b, const df_jstr **out, df_error *err) {
  if (!b->p) DF_TRY(df_jbuf_put(b, "", 0, err));
  df_jstr *s = (df_jstr *)(void *)b->p;
  if (b->len > UINT32_MAX / 2) return DF_FAIL(err, DF_ERR_LIMIT, "makes a text that is too long");
  s->len = (uint32_t)b->len;
  s->hash = 0;
  s->data[b->len] = '\0';
  s->ncp = (uint32_t)count_cp(s->data, b->len);
  *out = s;
  b->p = NULL;
  b->len = b->cap = 0;
  return DF_OK;
}

uint32_t df_jutf8_get(const char *str, size_t n, size_t *used) {
  const unsigned char *p = (const unsigned char *)str;
  *used = 0;
  if (p[0] < 0x80) {
    *used = 1;
    return p[0];
  }
  size_t len = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
  if (p[0] < 0xC2 || p[0] > 0xF4 || len > n) return 0;
  uint32_t cp = p[0] & (0x7Fu >> len);
  for (size_t i = 1; i < len; i++) {
    if ((p[i] & 0xC0) != 0x80) return 0;
    cp = cp << 6 | (p[i] & 0x3Fu);
  }
  if ((len == 3 && cp < 0x800) || (len == 4 && cp < 0x10000) || cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
    return 0;
  *used = len;
  return cp;
}

size_t df_jutf8_put(uint32_t cp, char out[4]) {
  if (cp < 0x80) {
    out[0] = (char)cp;
    return 1;
  }
  size_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
  static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (size_t i = len; i-- > 1; cp >>= 6) out[i] = (char)(0x80 | (cp & 0x3F));
  out[0] = (char)(lead[len] | cp);
  return len;
}

bool df_jutf8_valid(const char *p, size_t n) {
  for (size_t i = 0, u; i < n; i += u) {
    (void)df_jutf8_get(p + i, n - i, &u);
    if (u == 0) return false;
  }
  return true;
}

bool df_jutf8_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
