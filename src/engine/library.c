/* Version and logging of the library as a whole. */
#include "base/log.h"
#include "dflash/dflash.h"

const char *df_version(void) { return DF_VERSION; }

typedef struct sink_state {
  void (*sink)(void *user, int level, const char *line);
  void *user;
} sink_state;

static sink_state g_sink;

static void forward(void *user, df_log_level level, const char *line) {
  const sink_state *s = user;
  s->sink(s->user, (int)level, line);
}

void df_set_log(void (*sink)(void *user, int level, const char *line), void *user, int max_level) {
  g_sink = (sink_state){sink, user};
  df_log_set(sink ? forward : NULL, &g_sink, (df_log_level)max_level);
}
