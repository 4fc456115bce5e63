/*
 * server/params.h - from the JSON body of a request to what the scheduler needs. One table lists every field: its name,
 * which endpoints take it, its kind and range; parsing and /openapi.json are made from it.
 *
 * Unknown fields are ignored; known fields of a wrong kind or out of range are refused and named; null is absent.
 *
 * Ownership: a df_gen owns its arrays (df_gen_release). Stop strings point into the JSON body, which must outlive the
 * submission. Threads: no state.
 */
#ifndef DF_SERVER_PARAMS_H
#define DF_SERVER_PARAMS_H

#include "engine/scheduler.h"
#include "format/json.h"
#include "server/server.h"

/* Families of endpoints; bits. */
enum {
  DF_FOR_CHAT = 1,       /* /v1/chat/completions */
  DF_FOR_COMPLETION = 2, /* /v1/completions */
  DF_FOR_RESPONSES = 4,  /* /v1/responses */
  DF_FOR_SGLANG = 8,     /* sampling_params of /generate */
  DF_FOR_LLAMA = 16,     /* /completion */
  DF_FOR_OPENAI = DF_FOR_CHAT | DF_FOR_COMPLETION | DF_FOR_RESPONSES,
  DF_FOR_ALL = 31
};

enum {
  DF_GEN_MAX_STOP = 32,     /* stop strings */
  DF_GEN_STOP_CHARS = 1024, /* of one; at most DF_STOP_MAX_BYTES bytes */
  DF_GEN_MAX_CHOICES = 128,
  DF_GEN_MAX_BIAS = 4096
};

typedef struct df_gen {
  df_generate_params p;
  int64_t max_tokens; /* -1 = to the end of the context; 0 = the prompt only */
  uint32_t n, best_of;
  bool stream, include_usage, continuous_usage;
  bool logprobs, echo;
  uint32_t n_top;
  bool seed_given;
  bool speculative;    /* false = no drafting for this request */
  uint32_t spec_width; /* 0 = as the server was started */
  bool dflash_tokens;  /* pieces with their draft slots in every chunk */
  bool return_tokens, return_text_in_logprobs;
  bool cumulative; /* SGLang streams repeat the text so far */
  bool skip_special;
  int32_t priority;
  bool cache_prompt;
  bool add_generation_prompt, continue_final;
  const char *stop[DF_GEN_MAX_STOP];
  uint32_t n_stop;
  int32_t stop_ids[DF_SCHED_MAX_STOP_IDS];
  uint32_t n_stop_ids;
  df_logit_bias *bias; /* owned */
  const char *param;   /* after a failure: the field at fault, static or borrowed from the body; else NULL */
} df_gen;

typedef enum df_field_kind {
  DF_FIELD_BOOL,
  DF_FIELD_U32,
  DF_FIELD_I32,
  DF_FIELD_I64,
  DF_FIELD_F32,
  DF_FIELD_OWN
} df_field_kind;

typedef struct df_field {
  const char *name;
  uint32_t shapes;
  df_field_kind kind;
  size_t offset; /* within df_gen */
  double min, max;
  df_status (*read)(df_gen *g, uint32_t shape, const df_json *v, df_error *err); /* DF_FIELD_OWN */
  const char *schema;                                                            /* JSON schema text of DF_FIELD_OWN */
  const char *doc;
} df_field;

extern const df_field df_fields[];
extern const size_t df_field_count;

/* Fields that constrain the output: only one of them may do so in a request. They are not read here. */
typedef struct df_constraint_field {
  const char *name;
  uint32_t shapes;
  const char *schema, *idle; /* names of schemas in openapi/schemas.json: what it may be; what constrains nothing */
} df_constraint_field;

extern const df_constraint_field df_constraint_fields[];
extern const size_t df_constraint_field_count;

/* Sets defaults: d of the server, then what the family of endpoints does by itself. */
void df_gen_init(df_gen *g, uint32_t shape, const df_serve_defaults *d);
/* Reads the fields of a JSON object. DF_ERR_FORMAT with g->param set; DF_ERR_MEMORY. May be called again for another
 * object (sampling_params inside a body). */
df_status df_gen_read(df_gen *g, uint32_t shape, const df_json *body, df_error *err) DF_CHECK;
/* What must fit together after all is read. */
df_status df_gen_check(df_gen *g, uint32_t shape, df_error *err) DF_CHECK;
void df_gen_release(df_gen *g);

/* The schema of one field's value, appended as JSON. */
df_status df_field_schema(const df_field *f, df_buf *out, df_error *err) DF_CHECK;

#endif
