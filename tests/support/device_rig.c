#include "support/device_rig.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/size.h"
#include "support/sample_files.h"

enum { LONG = 300 };

static void must(df_status s, const df_error *err) {
  if (s != DF_OK) fail_msg("%s", err->msg);
}

tiny_spec device_rich_spec(df_dtype dtype) {
  tiny_spec s = tiny_spec_default();
  s.arch = "qwen3";
  s.dtype = dtype;
  s.untied = s.bias = s.qk_norm = true;
  return s;
}

void device_files_write(device_files *f, const tiny_spec *s) {
  tiny_draft_spec d = tiny_draft_default(s);
  d.dtype = s->dtype;
  d.rank_table = true;
  f->dir = test_dir_create();
  (void)snprintf(f->target, sizeof f->target, "%s/target.gguf", f->dir);
  (void)snprintf(f->draft, sizeof f->draft, "%s/draft.gguf", f->dir);
  tiny_model_write(s, f->target);
  tiny_draft_write(&d, f->draft);
}

void device_files_release(device_files *f) { test_dir_remove(f->dir); }

int device_pair_setup(void **state, float gain) {
  device_files *f = df_calloc(2, sizeof *f);
  tiny_spec plain = tiny_spec_default(), rich = device_rich_spec(DF_Q8_0);
  if (!f) return -1;
  if (gain > 0) plain.gain = rich.gain = gain;
  device_files_write(&f[0], &plain);
  device_files_write(&f[1], &rich);
  *state = f;
  return 0;
}

int device_pair_teardown(void **state) {
  device_files *f = *state;
  device_files_release(&f[0]);
  device_files_release(&f[1]);
  df_free(f);
  return 0;
}

static df_generate_params how(uint32_t i, bool small) {
  df_generate_params g = df_generate_params_default();
  g.max_tokens = small ? 6 + 2 * i : 24 + 5 * i;
  g.ignore_eos = g.hash_logits = true;
  g.sampling.seed = 5 + i;
  if (i == 1) g.sampling.temperature = 0.8f;
  if (i == 2) g.sampling.repetition_penalty = 1.3f;
  return g;
}

static void run_requests(df_engine *e, bool small, device_answer *out) {
  const uint32_t k_prompt[DEVICE_BATCH] = {7, small ? 18 : 40, small ? 37 : LONG};
  df_error err = {0};
  df_request q[DEVICE_BATCH];
  df_request *all[DEVICE_BATCH];
  int32_t ids[LONG];
  bool busy = true;
  for (uint32_t i = 0; i < DEVICE_BATCH; i++) {
    const df_generate_params g = how(i, small);
    for (uint32_t j = 0; j < k_prompt[i]; j++) ids[j] = (int32_t)((j * 31 + i * 17 + j * j * 7) % 251);
    must(df_engine_request(e, &q[i], ids, k_prompt[i], 0, NULL, &g, &err), &err);
    all[i] = &q[i];
  }
  while (busy) {
    must(df_engine_step(e, all, DEVICE_BATCH, &err), &err);
    busy = false;
    for (uint32_t i = 0; i < DEVICE_BATCH; i++) busy |= q[i].state != DF_REQ_DONE;
  }
  for (uint32_t i = 0; i < DEVICE_BATCH; i++) {
    must(df_request_status(&q[i], &err), &err);
    out[i].n = q[i].n_ids - q[i].n_prompt;
    out[i].hash = q[i].r.logits_hash;
    memcpy(out[i].ids, q[i].ids + q[i].n_prompt, out[i].n * sizeof *out[i].ids);
    df_kv_seq_release(&q[i].seq, &e->pages);
    df_request_release(&q[i]);
  }
}

const device_setting *device_settings(uint32_t *n) {
  static const device_setting k[] = {
      {.backend = "flash", .page_size = 1, .drafts = 3},
      {.backend = "splitkv", .page_size = 64, .drafts = 7, .overlap = true},
      {.backend = "flash", .decode = "splitkv", .drafts = 15, .overlap = true, .eager = true, .draft_vocab = 120},
      {.backend = "naive", .drafts = -1, .f32 = true},
      {.backend = "flash", .drafts = 0},
      {.backend = "flash", .drafts = -1, .eager = true},
  };
  *n = DF_COUNT_OF(k);
  return k;
}

void device_answers(const device_files *f, const char *device, const device_setting *s, device_answer *out) {
  df_error err = {0};
  df_model *m = NULL;
  df_draft *d = NULL;
  df_engine e;
  df_model_params mp = df_model_params_default();
  df_draft_params dp = df_draft_params_default();
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = DEVICE_BATCH};
  mp.device = device;
  mp.n_threads = 2;
  if (s->draft_vocab) dp.draft_vocab = s->draft_vocab;
  p.session.n_ctx = 384;
  p.session.attention_backend = s->backend;
  p.session.decode_attention_backend = s->decode;
  p.session.two_batch_overlap = s->overlap;
  p.session.no_graph = s->eager;
  p.session.kv_f32 = s->f32;
  p.session.page_size = s->page_size;
  p.session.spec_draft_max = s->drafts;
  must(df_model_open(f->target, &mp, &m, &err), &err);
  must(df_draft_open(f->draft, m, &dp, &d, &err), &err);
  must(df_engine_init(&e, m, d, &p, &err), &err);
  run_requests(&e, s->small, out);
  df_engine_release(&e);
  df_draft_close(d);
  df_model_close(m);
}

void device_compare(const device_files *f, const char *device, bool f32) {
  uint32_t n;
  const device_setting *s = device_settings(&n);
  for (uint32_t i = 0; i < n; i++) {
    device_answer want[DEVICE_BATCH], got[DEVICE_BATCH];
    if (s[i].f32 && !f32) continue;
    device_answers(f, NULL, &s[i], want);
    device_answers(f, device, &s[i], got);
    for (uint32_t r = 0; r < DEVICE_BATCH; r++) {
      assert_int_equal(got[r].n, want[r].n);
      if (memcmp(got[r].ids, want[r].ids, want[r].n * sizeof *want[r].ids) != 0 || got[r].hash != want[r].hash)
        fail_msg("setting %u on %s: request %u differs", i, device, r);
    }
  }
}

static bool on_case(void *user, const df_check_outcome *o, const df_check_summary *so_far) {
  (void)user, (void)so_far;
  if (!o->identical)
    fail_msg("%s/%s, %s, width %u, batch %u: %s", o->c.prefill, o->c.decode, o->c.graph ? "recorded" : "eager",
             o->c.width, o->c.batch,
             o->refused       ? o->reason
             : o->logits_only ? "other logits"
                              : "other tokens");
  return true;
}

df_check_summary device_check(const device_files *f, const char *device) {
  df_error err = {0};
  df_check_summary sum = {0};
  const df_check_params p = {
      .matrix = DF_CHECK_QUICK, .device = device, .logits = true, .n_tokens = 6, .on_case = on_case};
  must(df_check_run(f->target, f->draft, &p, &sum, &err), &err);
  assert_true(sum.planned > 0 && sum.combinations == sum.planned && sum.identical == sum.planned);
  return sum;
}
