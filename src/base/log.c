#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

static df_log_sink g_sink;
static void *g_user;
static df_log_level g_max = DF_LOG_WARN;

void df_log_set(df_log_sink sink, void *user, df_log_level max_level) {
  g_sink = sink;
  g_user = user;
  g_max = max_level;
}

void df_log(df_log_level level, const char *fmt, ...) {
  if (!g_sink || level > g_max) return;
  char line[1024];
  va_list ap;
  va_start(ap, fmt);
  (void)vsnprintf(line, sizeof line, fmt, ap);
  va_end(ap);
  g_sink(g_user, level, line);
}
