#include "support/tiny_target.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/size.h"
#include "spec/step.h"
#include "support/sample_files.h"

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

df_model *tiny_open(const tiny_spec *s, uint32_t threads) { return tiny_open_on(s, threads, NULL); }

df_model *tiny_open_on(const tiny_spec *s, uint32_t threads, const char *device) {
  df_error err = {0};
  df_model *m = NULL;
  df_model_params p = df_model_params_default();
  p.n_threads = threads;
  p.device = device;
  char *dir = test_dir_create();
  tiny_model_write(s, test_dir_path(dir, "m.gguf"));
  must(df_model_open(test_dir_path(dir, "m.gguf"), &p, &m, &err), &err);
  test_dir_remove(dir); /* the file stays mapped */
  return m;
}

df_draft *tiny_open_draft(const tiny_spec *s, df_model *m) {
  df_error err = {0};
  df_draft *d = NULL;
  const tiny_draft_spec ds = tiny_draft_default(s);
  char *dir = test_dir_create();
  tiny_draft_write(&ds, test_dir_path(dir, "d.gguf"));
  must(df_draft_open(test_dir_path(dir, "d.gguf"), m, NULL, &d, &err), &err);
  test_dir_remove(dir);
  return d;
}

df_attn_shape tiny_shape(const df_model *m) {
  const df_config *c = &m->cfg;
  return (df_attn_shape){c->n_heads, c->n_kv_heads, c->head_dim, TINY_LEN, m->device->n_workers, m->device, DF_KV_PAGE};
}

df_attn *tiny_leaf(const df_model *m, const char *name) {
  df_error err = {0};
  df_attn *a = NULL;
  const df_attn_shape shape = tiny_shape(m);
  if (strcmp(name, "flash") == 0) must(df_attn_flash_create(&shape, &a, &err), &err);
  if (strcmp(name, "splitkv") == 0) must(df_attn_splitkv_create(&shape, &a, &err), &err);
  if (strcmp(name, "naive") == 0) must(df_attn_naive_create(&shape, &a, &err), &err);
  assert_non_null(a);
  return a;
}

void tiny_target_init(tiny_target *x, df_model *m, const tiny_options *o) {
  df_error err = {0};
  const uint32_t page = o->page_size ? o->page_size : 16;
  *x = (tiny_target){0};
  must(df_pages_init(&x->pages, page, TINY_SEQS * (uint32_t)df_round_up(TINY_LEN, page), &err), &err);
  const df_target_params p = {.max_seqs = o->max_seqs ? o->max_seqs : TINY_SEQS,
                              .max_rows = TINY_ROWS,
                              .max_out = TINY_ROWS,
                              .max_positions = TINY_LEN,
                              .pages = &x->pages,
                              .kv = o->kv,
                              .graphs = !o->eager,
                              .attn = o->attn ? o->attn : tiny_leaf(m, "flash"),
                              .taps = o->taps,
                              .n_taps = o->n_taps,
                              .verify_mask = o->mask,
                              .seq_buckets = o->buckets,
                              .n_seq_buckets = o->n_buckets};
  must(df_target_init(&x->t, m, &p, &err), &err);
  for (uint32_t i = 0; i < TINY_SEQS; i++) {
    must(df_kv_seq_init(&x->seq[i], page, TINY_LEN, &err), &err);
    must(df_kv_seq_reserve(&x->seq[i], &x->pages, TINY_LEN, &err), &err);
    x->seq[i].state = i + 1;
  }
}

void tiny_target_release(tiny_target *x) {
  for (uint32_t i = 0; i < TINY_SEQS; i++) df_kv_seq_release(&x->seq[i], &x->pages);
  df_target_release(&x->t);
  df_pages_release(&x->pages);
}

int32_t tiny_id(uint32_t seq, uint32_t pos) {
  const uint32_t name[2] = {seq, pos};
  return (int32_t)(df_hash_bytes(name, sizeof name, 7) % 256);
}

void tiny_fill(tiny_target *x, const tiny_item *items, uint32_t n) {
  int32_t ids[TINY_ROWS];
  df_fill_begin(&x->t.batch);
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t j = 0; j < items[i].n; j++) ids[j] = tiny_id(items[i].seq, items[i].first + j);
    (void)df_fill_add(&x->t.batch, &x->seq[items[i].seq], ids, items[i].n, items[i].first, DF_OUT_ALL);
  }
}

df_status tiny_try(tiny_target *x, df_mode mode, const tiny_item *items, uint32_t n, df_mask_layout layout,
                   const uint8_t *mask, size_t bytes, df_error *err) {
  tiny_fill(x, items, n);
  x->t.batch.mask_layout = layout;
  x->t.batch.mask = mask;
  x->t.batch.mask_bytes = bytes;
  return df_target_run(&x->t, mode, DF_TAIL_LOGITS, err);
}

void tiny_run(tiny_target *x, df_mode mode, const tiny_item *items, uint32_t n) {
  df_error err = {0};
  must(tiny_try(x, mode, items, n, DF_MASK_NONE, NULL, 0, &err), &err);
}

const float *tiny_logits(tiny_target *x, uint32_t row) {
  df_error err = {0};
  const float *logits = NULL;
  must(df_workspace_logits(&x->t.ws, row, &logits, &err), &err);
  return logits;
}

size_t tiny_row_bytes(const tiny_target *x) { return x->t.m->cfg.vocab * sizeof(float); }

void tiny_prefill(tiny_target *x, uint32_t seq, uint32_t len) {
  const tiny_item all = {seq, 0, len};
  tiny_run(x, DF_MODE_EXTEND, &all, 1);
}

size_t tiny_table_bytes(const df_model *m) { return (size_t)TINY_SEQS * TINY_LEN * m->cfg.vocab * sizeof(float); }

float *tiny_table(df_model *m, df_kv_type kv, uint32_t len) {
  tiny_target x;
  float *table = df_pages_alloc(tiny_table_bytes(m));
  assert_non_null(table);
  const tiny_options o = {.attn = tiny_leaf(m, "naive"), .kv = kv, .max_seqs = 1};
  tiny_target_init(&x, m, &o);
  for (uint32_t s = 0; s < TINY_SEQS; s++)
    for (uint32_t p = 0; p < len; p++) {
      const tiny_item one = {s, p, 1};
      tiny_run(&x, DF_MODE_DECODE, &one, 1);
      memcpy(table + ((size_t)s * TINY_LEN + p) * m->cfg.vocab, tiny_logits(&x, 0), tiny_row_bytes(&x));
    }
  tiny_target_release(&x);
  return table;
}

void tiny_assert_rows(tiny_target *x, const float *table, const tiny_item *items, uint32_t n, const char *what) {
  const size_t vocab = x->t.m->cfg.vocab;
  uint32_t row = 0;
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < items[i].n; j++, row++) {
      const float *want = table + ((size_t)items[i].seq * TINY_LEN + items[i].first + j) * vocab;
      if (memcmp(tiny_logits(x, row), want, vocab * sizeof *want) != 0)
        fail_msg("%s: sequence %u of %u (text %u), row %u of %u, position %u has other logits", what, i, n,
                 items[i].seq, j, items[i].n, items[i].first + j);
    }
}

/* ---- a step loop ---------------------------------------------------------------------------------------- */

static df_status pick_best(void *ctx, uint32_t row, uint32_t out_row, int32_t *id, df_error *err) {
  (void)row, (void)err;
  *id = df_workspace_best(ctx, out_row);
  return DF_OK;
}

static int32_t first_token(tiny_target *x, const df_stepper *st, uint32_t seq, uint32_t prompt) {
  df_error err = {0};
  int32_t ids[TINY_LEN];
  for (uint32_t p = 0; p < prompt; p++) ids[p] = tiny_id(seq, p);
  df_prefill_item it = {.seq = &x->seq[seq], .ids = ids, .n = prompt, .last = true};
  must(df_spec_prefill(st, &it, 1, &err), &err);
  return df_workspace_best(&x->t.ws, it.out_row);
}

uint32_t tiny_generate(tiny_target *x, df_drafter *d, uint32_t prompt, uint32_t n_new, uint32_t width, int32_t *text) {
  df_error err = {0};
  uint32_t count[TINY_SEQS], accepted = 0, done = 0;
  const df_stepper st = {&x->t, d, &x->pages};
  assert_true(prompt + n_new + 16 <= TINY_LEN);
  for (uint32_t s = 0; s < TINY_SEQS; s++) {
    text[s * TINY_LEN] = first_token(x, &st, s, prompt);
    count[s] = 1;
  }
  while (done < TINY_SEQS) {
    df_step_item items[TINY_SEQS];
    uint32_t who[TINY_SEQS], n = 0;
    df_step_times times;
    for (uint32_t s = 0; s < TINY_SEQS; s++) {
      if (count[s] >= n_new) continue;
      const int32_t anchor = text[s * TINY_LEN + count[s] - 1];
      who[n] = s;
      items[n++] = (df_step_item){
          .seq = &x->seq[s], .n = prompt + count[s] - 1, .anchor = anchor, .pick = pick_best, .pick_ctx = &x->t.ws};
    }
    must(df_spec_step(&st, items, n, &(df_step_plan){.width = width}, &times, &err), &err);
    for (uint32_t i = 0; i < n; i++) {
      int32_t *to = text + who[i] * TINY_LEN + count[who[i]];
      memcpy(to, items[i].drafted, items[i].accepted * sizeof *to);
      to[items[i].accepted] = items[i].next;
      count[who[i]] += items[i].accepted + 1;
      accepted += items[i].accepted;
      done += count[who[i]] >= n_new;
    }
  }
  return accepted;
}
