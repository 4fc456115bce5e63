#include "cli/cli_attention.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "attention/registry.h"
#include "kv/pages.h"

/* ---- batch sizes ---- */

/* Digits at *p to a number of at most 64; moves *p behind them. False when there is none or it is larger. */
static bool read_size(const char **p, uint32_t *out) {
  uint32_t v = 0;
  const char *s = *p;
  if (!isdigit((unsigned char)*s)) return false;
  for (; isdigit((unsigned char)*s); s++) {
    v = v * 10 + (uint32_t)(*s - '0');
    if (v > DF_BATCH_SIZES_MAX) return false;
  }
  *p = s;
  *out = v;
  return v >= 1;
}

df_status df_batch_sizes_parse(const char *text, uint32_t *out, uint32_t *n, df_error *err) {
  const char *p = text;
  uint32_t count = 0;
  for (;;) {
    const char *item = p, *at = p;
    uint32_t first, last;
    if (!read_size(&p, &first)) goto bad_size;
    last = first;
    if (*p == '-') {
      at = ++p;
      if (!read_size(&p, &last)) goto bad_size;
    }
    if (last < first || (count && first <= out[count - 1])) {
      if (last >= first) at = item;
      return DF_FAIL(err, DF_ERR_ARGUMENT, "\"%.60s\" does not ascend at character %d (write 1,2,4 or 1-8)", text,
                     (int)(at - text) + 1);
    }
    for (uint32_t v = first; v <= last; v++) out[count++] = v; /* strictly ascending from 1 to 64: at most 64 of them */
    if (*p == '\0') break;
    if (*p != ',')
      return DF_FAIL(err, DF_ERR_ARGUMENT,
                     "\"%.60s\" is no list of batch sizes: unexpected \"%.1s\" at character %d "
                     "(write 1,2,4 or 1-8)",
                     text, p, (int)(p - text) + 1);
    p++;
    continue;
  bad_size:
    return DF_FAIL(err, DF_ERR_ARGUMENT,
                   "\"%.60s\" needs a batch size from 1 to %d at character %d (write 1,2,4 or 1-8)", text,
                   DF_BATCH_SIZES_MAX, (int)(at - text) + 1);
  }
  *n = count;
  return DF_OK;
}

/* ---- checks that need no model ---- */

static df_status check_backend(const df_opts *o, df_opt_id id, df_leaf_set leaves, df_error *err) {
  const df_attn_entry *entry;
  bool alias;
  if (!df_opt_given(o, id)) return DF_OK;
  df_status st = df_attn_find(o->v[id].text, leaves, &entry, &alias, err);
  if (st != DF_OK) df_error_prefix(err, "--%s", df_opt_table[id].name);
  return st;
}

static df_status check_page_size(const df_opts *o, df_error *err) {
  int64_t n = df_opt_int(o, OPT_PAGE_SIZE, 0);
  if (!df_opt_given(o, OPT_PAGE_SIZE) || ((n & (n - 1)) == 0 && (n & DF_PAGE_SIZES) != 0)) return DF_OK;
  return DF_FAIL(err, DF_ERR_ARGUMENT, "--page-size %lld: no attention backend reads such pages (use 1, 16 or 64)",
                 (long long)n);
}

static df_status check_graph_bs(const df_opts *o, df_error *err) {
  uint32_t sizes[DF_BATCH_SIZES_MAX], n;
  if (!df_opt_given(o, OPT_GRAPH_BS)) return DF_OK;
  df_status st = df_batch_sizes_parse(o->v[OPT_GRAPH_BS].text, sizes, &n, err);
  if (st != DF_OK) df_error_prefix(err, "--graph-bs");
  return st;
}

static df_status check_device(const df_opts *o, df_leaf_set *leaves, df_error *err) {
  *leaves = DF_LEAVES_HOST;
  if (!df_opt_given(o, OPT_DEVICE)) return DF_OK;
  df_status st = df_device_check(o->v[OPT_DEVICE].text, leaves, err);
  if (st != DF_OK) df_error_prefix(err, "--device %s", o->v[OPT_DEVICE].text);
  return st;
}

df_status df_attention_opts_check(const df_opts *o, df_error *err) {
  static const df_opt_id backends[] = {OPT_ATTENTION_BACKEND, OPT_PREFILL_ATTENTION_BACKEND,
                                       OPT_DECODE_ATTENTION_BACKEND, OPT_VERIFY_ATTENTION_BACKEND};
  df_leaf_set leaves;
  DF_TRY(check_device(o, &leaves, err));
  for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) DF_TRY(check_backend(o, backends[i], leaves, err));
  DF_TRY(check_page_size(o, err));
  return check_graph_bs(o, err);
}

/* ---- session parameters ---- */

int32_t df_draft_max_from_opts(const df_opts *o) {
  if (df_opt_given(o, OPT_SPEC_DRAFT_N_MAX)) return (int32_t)df_opt_int(o, OPT_SPEC_DRAFT_N_MAX, 0);
  if (df_opt_given(o, OPT_SPEC_WIDTH)) return (int32_t)df_opt_int(o, OPT_SPEC_WIDTH, 1) - 1;
  return -1;
}

df_status df_session_params_from_opts(const df_opts *o, df_session_params *sp, uint32_t *sizes, df_error *err) {
  *sp = df_session_params_default();
  sp->n_ctx = (uint32_t)df_opt_int(o, OPT_CTX_SIZE, 0);
  sp->kv_f32 = strcasecmp(df_opt_text(o, OPT_CACHE_TYPE_K, df_opt_text(o, OPT_CACHE_TYPE_V, "f16")), "f32") == 0;
  sp->spec_draft_max = df_draft_max_from_opts(o);
  sp->no_graph = !df_opt_on(o, OPT_GRAPH, true);
  sp->attention_backend = df_opt_text(o, OPT_ATTENTION_BACKEND, NULL);
  sp->prefill_attention_backend = df_opt_text(o, OPT_PREFILL_ATTENTION_BACKEND, NULL);
  sp->decode_attention_backend = df_opt_text(o, OPT_DECODE_ATTENTION_BACKEND, NULL);
  sp->verify_attention_backend = df_opt_text(o, OPT_VERIFY_ATTENTION_BACKEND, NULL);
  if (df_opt_given(o, OPT_SPECULATIVE_ATTENTION_MODE))
    sp->speculative_attention_mode =
        strcasecmp(o->v[OPT_SPECULATIVE_ATTENTION_MODE].text, "decode") == 0 ? "decode" : "prefill";
  sp->two_batch_overlap = df_opt_on(o, OPT_TWO_BATCH_OVERLAP, false);
  sp->page_size = (uint32_t)df_opt_int(o, OPT_PAGE_SIZE, 0);
  sp->graph_memory = (uint64_t)df_opt_int(o, OPT_GRAPH_MEMORY, 0);
  if (df_opt_given(o, OPT_GRAPH_BS)) {
    DF_TRY(df_batch_sizes_parse(o->v[OPT_GRAPH_BS].text, sizes, &sp->n_graph_seqs, err));
    sp->graph_seqs = sizes;
  }
  return DF_OK;
}
