/*
 * dflash/model.h - opening target models and DFlash drafts, and their text side (tokens, chat prompts).
 *
 * Ownership: df_model and df_draft are heap objects; close what you opened. A draft borrows its target: close
 *            drafts and sessions before the model. Strings returned by queries are borrowed from the object.
 * Threads:   an open model is immutable; queries and text functions may be called from any thread. Generation is
 *            single-threaded per model (see dflash/session.h).
 * Sources:   GGUF v2/v3 and Hugging Face safetensors folders; DFlash drafts as described in arXiv 2602.06036.
 */
#ifndef DFLASH_MODEL_H
#define DFLASH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dflash/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct df_model df_model;
typedef struct df_draft df_draft;

/* Called while a model loads: fraction in 0..1. Return false to cancel (DF_ERR_CANCELLED). */
typedef bool (*df_progress_fn)(void *user, double fraction);

typedef struct df_model_params {
  const char *device; /* where passes run: "cpu" (NULL), "cuda", "cuda:N" (card N, from 0), "auto" (a card when there is
                         one that works, else cpu) */
  uint32_t n_threads; /* worker threads including the caller; 0 = one per processor of the affinity mask */
  const char *cpu_tier;      /* a name that "dflash version --cpu-info" lists; NULL = the best one here. Same results in
                                every tier */
  const char *weights_cache; /* a folder in which packed weights are kept between starts (GGUF files; made if its parent
                                exists; about the size of the model); NULL = they are packed every time */
  bool exact; /* oracle mode: weights widened to float32 and activations never rounded to 8 bits; slow, large */
  df_progress_fn progress; /* may be NULL */
  void *progress_user;
  /* What will share a card's memory with the weights. A card without room for all of it says so, with numbers, before
   * anything is read; the processor is not asked. */
  uint32_t n_seqs;   /* contexts that the KV pool will hold; 0 = only the weights are counted */
  uint32_t n_ctx;    /* tokens of one; 0 = what a session takes by default */
  uint64_t kv_bytes; /* most bytes of the pool; 0 = as many as that is */
  const char *draft; /* path of a draft that will be opened, or NULL */
} df_model_params;

DF_API df_model_params df_model_params_default(void);

/* Facts about an open model; all counts in the units of the vocabulary of docs/architecture.md. */
typedef struct df_model_info {
  const char *arch; /* "llama", "qwen2", "qwen3" */
  const char *name; /* general.name or folder name */
  uint32_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab, n_ctx_train;
  uint64_t n_params;
  uint64_t file_bytes;   /* size of the weight file(s) */
  uint64_t weight_bytes; /* packed weights in memory */
  uint32_t n_threads;
  const char *cpu_tier;
  double load_ms;
  const char *device;  /* "cpu", "cuda:0"; borrowed from the model */
  const char *card;    /* its name, "" on the processor; borrowed from the model */
  bool weights_cached; /* packed weights came from the folder that was given for them */
} df_model_info;

/* Opens a .gguf file, a .safetensors file or a Hugging Face folder and packs its weights.
 * Errors: IO, FORMAT, ARGUMENT (a device or tier nobody knows), UNSUPPORTED (architecture, tensor type, a device that
 * this build or machine does not have), MEMORY (of the machine or the card), CANCELLED. *out is set only on success. */
DF_API df_status df_model_open(const char *path, const df_model_params *params, df_model **out, df_error *err) DF_CHECK;
DF_API void df_model_close(df_model *m); /* NULL is fine */
DF_API df_model_info df_model_get_info(const df_model *m);

/* Values of draft_vocab besides a number. AUTO: 8,192 tokens, 16,384 for vocabularies above 65,536, all when the file
 * has no rank table. */
#define DF_DRAFT_VOCAB_FULL 0u
#define DF_DRAFT_VOCAB_AUTO UINT32_MAX

typedef struct df_draft_params {
  uint32_t
      draft_vocab; /* draft only from this many most frequent tokens (needs a rank table in the file); default AUTO */
  const char *weight_type; /* "q4_0", "q4_1" or "q8_0": larger matrices are rounded to it while loading; NULL = as they
                              are. The text never depends on it, only how much of it is drafted. */
} df_draft_params;

DF_API df_draft_params df_draft_params_default(void);

typedef struct df_draft_info {
  uint32_t n_layers, hidden, block_size; /* block_size counts rows: anchor + drafts */
  int32_t mask_token_id;
  uint32_t n_taps;
  uint32_t taps[32];    /* target layers whose output is tapped, 0-based */
  uint32_t draft_vocab; /* tokens the draft may propose */
  uint64_t weight_bytes;
} df_draft_info;

/* Opens a DFlash draft (GGUF "dflash" or a Hugging Face folder) for an open target. Errors as df_model_open, and
 * DF_ERR_MISMATCH when it does not fit: the message names the first of width, vocabulary, taps, mask token,
 * tokenizer that differs. */
DF_API df_status df_draft_open(const char *path, df_model *target, const df_draft_params *params, df_draft **out,
                               df_error *err) DF_CHECK;
DF_API void df_draft_close(df_draft *d); /* NULL is fine */
DF_API df_draft_info df_draft_get_info(const df_draft *d);

/* ---- text ---- */

/* Text to ids. parse_special: control tokens written in the text become their ids. On success *ids is owned by the
 * caller (df_ids_free) and may be NULL when *n is 0. A BOS is added exactly when the model's file asks for it. */
DF_API df_status df_model_tokenize(const df_model *m, const char *text, size_t len, bool parse_special, int32_t **ids,
                                   size_t *n, df_error *err) DF_CHECK;
DF_API void df_ids_free(int32_t *ids);

/* Ids to UTF-8 text (invalid sequences become U+FFFD); *text is zero-terminated, owned by the caller
 * (df_text_free), *len without the zero. show_special: print control tokens too. Ids out of range: ARGUMENT. */
DF_API df_status df_model_detokenize(const df_model *m, const int32_t *ids, size_t n, bool show_special, char **text,
                                     size_t *len, df_error *err) DF_CHECK;
DF_API void df_text_free(char *text);

/* Renders the model's own chat template. messages_json: JSON array of {"role","content"}. tools_json may be NULL.
 * template_override: Jinja source used instead of the file's, or NULL. *text as in df_model_detokenize.
 * Errors: FORMAT (bad JSON), TEMPLATE (the template refused), LIMIT, UNSUPPORTED (the file has no template). */
DF_API df_status df_model_chat_prompt(const df_model *m, const char *messages_json, const char *tools_json,
                                      const char *template_override, bool add_generation_prompt, char **text,
                                      size_t *len, df_error *err) DF_CHECK;

/* True when the file carries a chat template. */
DF_API bool df_model_has_chat_template(const df_model *m);
/* True for tokens that end a generation (end of text, end of turn). */
DF_API bool df_model_is_end_token(const df_model *m, int32_t id);

#ifdef __cplusplus
}
#endif
#endif
