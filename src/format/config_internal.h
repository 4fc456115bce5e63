/* format/config_internal.h - shared by the GGUF and the Hugging Face reader of df_config. */
#ifndef DF_FORMAT_CONFIG_INTERNAL_H
#define DF_FORMAT_CONFIG_INTERNAL_H

#include "format/config.h"

enum { DF_DEFAULT_BLOCK_SIZE = 16 };

/* Everything absent, all scales off. */
void df_config_init(df_config *c);
/* Fills what depends on other fields and checks that the whole makes sense. */
df_status df_config_finish(df_config *c, const char *label, df_error *err) DF_CHECK;
/* The part of config.json that only drafts have (config_hf_draft.c). Messages do not name the file yet. */
df_status df_config_hf_draft(const df_json *root, df_config *c, df_error *err) DF_CHECK;

#endif
