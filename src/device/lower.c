#include "device/lower.h"

#include <stddef.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"

typedef enum field_kind {
  FIELD_ADDRESS, /* data, or a count that is read when the op runs */
  FIELD_BATCH,   /* a df_batch */
  FIELD_WEIGHTS, /* a df_weights of the host */
  FIELD_MASK     /* a df_mask_buffer of the host */
} field_kind;

/* One pointer in the arguments of an op. NULL stays NULL. */
typedef struct field {
  const char *name;
  size_t offset;
  field_kind kind;
} field;

#define AT(type, member) #member, offsetof(type, member)

static const field k_embed[] = {{AT(df_op_embed, table), FIELD_WEIGHTS},
                                {AT(df_op_embed, ids), FIELD_ADDRESS},
                                {AT(df_op_embed, n_rows), FIELD_ADDRESS},
                                {AT(df_op_embed, out), FIELD_ADDRESS},
                                {AT(df_op_embed, drafts.best.value), FIELD_ADDRESS},
                                {AT(df_op_embed, drafts.best.id), FIELD_ADDRESS},
                                {AT(df_op_embed, drafts.best.map), FIELD_ADDRESS},
                                {AT(df_op_embed, drafts.n_live), FIELD_ADDRESS}};
static const field k_norm[] = {{AT(df_op_norm, x), FIELD_ADDRESS},      {AT(df_op_norm, w), FIELD_ADDRESS},
                               {AT(df_op_norm, n_rows), FIELD_ADDRESS}, {AT(df_op_norm, row_map), FIELD_ADDRESS},
                               {AT(df_op_norm, out.f), FIELD_ADDRESS},  {AT(df_op_norm, out.q), FIELD_ADDRESS}};
static const field k_quantize[] = {{AT(df_op_quantize, x), FIELD_ADDRESS},
                                   {AT(df_op_quantize, n_rows), FIELD_ADDRESS},
                                   {AT(df_op_quantize, row_map), FIELD_ADDRESS},
                                   {AT(df_op_quantize, out.f), FIELD_ADDRESS},
                                   {AT(df_op_quantize, out.q), FIELD_ADDRESS}};
static const field k_linear[] = {{AT(df_op_linear, x.f), FIELD_ADDRESS},
                                 {AT(df_op_linear, x.q), FIELD_ADDRESS},
                                 {AT(df_op_linear, n_rows), FIELD_ADDRESS}};
static const field k_linear_part[] = {{AT(df_linear_part, w), FIELD_WEIGHTS},
                                      {AT(df_linear_part, bias), FIELD_ADDRESS},
                                      {AT(df_linear_part, y), FIELD_ADDRESS}};
static const field k_ffn_up[] = {{AT(df_op_ffn_up, x.f), FIELD_ADDRESS},    {AT(df_op_ffn_up, x.q), FIELD_ADDRESS},
                                 {AT(df_op_ffn_up, n_rows), FIELD_ADDRESS}, {AT(df_op_ffn_up, gate), FIELD_WEIGHTS},
                                 {AT(df_op_ffn_up, up), FIELD_WEIGHTS},     {AT(df_op_ffn_up, out.f), FIELD_ADDRESS},
                                 {AT(df_op_ffn_up, out.q), FIELD_ADDRESS}};
static const field k_rope_kv[] = {
    {AT(df_op_rope_kv, q), FIELD_ADDRESS},      {AT(df_op_rope_kv, k), FIELD_ADDRESS},
    {AT(df_op_rope_kv, v), FIELD_ADDRESS},      {AT(df_op_rope_kv, q_norm), FIELD_ADDRESS},
    {AT(df_op_rope_kv, k_norm), FIELD_ADDRESS}, {AT(df_op_rope_kv, cos), FIELD_ADDRESS},
    {AT(df_op_rope_kv, sin), FIELD_ADDRESS},    {AT(df_op_rope_kv, pos), FIELD_ADDRESS},
    {AT(df_op_rope_kv, slot), FIELD_ADDRESS},   {AT(df_op_rope_kv, n_rows), FIELD_ADDRESS},
    {AT(df_op_rope_kv, kv.k), FIELD_ADDRESS},   {AT(df_op_rope_kv, kv.v), FIELD_ADDRESS}};
static const field k_tap[] = {{AT(df_op_tap, x), FIELD_ADDRESS},
                              {AT(df_op_tap, dst), FIELD_ADDRESS},
                              {AT(df_op_tap, n_rows), FIELD_ADDRESS},
                              {AT(df_op_tap, row_map), FIELD_ADDRESS},
                              {AT(df_op_tap, to_row), FIELD_ADDRESS}};
static const field k_attn[] = {{AT(df_op_attn, batch), FIELD_BATCH},   {AT(df_op_attn, q), FIELD_ADDRESS},
                               {AT(df_op_attn, out.f), FIELD_ADDRESS}, {AT(df_op_attn, out.q), FIELD_ADDRESS},
                               {AT(df_op_attn, kv.k), FIELD_ADDRESS},  {AT(df_op_attn, kv.v), FIELD_ADDRESS},
                               {AT(df_op_attn, mask), FIELD_MASK},     {AT(df_op_attn, parts), FIELD_ADDRESS}};
static const field k_extern[] = {
    {AT(df_op_extern, attn.batch), FIELD_BATCH},   {AT(df_op_extern, attn.q), FIELD_ADDRESS},
    {AT(df_op_extern, attn.out.f), FIELD_ADDRESS}, {AT(df_op_extern, attn.out.q), FIELD_ADDRESS},
    {AT(df_op_extern, attn.kv.k), FIELD_ADDRESS},  {AT(df_op_extern, attn.kv.v), FIELD_ADDRESS},
    {AT(df_op_extern, attn.mask), FIELD_MASK},     {AT(df_op_extern, page_table), FIELD_ADDRESS}};
static const field k_recurrent[] = {
    {AT(df_op_recurrent, batch), FIELD_BATCH},       {AT(df_op_recurrent, q), FIELD_ADDRESS},
    {AT(df_op_recurrent, k), FIELD_ADDRESS},         {AT(df_op_recurrent, v), FIELD_ADDRESS},
    {AT(df_op_recurrent, out.f), FIELD_ADDRESS},     {AT(df_op_recurrent, out.q), FIELD_ADDRESS},
    {AT(df_op_recurrent, decay), FIELD_ADDRESS},     {AT(df_op_recurrent, beta), FIELD_ADDRESS},
    {AT(df_op_recurrent, committed), FIELD_ADDRESS}, {AT(df_op_recurrent, behind), FIELD_ADDRESS}};
static const field k_argmax[] = {{AT(df_op_argmax, x), FIELD_ADDRESS},
                                 {AT(df_op_argmax, n_rows), FIELD_ADDRESS},
                                 {AT(df_op_argmax, best), FIELD_ADDRESS},
                                 {AT(df_op_argmax, best_id), FIELD_ADDRESS}};
static const field k_accept[] = {
    {AT(df_op_accept, best.value), FIELD_ADDRESS},     {AT(df_op_accept, best.id), FIELD_ADDRESS},
    {AT(df_op_accept, best.map), FIELD_ADDRESS},       {AT(df_op_accept, drafts.best.value), FIELD_ADDRESS},
    {AT(df_op_accept, drafts.best.id), FIELD_ADDRESS}, {AT(df_op_accept, drafts.best.map), FIELD_ADDRESS},
    {AT(df_op_accept, drafts.n_live), FIELD_ADDRESS},  {AT(df_op_accept, n_rows), FIELD_ADDRESS},
    {AT(df_op_accept, token), FIELD_ADDRESS},          {AT(df_op_accept, drafted), FIELD_ADDRESS},
    {AT(df_op_accept, accepted), FIELD_ADDRESS}};

#define FIELDS(table) \
  { table, DF_COUNT_OF(table) }

static const struct {
  const field *fields;
  size_t n;
} k_ops[DF_OP_COUNT] = {
    [DF_OP_EMBED] = FIELDS(k_embed),
    [DF_OP_NORM] = FIELDS(k_norm),
    [DF_OP_QUANTIZE] = FIELDS(k_quantize),
    [DF_OP_LINEAR] = FIELDS(k_linear),
    [DF_OP_FFN_UP] = FIELDS(k_ffn_up),
    [DF_OP_ROPE_KV] = FIELDS(k_rope_kv),
    [DF_OP_TAP] = FIELDS(k_tap),
    [DF_OP_ATTN_NAIVE] = FIELDS(k_attn),
    [DF_OP_ATTN_TILE] = FIELDS(k_attn),
    [DF_OP_ATTN_SPLIT] = FIELDS(k_attn),
    [DF_OP_ATTN_MERGE] = FIELDS(k_attn),
    [DF_OP_ATTN_EXTERN] = FIELDS(k_extern),
    [DF_OP_RECURRENT] = FIELDS(k_recurrent),
    [DF_OP_ARGMAX] = FIELDS(k_argmax),
    [DF_OP_ACCEPT] = FIELDS(k_accept),
};

typedef struct lowering {
  df_mirrors *m;
  df_program *p; /* the copy whose arguments are changed */
  df_lower_uses *uses;
  uint32_t mark;
} lowering;

static df_status use(lowering *l, df_mirror *x, df_error *err) {
  df_lower_uses *u = l->uses;
  if (x->mark == l->mark || x->kind == DF_MEM_CONST || x->kind == DF_MEM_WEIGHTS) return DF_OK;
  if (u->n == u->cap) {
    const uint32_t cap = u->cap ? 2 * u->cap : 16;
    void *p = df_realloc(u->items, cap * sizeof *u->items);
    if (!p) return DF_OOM(err, "the memory of a program", cap * sizeof *u->items);
    u->items = p;
    u->cap = cap;
  }
  x->mark = l->mark;
  u->items[u->n++] = x;
  return DF_OK;
}

static df_status unmapped(const char *op, const char *name, const void *host, df_error *err) {
  return DF_FAIL(err, DF_ERR_INTERNAL, "op %s: nothing is mapped at \"%s\" (%p)", op, name, host);
}

/* *address to the device's memory. */
static df_status lower_address(lowering *l, const char *op, const char *name, void **address, df_error *err) {
  const uint8_t *host = *address;
  df_mirror *x = df_mirrors_find(l->m, host);
  if (!x) return unmapped(op, name, host, err);
  *address = x->there + (host - x->host);
  return use(l, x, err);
}

/* What a batch's pointers lead to is input too; their translation comes with every run. */
static df_status use_batch(lowering *l, const char *op, const df_batch *b, df_error *err) {
  const struct {
    const char *name;
    const void *host;
  } arrays[] = {{"batch.ids", b->ids},     {"batch.q_start", b->q_start},       {"batch.kv_len", b->kv_len},
                {"batch.block", b->block}, {"batch.page_table", b->page_table}, {"batch.out_row", b->out_row}};
  for (size_t i = 0; i < DF_COUNT_OF(arrays); i++) {
    df_mirror *x = arrays[i].host ? df_mirrors_find(l->m, arrays[i].host) : NULL;
    if (!x) return unmapped(op, arrays[i].name, arrays[i].host, err);
    DF_TRY(use(l, x, err));
  }
  return DF_OK;
}

static df_status lower_weights(lowering *l, const char *op, const char *name, void **address, df_error *err) {
  df_weights w = *(const df_weights *)*address;
  void *data = w.data;
  DF_TRY(lower_address(l, op, name, &data, err));
  w.data = data;
  return df_program_keep(l->p, &w, sizeof w, address, err);
}

static df_status lower_mask(lowering *l, const char *op, void **address, df_error *err) {
  df_mask_buffer m = *(const df_mask_buffer *)*address;
  void *bytes = m.bytes, *start = m.start;
  DF_TRY(lower_address(l, op, "mask.bytes", &bytes, err));
  DF_TRY(lower_address(l, op, "mask.start", &start, err));
  m.bytes = bytes;
  m.start = start;
  return df_program_keep(l->p, &m, sizeof m, address, err);
}

static df_status lower_fields(lowering *l, const char *op, const field *f, size_t n, uint8_t *args, df_error *err) {
  for (size_t i = 0; i < n; i++) {
    void *address;
    memcpy(&address, args + f[i].offset, sizeof address);
    if (!address) continue;
    switch (f[i].kind) {
      case FIELD_WEIGHTS: DF_TRY(lower_weights(l, op, f[i].name, &address, err)); break;
      case FIELD_MASK: DF_TRY(lower_mask(l, op, &address, err)); break;
      case FIELD_BATCH:
        DF_TRY(use_batch(l, op, address, err));
        DF_TRY(lower_address(l, op, f[i].name, &address, err));
        break;
      case FIELD_ADDRESS: DF_TRY(lower_address(l, op, f[i].name, &address, err)); break;
    }
    memcpy(args + f[i].offset, &address, sizeof address);
  }
  return DF_OK;
}

static df_status lower_op(lowering *l, df_op_kind kind, void *args, df_error *err) {
  const char *name = df_op_name(kind);
  DF_TRY(lower_fields(l, name, k_ops[kind].fields, k_ops[kind].n, args, err));
  if (kind != DF_OP_LINEAR) return DF_OK;
  df_op_linear *a = args;
  for (uint32_t i = 0; i < a->n_parts; i++)
    DF_TRY(lower_fields(l, name, k_linear_part, DF_COUNT_OF(k_linear_part), (uint8_t *)&a->part[i], err));
  return DF_OK;
}

df_status df_lower_program(const df_program *p, df_mirrors *m, df_program **out, df_lower_uses *uses, df_error *err) {
  df_lower_uses found = {0};
  lowering l = {.m = m, .uses = &found, .mark = ++m->mark};
  DF_TRY(df_program_copy(p, &l.p, err));
  uint32_t n;
  const df_op *ops = df_program_ops(l.p, &n);
  df_status s = DF_OK;
  for (uint32_t i = 0; i < n && s == DF_OK; i++) s = lower_op(&l, ops[i].kind, df_program_args(l.p, i), err);
  if (s != DF_OK) {
    df_lower_uses_release(&found);
    df_program_free(l.p);
    return s;
  }
  *uses = found;
  *out = l.p;
  return DF_OK;
}

void df_lower_uses_release(df_lower_uses *u) {
  df_free(u->items);
  *u = (df_lower_uses){0};
}

static df_status lower_array(const df_mirrors *m, const char *name, uint32_t **array, df_error *err) {
  const uint8_t *host = (const uint8_t *)*array;
  const df_mirror *x = df_mirrors_find(m, host);
  if (!x) return DF_FAIL(err, DF_ERR_INTERNAL, "batch: nothing is mapped at \"%s\" (%p)", name, (const void *)host);
  *array = (uint32_t *)(void *)(x->there + (host - x->host));
  return DF_OK;
}

df_status df_lower_batch(const df_mirrors *m, const df_batch *host, df_batch *out, df_error *err) {
  df_batch b = *host;
  uint32_t *ids = (uint32_t *)b.ids;
  DF_TRY(lower_array(m, "ids", &ids, err));
  b.ids = (int32_t *)ids;
  DF_TRY(lower_array(m, "pos", &b.pos, err));
  DF_TRY(lower_array(m, "slot", &b.slot, err));
  DF_TRY(lower_array(m, "q_start", &b.q_start, err));
  DF_TRY(lower_array(m, "kv_len", &b.kv_len, err));
  DF_TRY(lower_array(m, "page_table", &b.page_table, err));
  DF_TRY(lower_array(m, "state_slot", &b.state_slot, err));
  DF_TRY(lower_array(m, "out_row", &b.out_row, err));
  DF_TRY(lower_array(m, "tap_row", &b.tap_row, err));
  b.block = NULL;
  b.mask = NULL;
  b.mask_layout = DF_MASK_NONE;
  b.mask_bytes = 0;
  *out = b;
  return DF_OK;
}
