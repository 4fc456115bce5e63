/*
 * cli/inspect.h - what "dflash inspect" knows about a file; shared by its text and its JSON form.
 */
#ifndef DF_CLI_INSPECT_H
#define DF_CLI_INSPECT_H

#include "cli/verbs.h"
#include "draft/fit.h"
#include "format/gguf.h"
#include "format/json.h"
#include "format/weights_source.h"

typedef struct df_subject {
  char *path;        /* owned */
  df_gguf *gguf;     /* NULL: safetensors */
  df_source *source; /* NULL when the architecture is not one of ours; `why` says so */
  char why[512];
  uint64_t tok_hash; /* 0: no tokenizer in it, or one that we cannot read */
} df_subject;

/* Opens for looking only. A GGUF file of an unknown architecture is fine (source NULL). */
df_status df_subject_open(df_subject *s, const char *path, df_error *err) DF_CHECK;
void df_subject_close(df_subject *s);

/* One tensor as listed. */
typedef struct df_tensor_row {
  const char *name, *type;
  uint32_t n_dims;
  uint64_t dims[4], n_values;
  size_t n_bytes;
} df_tensor_row;
size_t df_subject_tensors(const df_subject *s);
df_tensor_row df_subject_tensor(const df_subject *s, size_t i);

const char *df_gguf_kind_text(const df_gguf_kv *kv, char *buf, size_t cap); /* "u32", "array of 49152 strings" */

void df_inspect_text(const df_subject *s, const df_fit_report *fit, const df_cli *cli, bool full);
/* The table of a comparison and its verdict; the member "fit" of an object. */
void df_fit_text(const df_fit_report *fit, const df_cli *cli);
void df_fit_json(df_json_out *w, const df_fit_report *fit);
df_status df_inspect_json(const df_subject *s, const df_fit_report *fit, bool full, df_error *err) DF_CHECK;

#endif
