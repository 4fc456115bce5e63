#include "attention/fault_injection.h"

#ifdef DF_FAULT_INJECTION
#include <stdlib.h>
#include <string.h>

/* The original mistake, kept here and nowhere else: a list of names that "need no mask", asked about the wrapper. */
static bool name_is_listed(const char *label) {
  static const char *const k_listed[] = {"flash", "splitkv", "naive", "cuda", "flashinfer", "xqa"};
  for (size_t i = 0; i < sizeof k_listed / sizeof *k_listed; i++)
    if (strcmp(label, k_listed[i]) == 0) return true;
  return false;
}

const char *df_fault_mask_policy(const df_attn *outer, df_mask_layout *layout) {
  const char *v = getenv("DF_TEST_MASK_POLICY");
  if (!v) return NULL;
  const bool force = strcmp(v, "force_mask") == 0, by_name = strcmp(v, "wrapper_name") == 0;
  if (!force && !(by_name && !name_is_listed(outer->label))) return NULL;
  *layout = DF_MASK_FULL;
  return force ? "fault injected: verify programs are captured with a mask that no pass is given"
               : "fault injected: the mask decision looked at the wrapper's name";
}

bool df_fault_mask_guard(void) {
  const char *v = getenv("DF_TEST_MASK_GUARD");
  return !v || strcmp(v, "off") != 0;
}
#else
typedef int df_fault_injection_is_compiled_out;
#endif
