/* dflash tokenize: text to ids and back, from the tokenizer alone. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli_model.h"
#include "cli/cli_text.h"
#include "cli/known.h"
#include "cli/verbs.h"
#include "format/json.h"
#include "model/vocab.h"

/* Text from -p, -f or standard input. */
static df_status read_input(df_cli *cli, df_buf *b, df_error *err) {
  const df_opts *o = &cli->opts;
  const char *text = df_opt_text(o, OPT_PROMPT, NULL), *file = df_opt_text(o, OPT_FILE, NULL);
  if (text && file && o->v[OPT_PROMPT].source == o->v[OPT_FILE].source)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "give the text with -p or with -f, not both");
  if (text && file && o->v[OPT_FILE].source == DF_FROM_ARGV) text = NULL;
  if (text) return df_buf_puts(b, text, err);
  if (!file && cli->term.in_tty) {
    df_status st = DF_FAIL(err, DF_ERR_ARGUMENT, "no text given");
    df_error_hint(err, "-p TEXT, -f FILE, or pipe it in");
    return st;
  }
  return df_text_read(file ? file : "-", b, err);
}

/* Ids separated by blanks, commas, brackets. */
static df_status parse_ids(const char *text, size_t n, uint32_t vocab, df_ids *ids, df_error *err) {
  for (size_t i = 0; i < n;) {
    if (isspace((unsigned char)text[i]) || strchr(",;[]", text[i])) {
      if (text[i] == '\0') return DF_FAIL(err, DF_ERR_FORMAT, "zero byte at offset %zu of the ids", i);
      i++;
      continue;
    }
    char *end;
    errno = 0;
    long v = strtol(text + i, &end, 10);
    bool number = end != text + i && (*end == '\0' || isspace((unsigned char)*end) || strchr(",;[]", *end));
    if (!number || errno != 0) {
      size_t shown = strcspn(text + i, " \t\r\n,;[]");
      return DF_FAIL(err, DF_ERR_FORMAT, "\"%.*s\" at offset %zu is no token id", (int)(shown > 40 ? 40 : shown),
                     text + i, i);
    }
    if (v < 0 || v >= (long)vocab) {
      df_status st = DF_FAIL(err, DF_ERR_FORMAT, "token id %ld at offset %zu is outside the vocabulary", v, i);
      df_error_hint(err, "ids go from 0 to %u", vocab - 1);
      return st;
    }
    DF_TRY(df_ids_push(ids, (int32_t)v, err));
    i = (size_t)(end - text);
  }
  return DF_OK;
}

static df_status print_encoded(const df_cli *cli, const df_tokenizer *t, const df_ids *ids, df_error *err) {
  df_buf b;
  df_json_out w;
  df_status st = DF_OK;
  df_buf_init(&b, 0);
  if (df_opt_on(&cli->opts, OPT_JSON, false)) {
    df_json_out_begin(&w, &b, err);
    df_json_out_object(&w);
    df_json_out_key(&w, "count"), df_json_out_u64(&w, ids->n);
    df_json_out_key(&w, "ids"), df_json_out_array(&w);
    for (size_t i = 0; i < ids->n; i++) df_json_out_i64(&w, ids->v[i]);
    df_json_out_close(&w);
    df_json_out_key(&w, "pieces"), df_json_out_array(&w); /* bytes that are no whole character become U+FFFD */
    for (size_t i = 0; i < ids->n; i++) {
      const char *p;
      size_t n;
      (void)df_tokenizer_piece(t, ids->v[i], &p, &n);
      df_json_out_str(&w, p, n);
    }
    df_json_out_close(&w);
    df_json_out_close(&w);
    st = df_json_out_end(&w);
    if (st == DF_OK) puts(b.data);
  } else if (df_opt_on(&cli->opts, OPT_PIECES, false)) {
    for (size_t i = 0; i < ids->n && st == DF_OK; i++) {
      const char *p;
      size_t n;
      (void)df_tokenizer_piece(t, ids->v[i], &p, &n);
      b.len = 0;
      st = df_json_quote(&b, p, n, err);
      if (st == DF_OK) printf("%7d  %s\n", ids->v[i], b.data);
    }
  } else {
    for (size_t i = 0; i < ids->n; i++) printf("%s%d", i ? " " : "", ids->v[i]);
    putchar('\n');
  }
  df_buf_release(&b);
  return st;
}

static df_status decode(const df_cli *cli, const df_tokenizer *t, const df_ids *ids, df_error *err) {
  df_buf text, out;
  df_json_out w;
  bool json = df_opt_on(&cli->opts, OPT_JSON, false);
  df_buf_init(&text, 0);
  df_buf_init(&out, 0);
  /* Raw bytes on a pipe, so that encoding and decoding are inverse; JSON needs whole characters. */
  unsigned flags = (df_opt_on(&cli->opts, OPT_SPECIAL, true) ? DF_DECODE_SHOW_SPECIAL : 0) | (json ? 0 : DF_DECODE_RAW);
  df_status st = df_tokenizer_decode(t, ids->v, ids->n, flags, &text, err);
  if (st == DF_OK && json) {
    df_json_out_begin(&w, &out, err);
    df_json_out_object(&w);
    df_json_out_key(&w, "text"), df_json_out_str(&w, text.data ? text.data : "", text.len);
    df_json_out_close(&w);
    st = df_json_out_end(&w);
    if (st == DF_OK) puts(out.data);
  } else if (st == DF_OK && text.len) {
    (void)fwrite(text.data, 1, text.len, stdout);
    if (cli->term.out_tty && text.data[text.len - 1] != '\n') putchar('\n');
  }
  df_buf_release(&text);
  df_buf_release(&out);
  return st;
}

int df_verb_tokenize(df_cli *cli) {
  const df_opts *o = &cli->opts;
  df_error err;
  df_buf text;
  df_ids ids = {0};
  df_tokenizer *t = NULL;
  char *path = NULL;
  df_status st;
  df_buf_init(&text, DF_TEXT_MAX);
  DF_TRY_GOTO(st, df_need_model(o, &err), done);
  DF_TRY_GOTO(st, df_target_resolve(o, df_opt_text(o, OPT_MODEL, NULL), &path, &err), done);
  DF_TRY_GOTO(st, read_input(cli, &text, &err), done);
  DF_TRY_GOTO(st, df_buf_puts(&text, "", &err), done); /* zero-terminated even when empty */
  DF_TRY_GOTO(st, df_vocab_open(path, &t, &err), done);
  if (df_opt_on(o, OPT_DECODE, false)) {
    DF_TRY_GOTO(st, parse_ids(text.data, text.len, df_tokenizer_size(t), &ids, &err), done);
    st = decode(cli, t, &ids, &err);
  } else {
    DF_TRY_GOTO(st, df_text_check(text.data, text.len, "the text", &err), done);
    unsigned flags = DF_ENCODE_ADD_BOS | (df_opt_on(o, OPT_SPECIAL, true) ? DF_ENCODE_PARSE_SPECIAL : 0);
    DF_TRY_GOTO(st, df_tokenizer_encode(t, text.data, text.len, flags, &ids, &err), done);
    st = print_encoded(cli, t, &ids, &err);
  }
done:;
  int status = st == DF_OK ? DF_EXIT_OK : df_cli_report(cli, &err);
  df_tokenizer_free(t);
  df_ids_release(&ids);
  df_buf_release(&text);
  df_free(path);
  return status;
}
