#include "engine/check.h"

#include <stdio.h>
#include <string.h>

#include "attention/registry.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "base/size.h"
#include "engine/engine.h"

enum { N_TEXTS = 8, N_PROMPTS = DF_CHECK_MAX_BATCH, MAX_TOKENS = 64, CHECK_CTX = 256 };
enum { QUICK_TOKENS = 24, FULL_TOKENS = 5, BATCH_TOKENS = 8 };

/* Different lengths, so that pages, chunks and batches never line up. */
static const char *const k_texts[N_TEXTS] = {
    "The capital of France is",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "Question: Tom has 12 marbles and gives a third of them to Ann. How many marbles does Tom have left?\nAnswer:",
    "Once",
    "1, 2, 4, 8, 16, 32,",
    "List three colours of the rainbow, then explain in one sentence why the sky looks blue on a clear day:\n1.",
    "for (int i = 0; i < n; i++) {",
    ("Dear Sir or Madam,\n\nI am writing to ask about the opening hours of your library and whether it is possible to "
     "borrow more than five books at a time. I would also like to know"),
};

typedef struct answer {
  int32_t ids[MAX_TOKENS];
  uint32_t n;
  uint64_t hash;
} answer;

/* A model with its draft, opened for one thread count. */
typedef struct pair {
  df_model *m;
  df_draft *d;
  uint32_t threads;
} pair;

typedef struct checker {
  const df_check_params *p;
  pair pairs[2];
  uint32_t n_pairs;
  pair reference;     /* without a draft: its own model, or that of the first pair */
  uint32_t n_prompts; /* that the largest batch needs */
  int32_t *prompt[N_PROMPTS];
  size_t n_prompt[N_PROMPTS];
  answer expected[N_PROMPTS];
  uint32_t n_tokens;
  df_check_summary sum;
  uint64_t t0;
} checker;

static df_generate_params generation(const checker *k) {
  df_generate_params g = df_generate_params_default();
  g.max_tokens = k->n_tokens;
  g.ignore_eos = true;
  g.hash_logits = k->p->logits;
  return g;
}

static void take_answer(const df_request *q, answer *a) {
  a->n = q->n_ids - q->n_prompt;
  memcpy(a->ids, q->ids + q->n_prompt, a->n * sizeof *a->ids);
  a->hash = q->r.logits_hash;
}

/* Runs requests to their end; n_valid[i] positions of seq[i] are already there. */
static df_status run_batch(const checker *k, df_engine *e, uint32_t n, const uint32_t *n_valid, df_kv_seq *seq,
                           answer *out, df_error *err) {
  df_request q[N_PROMPTS];
  df_request *ptr[N_PROMPTS];
  const df_generate_params g = generation(k);
  uint32_t made = 0;
  df_status s = DF_OK;
  for (; made < n && s == DF_OK; made++) {
    s = df_engine_request(e, &q[made], k->prompt[made], k->n_prompt[made], n_valid[made], &seq[made], &g, err);
    if (s != DF_OK) break;
    ptr[made] = &q[made];
  }
  bool busy = s == DF_OK;
  while (s == DF_OK && busy) {
    s = df_engine_step(e, ptr, n, err);
    busy = false;
    for (uint32_t i = 0; i < n; i++) busy |= q[i].state != DF_REQ_DONE;
  }
  for (uint32_t i = 0; i < made; i++) {
    if (s == DF_OK) s = df_request_status(&q[i], err);
    if (s == DF_OK) take_answer(&q[i], &out[i]);
    seq[i] = q[i].seq;
    df_request_release(&q[i]);
  }
  return s;
}

static df_status new_engine(const pair *pr, const df_check_case *c, uint32_t max_seqs, df_engine *e, df_error *err) {
  df_engine_params p = {.session = df_session_params_default(), .max_seqs = max_seqs};
  p.session.n_ctx = CHECK_CTX;
  p.session.prefill_attention_backend = c->prefill;
  p.session.decode_attention_backend = c->decode;
  p.session.verify_attention_backend = c->verify;
  p.session.speculative_attention_mode = c->mode;
  p.session.no_graph = !c->graph;
  p.session.two_batch_overlap = c->tbo;
  p.session.page_size = c->page_size;
  p.session.spec_draft_max = (int32_t)c->width - 1;
  return df_engine_init(e, pr->m, pr->d, &p, err);
}

/* One request at a time, one row at a time, emitted anew for every step. */
static df_status plain_engine(const checker *k, df_engine *e, df_error *err) {
  const char *leaf = df_attn_default(k->reference.m->device)->name;
  const df_check_case plain = {leaf, leaf, NULL, NULL, false, false, false, 1, 1, 16, 1};
  return new_engine(&k->reference, &plain, 1, e, err);
}

/* ---- comparing ------------------------------------------------------------------------------------------ */

/* How far apart the two tokens were in plain decoding: one row behind the tokens that still agree. */
static df_status margin_of(checker *k, uint32_t r, uint32_t at, int32_t expected, int32_t got, float *margin,
                           df_error *err) {
  df_engine e;
  DF_TRY(plain_engine(k, &e, err));
  int32_t ids[CHECK_CTX];
  const uint32_t n = (uint32_t)k->n_prompt[r] + at;
  memcpy(ids, k->prompt[r], k->n_prompt[r] * sizeof *ids);
  memcpy(ids + k->n_prompt[r], k->expected[r].ids, at * sizeof *ids);
  df_request q;
  df_generate_params g = df_generate_params_default();
  g.max_tokens = 1;
  df_status s = df_engine_request(&e, &q, ids, n, 0, NULL, &g, err);
  if (s == DF_OK) {
    df_request *one = &q;
    while (s == DF_OK && q.state != DF_REQ_DONE) s = df_engine_step(&e, &one, 1, err);
    if (s == DF_OK) s = df_request_status(&q, err);
    const float *logits;
    if (s == DF_OK) s = df_workspace_logits(&e.target.ws, 0, &logits, err);
    if (s == DF_OK) *margin = logits[expected] - logits[got];
    df_kv_seq_release(&q.seq, &e.pages);
    df_request_release(&q);
  }
  df_engine_release(&e);
  return s;
}

/* The text of one token, cut at a character border; empty for none. */
static df_status token_text(const checker *k, int32_t id, char *out, size_t cap, df_error *err) {
  char *text;
  size_t n;
  out[0] = '\0';
  if (id < 0) return DF_OK;
  DF_TRY(df_model_detokenize(k->pairs[0].m, &id, 1, true, &text, &n, err));
  if (n >= cap) {
    n = cap - 1;
    while (n && ((unsigned char)text[n] & 0xC0) == 0x80) n--;
  }
  memcpy(out, text, n);
  out[n] = '\0';
  df_text_free(text);
  return DF_OK;
}

/* Counts one combination and hands it on. */
static df_status tell(checker *k, const df_check_outcome *o, df_error *err) {
  k->sum.combinations++;
  k->sum.identical += o->identical;
  k->sum.near_ties += o->near_tie;
  k->sum.refused += o->refused;
  k->sum.seconds = (double)(df_now_ns() - k->t0) / 1e9;
  if (!k->p->on_case || k->p->on_case(k->p->user, o, &k->sum)) return DF_OK;
  return DF_FAIL(err, DF_ERR_CANCELLED, "the check was stopped");
}

/* A refusal belongs to the combination; any other failure ends the check. */
static bool is_refusal(df_status s) { return s == DF_ERR_UNSUPPORTED || s == DF_ERR_MASK_CONTRACT; }

/* Counts a combination, cold and with a cached prefix, that was refused with `why`; `from_hit`: the cold one was told.
 */
static df_status tell_refused(checker *k, const df_check_case *c, bool from_hit, const df_error *why, df_error *err) {
  df_check_outcome o = {.c = *c, .refused = true};
  (void)snprintf(o.reason, sizeof o.reason, "%s", why->msg);
  for (int hit = from_hit; hit < 2; hit++) {
    o.c.prefix_hit = hit == 1;
    DF_TRY(tell(k, &o, err));
  }
  return DF_OK;
}

/* How request r's answer differs; o stays as it is when it does not. */
static df_status compare_one(checker *k, uint32_t r, const answer *got, bool inexact, df_check_outcome *o,
                             df_error *err) {
  const answer *want = &k->expected[r];
  uint32_t i = 0;
  while (i < want->n && i < got->n && want->ids[i] == got->ids[i]) i++;
  /* With a prefix hit the hash covers the same rows: generated positions only. */
  const bool ids_equal = i == want->n && i == got->n;
  if (ids_equal && (!k->p->logits || inexact || want->hash == got->hash)) return DF_OK;
  *o = (df_check_outcome){.c = o->c, .request = r, .logits_only = ids_equal, .position = i};
  o->expected = i < want->n ? want->ids[i] : -1;
  o->got = i < got->n ? got->ids[i] : -1;
  DF_TRY(token_text(k, o->expected, o->expected_text, sizeof o->expected_text, err));
  DF_TRY(token_text(k, o->got, o->got_text, sizeof o->got_text, err));
  if (o->expected < 0 || o->got < 0) return DF_OK;
  DF_TRY(margin_of(k, r, i, o->expected, o->got, &o->margin, err));
  o->near_tie = df_check_is_near_tie(o, inexact);
  return DF_OK;
}

bool df_check_is_near_tie(const df_check_outcome *o, bool inexact) {
  return inexact && !o->logits_only && o->expected >= 0 && o->got >= 0 && o->margin <= DF_CHECK_NEAR_TIE;
}

/* The first difference, near ties only when there is no other. */
static df_status compare(checker *k, const df_check_case *c, const answer *got, bool inexact, df_error *err) {
  df_check_outcome o = {.c = *c, .identical = true};
  for (uint32_t r = 0; r < c->batch && (o.identical || o.near_tie); r++) {
    df_check_outcome one = {.c = *c, .identical = true};
    DF_TRY(compare_one(k, r, &got[r], inexact, &one, err));
    if (!one.identical && (o.identical || !one.near_tie)) o = one;
  }
  return tell(k, &o, err);
}

/* Runs one mix and compares; *told counts what was handed on, so that a refusal knows what is left. */
static df_status run_both(checker *k, df_engine *e, df_check_case c, df_kv_seq *seq, uint32_t *told, df_error *err) {
  uint32_t n_valid[N_PROMPTS] = {0};
  answer got[N_PROMPTS];
  df_attn *attn = e->target.attn;
  const bool inexact = attn->ops->caps(attn).inexact;
  for (uint32_t hit = 0; hit < 2; hit++) {
    c.prefix_hit = hit == 1;
    for (uint32_t i = 0; i < c.batch && hit; i++) {
      n_valid[i] = (uint32_t)k->n_prompt[i] / 2;
      df_kv_seq_trim(&seq[i], &e->pages, n_valid[i]);
    }
    DF_TRY(run_batch(k, e, c.batch, n_valid, seq, got, err));
    DF_TRY(compare(k, &c, got, inexact, err));
    *told = hit + 1;
  }
  return DF_OK;
}

/* Batch `c.batch` cold, then again with a share of each prompt still cached. */
static df_status run_mix(checker *k, df_engine *e, df_check_case c, df_error *err) {
  df_kv_seq seq[N_PROMPTS] = {{0}};
  df_status s = DF_OK;
  df_error why = {0};
  uint32_t told = 0;
  for (uint32_t i = 0; i < c.batch && s == DF_OK; i++) s = df_kv_seq_init(&seq[i], e->pages.size, e->n_ctx, &why);
  if (s == DF_OK) s = run_both(k, e, c, seq, &told, &why);
  for (uint32_t i = 0; i < c.batch; i++) df_kv_seq_release(&seq[i], &e->pages);
  if (is_refusal(s)) return tell_refused(k, &c, told == 1, &why, err);
  if (s != DF_OK && err) *err = why;
  return s;
}

/* ---- the matrix ----------------------------------------------------------------------------------------- */

typedef struct axes {
  const df_attn_entry *leaf; /* [n_leaf] */
  uint32_t n_leaf;
  uint32_t width[5], n_width, batch[5], n_batch, page[3], n_page;
  uint32_t n_tbo;
} axes;

static axes axes_of(const checker *k) {
  const axes quick = {NULL, 2, {1, 8}, 2, {1, 3}, 2, {16}, 1, 1};
  const axes full = {NULL, 3, {1, 2, 5, 8, 16}, 5, {1, 2, 3, 5, 8}, 5, {1, 16, 64}, 3, 2};
  const axes batch = {NULL, 1, {1, 8}, 2, {4, 11, 16, 32}, 4, {16}, 1, 1};
  axes a = k->p->matrix == DF_CHECK_FULL ? full : k->p->matrix == DF_CHECK_BATCH ? batch : quick;
  const df_device *device = k->pairs[0].m->device;
  uint32_t n_leaves;
  a.leaf = df_attn_leaves(device->leaves, &n_leaves);
  /* Kernels from elsewhere are nobody's twins: all of them, also in the quick matrix. */
  if ((device->leaves == DF_LEAVES_CUDA_THIRD && k->p->matrix != DF_CHECK_BATCH) || n_leaves < a.n_leaf)
    a.n_leaf = n_leaves;
  if (!k->pairs[0].d) a.n_width = 1;
  uint32_t most = k->pairs[0].d ? df_draft_get_info(k->pairs[0].d).block_size : 1, n = 0;
  for (uint32_t i = 0; i < a.n_width; i++)
    if (a.width[i] <= most) a.width[n++] = a.width[i];
  a.n_width = n;
  return a;
}

/* Everything that one engine can run: its batch mixes. */
static df_status run_engine(checker *k, const axes *a, const pair *pr, df_check_case c, df_error *err) {
  df_engine e;
  df_error why = {0};
  const df_status made = new_engine(pr, &c, a->batch[a->n_batch - 1], &e, &why);
  df_status s = made == DF_OK || is_refusal(made) ? DF_OK : made;
  if (s != DF_OK && err) *err = why;
  for (uint32_t b = 0; b < a->n_batch && s == DF_OK; b++) {
    c.batch = a->batch[b];
    s = made == DF_OK ? run_mix(k, &e, c, err) : tell_refused(k, &c, false, &why, err);
  }
  if (made == DF_OK) df_engine_release(&e);
  return s;
}

/* A slot of its own for verify: the leaf that neither phase uses, where there is one. */
static uint32_t own_leaf(const axes *a, uint32_t pl, uint32_t dl) {
  uint32_t own = 0;
  while (own + 1 < a->n_leaf && (own == pl || own == dl)) own++;
  return own;
}

/* Whether all leaves of a stack can read pages of this size; v: verify as in run_modes. */
static bool reads_pages(const axes *a, uint32_t pl, uint32_t dl, uint32_t v, uint32_t page) {
  const uint32_t all = a->leaf[pl].page_sizes & a->leaf[dl].page_sizes;
  return (all & (v == 2 ? a->leaf[own_leaf(a, pl, dl)].page_sizes : all) & page) != 0;
}

/* Verify on prefill's leaf, on decode's, or on a slot of its own. */
static df_status run_modes(checker *k, const axes *a, const pair *pr, df_check_case c, uint32_t pl, uint32_t dl,
                           df_error *err) {
  for (uint32_t v = 0; v < 3; v++) {
    c.mode = v == 1 ? "decode" : "prefill";
    c.verify = v == 2 ? a->leaf[own_leaf(a, pl, dl)].name : NULL;
    for (uint32_t g = 0; g < 2; g++)
      for (uint32_t t = 0; t < a->n_tbo; t++)
        for (uint32_t w = 0; w < a->n_width; w++)
          for (uint32_t s = 0; s < a->n_page; s++) {
            if (!reads_pages(a, pl, dl, v, a->page[s])) continue;
            c.graph = g == 1;
            c.tbo = t == 1;
            c.width = a->width[w];
            c.page_size = a->page[s];
            DF_TRY(run_engine(k, a, pr, c, err));
          }
  }
  return DF_OK;
}

static uint64_t planned(const checker *k, const axes *a) {
  uint64_t stacks = 0; /* with their page sizes */
  for (uint32_t i = 0; i < a->n_leaf; i++)
    for (uint32_t j = 0; j < a->n_leaf; j++)
      for (uint32_t v = 0; v < 3; v++)
        for (uint32_t s = 0; s < a->n_page; s++) stacks += reads_pages(a, i, j, v, a->page[s]);
  return k->n_pairs * stacks * 2 * a->n_tbo * a->n_width * a->n_batch * 2;
}

static df_status run_matrix(checker *k, df_error *err) {
  const axes a = axes_of(k);
  k->sum.planned = planned(k, &a);
  for (uint32_t p = 0; p < k->n_pairs; p++)
    for (uint32_t i = 0; i < a.n_leaf; i++)
      for (uint32_t j = 0; j < a.n_leaf; j++) {
        const df_check_case c = {.prefill = a.leaf[i].name, .decode = a.leaf[j].name, .threads = k->pairs[p].threads};
        DF_TRY(run_modes(k, &a, &k->pairs[p], c, i, j, err));
      }
  return DF_OK;
}

/* ---- set-up --------------------------------------------------------------------------------------------- */

static df_status open_pair(pair *pr, const char *model, const char *draft, const char *device, uint32_t threads,
                           df_error *err) {
  df_model_params mp = df_model_params_default();
  mp.device = device;
  mp.n_threads = threads;
  pr->threads = threads;
  DF_TRY(df_model_open(model, &mp, &pr->m, err));
  return draft ? df_draft_open(draft, pr->m, NULL, &pr->d, err) : DF_OK;
}

/* The processor's answers, where the device promises the same bits. */
static df_status choose_reference(checker *k, const char *model, df_error *err) {
  df_model *m = k->pairs[0].m;
  const bool own = m->device->is_host || (m->device->own_floats && df_model_has_half_weights(m));
  k->reference = (pair){m, NULL, 1};
  if (!own) DF_TRY(open_pair(&k->reference, model, NULL, NULL, 1, err));
  (void)snprintf(k->sum.device, sizeof k->sum.device, "%s", df_model_get_info(m).device);
  (void)snprintf(k->sum.reference, sizeof k->sum.reference, "%s", df_model_get_info(k->reference.m).device);
  return DF_OK;
}

/* What everything is compared with. */
static df_status plain_answers(checker *k, df_error *err) {
  df_engine e;
  DF_TRY(plain_engine(k, &e, err));
  df_status s = DF_OK;
  for (uint32_t i = 0; i < k->n_prompts && s == DF_OK; i++) {
    df_request q;
    const df_generate_params g = generation(k);
    s = df_engine_request(&e, &q, k->prompt[i], k->n_prompt[i], 0, NULL, &g, err);
    if (s != DF_OK) break;
    df_request *one = &q;
    while (s == DF_OK && q.state != DF_REQ_DONE) s = df_engine_step(&e, &one, 1, err);
    if (s == DF_OK) s = df_request_status(&q, err);
    if (s == DF_OK) take_answer(&q, &k->expected[i]);
    df_kv_seq_release(&q.seq, &e.pages);
    df_request_release(&q);
  }
  df_engine_release(&e);
  return s;
}

/* Beyond the texts as they are, every text with another beginning each time. */
static df_status make_prompt(checker *k, uint32_t i, df_error *err) {
  char text[512];
  const char *base = k_texts[i % N_TEXTS];
  if (i < N_TEXTS)
    (void)snprintf(text, sizeof text, "%s", base);
  else
    (void)snprintf(text, sizeof text, "%.*s %u. %s", (int)(i / N_TEXTS * 9), "Exercise number one of the set", i, base);
  return df_model_tokenize(k->pairs[0].m, text, strlen(text), false, &k->prompt[i], &k->n_prompt[i], err);
}

static df_status set_up(checker *k, const char *model, const char *draft, df_error *err) {
  static const uint32_t tokens[] = {QUICK_TOKENS, FULL_TOKENS, BATCH_TOKENS};
  const uint32_t cpus = df_cpu_count();
  k->n_tokens = k->p->n_tokens ? k->p->n_tokens : tokens[k->p->matrix];
  k->n_prompts = k->p->matrix == DF_CHECK_BATCH ? N_PROMPTS : N_TEXTS;
  if (k->n_tokens > MAX_TOKENS)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "a check of %u tokens is outside 1..%d", k->n_tokens, MAX_TOKENS);
  const char *device = k->p->device;
  DF_TRY(open_pair(&k->pairs[k->n_pairs++], model, draft, device, 1, err));
  DF_TRY(choose_reference(k, model, err));
  if (k->pairs[0].m->device->is_host && (cpus > 1 || k->p->matrix == DF_CHECK_FULL))
    DF_TRY(open_pair(&k->pairs[k->n_pairs++], model, draft, device, 2, err));
  for (uint32_t i = 0; i < k->n_prompts; i++) {
    DF_TRY(make_prompt(k, i, err));
    if (k->n_prompt[i] + k->n_tokens > CHECK_CTX) k->n_prompt[i] = CHECK_CTX - k->n_tokens; /* a tokenizer of bytes */
    if (k->n_prompt[i] == 0)
      return DF_FAIL(err, DF_ERR_UNSUPPORTED, "prompt %u of the check has no tokens with this tokenizer", i);
  }
  return plain_answers(k, err);
}

df_status df_check_run(const char *model, const char *draft, const df_check_params *p, df_check_summary *out,
                       df_error *err) {
  checker *k = df_calloc(1, sizeof *k);
  if (!k) return DF_OOM(err, "the check", sizeof *k);
  k->p = p;
  k->t0 = df_now_ns();
  df_status s = set_up(k, model, draft, err);
  if (s == DF_OK) s = run_matrix(k, err);
  for (uint32_t i = 0; i < N_PROMPTS; i++) df_ids_free(k->prompt[i]);
  if (k->reference.m != k->pairs[0].m) df_model_close(k->reference.m);
  for (uint32_t i = 0; i < k->n_pairs; i++) {
    df_draft_close(k->pairs[i].d);
    df_model_close(k->pairs[i].m);
  }
  if (s == DF_OK) {
    k->sum.seconds = (double)(df_now_ns() - k->t0) / 1e9;
    *out = k->sum;
  }
  df_free(k);
  return s;
}
