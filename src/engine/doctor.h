/*
 * engine/doctor.h - what a configuration would do, as data: who runs each forward mode, what the mask policy decides,
 * which programs are recorded, what memory is planned, and everything that would be refused.
 *
 * Nothing is generated. A setting that is refused is left at its default for the rest of the examination, so that the
 * next problem behind it is found too.
 *
 * Ownership: df_doctor owns model and draft; texts are borrowed from them or static. Threads: one caller.
 */
#ifndef DF_ENGINE_DOCTOR_H
#define DF_ENGINE_DOCTOR_H

#include "draft/fit.h"
#include "engine/engine.h"

enum { DF_DOCTOR_PROBLEMS = 16, DF_DOCTOR_LEAVES = 8 };

typedef struct df_doctor_problem {
  const char *setting; /* as the command line spells it, without dashes; static */
  df_error error;
} df_doctor_problem;

typedef struct df_doctor_alias {
  const char *setting, *given, *leaf;
} df_doctor_alias;

/* From the outermost backend to the leaf; n 0: nobody runs this mode here. */
typedef struct df_doctor_route {
  df_mode mode;
  const char *path[DF_ATTN_MAX_DEPTH + 1];
  uint32_t n;
} df_doctor_route;

typedef struct df_doctor_leaf {
  const char *label;
  uint32_t modes; /* bit per df_mode it runs */
  df_attn_caps caps;
} df_doctor_leaf;

typedef struct df_doctor_graph {
  bool of_draft;
  df_graph_key key; /* executor is not valid any more: see label */
  const char *executor;
  size_t bytes;
} df_doctor_graph;

/* Bytes. KV and scratch are reserved in full and backed as far as they are used. */
typedef struct df_doctor_memory {
  uint64_t weights, draft_weights;
  uint64_t kv_token, draft_kv_token; /* one position, all layers, K and V */
  uint64_t kv_pool, draft_kv_pool;
  uint64_t workspace, draft_workspace; /* activations, logits, tapped rows */
  uint64_t mask;                       /* static input of masked verify programs */
  uint64_t programs;
} df_doctor_memory;

typedef struct df_doctor {
  df_model *m;
  df_draft *d;            /* NULL without, or when it was refused */
  df_device_info device;  /* what programs run on, with what the plan placed there */
  df_leaf_set leaves;     /* that it has */
  bool has_fit, has_plan; /* the fields below are filled */
  df_fit_report fit;

  /* the plan */
  df_doctor_route route[DF_MODE_COUNT];
  df_doctor_leaf leaf[DF_DOCTOR_LEAVES];
  uint32_t n_leaves;
  df_mask_layout mask_layout;
  const char *mask_executor, *mask_reason;
  uint32_t n_ctx, width, max_seqs, page_size, pages;
  bool auto_width, kv_f32, graphs, overlap;
  uint32_t buckets[DF_MAX_BUCKETS], n_buckets;
  df_doctor_graph *graph; /* [n_graphs], owned: recorded for a step of every bucket */
  uint32_t n_graphs;
  uint64_t graph_limit; /* 0 = none */
  bool graphs_full;     /* the limit leaves programs out: their passes run eagerly */
  df_doctor_memory memory;

  df_doctor_alias alias[4];
  uint32_t n_aliases;
  df_doctor_problem problem[DF_DOCTOR_PROBLEMS];
  uint32_t n_problems; /* 0: the configuration is accepted */
} df_doctor;

typedef struct df_doctor_params {
  const char *model, *draft; /* paths; NULL: there is none, or it was not found */
  df_model_params model_params;
  df_draft_params draft_params;
  df_engine_params engine;
} df_doctor_params;

/* Fills *out (zero it first; problems already in it are kept). Refusals are problems, not errors: errors are MEMORY and
 * CANCELLED. */
df_status df_doctor_run(const df_doctor_params *p, df_doctor *out, df_error *err) DF_CHECK;
void df_doctor_release(df_doctor *d);

/* Adds one problem; the last place keeps the last one when there are too many. */
void df_doctor_add(df_doctor *d, const char *setting, const df_error *error);

#endif
