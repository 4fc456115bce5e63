/* base/log.h - one-line log messages to a sink. Silent until a sink is set: the library never prints.
 * Threads: set the sink before other threads start; df_log may be called from any thread. */
#ifndef DF_BASE_LOG_H
#define DF_BASE_LOG_H

#include "dflash/status.h"

typedef enum df_log_level { DF_LOG_ERROR, DF_LOG_WARN, DF_LOG_INFO, DF_LOG_DEBUG } df_log_level;
typedef void (*df_log_sink)(void *user, df_log_level level, const char *line);

void df_log_set(df_log_sink sink, void *user, df_log_level max_level);
void df_log(df_log_level level, const char *fmt, ...) DF_PRINTF(2, 3);

#endif
