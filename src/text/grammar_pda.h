/*
 * text/grammar_pda.h - a grammar compiled: an automaton of bytes for each rule, joined by calls. For the files
 * grammar*.c only.
 *
 * Every state belongs to one rule and can reach the end of that rule by bytes that the vocabulary spells: what is not
 * of this kind is removed, so that a text that came so far can always be finished. No rule can call itself before it
 * has taken a byte.
 *
 * Ownership: df_pda_release. Threads: immutable once compiled.
 */
#ifndef DF_TEXT_GRAMMAR_PDA_H
#define DF_TEXT_GRAMMAR_PDA_H

#include "text/grammar_ast.h"

typedef enum df_gedge_kind { DF_GEDGE_BYTE, DF_GEDGE_EMPTY, DF_GEDGE_CALL } df_gedge_kind;

typedef struct df_gedge {
  uint32_t from, to; /* CALL: `to` is where it goes on when the rule is through */
  uint32_t rule;     /* CALL */
  uint8_t kind, lo, hi;
} df_gedge;

typedef struct df_gstate {
  uint32_t first, n_bytes, n_edges; /* edges[first ..): n_bytes BYTE edges, then the others; n_edges in all */
  uint32_t rule;
  bool final; /* end of the rule */
  bool tail;  /* nothing but the end of the rule follows: a call that goes on here needs no return */
} df_gstate;

typedef struct df_gpda_rule {
  uint32_t entry, final;
} df_gpda_rule;

typedef struct df_pda {
  df_gedge *edges;
  df_gstate *states;
  df_gpda_rule *rules;
  uint32_t n_edges, n_states, n_rules;
  uint32_t cap_edges, cap_states, cap_rules;
  uint32_t root;        /* rule */
  uint8_t classes[256]; /* bytes that no edge tells apart have one class */
  uint8_t example[256]; /* [n_classes] a byte of each */
  uint32_t n_classes;
} df_pda;

/* spelled: bytes that are tokens. DF_ERR_FORMAT (left recursion, no text admitted), DF_ERR_UNSUPPORTED (none that the
 * vocabulary spells), DF_ERR_LIMIT, DF_ERR_MEMORY. Release *out in any case. */
df_status df_pda_compile(const df_gast *a, const bool spelled[256], df_pda *out, df_error *err) DF_CHECK;
void df_pda_release(df_pda *d);

/* Second half of the above: checks and clean-up over the raw edges. names: of the first n_names rules. */
df_status df_pda_finish(df_pda *d, const df_grule *names, uint32_t n_names, bool bytes_missing, df_error *err) DF_CHECK;

#endif
