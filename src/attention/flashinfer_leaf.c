/* flashinfer: FlashInfer's paged prefill kernel, any number of rows, able to read a mask. As with the original, whether
 * a program reads a mask is fixed when it is emitted, and every pass is planned on the host before it runs.
 *
 * One record for each program that the leaf has ops in: which batch they read (of a split pass one half) and the plan
 * that its kernels were recorded with. Plans of a recorded program are made for its bounds, so they come out equal
 * every time; those of programs that run once are made for the pass. */
#include <string.h>

#include "attention/third_leaf.h"
#include "base/mem.h"
#include "base/size.h"
#include "device/cuda/cuda_device.h"

typedef struct record {
  const df_program *program;
  const df_batch *batch;
  uint32_t n_ops; /* length of the program at the first op */
  uint32_t rows, seqs;
  bool masked;
  df_fa2_plan plan;
} record;

typedef struct fi_leaf {
  df_leaf leaf;
  const df_fa2_api *api;
  df_fa2 *work;
  df_third_shape made;
  record *records;
  uint32_t n_records, cap_records;
} fi_leaf;

static df_attn_caps fi_caps(const df_attn *a) {
  df_attn_caps c = df_leaf_mask_caps(a);
  c.kv_types = 1u << DF_KV_F16;
  c.inexact = true;
  c.sliding_window = false; /* verify and prefill behind a window came out wrong at some lengths on an H200 */
  return c;
}

static df_status failed(const fi_leaf *f, const char *what, int code, df_error *err) {
  return df_third_failed(&f->leaf, what, code, f->api->text(f->work, code), err);
}

static df_status fi_graph_init(df_attn *a, uint32_t max_seqs, uint32_t max_rows, df_error *err) {
  fi_leaf *f = (fi_leaf *)a;
  if (f->work && max_seqs <= f->made.max_seqs && max_rows <= f->made.max_rows) return DF_OK;
  if (f->work)
    return DF_FAIL(err, DF_ERR_LIMIT,
                   "attention backend \"flashinfer\" cannot grow from %u rows of %u sequences to %u of %u",
                   f->made.max_rows, f->made.max_seqs, max_rows, max_seqs);
  DF_TRY(df_leaf_graph_init(a, max_seqs, max_rows, err));
  f->made = df_third_shape_of(&f->leaf.shape, max_seqs, max_rows);
  DF_TRY(df_third_fits(&f->leaf, f->api->bytes(&f->made), "the workspace of attention backend \"flashinfer\"", err));
  const int e = f->api->create(&f->made, &f->work);
  return e ? failed(f, "make its workspace", e, err) : DF_OK;
}

/* ---- plans ---------------------------------------------------------------------------------------------- */

/* What a recorded program is made for: all rows there may be, dealt out among the sequences. */
static void stage_bounds(const record *r, df_paged *p) {
  p->q_start[0] = p->page_start[0] = 0;
  for (uint32_t s = 0; s < r->seqs; s++) {
    p->q_start[s + 1] = (int32_t)((uint64_t)r->rows * (s + 1) / r->seqs);
    p->page_start[s + 1] = (int32_t)(s + 1);
    p->last[s] = 1;
    p->mask_start[s] = 0;
    p->pages[s] = 0;
  }
}

/* live: for the batch as it is. recorded: for a program that is replayed, else for this pass alone. */
static df_status make_plan(fi_leaf *f, const record *r, bool live, bool recorded, df_fa2_plan *out, df_error *err) {
  df_paged p;
  int e = f->api->stage(f->work, &p);
  if (e) return failed(f, "stage a plan", e, err);
  const uint32_t seqs = recorded ? r->seqs : DF_MIN(r->seqs, r->batch->n_seqs);
  if (live)
    DF_TRY(df_paged_build(&p, r->batch, f->made.block_slots, seqs, r->masked, err));
  else
    stage_bounds(r, &p);
  const uint32_t rows = recorded ? r->rows : (uint32_t)p.q_start[seqs];
  const df_device *d = f->leaf.shape.device;
  e = f->api->plan(f->work, &p, seqs, rows, recorded, out, d ? df_cuda_device_stream(d) : NULL);
  return e ? failed(f, "plan a pass", e, err) : DF_OK;
}

static df_status fi_plan(df_attn *a, const df_program *p, const df_batch *batch, df_mode mode, df_attn_phase phase,
                         df_error *err) {
  (void)batch, (void)mode; /* of a split pass this leaf has one half, which its record names */
  fi_leaf *f = (fi_leaf *)a;
  for (uint32_t i = 0; i < f->n_records; i++) {
    record *r = &f->records[i];
    if (r->program != p) continue;
    if (phase == DF_PHASE_EAGER) return make_plan(f, r, true, false, &r->plan, err);
    df_fa2_plan now;
    DF_TRY(make_plan(f, r, true, true, &now, err));
    if (memcmp(&now, &r->plan, sizeof now) != 0)
      return DF_FAIL(err, DF_ERR_INTERNAL,
                     "attention backend \"flashinfer\" planned a pass otherwise than the program "
                     "it is for was recorded");
    return DF_OK;
  }
  return DF_OK; /* nothing of this program runs here */
}

/* ---- ops ------------------------------------------------------------------------------------------------ */

static int launch(void *self, const df_op_extern *op, const void *env) {
  const fi_leaf *f = self;
  return df_third_launched(f->api->launch(f->work, &f->records[op->record].plan, op, env));
}

static df_status new_record(fi_leaf *f, uint32_t *index, df_error *err) {
  if (f->n_records == f->cap_records) {
    const uint32_t cap = f->cap_records ? 2 * f->cap_records : 16;
    record *p = df_realloc(f->records, cap * sizeof *p);
    if (!p) return DF_OOM(err, "plans of programs", cap * sizeof *p);
    f->records = p;
    f->cap_records = cap;
  }
  *index = f->n_records++;
  return DF_OK;
}

/* The program's record, and whether this is its first op. A program that has become shorter was begun anew. */
static df_status record_of(fi_leaf *f, const df_attn_pass *pass, uint32_t *index, bool *first, df_error *err) {
  uint32_t n;
  (void)df_program_ops(pass->program, &n);
  for (*index = 0; *index < f->n_records; ++*index)
    if (f->records[*index].program == pass->program) break;
  *first = *index == f->n_records || n <= f->records[*index].n_ops;
  if (!*first) return DF_OK;
  if (*index == f->n_records) DF_TRY(new_record(f, index, err));
  const uint32_t rows = df_program_max_rows(pass->program), seqs = df_program_max_seqs(pass->program);
  record *r = &f->records[*index];
  *r = (record){.program = pass->program,
                .batch = pass->batch,
                .n_ops = n,
                .rows = rows,
                /* Every sequence has a row; of a split pass this leaf has half of them. */
                .seqs = DF_MIN(DF_MIN(seqs, rows), f->made.max_seqs),
                .masked = pass->mask_layout != DF_MASK_NONE};
  const int e = r->masked ? f->api->want_mask(f->work) : 0;
  if (e) return failed(f, "make room for masks", e, err);
  return make_plan(f, r, false, true, &r->plan, err);
}

static df_status fi_emit(df_attn *a, const df_attn_pass *pass, const df_attn_layer *layer, df_error *err) {
  fi_leaf *f = (fi_leaf *)a;
  df_op_extern op = {.launch = launch, .self = f};
  if (layer->window)
    return DF_FAIL(err, DF_ERR_UNSUPPORTED,
                   "attention backend \"flashinfer\" has no sliding window (layer %u has one of %u)", layer->layer,
                   layer->window);
  DF_TRY(df_third_op(&f->leaf, &f->made, pass, layer, &op, err));
  DF_TRY(record_of(f, pass, &op.record, &op.first, err));
  return df_emit_attn_extern(pass->program, &op, err);
}

static void fi_free(df_attn *a) {
  fi_leaf *f = (fi_leaf *)a;
  f->api->free(f->work);
  df_free(f->records);
  df_leaf_free(a);
}

static const df_attn_ops k_fi_ops = {.caps = fi_caps,
                                     .graph_init = fi_graph_init,
                                     .plan = fi_plan,
                                     .emit = fi_emit,
                                     .executor = df_leaf_executor,
                                     .mask = df_leaf_mask,
                                     .half = df_leaf_half,
                                     .commit = df_leaf_commit,
                                     .free = fi_free};

df_status df_attn_flashinfer_create_over(const df_fa2_api *api, const df_attn_shape *shape, df_attn **out,
                                         df_error *err) {
  if (!api) return df_third_not_built("flashinfer", err);
  DF_TRY(df_third_check_head("flashinfer", shape, err));
  DF_TRY(df_leaf_create_larger(&k_fi_ops, "flashinfer", shape, sizeof(fi_leaf), out, err));
  ((fi_leaf *)*out)->api = api;
  return DF_OK;
}

df_status df_attn_flashinfer_create(const df_attn_shape *shape, df_attn **out, df_error *err) {
  return df_attn_flashinfer_create_over(df_fa2_get(), shape, out, err);
}
