/* The text form of dflash inspect. */
#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/size.h"
#include "cli/inspect.h"
#include "cli/known.h"

enum { MAX_TEXT = 72, MAX_ELEMENTS = 6 };

/* A string on one line, quoted, cut unless full. */
static void put_string(df_buf *b, const char *s, size_t n, bool full) {
  df_buf q;
  size_t keep = full || n <= MAX_TEXT ? n : MAX_TEXT;
  while (keep < n && keep > 0 && ((unsigned char)s[keep] & 0xC0) == 0x80) keep--;
  df_buf_init(&q, 0);
  if (df_json_quote(&q, s, keep, NULL) == DF_OK) (void)!df_buf_put(b, q.data, q.len, NULL);
  if (keep < n) (void)!df_buf_printf(b, NULL, "... (%zu bytes)", n);
  df_buf_release(&q);
}

static void put_number(df_buf *b, const df_gguf_kv *kv, uint64_t i) {
  if (kv->elem == DF_GGUF_F32)
    (void)!df_buf_printf(b, NULL, "%.7g", df_gguf_float_at(kv, i));
  else if (kv->elem == DF_GGUF_F64)
    (void)!df_buf_printf(b, NULL, "%.15g", df_gguf_float_at(kv, i));
  else if (kv->elem == DF_GGUF_BOOL)
    (void)!df_buf_puts(b, df_gguf_int_at(kv, i) ? "true" : "false", NULL);
  else
    (void)!df_buf_printf(b, NULL, "%lld", (long long)df_gguf_int_at(kv, i));
}

static void value_text(df_buf *b, const df_gguf_kv *kv, bool full) {
  bool array = kv->type == DF_GGUF_ARRAY;
  uint64_t shown = full || kv->count <= MAX_ELEMENTS + 2 ? kv->count : MAX_ELEMENTS;
  df_gguf_str_iter it = {0};
  if (kv->elem == DF_GGUF_STRING) it = df_gguf_str_begin(kv);
  if (array) (void)!df_buf_puts(b, "[", NULL);
  for (uint64_t i = 0; i < shown; i++) {
    df_gguf_str s;
    if (i) (void)!df_buf_puts(b, ", ", NULL);
    if (kv->elem != DF_GGUF_STRING)
      put_number(b, kv, i);
    else if (df_gguf_str_next(&it, &s))
      put_string(b, s.data, s.len, full);
  }
  if (shown < kv->count) (void)!df_buf_puts(b, ", ...", NULL);
  if (array) (void)!df_buf_puts(b, "]", NULL);
}

static void title(const df_cli *cli, const char *text) {
  printf("\n%s%s%s\n", df_term_out(&cli->term, DF_STYLE_BOLD), text, df_term_out(&cli->term, DF_STYLE_RESET));
}

static unsigned columns_of(const df_cli *cli) { return cli->term.out_tty ? df_term_columns(STDOUT_FILENO) : 0; }

static void print_metadata(const df_subject *s, const df_cli *cli, bool full) {
  static const char *const head[] = {"key", "type", "value"};
  df_table t;
  df_table_init(&t, 3, head, "lll");
  for (size_t i = 0; i < df_gguf_kv_count(s->gguf); i++) {
    const df_gguf_kv *kv = df_gguf_kv_at(s->gguf, i);
    char kind[48];
    df_buf b;
    df_buf_init(&b, 0);
    value_text(&b, kv, full);
    df_table_add(&t, kv->key, df_gguf_kind_text(kv, kind, sizeof kind), b.data ? b.data : "");
    df_buf_release(&b);
  }
  title(cli, "Metadata");
  df_table_print(&t, stdout, 0, df_term_out(&cli->term, DF_STYLE_DIM), df_term_out(&cli->term, DF_STYLE_RESET));
  df_table_release(&t);
}

static void row_u(df_table *t, const char *name, uint64_t v) {
  char text[32];
  df_format_grouped(text, sizeof text, v);
  df_table_add(t, name, text);
}

static void draft_rows(df_table *t, const df_config *c) {
  char text[320];
  size_t n = 0;
  row_u(t, "block size (rows)", c->block_size);
  if (c->mask_token_id >= 0)
    row_u(t, "mask token", (uint64_t)c->mask_token_id);
  else
    df_table_add(t, "mask token", "not stated");
  text[0] = '\0';
  for (uint32_t i = 0; i < c->n_taps && n < sizeof text; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s%u", i ? " " : "", c->taps[i]);
  if (c->n_target_layers && n < sizeof text)
    n += (size_t)snprintf(text + n, sizeof text - n, " of %u", c->n_target_layers);
  if (c->taps_by_rule && n < sizeof text) (void)snprintf(text + n, sizeof text - n, " (by rule, not stated)");
  df_table_add(t, "tapped layers", text);
}

static void print_geometry(const df_config *c, const df_cli *cli) {
  df_table t;
  char text[96];
  df_table_init(&t, 2, NULL, "ll");
  df_table_add(&t, "architecture", c->arch);
  row_u(&t, "layers", c->n_layers);
  row_u(&t, "hidden width", c->hidden);
  (void)snprintf(text, sizeof text, "%u query, %u key/value, width %u", c->n_heads, c->n_kv_heads, c->head_dim);
  df_table_add(&t, "heads", text);
  row_u(&t, "feed-forward width", c->ffn);
  if (c->vocab)
    row_u(&t, "vocabulary", c->vocab);
  else
    df_table_add(&t, "vocabulary", "not stated");
  if (c->context_length) row_u(&t, "context", c->context_length);
  (void)snprintf(text, sizeof text, "base %.9g, %u channels%s", (double)c->rope.base, c->rope.dim,
                 c->rope.scaling == DF_ROPE_NONE ? "" : ", scaled");
  df_table_add(&t, "rotation", text);
  if (c->sliding_window) row_u(&t, "sliding window", c->sliding_window);
  df_table_add(&t, "output head", c->is_draft ? "the target's" : c->tie_embeddings ? "the embedding table" : "its own");
  if (c->is_draft) draft_rows(&t, c);
  if (c->unsupported[0]) df_table_add(&t, "cannot run", c->unsupported);
  title(cli, "Geometry");
  df_table_print(&t, stdout, 0, "", "");
  df_table_release(&t);
}

static void print_tensors(const df_subject *s, const df_cli *cli) {
  static const char *const head[] = {"tensor", "type", "dims", "bytes"};
  df_table t;
  df_table_init(&t, 4, head, "lllr");
  for (size_t i = 0; i < df_subject_tensors(s); i++) {
    df_tensor_row r = df_subject_tensor(s, i);
    char dims[96] = "scalar", bytes[32];
    size_t n = 0;
    for (uint32_t d = 0; d < r.n_dims && n < sizeof dims; d++)
      n += (size_t)snprintf(dims + n, sizeof dims - n, "%s%llu", d ? " x " : "", (unsigned long long)r.dims[d]);
    df_format_grouped(bytes, sizeof bytes, r.n_bytes);
    df_table_add(&t, r.name, r.type, dims, bytes);
  }
  title(cli, "Tensors");
  df_table_print(&t, stdout, columns_of(cli), df_term_out(&cli->term, DF_STYLE_DIM),
                 df_term_out(&cli->term, DF_STYLE_RESET));
  df_table_release(&t);
}

static void print_totals(const df_subject *s, const df_cli *cli) {
  struct {
    const char *type;
    uint64_t tensors, values, bytes;
  } by[32] = {{0}};
  size_t n_by = 0;
  uint64_t values = 0, bytes = 0;
  for (size_t i = 0; i < df_subject_tensors(s); i++) {
    df_tensor_row r = df_subject_tensor(s, i);
    size_t k = 0;
    while (k < n_by && strcmp(by[k].type, r.type) != 0) k++;
    if (k == n_by && n_by < DF_COUNT_OF(by)) by[n_by++].type = r.type;
    if (k < n_by) by[k].tensors++, by[k].values += r.n_values, by[k].bytes += r.n_bytes;
    values += r.n_values;
    bytes += r.n_bytes;
  }
  static const char *const head[] = {"type", "tensors", "values", "bytes", "bits/value"};
  df_table t;
  df_table_init(&t, 5, head, "lrrrr");
  for (size_t k = 0; k <= n_by; k++) {
    char c[3][32], bits[16];
    uint64_t v = k < n_by ? by[k].values : values, by_bytes = k < n_by ? by[k].bytes : bytes;
    df_format_grouped(c[0], sizeof c[0], k < n_by ? by[k].tensors : df_subject_tensors(s));
    df_format_grouped(c[1], sizeof c[1], v);
    df_format_grouped(c[2], sizeof c[2], by_bytes);
    (void)snprintf(bits, sizeof bits, "%.2f", v ? (double)by_bytes * 8 / (double)v : 0.0);
    df_table_add(&t, k < n_by ? by[k].type : "total", c[0], c[1], c[2], bits);
  }
  title(cli, "Totals");
  df_table_print(&t, stdout, 0, df_term_out(&cli->term, DF_STYLE_DIM), df_term_out(&cli->term, DF_STYLE_RESET));
  df_table_release(&t);
}

void df_fit_text(const df_fit_report *fit, const df_cli *cli) {
  static const char *const head[] = {"", "target", "draft", "verdict"};
  static const char *const words[] = {"ok", "DIFFERS", "not stated"};
  df_table t;
  df_table_init(&t, 4, head, "llll");
  for (int i = 0; i < DF_FIT_COUNT; i++)
    df_table_add(&t, fit->item[i].name, fit->item[i].target, fit->item[i].draft, words[fit->item[i].verdict]);
  df_table_print(&t, stdout, 0, df_term_out(&cli->term, DF_STYLE_DIM), df_term_out(&cli->term, DF_STYLE_RESET));
  df_table_release(&t);
  printf("%s%s%s\n", df_term_out(&cli->term, fit->fits ? DF_STYLE_GREEN : DF_STYLE_RED),
         fit->fits ? "the draft fits this target" : "the draft does not fit this target",
         df_term_out(&cli->term, DF_STYLE_RESET));
}

void df_inspect_text(const df_subject *s, const df_fit_report *fit, const df_cli *cli, bool full) {
  int64_t bytes = df_file_bytes(s->path);
  printf("%s%s%s\n", df_term_out(&cli->term, DF_STYLE_BOLD), s->path, df_term_out(&cli->term, DF_STYLE_RESET));
  if (s->gguf)
    printf("GGUF version %u, alignment %u", df_gguf_version(s->gguf), df_gguf_alignment(s->gguf));
  else
    printf("safetensors");
  if (bytes >= 0) {
    char text[32];
    df_format_grouped(text, sizeof text, (uint64_t)bytes);
    printf(", %s bytes", text);
  }
  putchar('\n');
  if (s->tok_hash) printf("tokenizer %016llx\n", (unsigned long long)s->tok_hash);
  if (s->why[0]) printf("note: %s\n", s->why);
  if (s->gguf) print_metadata(s, cli, full);
  if (s->source) print_geometry(df_source_config(s->source), cli);
  print_tensors(s, cli);
  print_totals(s, cli);
  if (!fit) return;
  title(cli, "Fit");
  df_fit_text(fit, cli);
}
