/* engine/session_internal.h - the session's state, shared by the files of the single-sequence loop. */
#ifndef DF_ENGINE_SESSION_INTERNAL_H
#define DF_ENGINE_SESSION_INTERNAL_H

#include "dflash/session.h"
#include "engine/sampler.h"
#include "engine/seen.h"
#include "spec/step.h"

struct df_session {
  df_model *m;
  df_draft *d; /* NULL without */
  uint32_t n_ctx;
  uint32_t width; /* rows of a verify block; 1 without a draft */
  df_pages pages;
  df_kv_seq seq;
  df_target target;
  df_drafter drafter;
  bool has_target, has_drafter;
  df_stepper step;
  int32_t *ids;     /* [n_ctx + 1] the conversation: prompt, then kept tokens */
  uint32_t n_ids;
  uint32_t n_valid; /* ids[0..n_valid) have K and V */
  df_sampler_scratch scratch;
  df_seen seen;
};

#endif
