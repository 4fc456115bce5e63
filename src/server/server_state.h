/*
 * server/server_state.h - the server's own state and the requests at work, shared by the files of this folder.
 *
 * A df_task is one HTTP request that generates: it has one choice (one submission to the scheduler) for each answer of
 * each prompt. A task lives until every one of its choices is DONE, even when the client has left: then it only waits.
 * How an answer is written is up to its shape (openai_chat.c, native_llama.c, ...).
 *
 * Threads: everything runs on the loop's thread; the scheduler's thread only writes to wake_fd.
 */
#ifndef DF_SERVER_SERVER_STATE_H
#define DF_SERVER_SERVER_STATE_H

#include "server/http.h"
#include "server/params.h"
#include "server/prompts.h"
#include "server/reasoning.h"
#include "server/server.h"
#include "server/server_metrics.h"
#include "server/tool_calls.h"

enum {
  DF_TASK_BUCKETS = 256,
  DF_TASK_KEEP_ALIVE_S = 5, /* a comment line in a stream that has nothing to say */
  DF_TASK_RID_CHARS = 128,  /* a name that a client gives to a request */
  DF_TASK_ID_MAX = 4 * DF_TASK_RID_CHARS + 16,
  DF_TOKEN_TEXT_MAX = 1200 /* of a token in logprobs */
};

typedef struct df_server df_server;
typedef struct df_task df_task;
typedef struct df_choice df_choice;

/* One answer. */
struct df_choice {
  df_task *task;
  df_choice *hash_next;
  uint64_t job; /* id of the submission, 0 before */
  bool live;    /* submitted and not DONE */
  bool done;
  uint32_t index;  /* in the reply */
  uint32_t prompt; /* index of its prompt */
  df_buf text;     /* all of it so far */
  int32_t *ids;    /* [n_ids], with logprobs [n_ids] and top [n_ids][n_top] when asked for */
  float *logprobs;
  df_token_logprob *top;
  uint32_t n_ids, cap_ids;
  float *prompt_logprobs; /* [prompt] when asked for, the first is NaN */
  df_token_logprob *prompt_top;
  df_finish finish;
  int32_t matched_id, matched_string;
  df_stats stats;
  uint64_t t_submit, t_admit, t_first, t_done, t_last;
  df_detok pieces, offsets;         /* for dflash_tokens; for text_offset */
  df_answer_parser *parser;         /* chat: reasoning and calls taken out of the text; NULL = all is content */
  df_buf content, reasoning, calls; /* chat, whole replies: what the parser found; calls are JSON objects */
  uint32_t n_calls;
  df_reasoning thought; /* counts tokens of reasoning */
  bool echoed;          /* completions: the prompt is out */
  uint32_t n_told;      /* responses: tokens that went out with their text */
  uint64_t text_chars;  /* characters in the reply so far, for text_offset */
};

/* The news of one step for one choice. */
typedef struct df_piece {
  const char *text;
  size_t text_len;
  uint32_t first, n; /* tokens ids[first .. first + n) of the choice */
  uint32_t n_drafted, n_accepted;
} df_piece;

typedef struct df_shape {
  const char *name;
  uint32_t family; /* DF_FOR_* */
  /* Streams append whole events to task->out. begin: before anything else; end: after all choices. */
  df_status (*begin)(df_task *t, df_error *err);
  df_status (*piece)(df_task *t, df_choice *c, const df_piece *p, df_error *err);
  df_status (*finish)(df_task *t, df_choice *c, df_error *err);
  df_status (*end)(df_task *t, df_error *err);
  /* Whole replies: the JSON value. */
  df_status (*whole)(df_task *t, df_json_out *w, df_error *err);
} df_shape;

struct df_task {
  df_server *server;
  df_task *next, *prev;
  df_exchange *x; /* NULL: nobody waits for the reply any more */
  const df_shape *shape;
  df_gen gen;
  df_grammar *grammar;
  df_prompt_list prompts;
  df_choice *choices;
  uint32_t n_choices, n_live;
  char id[DF_TASK_ID_MAX]; /* "chatcmpl-..." or SGLang's rid */
  const df_json *rids;     /* SGLang: an array of names, one for each prompt; NULL = none */
  int64_t created;         /* seconds since 1970 */
  bool opened;             /* the shape's begin was called */
  bool begun;              /* the stream's headers are out */
  uint64_t t_write;        /* of the last bytes */
  df_buf out;
  uint32_t sequence; /* of events (responses) */
  bool listed;       /* SGLang: the text was an array, so the reply is one */
  bool tools;        /* calls are looked for */
  df_think_mode think;
  df_json *body; /* the request: stop strings point into it */
};

typedef enum df_phase { DF_PHASE_LOADING, DF_PHASE_READY, DF_PHASE_DRAINING } df_phase;

struct df_server {
  df_serve_params p;
  struct event_base *base;
  df_http *http;
  df_phase phase;
  bool load_failed;
  df_serve_model m;
  df_model_info info;
  df_chat_template *own_template; /* NULL = the model's */
  const df_chat_template *chat;   /* NULL = there is none */
  df_sched *sched;
  uint32_t n_ctx, width, max_seqs; /* 0 until all is loaded: m, info, chat and sched are the loader's before */
  size_t max_prompt_bytes;         /* more cannot fit into the context */
  df_choice *bucket[DF_TASK_BUCKETS];
  df_task *tasks;
  uint32_t n_tasks;
  df_server_metrics metrics;
  int64_t started; /* seconds since 1970 */
  uint64_t next_id;
  char fingerprint[48];
};

/* ---- tasks (task.c) ---- */

/* A task for this request with defaults for the shape. The exchange is bound to it. NULL: an error was sent. */
df_task *df_task_create(df_server *s, df_exchange *x, const df_shape *shape, const char *id_prefix);
/* Makes the choices and submits them. Answers with an error when that fails. The task belongs to itself afterwards. */
void df_task_start(df_task *t);
/* Answers with an error (or ends the stream with one), cancels what runs; the task ends by itself. */
void df_task_fail(df_task *t, int status, const char *type, const char *param, const char *message);
void df_task_fail_error(df_task *t, const df_error *err, const char *param);
/* Ends what runs, as far as a client named it: id is the task's, its exchange's, or that of one prompt; NULL = all.
 * Frees nothing: the ends come as events. */
void df_task_cancel(df_task *t, const char *id);
/* An event of the scheduler. */
void df_task_event(df_server *s, df_sched_event *ev);
/* Frees what is left after the scheduler is gone. */
void df_task_free_all(df_server *s);
/* Once a second: comments in silent streams. */
void df_task_tick(df_server *s);

/* ---- writing (reply.c) ---- */

/* {"error": ...} with the status. */
void df_reply_error(df_exchange *x, int status, const char *type, const char *param, const char *fmt, ...)
    DF_PRINTF(5, 6);
void df_reply_failed(df_server *s, df_exchange *x, const df_error *err, const char *param);
/* The status and type of an error of the library. */
int df_error_http(const df_server *s, const df_error *err, const char **type);
/* A buffer of JSON as a 200; st is what building it said. Releases the buffer. */
void df_reply_json(df_exchange *x, df_buf *b, df_status st);
df_status df_error_json(df_buf *out, int status, const char *type, const char *param, const char *message) DF_CHECK;

/* Members "usage" / "timings" of an open object, of all choices of a task. */
void df_usage_json(df_json_out *w, const df_task *t);
void df_timings_json(df_json_out *w, const df_task *t);
void df_timings_of_stats(df_json_out *w, const df_stats *st);
/* All choices of a task together. */
df_stats df_task_stats(const df_task *t);
/* "stop", "length", "abort". */
const char *df_finish_word(df_finish f);
/* A token's text for logprobs: "bytes:\xe2\x80" when it is no whole UTF-8. */
void df_token_json(df_json_out *w, const df_server *s, int32_t id);
/* The same as a C string, cut to fit: a key of an object. */
void df_token_key(const df_server *s, int32_t id, char out[DF_TOKEN_TEXT_MAX]);
void df_token_bytes_json(df_json_out *w, const df_server *s, int32_t id);
/* A finite number that clients can read: -9999 for minus infinity. */
void df_logprob_json(df_json_out *w, float lp);
/* OpenAI's array of tokens [first, first + n) of a choice with their logprobs and alternatives. */
void df_logprob_list_json(df_json_out *w, const df_task *t, const df_choice *c, uint32_t first, uint32_t n);
/* Members "id", "object", "created", "model", "system_fingerprint" of an open object. */
void df_reply_stem(df_json_out *w, const df_task *t, const char *object);
/* Member "dflash": drafted, accepted, and the pieces of a step. */
void df_dflash_json(df_json_out *w, df_choice *c, const df_piece *p);

/* One event of a stream in t->out: "data: " and the value written between the two. */
void df_sse_begin(df_task *t, df_json_out *w, df_error *err);
df_status df_sse_end(df_task *t, df_json_out *w) DF_CHECK;
/* The end of an OpenAI stream: the chunk with the usage, when asked for, and the end marker. */
df_status df_openai_stream_end(df_task *t, const char *object, df_error *err) DF_CHECK;

/* ---- bodies (request_body.c) ---- */

/* The JSON object of a body. NULL: an error was sent. df_json_free. */
df_json *df_body_parse(df_exchange *x);
/* A field failed: 400 with param. */
void df_body_refuse(df_exchange *x, const df_error *err, const char *param);
/* False, and a 404 was sent, when the body names another model and that matters. */
bool df_body_model_ok(df_server *s, df_exchange *x, const df_json *body);
/* response_format, grammar, json_schema, ebnf, regex of a body as a grammar of the task. Sets *param on failure. */
df_status df_body_grammar(df_task *t, const df_json *body, const char **param, df_error *err) DF_CHECK;
/* What one endpoint alone reads of a body, its constraint included, into the task. Sets *param on failure. */
typedef df_status (*df_body_reader)(df_task *t, const df_json *body, const char **param, df_error *err);
/* An endpoint that generates: body, model, task, the fields of the shape's family, what `read` reads; then the task
 * starts. All errors are sent. */
void df_body_generate(df_server *s, df_exchange *x, const df_shape *shape, const char *id_prefix, df_body_reader read);

#endif
