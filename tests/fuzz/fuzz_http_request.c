/* Any bytes as a request: head, chunked body, and the body as JSON with every family of fields and as messages. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "server/http_parse.h"
#include "server/params.h"
#include "server/prompts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_head(const char *text, size_t n, df_http_head *h, char *block) {
  const char *why = NULL;
  memcpy(block, text, n);
  block[n] = '\0';
  const int status = df_http_head_parse(block, n, h, &why);
  if (status) {
    if (status < 400 || status > 505 || !why || !*why) abort();
    return;
  }
  if (h->path[0] != '/' && strcmp(h->path, "*") != 0) abort();
  if (h->chunked && h->length >= 0) abort();
  for (size_t i = 0; i < h->n_headers; i++) {
    if (strchr(h->headers[i].value, '\n') || strchr(h->headers[i].name, ':')) abort();
  }
  char v[16];
  (void)df_http_query_get(h->query, "a", v, sizeof v);
}

/* Cut at any place, the chunks give the same body. */
static void check_chunks(const char *text, size_t n) {
  df_http_chunks one = {0}, two = {0};
  df_buf a, b;
  size_t used = 0, at = 0;
  df_buf_init(&a, 0);
  df_buf_init(&b, 0);
  const int whole = df_http_chunks_feed(&one, text, n, &used, &a, 4096);
  int cut = 0;
  while (at < n && cut == 0) {
    size_t u = 0;
    cut = df_http_chunks_feed(&two, text + at, at % 3 + 1 > n - at ? n - at : at % 3 + 1, &u, &b, 4096);
    at += u;
    if (cut == 0 && u == 0) abort();
  }
  if (whole <= 1 && (cut != whole || a.len != b.len || (a.len && memcmp(a.data, b.data, a.len) != 0))) abort();
  if (a.len > 4096 || b.len > 4096) abort();
  df_buf_release(&a);
  df_buf_release(&b);
}

static void check_body(const char *text, size_t n) {
  static const df_serve_defaults defaults = {.sampling = {.top_p = 1, .repetition_penalty = 1}, .max_tokens = -1};
  df_json *body = NULL, *again = NULL;
  df_error err;
  if (df_json_parse(text, n, &body, &err) != DF_OK) return;
  for (uint32_t shape = 1; shape <= DF_FOR_LLAMA; shape <<= 1) {
    df_gen g;
    df_gen_init(&g, shape, &defaults);
    df_status st = df_gen_read(&g, shape, body, &err);
    if (st == DF_OK) st = df_gen_check(&g, shape, &err);
    if (st != DF_OK && (!g.param || !err.msg[0] || strchr(err.msg, '\n'))) abort();
    if (st == DF_OK && (g.best_of < g.n || g.n_stop > DF_GEN_MAX_STOP || !(g.p.sampling.temperature >= 0))) abort();
    df_gen_release(&g);
  }
  df_buf out;
  df_buf_init(&out, 0);
  const df_json *messages = df_json_member(body, "messages");
  if (df_messages_write(messages ? messages : body, &out, &err) == DF_OK &&
      df_json_parse(out.data, out.len, &again, NULL) != DF_OK)
    abort();
  df_json_free(again);
  df_buf_release(&out);
  df_json_free(body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *text = (const char *)data;
  df_http_head *h = malloc(sizeof *h); /* its own block: the address sanitizer sees every overrun */
  const size_t end = df_http_head_end(text, size);
  if (end > size) abort();
  char *block = malloc(end + 1);
  if (!h || !block) abort();
  if (end) check_head(text, end, h, block);
  check_chunks(text + end, size - end);
  check_body(text + end, size - end);
  free(block);
  free(h);
  return 0;
}
