/*
 * cli/cli_model.h - from options to an open model, draft and session.
 */
#ifndef DF_CLI_MODEL_H
#define DF_CLI_MODEL_H

#include "cli/verbs.h"
#include "dflash/dflash.h"

typedef struct df_loaded {
  df_model *model;
  df_draft *draft; /* NULL: plain decoding */
  df_session *session;
  df_model_info info;
  df_draft_info draft_info;
  uint32_t width; /* rows of a verify block; 1 = no drafting */
  bool width_given;
  char *model_path, *draft_path; /* owned */
} df_loaded;

/* Opens -m and, unless with_draft is false, -md, with a progress bar. Errors as the library's; ARGUMENT for options
 * that contradict each other. On failure *l is empty. A card is asked for room for one context (-c) beside the weights,
 * or for n_seqs of them, in at most kv_bytes (0: no bound). */
df_status df_loaded_open(df_loaded *l, df_cli *cli, bool with_draft, df_error *err) DF_CHECK;
df_status df_loaded_open_for(df_loaded *l, df_cli *cli, bool with_draft, uint32_t n_seqs, uint64_t kv_bytes,
                             df_error *err) DF_CHECK;
/* Makes l->session; draft false: a session without drafting. */
df_status df_loaded_session(df_loaded *l, df_cli *cli, bool draft, df_error *err) DF_CHECK;
void df_loaded_close(df_loaded *l); /* an empty one is fine */

/* What runs the model: "avx512 kernels, 2 threads", "cuda:0 (NVIDIA H200)". */
void df_machine_text(const df_model_info *info, char *out, size_t cap);

/* "model ...: ..." and "drafting: ..." on standard error. */
void df_loaded_describe(const df_loaded *l, const df_cli *cli);

/* --seed, or a drawn one of 32 bits, which is short enough to be typed again. */
uint64_t df_seed_from_opts(const df_opts *o);

/* Sampling, limits and stop strings from the options; borrows from opts. A random seed is drawn here when asked for. */
df_generate_params df_generate_from_opts(const df_opts *o, const df_loaded *l);

/* DF_ERR_ARGUMENT unless -m is given. */
df_status df_need_model(const df_opts *o, df_error *err) DF_CHECK;

/* Reads --chat-template-file; a fault in it is told with its name. *out = NULL when not given; for df_free. */
df_status df_template_from_opts(const df_opts *o, char **out, df_error *err) DF_CHECK;

#endif
