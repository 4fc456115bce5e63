/* Reading JSON: the only source file that includes the JSON library. */
#include "format/json.h"

#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "format/file_map.h"
#include "format/limits.h"

/*
 * Memory of a document. The library is not safe when an allocation fails: it loses the byte that the allocation was
 * for, goes on, and may then read past the end of a string whose closing quote it lost. So while a text is parsed all
 * its memory comes from an arena, and a failure jumps out of the library for good; the arena is dropped as a whole,
 * also when the document is freed.
 */
enum { FIRST_CHUNK = 2048, LARGEST_CHUNK = 1 << 20, BLOCK_ALIGN = 16 };

typedef struct chunk {
  struct chunk *next;
  size_t size, used; /* bytes of the block including this header */
} chunk;

typedef struct arena {
  chunk *chunks; /* newest first */
  jmp_buf on_failure;
} arena;

/* Every block is preceded by the arena it belongs to, so that the root leads to it. */
typedef union block_head {
  arena *owner;
  char pad[BLOCK_ALIGN];
} block_head;

static pthread_once_t g_once = PTHREAD_ONCE_INIT;
static _Thread_local arena *t_arena; /* set while this thread is inside the library's parser */

static void arena_free(arena *a) {
  while (a->chunks) {
    chunk *next = a->chunks->next;
    df_free(a->chunks);
    a->chunks = next;
  }
  df_free(a);
}

/* A chunk with room for need bytes, or NULL. Sizes double, so that a big text takes few of them. */
static chunk *add_chunk(arena *a, size_t need) {
  size_t start = df_round_up(sizeof(chunk), BLOCK_ALIGN);
  size_t size = a->chunks ? DF_MIN(a->chunks->size * 2, (size_t)LARGEST_CHUNK) : FIRST_CHUNK;
  if (need > size - start && !df_add_size(need, start, &size)) return NULL;
  chunk *c = df_alloc(size);
  if (!c) return NULL;
  *c = (chunk){.next = a->chunks, .size = size, .used = start};
  a->chunks = c;
  return c;
}

static void *arena_alloc(size_t n) {
  arena *a = t_arena;
  if (!a) return df_alloc(n); /* a host program that uses the library for itself */
  chunk *c = a->chunks;
  if (n > SIZE_MAX / 2) longjmp(a->on_failure, 1);
  size_t need = df_round_up(n, BLOCK_ALIGN) + sizeof(block_head);
  if ((!c || need > c->size - c->used) && !(c = add_chunk(a, need))) longjmp(a->on_failure, 1);
  block_head *h = (block_head *)(void *)((char *)c + c->used);
  c->used += need;
  h->owner = a;
  return h + 1;
}

static void arena_release_block(void *p) {
  if (!t_arena) df_free(p);
}

/* df_alloc hands out malloc memory: what a host program got from the library's defaults before can still be freed. */
static void use_our_allocator(void) { json_set_alloc_funcs(arena_alloc, arena_release_block); }

static const json_t *lib(const df_json *v) { return (const json_t *)(const void *)v; }
static const df_json *ours(const json_t *v) { return (const df_json *)(const void *)v; }

/* What the library would let pass: 2048 levels of recursion, too much for a small thread stack, and zero bytes after
 * the value. */
static df_status check_text(const char *p, size_t n, df_error *err) {
  size_t depth = 0;
  bool in_string = false, escaped = false;
  for (size_t i = 0; i < n; i++) {
    char c = p[i];
    if (c == '\0') return DF_FAIL(err, DF_ERR_FORMAT, "could not parse JSON: zero byte at offset %zu", i);
    if (in_string) {
      in_string = c != '"' || escaped;
      escaped = c == '\\' && !escaped;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > DF_LIMIT_JSON_DEPTH)
        return DF_FAIL(err, DF_ERR_LIMIT, "could not parse JSON: nested deeper than %d levels", DF_LIMIT_JSON_DEPTH);
    } else if ((c == ']' || c == '}') && depth > 0) {
      depth--;
    }
  }
  return DF_OK;
}

/* NULL on failure, *out_of_memory tells which kind. */
static json_t *parse_in_arena(arena *a, const void *text, size_t n, bool *out_of_memory, json_error_t *e) {
  const size_t flags = JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES | JSON_DECODE_ANY;
  *out_of_memory = false;
  if (setjmp(a->on_failure) != 0) {
    t_arena = NULL;
    *out_of_memory = true;
    return NULL;
  }
  t_arena = a;
  json_t *root = json_loadb(text, n, flags, e);
  if (!root && json_error_code(e) == json_error_numeric_overflow)
    root = json_loadb(text, n, flags | JSON_DECODE_INT_AS_REAL, e);
  t_arena = NULL;
  return root;
}

/* null, true and false are constants of the library, not blocks. */
static bool is_block(const json_t *v) { return !json_is_null(v) && !json_is_boolean(v); }

df_status df_json_parse(const void *text, size_t n, df_json **out, df_error *err) {
  (void)pthread_once(&g_once, use_our_allocator);
  DF_TRY(check_text(text, n, err));
  json_error_t e = {0};
  bool out_of_memory;
  arena *a = df_calloc(1, sizeof *a);
  if (!a) return DF_OOM(err, "a JSON document", sizeof *a);
  json_t *root = parse_in_arena(a, text, n, &out_of_memory, &e);
  if (!root || !is_block(root)) arena_free(a);
  if (out_of_memory) return DF_FAIL(err, DF_ERR_MEMORY, "could not parse JSON: out of memory");
  if (!root)
    return DF_FAIL(err, DF_ERR_FORMAT, "could not parse JSON: line %d column %d: %s", e.line, e.column, e.text);
  *out = (df_json *)(void *)root;
  return DF_OK;
}

df_status df_json_load(const char *path, size_t max_bytes, df_json **out, df_error *err) {
  df_file_map map;
  DF_TRY(df_file_map_open(&map, path, err));
  df_status s;
  if (map.size > max_bytes) {
    s = DF_FAIL(err, DF_ERR_LIMIT, "could not read \"%s\": %zu bytes, at most %zu are allowed", path, map.size,
                max_bytes);
  } else {
    s = df_json_parse(map.data, map.size, out, err);
    if (s != DF_OK) df_error_prefix(err, "could not read \"%s\"", path);
  }
  df_file_map_release(&map);
  return s;
}

void df_json_free(df_json *root) {
  if (root && is_block(lib(root))) arena_free(((block_head *)(void *)root - 1)->owner);
}

df_json_kind df_json_kind_of(const df_json *v) {
  if (!v) return DF_JSON_NULL;
  switch (json_typeof(lib(v))) {
    case JSON_OBJECT: return DF_JSON_OBJECT;
    case JSON_ARRAY: return DF_JSON_ARRAY;
    case JSON_STRING: return DF_JSON_STRING;
    case JSON_INTEGER: return DF_JSON_INT;
    case JSON_REAL: return DF_JSON_REAL;
    case JSON_TRUE:
    case JSON_FALSE: return DF_JSON_BOOL;
    case JSON_NULL: break;
  }
  return DF_JSON_NULL;
}

const char *df_json_kind_name(df_json_kind kind) {
  switch (kind) {
    case DF_JSON_NULL: return "null";
    case DF_JSON_BOOL: return "a bool";
    case DF_JSON_INT: return "an integer";
    case DF_JSON_REAL: return "a number";
    case DF_JSON_STRING: return "a string";
    case DF_JSON_ARRAY: return "an array";
    case DF_JSON_OBJECT: return "an object";
  }
  return "unknown";
}

size_t df_json_size(const df_json *v) {
  df_json_kind k = df_json_kind_of(v);
  if (k == DF_JSON_ARRAY) return json_array_size(lib(v));
  return k == DF_JSON_OBJECT ? json_object_size(lib(v)) : 0;
}

const df_json *df_json_at(const df_json *array, size_t i) { return ours(json_array_get(lib(array), i)); }

const df_json *df_json_member(const df_json *object, const char *key) {
  return ours(json_object_get(lib(object), key));
}

const char *df_json_str(const df_json *v, size_t *len) {
  if (df_json_kind_of(v) != DF_JSON_STRING) return NULL;
  if (len) *len = json_string_length(lib(v));
  return json_string_value(lib(v));
}

bool df_json_equals(const df_json *v, const char *text) {
  size_t n;
  const char *s = df_json_str(v, &n);
  return s && strlen(text) == n && memcmp(s, text, n) == 0;
}

bool df_json_bool(const df_json *v) { return v && json_is_true(lib(v)); }
int64_t df_json_int(const df_json *v) { return v ? json_integer_value(lib(v)) : 0; }
double df_json_num(const df_json *v) { return v ? json_number_value(lib(v)) : 0; }

/* The library's iterators take a non-const object but do not change it. */
static json_t *loose(const df_json *v) { return (json_t *)(uintptr_t)v; }

df_json_iter df_json_begin(const df_json *object) {
  return (df_json_iter){object, object ? json_object_iter(loose(object)) : NULL};
}

bool df_json_next(df_json_iter *it, const char **key, size_t *len, const df_json **value) {
  if (!it->at) return false;
  *key = json_object_iter_key(it->at);
  if (len) *len = json_object_iter_key_len(it->at);
  *value = ours(json_object_iter_value(it->at));
  it->at = json_object_iter_next(loose(it->object), it->at);
  return true;
}

/* ---- typed members ------------------------------------------------------------------------------------- */

static const df_json *present(const df_json *object, const char *key) {
  const df_json *v = df_json_member(object, key);
  return df_json_kind_of(v) == DF_JSON_NULL ? NULL : v;
}

static df_status wrong_kind(const char *what, const df_json *v, const char *want, df_error *err) {
  return DF_FAIL(err, DF_ERR_FORMAT, "%s is %s, expected %s", what, df_json_kind_name(df_json_kind_of(v)), want);
}

/* "key \"x\"", cut to something a message can hold. */
static const char *name_key(char buf[128], const char *key) {
  (void)snprintf(buf, 128, "key \"%.100s\"", key);
  return buf;
}

df_status df_json_need(const df_json *object, const char *key, df_error *err) {
  return present(object, key) ? DF_OK : DF_FAIL(err, DF_ERR_FORMAT, "key \"%s\" is missing", key);
}

df_status df_json_to_i64(const df_json *v, const char *what, int64_t min, int64_t max, int64_t *out, df_error *err) {
  int64_t i;
  df_json_kind k = df_json_kind_of(v);
  if (k == DF_JSON_INT) {
    i = df_json_int(v);
  } else if (k == DF_JSON_REAL) {
    double d = df_json_num(v);
    /* Beyond 2^53 a double no longer tells which integer was meant; this also makes the conversion defined. */
    if (!(d >= -0x1p53 && d <= 0x1p53) || d != (double)(int64_t)d)
      return DF_FAIL(err, DF_ERR_FORMAT, "%s is %g, expected an integer from %lld to %lld", what, d, (long long)min,
                     (long long)max);
    i = (int64_t)d;
  } else {
    return wrong_kind(what, v, "an integer", err);
  }
  if (i < min || i > max)
    return DF_FAIL(err, DF_ERR_FORMAT, "%s is %lld, expected %lld to %lld", what, (long long)i, (long long)min,
                   (long long)max);
  *out = i;
  return DF_OK;
}

df_status df_json_opt_i64(const df_json *object, const char *key, int64_t def, int64_t min, int64_t max, int64_t *out,
                          df_error *err) {
  char what[128];
  const df_json *v = present(object, key);
  if (v) return df_json_to_i64(v, name_key(what, key), min, max, out, err);
  *out = def;
  return DF_OK;
}

df_status df_json_opt_u32(const df_json *object, const char *key, uint32_t def, uint32_t min, uint32_t max,
                          uint32_t *out, df_error *err) {
  int64_t v;
  DF_TRY(df_json_opt_i64(object, key, def, min, max, &v, err));
  *out = (uint32_t)v;
  return DF_OK;
}

df_status df_json_opt_f64(const df_json *object, const char *key, double def, double min, double max, double *out,
                          df_error *err) {
  char what[128];
  const df_json *v = present(object, key);
  df_json_kind k = df_json_kind_of(v);
  if (!v) {
    *out = def;
    return DF_OK;
  }
  if (k != DF_JSON_INT && k != DF_JSON_REAL) return wrong_kind(name_key(what, key), v, "a number", err);
  double d = df_json_num(v);
  if (!(d >= min && d <= max))
    return DF_FAIL(err, DF_ERR_FORMAT, "%s is %g, expected %g to %g", name_key(what, key), d, min, max);
  *out = d;
  return DF_OK;
}

df_status df_json_opt_bool(const df_json *object, const char *key, bool def, bool *out, df_error *err) {
  char what[128];
  const df_json *v = present(object, key);
  if (v && df_json_kind_of(v) != DF_JSON_BOOL) return wrong_kind(name_key(what, key), v, "a bool", err);
  *out = v ? df_json_bool(v) : def;
  return DF_OK;
}

df_status df_json_opt_str(const df_json *object, const char *key, const char *def, const char **out, df_error *err) {
  char what[128];
  const df_json *v = present(object, key);
  if (!v) {
    *out = def;
    return DF_OK;
  }
  size_t n = 0;
  const char *s = df_json_str(v, &n);
  if (!s) return wrong_kind(name_key(what, key), v, "a string", err);
  if (strlen(s) != n) return DF_FAIL(err, DF_ERR_FORMAT, "%s contains a zero byte", name_key(what, key));
  *out = s;
  return DF_OK;
}

df_status df_json_opt_tree(const df_json *object, const char *key, df_json_kind kind, const df_json **out,
                           df_error *err) {
  char what[128];
  const df_json *v = present(object, key);
  if (v && df_json_kind_of(v) != kind) return wrong_kind(name_key(what, key), v, df_json_kind_name(kind), err);
  *out = v;
  return DF_OK;
}
