#include "cli/chat_input.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "base/mem.h"
#include "cli/interrupt.h"
#include "text/utf8.h"

enum { HISTORY_LINES = 1000, LINE_MAX_BYTES = 16 << 20 };

struct df_input {
  EditLine *el; /* NULL: plain lines */
  HistoryW *history;
  char *history_path; /* NULL: not kept */
  wchar_t prompt;
  bool colour, stopped;
  uint64_t line_no;
};

/* ---- blocks ---- */

df_status df_block_feed(df_block_state *st, const char *line, size_t n, df_buf *text, bool *done, bool *block,
                        df_error *err) {
  bool first = !st->quoted && !st->continued;
  *done = false;
  if (first) {
    text->len = 0;
    *block = false;
    if (n >= 3 && memcmp(line, "\"\"\"", 3) == 0) {
      st->quoted = *block = true;
      line += 3;
      n -= 3;
    }
  } else if (!st->quoted || text->len > 0) {
    DF_TRY(df_buf_put(text, "\n", 1, err));
  }
  if (st->quoted) {
    bool ends = n >= 3 && memcmp(line + n - 3, "\"\"\"", 3) == 0;
    DF_TRY(df_buf_put(text, line, ends ? n - 3 : n, err));
    if (ends) {
      st->quoted = false;
      *done = true;
      if (text->len > 0 && text->data[text->len - 1] == '\n') text->data[--text->len] = '\0';
    }
    return DF_OK;
  }
  st->continued = n > 0 && line[n - 1] == '\\';
  if (st->continued) *block = true;
  *done = !st->continued;
  return df_buf_put(text, line, st->continued ? n - 1 : n, err);
}

/* ---- the terminal ---- */

/* One character for libedit. Own reader: a signal must end the line, and the text is UTF-8 in every locale. */
static int read_char(EditLine *el, wchar_t *out) {
  df_input *in = NULL;
  char bytes[4];
  size_t n = 0;
  (void)el_get(el, EL_CLIENTDATA, &in);
  for (;;) {
    ssize_t r = read(STDIN_FILENO, bytes + n, 1);
    if (r == 0) return 0;
    if (r < 0) {
      if (errno != EINTR) return -1;
      if (df_interrupted) {
        if (in) in->stopped = true;
        return -1;
      }
      continue; /* a resized window or a resumed job */
    }
    n++;
    df_utf8_kind kind;
    uint32_t cp;
    (void)df_utf8_step(bytes, n, &kind, &cp);
    if (kind == DF_UTF8_CHAR)
      *out = (wchar_t)cp;
    else if (kind == DF_UTF8_BAD)
      *out = 0xFFFD;
    else
      continue;
    return 1;
  }
}

static wchar_t *prompt_of(EditLine *el) {
  static wchar_t text[64];
  df_input *in = NULL;
  (void)el_get(el, EL_CLIENTDATA, &in);
  /* \1 encloses what takes no columns; libedit prints it with the character that follows, so one must follow. */
  (void)swprintf(text, sizeof text / sizeof text[0], in->colour ? L"\1\033[1;32m\1%lc\1\033[0m\1 " : L"%lc ",
                 (wint_t)in->prompt);
  return text;
}

/* Creates the folders of `path` (with mode 0700) as far as they are missing. */
static void make_folders(char *path) {
  for (char *p = path + 1; *p; p++) {
    if (*p != '/') continue;
    *p = '\0';
    (void)mkdir(path, 0700);
    *p = '/';
  }
}

static char *history_file(void) {
  const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
  char path[4096];
  int n = -1;
  if (state && state[0] == '/')
    n = snprintf(path, sizeof path, "%s/dflash/history", state);
  else if (home && home[0] == '/')
    n = snprintf(path, sizeof path, "%s/.local/state/dflash/history", home);
  if (n < 0 || n >= (int)sizeof path) return NULL;
  make_folders(path);
  return df_strdup(path);
}

static df_status open_terminal(df_input *in, df_error *err) {
  HistEventW ev;
  (void)setlocale(LC_CTYPE, "");
  if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) (void)setlocale(LC_CTYPE, "C.UTF-8");
  in->el = el_init("dflash", stdin, stdout, stderr);
  in->history = history_winit();
  if (!in->el || !in->history) return DF_FAIL(err, DF_ERR_MEMORY, "could not start the line editor");
  (void)el_set(in->el, EL_CLIENTDATA, in);
  (void)el_wset(in->el, EL_EDITOR, L"emacs");
  (void)el_set(in->el, EL_SIGNAL, 1); /* restores the terminal when the job is stopped, follows resizing */
  (void)el_wset(in->el, EL_GETCFN, read_char);
  (void)el_wset(in->el, EL_PROMPT_ESC, prompt_of, L'\1');
  (void)history_w(in->history, &ev, H_SETSIZE, HISTORY_LINES);
  (void)history_w(in->history, &ev, H_SETUNIQUE, 1);
  (void)el_wset(in->el, EL_HIST, history_w, in->history);
  (void)el_wset(in->el, EL_BIND, L"^R", L"em-inc-search-prev", NULL);
  in->history_path = history_file();
  if (in->history_path) (void)history_w(in->history, &ev, H_LOAD, in->history_path);
  return DF_OK;
}

/* Puts a line into the history, without its line end. */
static void remember(df_input *in, const wchar_t *w) {
  HistEventW ev;
  size_t n = wcscspn(w, L"\n");
  wchar_t *copy = df_calloc(n + 1, sizeof *copy);
  if (!copy) return;
  wmemcpy(copy, w, n);
  (void)history_w(in->history, &ev, H_ENTER, copy);
  df_free(copy);
  if (in->history_path) (void)history_w(in->history, &ev, H_SAVE, in->history_path);
}

/* Reads a line with editing into *out. */
static df_input_kind edit_line(df_input *in, df_buf *out, df_error *err) {
  int n = 0;
  in->stopped = false;
  out->len = 0;
  (void)el_resize(in->el);
  const wchar_t *w = el_wgets(in->el, &n);
  if (!w || n <= 0) {
    fputc('\n', stdout);
    (void)fflush(stdout);
    return in->stopped || df_interrupted ? DF_INPUT_BREAK : DF_INPUT_END;
  }
  for (const wchar_t *p = w; *p && *p != L'\n'; p++) {
    char bytes[4];
    uint32_t cp = (uint32_t)*p;
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) cp = 0xFFFD;
    if (df_buf_put(out, bytes, df_utf8_encode(cp, bytes), err) != DF_OK) return DF_INPUT_ERROR;
  }
  if (wcsspn(w, L" \t\n") < wcslen(w)) remember(in, w);
  return DF_INPUT_TEXT;
}

/* Reads a plain line into *out. */
static df_input_kind plain_line(df_input *in, df_buf *out, df_error *err) {
  int c;
  out->len = 0;
  errno = 0;
  while ((c = getc(stdin)) != EOF && c != '\n') {
    char byte = (char)c;
    if (df_buf_put(out, &byte, 1, err) != DF_OK) return DF_INPUT_ERROR;
  }
  if (c == EOF && df_interrupted) return DF_INPUT_BREAK;
  if (c == EOF && ferror(stdin)) {
    (void)DF_FAIL(err, DF_ERR_IO, "could not read standard input: %s", strerror(errno));
    return DF_INPUT_ERROR;
  }
  if (c == EOF && out->len == 0) return DF_INPUT_END;
  in->line_no++;
  if (out->len > 0 && out->data[out->len - 1] == '\r') out->data[--out->len] = '\0';
  size_t ok = df_utf8_valid_prefix(out->data, out->len);
  if (ok == out->len) return DF_INPUT_TEXT;
  (void)DF_FAIL(err, DF_ERR_FORMAT, "standard input is not valid UTF-8: byte 0x%02x at offset %zu of line %llu",
                (unsigned char)out->data[ok], ok, (unsigned long long)in->line_no);
  return DF_INPUT_ERROR;
}

df_status df_input_create(const df_cli *cli, bool interactive, df_input **out, df_error *err) {
  df_input *in = df_calloc(1, sizeof *in);
  if (!in) return DF_OOM(err, "the input", sizeof *in);
  in->colour = cli->term.colour_out;
  df_status st = interactive ? open_terminal(in, err) : DF_OK;
  if (st == DF_OK)
    *out = in;
  else
    df_input_free(in);
  return st;
}

void df_input_free(df_input *in) {
  if (!in) return;
  if (in->history) history_wend(in->history);
  if (in->el) el_end(in->el);
  df_free(in->history_path);
  df_free(in);
}

df_input_kind df_input_next(df_input *in, df_buf *text, df_error *err) {
  df_block_state st = {0};
  df_buf line;
  bool done = false, block = false;
  df_input_kind kind = DF_INPUT_TEXT;
  df_buf_init(&line, LINE_MAX_BYTES);
  in->prompt = L'>';
  text->len = 0;
  while (!done && kind == DF_INPUT_TEXT) {
    kind = in->el ? edit_line(in, &line, err) : plain_line(in, &line, err);
    if (kind == DF_INPUT_END && (st.quoted || st.continued) && text->len > 0) { /* an open block ends with the input */
      kind = DF_INPUT_BLOCK;
      break;
    }
    if (kind != DF_INPUT_TEXT) break;
    if (df_block_feed(&st, line.data ? line.data : "", line.len, text, &done, &block, err) != DF_OK)
      kind = DF_INPUT_ERROR;
    in->prompt = L'.';
  }
  df_buf_release(&line);
  return kind == DF_INPUT_TEXT && block ? DF_INPUT_BLOCK : kind;
}
