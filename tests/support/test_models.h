/*
 * support/test_models.h - finding the model files that some tests need, and the tokenizer inside one.
 */
#ifndef DF_TEST_SUPPORT_MODELS_H
#define DF_TEST_SUPPORT_MODELS_H

#include "text/tokenizer.h"

/* Path of a model by its short name, or NULL when no such file is on this machine; the text lives until the program
 * ends. Known names: "SmolLM2-135M-Instruct", "smollm2-135m-instruct-dflash" (with a final "/":
 * the Hugging Face folder), "qwen2.5-coder-1.5b-instruct-dflash",
 * "qwen2.5-coder-1.5b-instruct". Folders, in this order: those of the environment variable DF_TEST_MODELS
 * (separated by colons), $DF_CACHE_DIR, ~/.cache/dflash, /root/models, models/ in the source tree. */
const char *df_test_model(const char *name);

/* df_test_model for the current test, skipping it with a clear line when the file is absent. */
const char *df_test_model_or_skip(const char *name);

/* Tokenizer from the metadata of a GGUF file. Fails the current test when it cannot be read. Caller frees. */
df_tokenizer *df_test_tokenizer(const char *path);

/* SHA-256 of a file in lower-case hex. Fails the current test when it cannot be read. */
void df_test_sha256(const char *path, char hex[65]);

/* The environment asks for the long versions of tests (DF_TEST_LONG set and not 0). */
bool df_test_long(void);

/* Whole content of a file below the source tree, zero-terminated, df_free it. Fails the current test if unreadable. */
char *df_test_read_file(const char *path, size_t *n);

#endif
