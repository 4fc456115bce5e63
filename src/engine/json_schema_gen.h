/*
 * engine/json_schema_gen.h - the inside of the schema converter, for the files json_schema*.c only.
 *
 * A value has to fit all parts of a conjunction at once: its schema, what that refers to, and what allOf names.
 * Conjunctions become rules; equal ones share a rule, which is how recursion ends. All functions append GBNF to a
 * buffer.
 */
#ifndef DF_ENGINE_JSON_SCHEMA_GEN_H
#define DF_ENGINE_JSON_SCHEMA_GEN_H

#include "base/map.h"
#include "engine/json_schema.h"

enum {
  SCHEMA_MAX_PARTS = 24,
  SCHEMA_PATH = 200,              /* bytes kept of a path */
  SCHEMA_MAX_COUNT = 65536,       /* minLength, maxItems, ... */
  SCHEMA_MAX_ALTERNATIVES = 2048, /* of one rule, products of several anyOf included */
  SCHEMA_MAX_MADE = 1024,         /* schemas made here: members that tell alternatives apart */
  SCHEMA_MAX_WORK = 1 << 22       /* members of schemas looked at */
};

enum { SCHEMA_NO_PARENT = 255 };

/* Kinds of values, as bits. */
enum {
  SCHEMA_NULL = 1,
  SCHEMA_BOOLEAN = 2,
  SCHEMA_INTEGER = 4,
  SCHEMA_NUMBER = 8, /* all numbers, integers included */
  SCHEMA_STRING = 16,
  SCHEMA_ARRAY = 32,
  SCHEMA_OBJECT = 64,
  SCHEMA_ALL = 127 - SCHEMA_INTEGER
};

/* Keywords of a part that have been taken apart already. */
enum { DONE_REF = 1, DONE_ALL = 2, DONE_ANY = 4, DONE_ONE = 8 };

typedef struct schema_part {
  const df_json *v;
  uint64_t done; /* full width: keys are compared as bytes */
} schema_part;

typedef struct schema_conj {
  uint32_t n;
  schema_part part[SCHEMA_MAX_PARTS];
  uint8_t parent[SCHEMA_MAX_PARTS]; /* the part that named this one, or SCHEMA_NO_PARENT */
  char path[SCHEMA_PATH];
} schema_conj;

typedef enum shared_rule {
  SHARED_WS,
  SHARED_NEVER,
  SHARED_UESC,
  SHARED_CHAR,
  SHARED_CHARS,
  SHARED_CONTROL,
  SHARED_STRING,
  SHARED_INTEGER,
  SHARED_NUMBER,
  SHARED_BOOLEAN,
  SHARED_NULL,
  SHARED_VALUE,
  SHARED_OBJECT,
  SHARED_ARRAY,
  SHARED_MEMBER,
  SHARED_DATE,
  SHARED_TIME,
  SHARED_DATE_TIME,
  SHARED_UUID,
  SHARED_EMAIL,
  SHARED_IPV4,
  SHARED_RULES
} shared_rule;

typedef struct schema_todo {
  schema_conj conj;
  uint32_t rule;
} schema_todo;

typedef struct schema_gen {
  df_schema_rules *rules;
  const df_json *root;
  df_map known;       /* parts of a conjunction -> index in todo */
  schema_todo **todo; /* all of this schema, done or not */
  uint32_t n_todo, cap_todo;
  df_json *made[SCHEMA_MAX_MADE]; /* owned: parts point into them */
  uint32_t n_made;
  uint64_t work;
  df_error *err;
} schema_gen;

typedef struct schema_bounds {
  bool has_min, has_max;
  bool open_min, open_max; /* the bound itself is out (never for integers) */
  int64_t min, max;
} schema_bounds;

/* Message "could not use the schema: <path>: ...". */
#define SCHEMA_FAIL(g, conj, code, ...) schema_fail((g), (conj), (code), __VA_ARGS__)
df_status schema_fail(schema_gen *g, const schema_conj *c, df_status code, const char *fmt, ...) DF_PRINTF(4, 5);

/* Path of a member or element. */
void schema_path_add(schema_conj *c, const char *key, size_t n);
/* One more part, named by part `parent` or SCHEMA_NO_PARENT; equal ones count once. DF_ERR_LIMIT, DF_ERR_FORMAT when it
 * is no schema, or one of those that led to it. */
df_status schema_conj_add(schema_gen *g, schema_conj *c, const df_json *v, uint32_t parent);
/* Adds what "$ref" and "allOf" of all parts name. */
df_status schema_expand(schema_gen *g, schema_conj *c);
/* Counts work against its limit. */
df_status schema_spend(schema_gen *g, const schema_conj *c, uint64_t n);
/* Kinds that all parts allow (expanded ones; alternatives are not looked into). */
df_status schema_find_types(schema_gen *g, const schema_conj *c, uint32_t *types);
/* Kinds that both allow: INTEGER within NUMBER. */
uint32_t schema_meet_types(uint32_t a, uint32_t b);
bool schema_fits_type(uint32_t types, const df_json *v);
/* The alternatives of oneOf in part `at`, each joined with c: to out[size of the list]. No two of them fit one value: a
 * member that tells them apart is made required where need be. DF_ERR_UNSUPPORTED when that cannot be seen. */
df_status schema_check_one_of(schema_gen *g, const schema_conj *c, uint32_t at, const df_json *list, schema_conj *out);
/* Appends the name of the rule for a conjunction; the rule itself is made later unless it exists. */
df_status schema_put_conj(schema_gen *g, const schema_conj *c, df_buf *b);
/* Appends the name of a shared rule. */
df_status schema_put_shared(schema_gen *g, shared_rule r, df_buf *b);
df_status schema_put_shared_rules(df_schema_rules *r, df_error *err);
/* A new rule: its name to `name`. */
df_status schema_new_rule(schema_gen *g, char name[DF_SCHEMA_NAME_SIZE]);
/* Writes "name ::= body". */
df_status schema_write_rule(schema_gen *g, const char *name, const df_buf *body);

/* Least of the maxima and greatest of the minima of all parts; *max NONE = without end. */
df_status schema_counts(schema_gen *g, const schema_conj *c, const char *least, const char *most, uint32_t *min,
                        uint32_t *max);

/* One alternative each. */
df_status schema_put_object(schema_gen *g, const schema_conj *c, df_buf *b);
df_status schema_put_array(schema_gen *g, const schema_conj *c, df_buf *b);
df_status schema_put_string(schema_gen *g, const schema_conj *c, df_buf *b);
df_status schema_put_number(schema_gen *g, const schema_conj *c, bool integer, df_buf *b);
/* A constant JSON value. */
df_status schema_put_literal(schema_gen *g, const df_json *v, df_buf *b);
/* Text as a GBNF string. */
df_status schema_put_quoted(schema_gen *g, const char *s, size_t n, df_buf *b);
/* The characters of ranges (pairs lo, hi; n of them), sorted, as they are written inside a JSON string. */
df_status schema_put_chars(schema_gen *g, const uint32_t (*ranges)[2], uint32_t n, df_buf *b);
/* A JSON string, quotes included, that is none of the n names. */
df_status schema_put_other_string(schema_gen *g, const schema_conj *c, const df_slice *names, uint32_t n, df_buf *b);
/* The inside of a JSON string that matches a regular expression. */
df_status schema_put_pattern(schema_gen *g, const schema_conj *c, const char *p, size_t n, df_buf *b);

#define SCHEMA_NONE UINT32_MAX

#endif
