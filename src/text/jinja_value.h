/*
 * text/jinja_value.h - values of the template engine: an arena, immutable strings, lists, insertion-ordered maps.
 *
 * Ownership: everything lives in a df_jarena and is freed with it; no value is ever freed alone.
 * Threads:   an arena belongs to one thread. Values of a parsed template are only read, so renders may share them.
 * Source:    the data model is that of Python as far as Jinja templates can see it.
 */
#ifndef DF_TEXT_JINJA_VALUE_H
#define DF_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/jinja_limits.h"

/* ---- arena ---- */

typedef struct df_jblock {
  struct df_jblock *next;
  size_t used, cap; /* bytes after the header */
} df_jblock;

typedef struct df_jarena {
  df_jblock *head;
  size_t total; /* bytes taken from the allocator */
  size_t max;   /* DF_ERR_LIMIT beyond */
} df_jarena;

void df_jarena_init(df_jarena *a, size_t max);
void df_jarena_release(df_jarena *a);
/* 16-byte aligned, not cleared. DF_ERR_MEMORY or DF_ERR_LIMIT. */
df_status df_jarena_get(df_jarena *a, size_t bytes, void *out, df_error *err) DF_CHECK;
/* Grows an allocation, in place when it is the newest; otherwise copies `used` bytes. *p may be NULL. */
df_status df_jarena_grow(df_jarena *a, void *p, size_t used, size_t old_cap, size_t cap, df_error *err) DF_CHECK;

/* ---- values ---- */

typedef enum df_jtype {
  JT_UNSET = 0, /* an argument that was not given; never visible to templates */
  JT_UNDEF,     /* u.s names what was missing (may be NULL); aux tells how */
  JT_NONE,
  JT_BOOL,
  JT_INT,
  JT_FLOAT,
  JT_BIG, /* an integer of the context beyond 64 bits, kept as its digits in u.s: prints, compares, does not count */
  JT_STR,
  JT_LIST, /* also tuples, ranges, views and one-shot iterators: see df_jlist.kind */
  JT_MAP,
  JT_NS,     /* namespace(): u.m is mutable */
  JT_LOOP,   /* u.p: struct df_jloop */
  JT_MACRO,  /* u.p: struct df_jmacro */
  JT_METHOD, /* u.p: struct df_jmethod */
  JT_FUNC,   /* u.i: index of a global function */
  JT_OBJ     /* u.p: struct df_jobj (cycler, joiner) */
} df_jtype;

/* aux of JT_UNDEF */
enum { JU_NAME = 0, JU_ATTR_MAP, JU_ATTR_LIST, JU_ATTR_STR, JU_ATTR_NONE, JU_ATTR_OTHER, JU_UNSAFE };

typedef struct df_jstr {
  uint32_t len;  /* bytes */
  uint32_t ncp;  /* code points; equal to len exactly for ASCII */
  uint64_t hash; /* of the bytes; 0 = not computed. Set only while parsing, so shared strings never change. */
  char data[];   /* len bytes of valid UTF-8 and a zero */
} df_jstr;

typedef struct df_jv {
  uint8_t t; /* df_jtype */
  uint8_t aux;
  union {
    bool b;
    int64_t i;
    double f;
    const df_jstr *s;
    struct df_jlist *l;
    struct df_jmap *m;
    void *p;
  } u;
} df_jv;

typedef enum df_jkind { JK_LIST, JK_TUPLE, JK_RANGE, JK_ITER, JK_KEYS, JK_VALUES, JK_ITEMS } df_jkind;

typedef struct df_jlist {
  df_jv *items;
  uint32_t n, cap;
  uint32_t pos;     /* JK_ITER: elements already consumed */
  uint8_t kind;     /* df_jkind */
  int64_t range[3]; /* JK_RANGE: start, stop, step, for printing */
} df_jlist;

typedef struct df_jentry {
  df_jv key, val;
  uint64_t hash;
} df_jentry;

typedef struct df_jmap {
  df_jentry *e; /* in insertion order */
  uint32_t n, cap;
  uint32_t *index; /* n + 1 per slot, 0 = free; NULL while small */
  uint32_t index_cap;
} df_jmap;

static inline df_jv df_jv_undef(const df_jstr *name, uint8_t how) {
  return (df_jv){.t = JT_UNDEF, .aux = how, .u.s = name};
}
static inline df_jv df_jv_none(void) { return (df_jv){.t = JT_NONE}; }
static inline df_jv df_jv_bool(bool b) { return (df_jv){.t = JT_BOOL, .u.b = b}; }
static inline df_jv df_jv_int(int64_t i) { return (df_jv){.t = JT_INT, .u.i = i}; }
static inline df_jv df_jv_float(double f) { return (df_jv){.t = JT_FLOAT, .u.f = f}; }
static inline df_jv df_jv_str(const df_jstr *s) { return (df_jv){.t = JT_STR, .u.s = s}; }
static inline df_jv df_jv_list(df_jlist *l) { return (df_jv){.t = JT_LIST, .u.l = l}; }
static inline df_jv df_jv_map(df_jmap *m) { return (df_jv){.t = JT_MAP, .u.m = m}; }

/* Copies n bytes, which must be valid UTF-8, and counts the code points. */
df_status df_jstr_new(df_jarena *a, const char *p, size_t n, const df_jstr **out, df_error *err) DF_CHECK;
bool df_jstr_eq(const df_jstr *a, const df_jstr *b);
bool df_jstr_is(const df_jstr *a, const char *s);
/* Byte order, which for UTF-8 is code point order. */
int df_jstr_cmp(const df_jstr *a, const df_jstr *b);
uint64_t df_jstr_hash(const df_jstr *s);
/* Byte offset of a code point index in 0 … ncp. */
size_t df_jstr_offset(const df_jstr *s, size_t cp);

df_status df_jlist_new(df_jarena *a, size_t cap, df_jkind kind, df_jlist **out, df_error *err) DF_CHECK;
df_status df_jlist_push(df_jarena *a, df_jlist *l, df_jv v, df_error *err) DF_CHECK;

df_status df_jmap_new(df_jarena *a, size_t cap, df_jmap **out, df_error *err) DF_CHECK;
/* Inserts or replaces; a replaced key keeps its place. The key must be hashable (df_jv_hash says so). */
df_status df_jmap_put(df_jarena *a, df_jmap *m, df_jv key, df_jv val, df_error *err) DF_CHECK;
/* NULL when absent or not hashable. */
const df_jv *df_jmap_get(const df_jmap *m, df_jv key);
const df_jv *df_jmap_get_str(const df_jmap *m, const df_jstr *key);

/* False for values that cannot be keys: lists, maps and what contains them. Equal values have equal hashes. */
bool df_jv_hash(df_jv v, uint64_t *out);
/* Equality of two hashable values (the general comparison is in jinja_ops.h). */
bool df_jv_key_eq(df_jv a, df_jv b);
/* The number in a bool, int or float; false for other types. is_int tells which member counts. */
bool df_jv_number(df_jv v, bool *is_int, int64_t *i, double *f);

/* ---- growing text in an arena ---- */

typedef struct df_jbuf {
  df_jarena *a;
  char *p;
  size_t len, cap;
  size_t ncp; /* unused by callers; df_jbuf_take recounts */
} df_jbuf;

static inline void df_jbuf_init(df_jbuf *b, df_jarena *a) { *b = (df_jbuf){.a = a}; }
df_status df_jbuf_put(df_jbuf *b, const char *p, size_t n, df_error *err) DF_CHECK;
df_status df_jbuf_puts(df_jbuf *b, const char *s, df_error *err) DF_CHECK;
/* Encodes one code point (not a surrogate, at most 0x10FFFF). */
df_status df_jbuf_put_cp(df_jbuf *b, uint32_t cp, df_error *err) DF_CHECK;
/* The text as a string value. */
df_status df_jbuf_take(df_jbuf *b, const df_jstr **out, df_error *err) DF_CHECK;

/* ---- UTF-8 ---- */

/* Decodes the code point at p (n >= 1 bytes left); *used is its length, 0 when the bytes are not valid UTF-8. */
uint32_t df_jutf8_get(const char *p, size_t n, size_t *used);
size_t df_jutf8_put(uint32_t cp, char out[4]);
bool df_jutf8_valid(const char *p, size_t n);
/* White space as the str type of Python defines it. */
bool df_jutf8_space(uint32_t cp);

#endif
