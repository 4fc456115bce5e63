/*
 * attention/fault_injection.h - switches that bring a known fault back, for tests and demonstrations. Compiled in only
 * with DF_FAULT_INJECTION; other builds have none of this.
 *
 *   DF_TEST_MASK_POLICY=force_mask    verify programs are captured with a FULL mask that no pass is ever given
 *   DF_TEST_MASK_POLICY=wrapper_name  the same, but decided as the original fault did: by looking at the outermost
 *                                     backend's name, so that a split pair is masked and a single leaf is not
 *   DF_TEST_MASK_GUARD=off            the contract between capture and pass is not checked
 *
 * Threads: read once, at first use, before other threads run.
 */
#ifndef DF_ATTENTION_FAULT_INJECTION_H
#define DF_ATTENTION_FAULT_INJECTION_H

#include "attention/verify_mask.h"

#ifdef DF_FAULT_INJECTION
/* Replaces the layout that verify programs are captured with. Returns a line for people, NULL when nothing is injected.
 */
const char *df_fault_mask_policy(const df_attn *outer, df_mask_layout *layout);
/* False when the guard is switched off. */
bool df_fault_mask_guard(void);
#else
static inline const char *df_fault_mask_policy(const df_attn *outer, df_mask_layout *layout) {
  (void)outer, (void)layout;
  return NULL;
}
static inline bool df_fault_mask_guard(void) { return true; }
#endif

#endif
