/* attention/hybrid.h - one backend for prefill, one for decode, optionally one for verify. */
#ifndef DF_ATTENTION_HYBRID_H
#define DF_ATTENTION_HYBRID_H

#include "attention/backend.h"

/* Routing: EXTEND -> prefill; DECODE, IDLE -> decode; TARGET_VERIFY -> verify when given, else decode or prefill by
 * verify_on_decode. Takes ownership of the children (also on failure). The same child may fill several slots;
 * verify may be NULL. */
df_status df_attn_hybrid_create(df_attn *prefill, df_attn *decode, df_attn *verify, bool verify_on_decode,
                                df_attn **out, df_error *err) DF_CHECK;

#endif
