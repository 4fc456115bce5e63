/* Objects and arrays. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/json_schema_gen.h"

#define PUT(...) DF_TRY(df_buf_printf(b, g->err, __VA_ARGS__))

static df_status use(schema_gen *g, shared_rule r) {
  g->rules->used |= 1u << r;
  return DF_OK;
}

static df_status one_count(schema_gen *g, const schema_conj *c, const df_json *v, const char *key, uint32_t *out,
                           bool *there) {
  const df_json *count = df_json_member(v, key);
  double d = df_json_num(count);
  *there = count != NULL;
  if (!count) return DF_OK;
  if ((df_json_kind_of(count) != DF_JSON_INT && df_json_kind_of(count) != DF_JSON_REAL) || d < 0 || d != d)
    return schema_fail(g, c, DF_ERR_FORMAT, "\"%s\" must be a whole number, at least 0", key);
  if (d > SCHEMA_MAX_COUNT) return schema_fail(g, c, DF_ERR_LIMIT, "\"%s\" is above %d", key, (int)SCHEMA_MAX_COUNT);
  *out = (uint32_t)d;
  if ((double)*out != d) return schema_fail(g, c, DF_ERR_FORMAT, "\"%s\" must be a whole number", key);
  return DF_OK;
}

df_status schema_counts(schema_gen *g, const schema_conj *c, const char *least, const char *most, uint32_t *min,
                        uint32_t *max) {
  *min = 0;
  *max = SCHEMA_NONE;
  for (uint32_t i = 0; i < c->n; i++) {
    uint32_t v = 0;
    bool there;
    DF_TRY(one_count(g, c, c->part[i].v, least, &v, &there));
    if (there) *min = DF_MAX(*min, v);
    DF_TRY(one_count(g, c, c->part[i].v, most, &v, &there));
    if (there) *max = DF_MIN(*max, v);
  }
  return DF_OK;
}

/* "{min,max}" behind an item. */
static df_status put_times(schema_gen *g, uint32_t min, uint32_t max, df_buf *b) {
  if (max == SCHEMA_NONE && min == 0) return df_buf_puts(b, "*", g->err);
  if (max == SCHEMA_NONE) return df_buf_printf(b, g->err, "{%u,}", min);
  return df_buf_printf(b, g->err, "{%u,%u}", min, max);
}

/* ---- objects ------------------------------------------------------------------------------------------- */

typedef struct member {
  const char *name;
  size_t len;
  bool required, possible;
  char rule[DF_SCHEMA_NAME_SIZE];
} member;

typedef struct object {
  const schema_conj *c;
  member *members;
  uint32_t n, cap;
  df_map by_name;
  bool open;                         /* further members may come */
  char further[DF_SCHEMA_NAME_SIZE]; /* rule of one */
} object;

static df_status add_member(schema_gen *g, object *o, const char *name, size_t len, uint32_t *at) {
  if (df_map_get(&o->by_name, name, len, at)) return DF_OK;
  if (o->n == o->cap) {
    uint32_t cap = o->cap ? o->cap * 2 : 16;
    member *grown = df_realloc(o->members, cap * sizeof *grown);
    if (!grown) return DF_OOM(g->err, "a schema", cap * sizeof *grown);
    o->members = grown;
    o->cap = cap;
  }
  DF_TRY(df_map_put(&o->by_name, name, len, o->n, NULL, g->err));
  o->members[o->n] = (member){.name = name, .len = len};
  *at = o->n++;
  return DF_OK;
}

static df_status collect_part(schema_gen *g, object *o, const df_json *v) {
  const df_json *properties = df_json_member(v, "properties"), *required = df_json_member(v, "required"), *value;
  const char *key;
  size_t len;
  uint32_t at;
  df_json_iter it;
  if (properties && df_json_kind_of(properties) != DF_JSON_OBJECT)
    return schema_fail(g, o->c, DF_ERR_FORMAT, "\"properties\" must be an object");
  it = df_json_begin(properties);
  while (properties && df_json_next(&it, &key, &len, &value)) DF_TRY(add_member(g, o, key, len, &at));
  if (required && df_json_kind_of(required) != DF_JSON_ARRAY)
    return schema_fail(g, o->c, DF_ERR_FORMAT, "\"required\" must be a list of strings");
  for (size_t i = 0; i < df_json_size(required); i++) {
    key = df_json_str(df_json_at(required, i), &len);
    if (!key) return schema_fail(g, o->c, DF_ERR_FORMAT, "\"required\" must be a list of strings");
    DF_TRY(add_member(g, o, key, len, &at));
    o->members[at].required = true;
  }
  return DF_OK;
}

static const df_json *find_property(const df_json *properties, const char *name, size_t len) {
  const char *key;
  size_t n;
  const df_json *value;
  if (memchr(name, '\0', len) == NULL) return df_json_member(properties, name);
  df_json_iter it = df_json_begin(properties);
  while (df_json_next(&it, &key, &n, &value))
    if (n == len && memcmp(key, name, n) == 0) return value;
  return NULL;
}

/* The schemas that a member has to fit: in each part its own, or else the one for further members. name NULL: for
 * further members. *possible false: none fits. */
static df_status member_conj(schema_gen *g, const object *o, const char *name, size_t len, schema_conj *out,
                             bool *possible) {
  *possible = true;
  for (uint32_t i = 0; i < o->c->n; i++) {
    const df_json *v = o->c->part[i].v, *properties = df_json_member(v, "properties");
    const df_json *own = name && properties ? find_property(properties, name, len) : NULL;
    if (!own) own = df_json_member(v, "additionalProperties");
    if (!own || (df_json_kind_of(own) == DF_JSON_BOOL && df_json_bool(own))) continue;
    if (df_json_kind_of(own) == DF_JSON_BOOL) *possible = false;
    DF_TRY(schema_conj_add(g, out, own, SCHEMA_NO_PARENT));
  }
  return DF_OK;
}

static df_status begin_conj(const object *o, schema_conj *out, const char *a, const char *b, size_t nb) {
  out->n = 0;
  memcpy(out->path, o->c->path, sizeof out->path);
  schema_path_add(out, a, strlen(a));
  if (b) schema_path_add(out, b, nb);
  return DF_OK;
}

/* name ::= "\"key\"" ":" ws value */
static df_status write_member(schema_gen *g, const object *o, member *m) {
  schema_conj value;
  df_buf key = {0}, body = {0};
  DF_TRY(begin_conj(o, &value, "properties", m->name, m->len));
  DF_TRY(member_conj(g, o, m->name, m->len, &value, &m->possible));
  if (!m->possible && !m->required) return DF_OK;
  DF_TRY(schema_new_rule(g, m->rule));
  df_status s = df_json_quote(&key, m->name, m->len, g->err);
  if (s == DF_OK) s = df_buf_puts(&key, ":", g->err);
  if (s == DF_OK) s = schema_put_quoted(g, key.data, key.len, &body);
  if (s == DF_OK) s = df_buf_puts(&body, " ", g->err);
  if (s == DF_OK) s = schema_put_shared(g, SHARED_WS, &body);
  if (s == DF_OK) s = df_buf_puts(&body, " ", g->err);
  if (s == DF_OK) s = m->possible ? schema_put_conj(g, &value, &body) : schema_put_shared(g, SHARED_NEVER, &body);
  if (s == DF_OK) s = schema_write_rule(g, m->rule, &body);
  df_buf_release(&key);
  df_buf_release(&body);
  return s;
}

static df_status write_further(schema_gen *g, object *o) {
  schema_conj value;
  df_buf body = {0};
  df_slice *names;
  DF_TRY(begin_conj(o, &value, "additionalProperties", NULL, 0));
  DF_TRY(member_conj(g, o, NULL, 0, &value, &o->open));
  if (!o->open) return DF_OK;
  DF_TRY(schema_new_rule(g, o->further));
  names = df_calloc((size_t)o->n + 1, sizeof *names);
  if (!names) return DF_OOM(g->err, "a schema", o->n * sizeof *names);
  for (uint32_t i = 0; i < o->n; i++) names[i] = (df_slice){o->members[i].name, o->members[i].len};
  df_status s = schema_put_other_string(g, o->c, names, o->n, &body);
  if (s == DF_OK) s = df_buf_puts(&body, " \":\" ", g->err);
  if (s == DF_OK) s = schema_put_shared(g, SHARED_WS, &body);
  if (s == DF_OK) s = df_buf_puts(&body, " ", g->err);
  if (s == DF_OK) s = schema_put_conj(g, &value, &body);
  if (s == DF_OK) s = schema_write_rule(g, o->further, &body);
  df_free(names);
  df_buf_release(&body);
  return s;
}

/* Rules of what may follow behind members 0..i: rest[i]. Written from the back; each names the next. */
static df_status write_rests(schema_gen *g, const object *o, char (*rest)[DF_SCHEMA_NAME_SIZE]) {
  for (uint32_t i = o->n + 1; i-- > 0;) {
    const member *m = i < o->n ? &o->members[i] : NULL;
    df_buf body = {0};
    df_status s = schema_new_rule(g, rest[i]);
    if (s == DF_OK && !m) s = o->open ? df_buf_printf(&body, g->err, "(\",\" ws %s)*", o->further) : DF_OK;
    if (s == DF_OK && m && m->rule[0])
      s = df_buf_printf(&body, g->err, m->required ? "\",\" ws %s " : "(\",\" ws %s)? ", m->rule);
    if (s == DF_OK && m) s = df_buf_puts(&body, rest[i + 1], g->err);
    if (s == DF_OK) s = schema_write_rule(g, rest[i], &body);
    df_buf_release(&body);
    DF_TRY(s);
  }
  return use(g, SHARED_WS);
}

/* The first member is any up to the first required one; the empty object when none is required. */
static df_status put_members(schema_gen *g, const object *o, df_buf *b) {
  char(*rest)[DF_SCHEMA_NAME_SIZE] = df_calloc((size_t)o->n + 1, DF_SCHEMA_NAME_SIZE);
  bool some = false, empty = true;
  if (!rest) return DF_OOM(g->err, "a schema", o->n * DF_SCHEMA_NAME_SIZE);
  df_status s = write_rests(g, o, rest);
  if (s == DF_OK) s = df_buf_puts(b, "\"{\" ws (", g->err);
  for (uint32_t i = 0; i < o->n && s == DF_OK && empty; i++) {
    if (o->members[i].rule[0]) {
      s = df_buf_printf(b, g->err, "%s%s %s", some ? " | " : "", o->members[i].rule, rest[i + 1]);
      some = true;
    }
    empty = !o->members[i].required;
  }
  if (s == DF_OK && empty && o->open) {
    s = df_buf_printf(b, g->err, "%s%s %s", some ? " | " : "", o->further, rest[o->n]);
    some = true;
  }
  df_free(rest);
  DF_TRY(s);
  if (!some) return df_buf_puts(b, ") \"}\"", g->err);
  return df_buf_puts(b, empty ? " ) ws \"}\" | \"{\" ws \"}\"" : ") ws \"}\"", g->err);
}

/* Objects without known members can be counted. */
static df_status put_counted(schema_gen *g, const object *o, uint32_t min, uint32_t max, df_buf *b) {
  bool empty = min == 0;
  DF_TRY(use(g, SHARED_WS));
  if (max < min || (!o->open && min > 0)) return schema_put_shared(g, SHARED_NEVER, b);
  if (max == 0 || !o->open) return df_buf_puts(b, "\"{\" ws \"}\"", g->err);
  PUT("\"{\" ws %s (\",\" ws %s)", o->further, o->further);
  DF_TRY(put_times(g, empty ? 0 : min - 1, max == SCHEMA_NONE ? max : max - 1, b));
  return df_buf_puts(b, empty ? " ws \"}\" | \"{\" ws \"}\"" : " ws \"}\"", g->err);
}

static df_status object_body(schema_gen *g, object *o, df_buf *b) {
  uint32_t min, max, required = 0;
  for (uint32_t i = 0; i < o->c->n; i++) DF_TRY(collect_part(g, o, o->c->part[i].v));
  DF_TRY(schema_counts(g, o->c, "minProperties", "maxProperties", &min, &max));
  for (uint32_t i = 0; i < o->n; i++) DF_TRY(write_member(g, o, &o->members[i]));
  DF_TRY(write_further(g, o));
  for (uint32_t i = 0; i < o->n; i++) required += o->members[i].required;
  if (o->n == 0) return put_counted(g, o, min, max, b);
  if (min > required || (max != SCHEMA_NONE && (o->open || max < o->n)))
    return schema_fail(g, o->c, DF_ERR_UNSUPPORTED,
                       "\"minProperties\" and \"maxProperties\" beside \"properties\" are not supported");
  return put_members(g, o, b);
}

df_status schema_put_object(schema_gen *g, const schema_conj *c, df_buf *b) {
  object o = {.c = c};
  df_status s = df_map_init(&o.by_name, 16, g->err);
  if (s == DF_OK) s = object_body(g, &o, b);
  df_map_release(&o.by_name);
  df_free(o.members);
  return s;
}

/* ---- arrays -------------------------------------------------------------------------------------------- */

static const df_json *prefix_of(const df_json *v) {
  const df_json *prefix = df_json_member(v, "prefixItems"), *items = df_json_member(v, "items");
  return prefix ? prefix : df_json_kind_of(items) == DF_JSON_ARRAY ? items : NULL;
}

static const df_json *rest_of(const df_json *v) {
  const df_json *items = df_json_member(v, "items");
  return df_json_kind_of(items) == DF_JSON_ARRAY ? df_json_member(v, "additionalItems") : items;
}

static df_status check_array(schema_gen *g, const schema_conj *c, uint32_t *n_prefix) {
  *n_prefix = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    const df_json *v = c->part[i].v, *prefix = prefix_of(v);
    if (df_json_bool(df_json_member(v, "uniqueItems")))
      return schema_fail(g, c, DF_ERR_UNSUPPORTED, "\"uniqueItems\" is not supported");
    if (prefix && df_json_kind_of(prefix) != DF_JSON_ARRAY)
      return schema_fail(g, c, DF_ERR_FORMAT, "\"prefixItems\" must be a list of schemas");
    if (df_json_size(prefix) > 1024) return schema_fail(g, c, DF_ERR_LIMIT, "\"prefixItems\" is too long");
    *n_prefix = DF_MAX(*n_prefix, (uint32_t)df_json_size(prefix));
  }
  return DF_OK;
}

/* What element i has to fit; i = NONE: those behind every prefix. */
static df_status put_element(schema_gen *g, const schema_conj *c, uint32_t i, df_buf *b, bool *possible) {
  schema_conj e = {.n = 0};
  char index[16];
  memcpy(e.path, c->path, sizeof e.path);
  (void)snprintf(index, sizeof index, "%u", i);
  schema_path_add(&e, i == SCHEMA_NONE ? "items" : "prefixItems", i == SCHEMA_NONE ? 5 : 11);
  if (i != SCHEMA_NONE) schema_path_add(&e, index, strlen(index));
  *possible = true;
  for (uint32_t k = 0; k < c->n; k++) {
    const df_json *v = c->part[k].v, *prefix = prefix_of(v);
    const df_json *own = i != SCHEMA_NONE && i < df_json_size(prefix) ? df_json_at(prefix, i) : rest_of(v);
    if (!own || (df_json_kind_of(own) == DF_JSON_BOOL && df_json_bool(own))) continue;
    if (df_json_kind_of(own) == DF_JSON_BOOL) *possible = false;
    DF_TRY(schema_conj_add(g, &e, own, SCHEMA_NO_PARENT));
  }
  return *possible ? schema_put_conj(g, &e, b) : schema_put_shared(g, SHARED_NEVER, b);
}

/* rule[i]: what may follow behind element i - 1. */
static df_status write_tail(schema_gen *g, const schema_conj *c, uint32_t i, uint32_t n_prefix, uint32_t min,
                            uint32_t max, char (*rule)[DF_SCHEMA_NAME_SIZE]) {
  df_buf b = {0};
  bool possible = true, optional = i >= min;
  df_status s = schema_new_rule(g, rule[i]);
  if (s == DF_OK && i < n_prefix && i < max) {
    s = df_buf_puts(&b, optional ? "(\",\" ws " : "\",\" ws ", g->err);
    if (s == DF_OK) s = put_element(g, c, i, &b, &possible);
    if (s == DF_OK) s = df_buf_printf(&b, g->err, optional ? " %s)?" : " %s", rule[i + 1]);
  } else if (s == DF_OK && i < max) {
    s = df_buf_puts(&b, "(\",\" ws ", g->err);
    if (s == DF_OK) s = put_element(g, c, SCHEMA_NONE, &b, &possible);
    if (s == DF_OK) s = df_buf_puts(&b, ")", g->err);
    if (s == DF_OK) s = put_times(g, min > i ? min - i : 0, max == SCHEMA_NONE ? max : max - i, &b);
  }
  if (s == DF_OK) s = schema_write_rule(g, rule[i], &b);
  df_buf_release(&b);
  return s;
}

df_status schema_put_array(schema_gen *g, const schema_conj *c, df_buf *b) {
  uint32_t min, max, n_prefix;
  bool possible;
  DF_TRY(schema_counts(g, c, "minItems", "maxItems", &min, &max));
  DF_TRY(check_array(g, c, &n_prefix));
  DF_TRY(use(g, SHARED_WS));
  if (max < min) return schema_put_shared(g, SHARED_NEVER, b);
  if (max == 0) return df_buf_puts(b, "\"[\" ws \"]\"", g->err);
  uint32_t last = DF_MAX(n_prefix, 1);
  char(*rule)[DF_SCHEMA_NAME_SIZE] = df_calloc((size_t)last + 1, DF_SCHEMA_NAME_SIZE);
  if (!rule) return DF_OOM(g->err, "a schema", last * DF_SCHEMA_NAME_SIZE);
  df_status s = DF_OK;
  for (uint32_t i = last + 1; i-- > 1 && s == DF_OK;) s = write_tail(g, c, i, n_prefix, min, max, rule);
  if (s == DF_OK) s = df_buf_puts(b, "\"[\" ws ", g->err);
  if (s == DF_OK) s = put_element(g, c, n_prefix ? 0 : SCHEMA_NONE, b, &possible);
  if (s == DF_OK) s = df_buf_printf(b, g->err, " %s ws \"]\"%s", rule[1], min == 0 ? " | \"[\" ws \"]\"" : "");
  df_free(rule);
  return s;
}
