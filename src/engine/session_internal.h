/* engine/session_internal.h - a session is an engine for one request at a time that keeps its KV between turns. */
#ifndef DF_ENGINE_SESSION_INTERNAL_H
#define DF_ENGINE_SESSION_INTERNAL_H

#include "engine/engine.h"

struct df_session {
  df_engine e;
  df_kv_seq seq; /* of the cached conversation */
  int32_t *ids;  /* [n_ids], owned: the conversation so far */
  uint32_t n_ids;
  uint32_t n_valid; /* ids[0 .. n_valid) have K and V in seq */
};

#endif
