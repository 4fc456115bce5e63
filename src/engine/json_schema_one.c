/* oneOf: exactly one alternative may fit. A grammar cannot count, so alternatives are taken that no value fits twice.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "engine/json_schema_gen.h"

enum {
  MOST = 128, /* alternatives: each is compared with each */
  DEPTH = 6,  /* of members and alternatives looked into */
  NAMES = 4   /* members that one alternative is made to have */
};

/* Two conjunctions that are compared. */
typedef struct both {
  schema_gen *g;
  schema_conj x, y;
  uint32_t depth;
} both;

static df_status is_apart(schema_gen *g, const schema_conj *x, const schema_conj *y, uint32_t depth, bool *apart,
                          const char **teller);

/* ---- constants ----------------------------------------------------------------------------------------- */

/* Whether the two may be the same value: lists and objects are not looked into. */
static bool may_equal(const df_json *a, const df_json *b) {
  const df_json_kind ka = df_json_kind_of(a), kb = df_json_kind_of(b);
  const bool na = ka == DF_JSON_INT || ka == DF_JSON_REAL, nb = kb == DF_JSON_INT || kb == DF_JSON_REAL;
  size_t n, m;
  if (na && nb) return df_json_num(a) == df_json_num(b);
  if (ka != kb) return false;
  if (ka == DF_JSON_BOOL) return df_json_bool(a) == df_json_bool(b);
  if (ka != DF_JSON_STRING) return true;
  const char *p = df_json_str(a, &n), *q = df_json_str(b, &m);
  return n == m && memcmp(p, q, n) == 0;
}

/* Number i of the constants of a part; NULL = there are no more, *any tells whether there are any. */
static const df_json *constant(const df_json *part, size_t i, bool *any) {
  const df_json *list = df_json_member(part, "enum"), *one = df_json_member(part, "const");
  *any = list || one;
  return one ? (i == 0 ? one : NULL) : df_json_at(list, i);
}

static uint32_t n_constants(const schema_conj *c) {
  size_t n = 0;
  for (uint32_t i = 0; i < c->n; i++) n += 1 + df_json_size(df_json_member(c->part[i].v, "enum"));
  return (uint32_t)DF_MIN(n, (size_t)1 << 24);
}

/* Whether a part of y refuses the value for being a constant of its own. */
static bool refused(const schema_conj *y, const df_json *v) {
  for (uint32_t i = 0; i < y->n; i++) {
    bool any, found = false;
    for (size_t k = 0; !found; k++) {
      const df_json *w = constant(y->part[i].v, k, &any);
      if (!w) break;
      found = may_equal(v, w);
    }
    if (any && !found) return true;
  }
  return false;
}

/* Some part of x has constants, and none of them fits y. */
static bool constants_apart(const schema_conj *x, const schema_conj *y, uint32_t types_y) {
  for (uint32_t i = 0; i < x->n; i++) {
    bool any, fits = false;
    for (size_t k = 0; !fits; k++) {
      const df_json *v = constant(x->part[i].v, k, &any);
      if (!v) break;
      fits = schema_fits_type(types_y, v) && !refused(y, v);
    }
    if (any && !fits) return true;
  }
  return false;
}

/* ---- objects ------------------------------------------------------------------------------------------- */

static uint64_t n_required(const schema_conj *c) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < c->n; i++) n += df_json_size(df_json_member(c->part[i].v, "required"));
  return n;
}

static bool requires(const schema_conj *c, const char *name) {
  for (uint32_t i = 0; i < c->n; i++) {
    const df_json *list = df_json_member(c->part[i].v, "required");
    for (size_t k = 0; k < df_json_size(list); k++)
      if (df_json_equals(df_json_at(list, k), name)) return true;
  }
  return false;
}

static bool forbids(const schema_conj *c, const char *name) {
  for (uint32_t i = 0; i < c->n; i++) {
    const df_json *more = df_json_member(c->part[i].v, "additionalProperties");
    const bool closed = more && df_json_kind_of(more) == DF_JSON_BOOL && !df_json_bool(more);
    if (closed && !df_json_member(df_json_member(c->part[i].v, "properties"), name)) return true;
  }
  return false;
}

/* What the member must fit, as far as `properties` say. */
static df_status member_of(schema_gen *g, const schema_conj *c, const char *name, schema_conj *out) {
  *out = (schema_conj){0};
  memcpy(out->path, c->path, sizeof out->path);
  for (uint32_t i = 0; i < c->n; i++) {
    const df_json *own = df_json_member(df_json_member(c->part[i].v, "properties"), name);
    if (own) DF_TRY(schema_conj_add(g, out, own, SCHEMA_NO_PARENT));
  }
  return DF_OK;
}

/* A member that x needs and y does not allow. */
static bool needs_forbidden(const schema_conj *x, const schema_conj *y) {
  for (uint32_t i = 0; i < x->n; i++) {
    const df_json *list = df_json_member(x->part[i].v, "required");
    for (size_t k = 0; k < df_json_size(list); k++) {
      const char *name = df_json_str(df_json_at(list, k), NULL);
      if (name && forbids(y, name)) return true;
    }
  }
  return false;
}

/* A member whose schemas are apart tells objects apart, if it must be there; *teller: one that would if it had to. */
static df_status objects_apart(both *b, bool *apart, const char **teller) {
  const uint64_t names = 1 + n_required(&b->x) + n_required(&b->y);
  DF_TRY(schema_spend(b->g, &b->x, names));
  *apart = needs_forbidden(&b->x, &b->y) || needs_forbidden(&b->y, &b->x);
  for (uint32_t i = 0; i < b->x.n && !*apart; i++) {
    const df_json *value;
    const char *name;
    size_t len;
    df_json_iter it = df_json_begin(df_json_member(b->x.part[i].v, "properties"));
    while (!*apart && df_json_next(&it, &name, &len, &value)) {
      schema_conj p, q;
      bool tells = false;
      if (strlen(name) != len) continue;
      DF_TRY(schema_spend(b->g, &b->x, names));
      DF_TRY(member_of(b->g, &b->x, name, &p));
      DF_TRY(member_of(b->g, &b->y, name, &q));
      if (q.n) DF_TRY(is_apart(b->g, &p, &q, b->depth - 1, &tells, NULL));
      *apart = tells && (requires(&b->x, name) || requires(&b->y, name));
      if (tells && teller && !*teller) *teller = name;
    }
  }
  return DF_OK;
}

/* ---- numbers, counts ----------------------------------------------------------------------------------- */

static void limits(const schema_conj *c, double *lo, double *hi) {
  *lo = -INFINITY, *hi = INFINITY;
  for (uint32_t i = 0; i < c->n; i++) {
    const df_json *v = c->part[i].v, *min = df_json_member(v, "minimum"), *max = df_json_member(v, "maximum");
    const df_json *over = df_json_member(v, "exclusiveMinimum"), *under = df_json_member(v, "exclusiveMaximum");
    if (min) *lo = fmax(*lo, df_json_num(min));
    if (max) *hi = fmin(*hi, df_json_num(max));
    /* The bound itself is out: as far as doubles go. */
    if (over) *lo = fmax(*lo, nextafter(df_json_num(over), INFINITY));
    if (under) *hi = fmin(*hi, nextafter(df_json_num(under), -INFINITY));
  }
}

static df_status counts_apart(both *b, const char *least, const char *most, bool *apart) {
  uint32_t min[2], max[2];
  DF_TRY(schema_counts(b->g, &b->x, least, most, &min[0], &max[0]));
  DF_TRY(schema_counts(b->g, &b->y, least, most, &min[1], &max[1]));
  *apart = max[0] < min[1] || max[1] < min[0];
  return DF_OK;
}

/* Of values of one type. */
static df_status type_apart(both *b, uint32_t type, bool *apart, const char **teller) {
  double lo[2], hi[2];
  *apart = false;
  switch (type) {
    case SCHEMA_INTEGER:
    case SCHEMA_NUMBER:
      limits(&b->x, &lo[0], &hi[0]);
      limits(&b->y, &lo[1], &hi[1]);
      *apart = hi[0] < lo[1] || hi[1] < lo[0];
      return DF_OK;
    case SCHEMA_STRING: return counts_apart(b, "minLength", "maxLength", apart);
    case SCHEMA_ARRAY: return counts_apart(b, "minItems", "maxItems", apart);
    case SCHEMA_OBJECT: return objects_apart(b, apart, teller);
    default: return DF_OK; /* null, true and false have nothing to tell them apart */
  }
}

/* ---- conjunctions -------------------------------------------------------------------------------------- */

/* Takes the first list of alternatives of x that was not looked into: apart from y when each of them is. */
static df_status split(both *b, bool *found, bool *apart) {
  static const struct {
    const char *key;
    uint64_t done;
  } kinds[] = {{"anyOf", DONE_ANY}, {"oneOf", DONE_ONE}};
  *found = false;
  for (uint32_t i = 0; i < b->x.n; i++)
    for (uint32_t k = 0; k < 2; k++) {
      const df_json *list = df_json_member(b->x.part[i].v, kinds[k].key);
      if (!list || (b->x.part[i].done & kinds[k].done)) continue;
      *found = *apart = true;
      b->x.part[i].done |= kinds[k].done;
      for (size_t n = 0; n < df_json_size(list) && *apart; n++) {
        schema_conj one = b->x;
        DF_TRY(schema_conj_add(b->g, &one, df_json_at(list, n), i));
        DF_TRY(is_apart(b->g, &one, &b->y, b->depth - 1, apart, NULL));
      }
      return DF_OK;
    }
  return DF_OK;
}

/* *apart: surely no value fits both. */
static df_status is_apart(schema_gen *g, const schema_conj *x, const schema_conj *y, uint32_t depth, bool *apart,
                          const char **teller) {
  both b = {.g = g, .x = *x, .y = *y, .depth = depth};
  uint32_t types[2];
  bool found = false;
  *apart = false;
  DF_TRY(schema_spend(g, x, 16 + x->n + y->n)); /* a call copies both */
  if (depth == 0) return DF_OK;
  DF_TRY(schema_expand(g, &b.x));
  DF_TRY(schema_expand(g, &b.y));
  DF_TRY(schema_find_types(g, &b.x, &types[0]));
  DF_TRY(schema_find_types(g, &b.y, &types[1]));
  const uint32_t common = schema_meet_types(types[0], types[1]);
  DF_TRY(schema_spend(g, x, 1 + (uint64_t)n_constants(&b.x) * n_constants(&b.y)));
  *apart = common == 0 || constants_apart(&b.x, &b.y, types[1]) || constants_apart(&b.y, &b.x, types[0]);
  if (*apart) return DF_OK;
  *apart = true;
  for (uint32_t bit = 1; bit <= SCHEMA_OBJECT && *apart; bit *= 2)
    if (common & bit) DF_TRY(type_apart(&b, bit, apart, common == bit ? teller : NULL));
  if (*apart) return DF_OK;
  DF_TRY(split(&b, &found, apart));
  if (found) return DF_OK;
  both turned = {.g = g, .x = b.y, .y = b.x, .depth = depth};
  return split(&turned, &found, apart);
}

/* ---- oneOf --------------------------------------------------------------------------------------------- */

typedef struct choice {
  schema_conj c;
  const char *names[NAMES]; /* members that it must have, so that it is told from the others */
  uint32_t n;
} choice;

static bool must_have(choice *a, const char *name) {
  for (uint32_t i = 0; i < a->n; i++)
    if (strcmp(a->names[i], name) == 0) return true;
  if (a->n == NAMES) return false;
  a->names[a->n++] = name;
  return true;
}

static df_status compare_all(schema_gen *g, const schema_conj *c, choice *v, uint32_t n) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = i + 1; k < n; k++) {
      const char *teller = NULL;
      bool apart = false;
      DF_TRY(is_apart(g, &v[i].c, &v[k].c, DEPTH, &apart, &teller));
      if (apart || (teller && must_have(&v[i], teller) && must_have(&v[k], teller))) continue;
      return schema_fail(g, c, DF_ERR_UNSUPPORTED,
                         "a value could fit %u and %u of \"oneOf\" at once: use \"anyOf\", or a member with other "
                         "constants in each",
                         i, k);
    }
  return DF_OK;
}

/* {"required": names} as one more part. */
static df_status add_required(schema_gen *g, choice *a, uint32_t parent) {
  df_buf text = {0};
  df_json_out w;
  df_json *made = NULL;
  if (a->n == 0) return DF_OK;
  if (g->n_made == SCHEMA_MAX_MADE) return schema_fail(g, &a->c, DF_ERR_LIMIT, "too many alternatives");
  df_json_out_begin(&w, &text, g->err);
  df_json_out_object(&w);
  df_json_out_key(&w, "required");
  df_json_out_array(&w);
  for (uint32_t i = 0; i < a->n; i++) df_json_out_cstr(&w, a->names[i]);
  df_json_out_close(&w);
  df_json_out_close(&w);
  df_status s = df_json_out_end(&w);
  if (s == DF_OK) s = df_json_parse(text.data, text.len, &made, g->err);
  df_buf_release(&text);
  DF_TRY(s);
  g->made[g->n_made++] = made;
  return schema_conj_add(g, &a->c, made, parent);
}

df_status schema_check_one_of(schema_gen *g, const schema_conj *c, uint32_t at, const df_json *list,
                              schema_conj *required) {
  const uint32_t n = (uint32_t)DF_MIN(df_json_size(list), (size_t)MOST + 1);
  df_status s = DF_OK;
  if (n > MOST) return schema_fail(g, c, DF_ERR_LIMIT, "\"oneOf\" has more than %d alternatives", (int)MOST);
  choice *v = df_calloc(n, sizeof *v);
  if (!v) return DF_OOM(g->err, "a schema", n * sizeof *v);
  for (uint32_t i = 0; i < n && s == DF_OK; i++) {
    v[i].c = *c;
    s = schema_conj_add(g, &v[i].c, df_json_at(list, i), at);
  }
  if (s == DF_OK) s = compare_all(g, c, v, n);
  for (uint32_t i = 0; i < n && s == DF_OK; i++) {
    s = add_required(g, &v[i], at);
    required[i] = v[i].c;
  }
  df_free(v);
  return s;
}
