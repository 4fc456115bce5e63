/* Schemas taken apart into rules: references, alternatives, types. */
#include "engine/json_schema.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/json_schema_gen.h"

typedef enum keyword_use { USE_ANY, USE_NUMBER, USE_STRING, USE_ARRAY, USE_OBJECT, USE_NOTHING } keyword_use;

static const struct {
  const char *word;
  keyword_use use;
} KEYWORDS[] = {
    {"type", USE_ANY},
    {"enum", USE_ANY},
    {"const", USE_ANY},
    {"anyOf", USE_ANY},
    {"oneOf", USE_ANY},
    {"allOf", USE_ANY},
    {"$ref", USE_ANY},
    {"nullable", USE_ANY},
    {"format", USE_ANY},
    {"minimum", USE_NUMBER},
    {"maximum", USE_NUMBER},
    {"exclusiveMinimum", USE_NUMBER},
    {"exclusiveMaximum", USE_NUMBER},
    {"minLength", USE_STRING},
    {"maxLength", USE_STRING},
    {"pattern", USE_STRING},
    {"items", USE_ARRAY},
    {"prefixItems", USE_ARRAY},
    {"additionalItems", USE_ARRAY},
    {"minItems", USE_ARRAY},
    {"maxItems", USE_ARRAY},
    {"uniqueItems", USE_ARRAY},
    {"properties", USE_OBJECT},
    {"required", USE_OBJECT},
    {"additionalProperties", USE_OBJECT},
    {"minProperties", USE_OBJECT},
    {"maxProperties", USE_OBJECT},
    {"$schema", USE_NOTHING},
    {"$id", USE_NOTHING},
    {"$anchor", USE_NOTHING},
    {"$comment", USE_NOTHING},
    {"$defs", USE_NOTHING},
    {"definitions", USE_NOTHING},
    {"title", USE_NOTHING},
    {"description", USE_NOTHING},
    {"default", USE_NOTHING},
    {"examples", USE_NOTHING},
    {"example", USE_NOTHING},
    {"deprecated", USE_NOTHING},
    {"discriminator", USE_NOTHING},
    {"readOnly", USE_NOTHING},
    {"writeOnly", USE_NOTHING},
    {"strict", USE_NOTHING},
};

/* ---- paths and messages -------------------------------------------------------------------------------- */

df_status schema_fail(schema_gen *g, const schema_conj *c, df_status code, const char *fmt, ...) {
  char why[256];
  va_list ap;
  va_start(ap, fmt);
  (void)vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  return DF_FAIL(g->err, code, "could not use the schema: %s: %s", c->path, why);
}

/* Long paths lose their middle, so that the end stays to be seen. */
void schema_path_add(schema_conj *c, const char *key, size_t n) {
  char piece[72];
  size_t len = strlen(c->path), k = 0;
  piece[k++] = '/';
  for (size_t i = 0; i < n && k + 1 < sizeof piece; i++)
    piece[k++] = (char)((uint8_t)key[i] < 0x20 || key[i] == '"' ? '?' : key[i]);
  if (len + k + 1 > sizeof c->path) {
    size_t keep = sizeof c->path - k - 1 - 5;
    memmove(c->path + 5, c->path + len - keep, keep);
    memcpy(c->path, "#/...", 5);
    len = keep + 5;
  }
  memcpy(c->path + len, piece, k);
  c->path[len + k] = '\0';
}

df_status schema_spend(schema_gen *g, const schema_conj *c, uint64_t n) {
  g->work += n;
  return g->work > SCHEMA_MAX_WORK ? schema_fail(g, c, DF_ERR_LIMIT, "the schema takes too much work") : DF_OK;
}

/* ---- rules --------------------------------------------------------------------------------------------- */

df_status schema_new_rule(schema_gen *g, char name[DF_SCHEMA_NAME_SIZE]) {
  if (g->rules->n_rules >= DF_SCHEMA_MAX_RULES)
    return DF_FAIL(g->err, DF_ERR_LIMIT, "could not use the schema: it needs more than %d rules", DF_SCHEMA_MAX_RULES);
  (void)snprintf(name, DF_SCHEMA_NAME_SIZE, "v%u", g->rules->n_rules++);
  return DF_OK;
}

df_status schema_write_rule(schema_gen *g, const char *name, const df_buf *body) {
  DF_TRY(df_buf_printf(g->rules->out, g->err, "%s ::= ", name));
  /* A line end right behind "::=" would not end the rule. */
  DF_TRY(body->len ? df_buf_put(g->rules->out, body->data, body->len, g->err)
                   : df_buf_puts(g->rules->out, "\"\"", g->err));
  return df_buf_puts(g->rules->out, "\n", g->err);
}

df_status schema_conj_add(schema_gen *g, schema_conj *c, const df_json *v, uint32_t parent) {
  df_json_kind kind = df_json_kind_of(v);
  if (!v || (kind != DF_JSON_OBJECT && kind != DF_JSON_BOOL))
    return schema_fail(g, c, DF_ERR_FORMAT, "a schema must be an object, true or false, not %s",
                       df_json_kind_name(kind));
  for (uint32_t up = parent; up != SCHEMA_NO_PARENT; up = c->parent[up])
    if (c->part[up].v == v) return schema_fail(g, c, DF_ERR_FORMAT, "\"$ref\" leads back to itself");
  for (uint32_t i = 0; i < c->n; i++)
    if (c->part[i].v == v) return DF_OK;
  if (c->n == SCHEMA_MAX_PARTS)
    return schema_fail(g, c, DF_ERR_LIMIT, "more than %d schemas apply at once", SCHEMA_MAX_PARTS);
  c->parent[c->n] = (uint8_t)parent;
  c->part[c->n++] = (schema_part){.v = v};
  return DF_OK;
}

df_status schema_put_conj(schema_gen *g, const schema_conj *c, df_buf *b) {
  uint32_t at;
  char name[DF_SCHEMA_NAME_SIZE];
  size_t bytes = c->n * sizeof c->part[0];
  DF_TRY(schema_spend(g, c, 1 + c->n));
  if (c->n == 0) return schema_put_shared(g, SHARED_VALUE, b);
  if (df_map_get(&g->known, (const char *)c->part, bytes, &at))
    return df_buf_printf(b, g->err, "v%u", g->todo[at]->rule);
  if (g->n_todo == g->cap_todo) {
    uint32_t cap = g->cap_todo ? g->cap_todo * 2 : 32;
    schema_todo **todo = df_realloc(g->todo, cap * sizeof(schema_todo *));
    if (!todo) return DF_OOM(g->err, "a schema", cap * sizeof(schema_todo *));
    g->todo = todo;
    g->cap_todo = cap;
  }
  schema_todo *t = df_alloc(sizeof *t);
  if (!t) return DF_OOM(g->err, "a schema", sizeof *t);
  t->conj = *c;
  t->rule = g->rules->n_rules;
  g->todo[g->n_todo++] = t;
  DF_TRY(schema_new_rule(g, name));
  DF_TRY(df_map_put(&g->known, (const char *)t->conj.part, bytes, g->n_todo - 1, NULL, g->err));
  return df_buf_puts(b, name, g->err);
}

/* ---- references ---------------------------------------------------------------------------------------- */

static const df_json *step_into(const df_json *at, const char *key, size_t n) {
  char text[256];
  size_t k = 0;
  for (size_t i = 0; i < n && k + 1 < sizeof text; i++) {
    char ch = key[i];
    if (ch == '~' && i + 1 < n) ch = key[++i] == '0' ? '~' : '/';
    text[k++] = ch;
  }
  text[k] = '\0';
  if (df_json_kind_of(at) == DF_JSON_OBJECT) return df_json_member(at, text);
  if (df_json_kind_of(at) != DF_JSON_ARRAY || k == 0 || k > 6) return NULL;
  size_t index = 0;
  for (size_t i = 0; i < k; i++) {
    if (text[i] < '0' || text[i] > '9') return NULL;
    index = index * 10 + (size_t)(text[i] - '0');
  }
  return df_json_at(at, index);
}

static df_status resolve(schema_gen *g, const schema_conj *c, const df_json *ref, const df_json **out) {
  size_t n;
  const char *p = df_json_str(ref, &n), *end;
  const df_json *at = g->root;
  if (!p) return schema_fail(g, c, DF_ERR_FORMAT, "\"$ref\" must be a string");
  end = p + n;
  if (n == 0 || *p != '#' || (n > 1 && p[1] != '/') || memchr(p, '%', n))
    return schema_fail(g, c, DF_ERR_UNSUPPORTED,
                       "\"$ref\": only references within the schema (\"#/...\") are supported");
  for (p++; p < end && at;) {
    const char *key = ++p, *slash = memchr(p, '/', (size_t)(end - p));
    p = slash ? slash : end;
    if (p - key > 250) return schema_fail(g, c, DF_ERR_LIMIT, "\"$ref\" has a name that is too long");
    at = step_into(at, key, (size_t)(p - key));
  }
  if (!at)
    return schema_fail(g, c, DF_ERR_FORMAT, "\"$ref\" leads nowhere: \"%.*s\"", (int)DF_MIN(n, (size_t)100), end - n);
  *out = at;
  return DF_OK;
}

static df_status expand_ref(schema_gen *g, schema_conj *c, uint32_t at) {
  const df_json *ref = df_json_member(c->part[at].v, "$ref"), *target = NULL;
  c->part[at].done |= DONE_REF;
  if (!ref) return DF_OK;
  DF_TRY(resolve(g, c, ref, &target));
  return schema_conj_add(g, c, target, at);
}

static df_status expand_all(schema_gen *g, schema_conj *c, uint32_t at) {
  const df_json *all = df_json_member(c->part[at].v, "allOf");
  c->part[at].done |= DONE_ALL;
  if (!all) return DF_OK;
  if (df_json_kind_of(all) != DF_JSON_ARRAY || df_json_size(all) == 0)
    return schema_fail(g, c, DF_ERR_FORMAT, "\"allOf\" must be a list of schemas");
  for (size_t i = 0; i < df_json_size(all); i++) DF_TRY(schema_conj_add(g, c, df_json_at(all, i), at));
  return DF_OK;
}

df_status schema_expand(schema_gen *g, schema_conj *c) {
  for (uint32_t i = 0; i < c->n; i++) {
    if (!(c->part[i].done & DONE_REF)) DF_TRY(expand_ref(g, c, i));
    if (!(c->part[i].done & DONE_ALL)) DF_TRY(expand_all(g, c, i));
  }
  return DF_OK;
}

/* ---- keywords ------------------------------------------------------------------------------------------ */

static df_status check_keywords(schema_gen *g, const schema_conj *c, const df_json *v, uint32_t *uses) {
  const char *key;
  size_t len;
  const df_json *value;
  df_json_iter it = df_json_begin(v);
  DF_TRY(schema_spend(g, c, df_json_size(v)));
  while (df_json_next(&it, &key, &len, &value)) {
    size_t k = 0;
    while (k < DF_COUNT_OF(KEYWORDS) && strcmp(KEYWORDS[k].word, key) != 0) k++;
    if (k == DF_COUNT_OF(KEYWORDS)) {
      if (len > 2 && key[0] == 'x' && key[1] == '-') continue;
      return schema_fail(g, c, DF_ERR_UNSUPPORTED, "\"%.*s\" is not supported", (int)DF_MIN(len, (size_t)64), key);
    }
    *uses |= 1u << KEYWORDS[k].use;
  }
  return DF_OK;
}

static uint32_t type_bit(const char *name) {
  static const char *const names[] = {"null", "boolean", "integer", "number", "string", "array", "object"};
  for (uint32_t i = 0; name && i < DF_COUNT_OF(names); i++)
    if (strcmp(names[i], name) == 0) return 1u << i;
  return 0;
}

static df_status types_of(schema_gen *g, const schema_conj *c, const df_json *type, uint32_t *types) {
  size_t n = df_json_kind_of(type) == DF_JSON_ARRAY ? df_json_size(type) : 1;
  *types = 0;
  for (size_t i = 0; i < n; i++) {
    const df_json *one = df_json_kind_of(type) == DF_JSON_ARRAY ? df_json_at(type, i) : type;
    uint32_t bit = type_bit(df_json_str(one, NULL));
    if (!bit)
      return schema_fail(g, c, DF_ERR_FORMAT,
                         "\"type\" must be null, boolean, integer, number, string, array or object");
    *types |= bit;
  }
  if (n == 0) return schema_fail(g, c, DF_ERR_FORMAT, "\"type\" is an empty list");
  return DF_OK;
}

/* Types that all parts allow. INTEGER within NUMBER: the narrower one counts. */
uint32_t schema_meet_types(uint32_t a, uint32_t b) {
  uint32_t both = a & b;
  if ((a & SCHEMA_NUMBER) && (b & SCHEMA_INTEGER)) both |= SCHEMA_INTEGER;
  if ((b & SCHEMA_NUMBER) && (a & SCHEMA_INTEGER)) both |= SCHEMA_INTEGER;
  if (both & SCHEMA_NUMBER) both &= ~(uint32_t)SCHEMA_INTEGER;
  return both;
}

static uint32_t inferred(uint32_t uses) {
  static const uint32_t types[] = {0, SCHEMA_NUMBER, SCHEMA_STRING, SCHEMA_ARRAY, SCHEMA_OBJECT};
  uint32_t all = 0;
  for (uint32_t i = USE_NUMBER; i <= USE_OBJECT; i++)
    if (uses >> i & 1) all |= types[i];
  return all ? all : SCHEMA_ALL;
}

df_status schema_find_types(schema_gen *g, const schema_conj *c, uint32_t *types) {
  uint32_t uses = 0;
  bool typed = false;
  *types = SCHEMA_ALL;
  for (uint32_t i = 0; i < c->n; i++) {
    const df_json *v = c->part[i].v, *type = df_json_member(v, "type");
    uint32_t own;
    if (df_json_kind_of(v) == DF_JSON_BOOL) {
      if (!df_json_bool(v)) *types = 0;
      continue;
    }
    DF_TRY(check_keywords(g, c, v, &uses));
    if (!type) continue;
    DF_TRY(types_of(g, c, type, &own));
    if (df_json_bool(df_json_member(v, "nullable"))) own |= SCHEMA_NULL;
    *types = schema_meet_types(*types, own);
    typed = true;
  }
  if (!typed) *types = schema_meet_types(*types, inferred(uses));
  return DF_OK;
}

/* ---- constants ----------------------------------------------------------------------------------------- */

bool schema_fits_type(uint32_t types, const df_json *v) {
  double d = df_json_num(v);
  switch (df_json_kind_of(v)) {
    case DF_JSON_NULL: return types & SCHEMA_NULL;
    case DF_JSON_BOOL: return types & SCHEMA_BOOLEAN;
    case DF_JSON_INT: return types & (SCHEMA_INTEGER | SCHEMA_NUMBER);
    case DF_JSON_REAL:
      return types & SCHEMA_NUMBER || ((types & SCHEMA_INTEGER) && d > -9e15 && d < 9e15 && d == (double)(int64_t)d);
    case DF_JSON_STRING: return types & SCHEMA_STRING;
    case DF_JSON_ARRAY: return types & SCHEMA_ARRAY;
    case DF_JSON_OBJECT: return types & SCHEMA_OBJECT;
  }
  return false;
}

static df_status literal_text(schema_gen *g, const df_json *v, df_buf *json) {
  df_json_out w;
  df_json_out_begin(&w, json, g->err);
  df_json_out_value(&w, v);
  return df_json_out_end(&w);
}

df_status schema_put_literal(schema_gen *g, const df_json *v, df_buf *b) {
  df_buf json = {0};
  df_status s = literal_text(g, v, &json);
  if (s == DF_OK) s = schema_put_quoted(g, json.data, json.len, b);
  df_buf_release(&json);
  return s;
}

/* The one part with enum or const, or NULL. Other constraints beside it than a type would have to be checked value by
 * value: refused. */
static df_status find_constants(schema_gen *g, const schema_conj *c, const df_json **values, bool *is_list) {
  uint32_t n = 0, others = 0;
  *values = NULL;
  for (uint32_t i = 0; i < c->n; i++) {
    const df_json *v = c->part[i].v, *list = df_json_member(v, "enum"), *one = df_json_member(v, "const");
    const char *key;
    size_t len;
    const df_json *value;
    df_json_iter it = df_json_begin(v);
    n += (list != NULL) + (one != NULL);
    if (list || one) *values = list ? list : one;
    if (list || one) *is_list = list != NULL;
    while (df_json_kind_of(v) == DF_JSON_OBJECT && df_json_next(&it, &key, &len, &value))
      for (size_t k = 0; k < DF_COUNT_OF(KEYWORDS); k++)
        if (strcmp(KEYWORDS[k].word, key) == 0)
          others += (KEYWORDS[k].use >= USE_NUMBER && KEYWORDS[k].use <= USE_OBJECT) || strcmp(key, "format") == 0;
  }
  if (n > 1) return schema_fail(g, c, DF_ERR_UNSUPPORTED, "several \"enum\" or \"const\" at once are not supported");
  if (n == 1 && others)
    return schema_fail(g, c, DF_ERR_UNSUPPORTED, "\"enum\" or \"const\" beside other limits is not supported");
  return DF_OK;
}

static df_status put_constants(schema_gen *g, const schema_conj *c, const df_json *values, bool is_list, uint32_t types,
                               df_buf *b) {
  size_t n = is_list ? df_json_size(values) : 1;
  bool some = false;
  if (is_list && (df_json_kind_of(values) != DF_JSON_ARRAY || n == 0))
    return schema_fail(g, c, DF_ERR_FORMAT, "\"enum\" must be a list of values");
  for (size_t i = 0; i < n; i++) {
    const df_json *v = is_list ? df_json_at(values, i) : values;
    DF_TRY(schema_spend(g, c, 1));
    if (!schema_fits_type(types, v)) continue;
    if (some) DF_TRY(df_buf_puts(b, " | ", g->err));
    DF_TRY(schema_put_literal(g, v, b));
    some = true;
  }
  return some ? DF_OK : schema_put_shared(g, SHARED_NEVER, b);
}

/* ---- one conjunction ----------------------------------------------------------------------------------- */

static bool has_any(const schema_conj *c, const char *const *keys) {
  for (; *keys; keys++)
    for (uint32_t i = 0; i < c->n; i++)
      if (df_json_member(c->part[i].v, *keys)) return true;
  return false;
}

static df_status put_type(schema_gen *g, const schema_conj *c, uint32_t type, df_buf *b) {
  static const char *const of_object[] = {"properties",    "required",      "additionalProperties",
                                          "minProperties", "maxProperties", NULL};
  static const char *const of_array[] = {"items",       "prefixItems", "additionalItems", "minItems", "maxItems",
                                         "uniqueItems", NULL};
  switch (type) {
    case SCHEMA_NULL: return schema_put_shared(g, SHARED_NULL, b);
    case SCHEMA_BOOLEAN: return schema_put_shared(g, SHARED_BOOLEAN, b);
    case SCHEMA_INTEGER: return schema_put_number(g, c, true, b);
    case SCHEMA_NUMBER: return schema_put_number(g, c, false, b);
    case SCHEMA_STRING: return schema_put_string(g, c, b);
    case SCHEMA_ARRAY: return has_any(c, of_array) ? schema_put_array(g, c, b) : schema_put_shared(g, SHARED_ARRAY, b);
    default: return has_any(c, of_object) ? schema_put_object(g, c, b) : schema_put_shared(g, SHARED_OBJECT, b);
  }
}

/* A conjunction of which nothing is left to be taken apart. */
static df_status put_leaf(schema_gen *g, const schema_conj *c, df_buf *b) {
  uint32_t types;
  const df_json *values;
  bool is_list = false, some = false;
  DF_TRY(schema_find_types(g, c, &types));
  DF_TRY(find_constants(g, c, &values, &is_list));
  if (values) return put_constants(g, c, values, is_list, types, b);
  for (uint32_t bit = 1; bit <= SCHEMA_OBJECT; bit *= 2) {
    if (!(types & bit)) continue;
    if (some) DF_TRY(df_buf_puts(b, " | ", g->err));
    DF_TRY(put_type(g, c, bit, b));
    some = true;
  }
  return some ? DF_OK : schema_put_shared(g, SHARED_NEVER, b);
}

static df_status put_expanded(schema_gen *g, const schema_conj *from, df_buf *b, uint32_t *n);

static df_status put_each(schema_gen *g, const schema_conj *c, uint32_t at, const char *key, const schema_conj *each,
                          df_buf *b, uint32_t *n) {
  const df_json *list = df_json_member(c->part[at].v, key);
  for (size_t i = 0; i < df_json_size(list); i++) {
    schema_conj one = each ? each[i] : *c;
    char index[24];
    schema_path_add(&one, key, strlen(key));
    (void)snprintf(index, sizeof index, "%zu", i);
    schema_path_add(&one, index, strlen(index));
    if (!each) DF_TRY(schema_conj_add(g, &one, df_json_at(list, i), at));
    DF_TRY(put_expanded(g, &one, b, n));
  }
  return DF_OK;
}

static df_status put_alternatives(schema_gen *g, const schema_conj *c, uint32_t at, const char *key, df_buf *b,
                                  uint32_t *n) {
  const df_json *list = df_json_member(c->part[at].v, key);
  const size_t size = df_json_size(list);
  if (df_json_kind_of(list) != DF_JSON_ARRAY || size == 0)
    return schema_fail(g, c, DF_ERR_FORMAT, "\"%s\" must be a list of schemas", key);
  if (strcmp(key, "oneOf") != 0 || size == 1) return put_each(g, c, at, key, NULL, b, n);
  schema_conj *each = df_calloc(size, sizeof *each);
  if (!each) return DF_OOM(g->err, "a schema", size * sizeof *each);
  df_status s = schema_check_one_of(g, c, at, list, each);
  if (s == DF_OK) s = put_each(g, c, at, key, each, b, n);
  df_free(each);
  return s;
}

/* Recursion: once for each part with alternatives, of which there are at most SCHEMA_MAX_PARTS twice. */
static df_status put_expanded(schema_gen *g, const schema_conj *from, df_buf *b, uint32_t *n) {
  schema_conj c = *from;
  DF_TRY(schema_spend(g, &c, 1 + c.n));
  DF_TRY(schema_expand(g, &c));
  for (uint32_t i = 0; i < c.n; i++) {
    static const struct {
      const char *key;
      uint64_t done;
    } kinds[] = {{"anyOf", DONE_ANY}, {"oneOf", DONE_ONE}};
    for (size_t k = 0; k < 2; k++) {
      const df_json *list = df_json_member(c.part[i].v, kinds[k].key);
      bool done = c.part[i].done & kinds[k].done;
      c.part[i].done |= kinds[k].done;
      if (list && !done) return put_alternatives(g, &c, i, kinds[k].key, b, n);
    }
  }
  if (++*n > SCHEMA_MAX_ALTERNATIVES) return schema_fail(g, &c, DF_ERR_LIMIT, "too many alternatives");
  if (*n > 1) DF_TRY(df_buf_puts(b, " | ", g->err));
  return put_leaf(g, &c, b);
}

static df_status write_todo(schema_gen *g, uint32_t at) {
  schema_todo *t = g->todo[at];
  char name[DF_SCHEMA_NAME_SIZE];
  df_buf body = {0};
  uint32_t n = 0;
  (void)snprintf(name, sizeof name, "v%u", t->rule);
  df_status s = put_expanded(g, &t->conj, &body, &n);
  if (s == DF_OK) s = schema_write_rule(g, name, &body);
  df_buf_release(&body);
  return s;
}

/* ---- entry points -------------------------------------------------------------------------------------- */

static df_status add_schema(schema_gen *g, const df_json *schema, bool object_only, const df_json *object,
                            char name[DF_SCHEMA_NAME_SIZE]) {
  schema_conj c = {.path = "#"};
  df_buf first = {0};
  df_status s;
  DF_TRY_GOTO(s, df_map_init(&g->known, 64, g->err), done);
  if (schema) DF_TRY_GOTO(s, schema_conj_add(g, &c, schema, SCHEMA_NO_PARENT), done);
  if (object_only) DF_TRY_GOTO(s, schema_conj_add(g, &c, object, SCHEMA_NO_PARENT), done);
  DF_TRY_GOTO(s, schema_put_conj(g, &c, &first), done);
  (void)snprintf(name, DF_SCHEMA_NAME_SIZE, "%s", first.data);
  for (uint32_t i = 0; i < g->n_todo; i++) DF_TRY_GOTO(s, write_todo(g, i), done);
done:
  df_buf_release(&first);
  df_map_release(&g->known);
  for (uint32_t i = 0; i < g->n_todo; i++) df_free(g->todo[i]);
  df_free(g->todo);
  for (uint32_t i = 0; i < g->n_made; i++) df_json_free(g->made[i]);
  return s;
}

df_status df_schema_rules_add(df_schema_rules *r, const df_json *schema, bool object_only,
                              char name[DF_SCHEMA_NAME_SIZE], df_error *err) {
  static const char is_object[] = "{\"type\":\"object\"}";
  schema_gen g = {.rules = r, .root = schema, .err = err};
  df_json *object = NULL;
  DF_TRY(df_json_parse(is_object, sizeof is_object - 1, &object, err));
  df_status s = add_schema(&g, schema, object_only, object, name);
  df_json_free(object);
  return s;
}

df_status df_schema_rules_finish(df_schema_rules *r, df_error *err) { return schema_put_shared_rules(r, err); }

df_status df_json_schema_gbnf(const char *json, size_t n, bool object_only, df_buf *out, df_error *err) {
  size_t before = out->len;
  df_schema_rules rules = {.out = out};
  df_json *schema = NULL;
  char name[DF_SCHEMA_NAME_SIZE];
  if (n > DF_SCHEMA_MAX_BYTES)
    return DF_FAIL(err, DF_ERR_LIMIT, "could not use the schema: %zu bytes, at most %d are allowed", n,
                   (int)DF_SCHEMA_MAX_BYTES);
  if (n) {
    df_status parsed = df_json_parse(json, n, &schema, err);
    if (parsed != DF_OK) {
      if (err) df_error_prefix(err, "could not use the schema");
      return parsed;
    }
  }
  df_status s = df_schema_rules_add(&rules, schema, object_only, name, err);
  if (s == DF_OK) s = df_buf_printf(out, err, "root ::= %s\n", name);
  if (s == DF_OK) s = df_schema_rules_finish(&rules, err);
  if (s != DF_OK) {
    out->len = before;
    if (out->data) out->data[before] = '\0';
  }
  df_json_free(schema);
  return s;
}

df_status df_json_schema_grammar(const df_tokenizer *t, const char *json, size_t n, bool object_only, df_grammar **out,
                                 df_error *err) {
  df_buf text = {0};
  df_status s = df_json_schema_gbnf(json, n, object_only, &text, err);
  if (s == DF_OK) s = df_grammar_from_gbnf(t, text.data, text.len, out, err);
  df_buf_release(&text);
  return s;
}
