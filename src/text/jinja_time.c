/* text/jinja_time.c - strftime_now: the given time as UTC, in English whatever the locale of the process. */
#include <stdio.h>
#include <time.h>

#include "text/jinja_eval.h"

static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};

static int clock12(const struct tm *t) { return t->tm_hour % 12 ? t->tm_hour % 12 : 12; }

/* A number directive: its value and width; false for other letters. */
static bool number_of(char d, const struct tm *t, int *v, int *width) {
  *width = 2;
  switch (d) {
    case 'd':
    case 'e': *v = t->tm_mday; return true;
    case 'm': *v = t->tm_mon + 1; return true;
    case 'y': *v = t->tm_year % 100; return true;
    case 'H':
    case 'k': *v = t->tm_hour; return true;
    case 'I':
    case 'l': *v = clock12(t); return true;
    case 'M': *v = t->tm_min; return true;
    case 'S': *v = t->tm_sec; return true;
    case 'U': *v = (t->tm_yday + 7 - t->tm_wday) / 7; return true;
    case 'W': *v = (t->tm_yday + 7 - (t->tm_wday + 6) % 7) / 7; return true;
    case 'j':
      *v = t->tm_yday + 1;
      *width = 3;
      return true;
    case 'Y':
      *v = t->tm_year + 1900;
      *width = 1;
      return true;
    case 'u':
      *v = t->tm_wday ? t->tm_wday : 7;
      *width = 1;
      return true;
    case 'w':
      *v = t->tm_wday;
      *width = 1;
      return true;
    case 'f':
      *v = 0;
      *width = 6;
      return true;
    default: return false;
  }
}

static const char *expansion(char d) {
  switch (d) {
    case 'D':
    case 'x': return "%m/%d/%y";
    case 'F': return "%Y-%m-%d";
    case 'T':
    case 'X': return "%H:%M:%S";
    case 'R': return "%H:%M";
    case 'r': return "%I:%M:%S %p";
    case 'c': return "%a %b %e %H:%M:%S %Y";
    default: return NULL;
  }
}

static df_status put_one(df_jctx *c, char d, char flag, const struct tm *t, df_jbuf *b);

static df_status put_all(df_jctx *c, const char *f, const struct tm *t, df_jbuf *b) {
  for (; *f; f++) {
    if (*f == '%' && f[1])
      DF_TRY(put_one(c, *++f, 0, t, b));
    else
      DF_TRY(df_jbuf_put(b, f, 1, c->err));
  }
  return DF_OK;
}

static df_status put_one(df_jctx *c, char d, char flag, const struct tm *t, df_jbuf *b) {
  int v, width;
  char s[32];
  if (number_of(d, t, &v, &width)) {
    bool blank = flag == '_' || (!flag && (d == 'e' || d == 'k' || d == 'l'));
    (void)snprintf(s, sizeof s, blank ? "%*d" : "%0*d", flag == '-' ? 1 : width, v);
    return df_jbuf_puts(b, s, c->err);
  }
  switch (d) {
    case 'A': return df_jbuf_puts(b, days[t->tm_wday], c->err);
    case 'a': return df_jbuf_put(b, days[t->tm_wday], 3, c->err);
    case 'B': return df_jbuf_puts(b, months[t->tm_mon], c->err);
    case 'b':
    case 'h': return df_jbuf_put(b, months[t->tm_mon], 3, c->err);
    case 'p': return df_jbuf_puts(b, t->tm_hour < 12 ? "AM" : "PM", c->err);
    case 'P': return df_jbuf_puts(b, t->tm_hour < 12 ? "am" : "pm", c->err);
    case 'Z':
    case 'z': return DF_OK; /* a time without zone prints none */
    case 'n': return df_jbuf_puts(b, "\n", c->err);
    case 't': return df_jbuf_puts(b, "\t", c->err);
    case '%': return df_jbuf_puts(b, "%", c->err);
    default: break;
  }
  if (expansion(d)) return put_all(c, expansion(d), t, b);
  s[0] = '%';
  s[1] = flag ? flag : d;
  s[2] = d;
  return df_jbuf_put(b, s, flag ? 3 : 2, c->err);
}

df_status df_jx_strftime(df_jctx *c, const df_jstr *fmt, df_jv *out) {
  df_jbuf b;
  struct tm t;
  time_t now = (time_t)c->now_unix;
  if (!gmtime_r(&now, &t)) return JX_FAIL(c, "the time is out of range");
  df_jbuf_init(&b, &c->arena);
  DF_TRY(df_jx_bytes(c, fmt->len));
  for (size_t i = 0; i < fmt->len; i++) {
    if (fmt->data[i] != '%' || i + 1 == fmt->len) {
      DF_TRY(df_jbuf_put(&b, &fmt->data[i], 1, c->err));
      continue;
    }
    char flag = fmt->data[i + 1];
    bool flagged = (flag == '-' || flag == '_' || flag == '0') && i + 2 < fmt->len;
    char d = fmt->data[flagged ? i + 2 : i + 1];
    DF_TRY(put_one(c, d, flagged ? flag : 0, &t, &b));
    i += flagged ? 2 : 1;
  }
  out->t = JT_STR;
  return df_jbuf_take(&b, &out->u.s, c->err);
}
