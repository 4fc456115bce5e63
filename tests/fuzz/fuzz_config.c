/* Any text as JSON and as a config.json. What parses must survive being written and parsed again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/config.h"
#include "format/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void write_value(const df_json *v, df_buf *b) {
  df_json_out w;
  df_buf_init(b, 0);
  df_json_out_begin(&w, b, NULL);
  df_json_out_value(&w, v);
  if (df_json_out_end(&w) != DF_OK) abort();
}

static void check_config(const df_json *root) {
  df_config c;
  df_error err;
  if (df_config_from_hf(root, "fuzz", &c, &err) != DF_OK) {
    if (err.msg[0] == '\0' || strchr(err.msg, '\n')) abort();
    return;
  }
  if (c.n_layers == 0 || c.n_layers > DF_LIMIT_LAYERS || c.n_heads % c.n_kv_heads != 0) abort();
  if (c.rope.dim == 0 || c.rope.dim > c.head_dim || !(c.rope.base > 1)) abort();
  if (c.is_draft && (c.n_taps == 0 || c.block_size == 0 || c.mask_token_id >= (int64_t)c.vocab)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  df_json *root = NULL, *again = NULL;
  df_buf first, second;
  if (df_json_parse(data, size, &root, NULL) != DF_OK) return 0;
  check_config(root);
  write_value(root, &first);
  if (df_json_parse(first.data, first.len, &again, NULL) != DF_OK) abort();
  write_value(again, &second);
  if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0) abort();
  df_json_free(root);
  df_json_free(again);
  df_buf_release(&first);
  df_buf_release(&second);
  return 0;
}
