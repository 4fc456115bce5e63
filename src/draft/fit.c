#include "draft/fit.h"

#include <stdio.h>
#include <string.h>

static void say_u(char *out, size_t cap, uint64_t v, bool stated) {
  if (stated)
    (void)snprintf(out, cap, "%llu", (unsigned long long)v);
  else
    (void)snprintf(out, cap, "not stated");
}

static df_fit_item kind_item(const df_config *target, const df_config *draft) {
  df_fit_item it = {.name = "kind", .verdict = draft->is_draft && !target->is_draft ? DF_FIT_OK : DF_FIT_BAD};
  (void)snprintf(it.target, sizeof it.target, "%s%s", target->arch, target->is_draft ? " (a draft itself)" : "");
  (void)snprintf(it.draft, sizeof it.draft, "%s%s", draft->arch, draft->is_draft ? "" : " (not a DFlash draft)");
  return it;
}

static df_fit_item number_item(const char *name, uint64_t target, uint64_t draft, bool stated) {
  df_fit_item it = {.name = name, .verdict = !stated ? DF_FIT_NOT_STATED : target == draft ? DF_FIT_OK : DF_FIT_BAD};
  say_u(it.target, sizeof it.target, target, true);
  say_u(it.draft, sizeof it.draft, draft, stated);
  return it;
}

static df_fit_item taps_item(const df_config *target, const df_config *draft) {
  df_fit_item it = {.name = "tapped layers", .verdict = DF_FIT_OK};
  size_t n = 0;
  (void)snprintf(it.target, sizeof it.target, "%u layers", target->n_layers);
  for (uint32_t i = 0; i < draft->n_taps && i < DF_LIMIT_TAPS; i++) {
    if (draft->taps[i] >= target->n_layers) it.verdict = DF_FIT_BAD;
    if (n < sizeof it.draft)
      n += (size_t)snprintf(it.draft + n, sizeof it.draft - n, "%s%u", i ? " " : "", draft->taps[i]);
  }
  if (draft->n_taps == 0) {
    it.verdict = DF_FIT_BAD;
    n = (size_t)snprintf(it.draft, sizeof it.draft, "none");
  }
  if (draft->n_target_layers == 0) return it;
  if (draft->n_target_layers != target->n_layers) it.verdict = DF_FIT_BAD;
  if (n < sizeof it.draft) (void)snprintf(it.draft + n, sizeof it.draft - n, " of %u", draft->n_target_layers);
  return it;
}

static df_fit_item mask_item(const df_config *target, const df_config *draft) {
  df_fit_item it = {.name = "mask token", .verdict = DF_FIT_OK};
  (void)snprintf(it.target, sizeof it.target, "ids below %u", target->vocab);
  if (draft->mask_token_id < 0)
    it.verdict = DF_FIT_NOT_STATED;
  else if (draft->mask_token_id >= (int64_t)target->vocab)
    it.verdict = DF_FIT_BAD;
  say_u(it.draft, sizeof it.draft, (uint64_t)draft->mask_token_id, draft->mask_token_id >= 0);
  return it;
}

static df_fit_item tokenizer_item(uint64_t target, uint64_t draft) {
  df_fit_item it = {.name = "tokenizer", .verdict = DF_FIT_OK};
  if (target == 0 || draft == 0)
    it.verdict = DF_FIT_NOT_STATED;
  else if (target != draft)
    it.verdict = DF_FIT_BAD;
  if (target)
    (void)snprintf(it.target, sizeof it.target, "%016llx", (unsigned long long)target);
  else
    say_u(it.target, sizeof it.target, 0, false);
  if (draft)
    (void)snprintf(it.draft, sizeof it.draft, "%016llx", (unsigned long long)draft);
  else
    say_u(it.draft, sizeof it.draft, 0, false);
  return it;
}

df_status df_draft_check_fit(const df_config *target, const df_config *draft, uint64_t target_tok_hash,
                             uint64_t draft_tok_hash, df_fit_report *report, df_error *err) {
  df_fit_report r = {.fits = true};
  r.item[DF_FIT_KIND] = kind_item(target, draft);
  r.item[DF_FIT_WIDTH] = number_item("width", target->hidden, draft->hidden, true);
  r.item[DF_FIT_VOCAB] = number_item("vocabulary", target->vocab, draft->vocab, draft->vocab != 0);
  r.item[DF_FIT_TAPS] = taps_item(target, draft);
  r.item[DF_FIT_MASK] = mask_item(target, draft);
  r.item[DF_FIT_TOKENIZER] = tokenizer_item(target_tok_hash, draft_tok_hash);
  const df_fit_item *bad = NULL;
  for (int i = DF_FIT_COUNT - 1; i >= 0; i--) {
    if (r.item[i].verdict == DF_FIT_BAD) bad = &r.item[i];
  }
  r.fits = bad == NULL;
  if (report) *report = r;
  if (!bad) return DF_OK;
  df_status st = DF_FAIL(err, DF_ERR_MISMATCH, "the draft does not fit the target: %s differs (target %s, draft %s)",
                         bad->name, bad->target, bad->draft);
  df_error_hint(err, "\"dflash inspect DRAFT -m TARGET\" compares them in full");
  return st;
}
