/*
 * bench/bench_busy.c - decoding beside a process that never sleeps.
 *
 *   bench_busy MODEL.gguf [rounds]          default: 5 rounds
 *
 * Tokens per second of plain decoding with one thread and with two, on the machine as it is and with a spinning process
 * pinned to the last processor. All four take turns; medians. A team that waits at a barrier for a thread which the
 * spinner keeps off the processor falls to the spinner's time slices: two threads then decode at a tenth and less.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu.h"
#include "dflash/dflash.h"

enum { TOKENS = 48, MAX_ROUNDS = 51, MODES = 4 };

typedef struct lane {
  df_model *m;
  df_session *s;
} lane;

static void must(df_status s, const df_error *err) {
  if (s == DF_OK) return;
  fprintf(stderr, "bench_busy: %s\n", err->msg);
  exit(1);
}

static void lane_open(lane *l, const char *path, uint32_t threads) {
  df_error err = {0};
  df_model_params mp = df_model_params_default();
  df_session_params sp = df_session_params_default();
  mp.n_threads = threads;
  sp.n_ctx = 256;
  must(df_model_open(path, &mp, &l->m, &err), &err);
  must(df_session_create(l->m, NULL, &sp, &l->s, &err), &err);
}

static double tokens_per_second(const lane *l) {
  df_error err = {0};
  df_generate_params g = df_generate_params_default();
  df_result r;
  int32_t *ids;
  size_t n;
  static const char text[] = "The lighthouse keeper opened the door and";
  must(df_model_tokenize(l->m, text, sizeof text - 1, false, &ids, &n, &err), &err);
  g.max_tokens = TOKENS;
  g.ignore_eos = true;
  df_session_reset(l->s);
  must(df_session_generate(l->s, ids, n, &g, &r, &err), &err);
  df_ids_free(ids);
  return r.stats.decode_ms > 0 ? 1e3 * r.stats.steps / r.stats.decode_ms : 0;
}

static pid_t start_spinner(unsigned cpu) {
  const pid_t p = fork();
  if (p != 0) return p;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  (void)sched_setaffinity(0, sizeof set, &set);
  for (volatile unsigned i = 0;; i++) continue;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *v, uint32_t n) {
  qsort(v, n, sizeof *v, by_value);
  return v[n / 2];
}

int main(int argc, char **argv) {
  const uint32_t rounds = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 5;
  static double rate[MODES][MAX_ROUNDS];
  double mid[MODES];
  lane one, two;
  if (argc < 2 || rounds == 0 || rounds > MAX_ROUNDS) {
    fprintf(stderr, "usage: bench_busy MODEL.gguf [rounds 1..%d]\n", MAX_ROUNDS);
    return 2;
  }
  const unsigned cpus = df_cpu_count();
  if (cpus < 2) {
    fprintf(stderr, "bench_busy: needs two processors\n");
    return 1;
  }
  lane_open(&one, argv[1], 1);
  lane_open(&two, argv[1], 2);
  for (uint32_t i = 0; i < rounds; i++)
    for (uint32_t busy = 0; busy < 2; busy++) {
      const pid_t p = busy ? start_spinner(cpus - 1) : 0;
      rate[2 * busy][i] = tokens_per_second(&one);
      rate[2 * busy + 1][i] = tokens_per_second(&two);
      if (p > 0) {
        (void)kill(p, SIGKILL);
        (void)waitpid(p, NULL, 0);
      }
    }
  for (int i = 0; i < MODES; i++) mid[i] = median(rate[i], rounds);
  printf("                      one thread   two threads\n");
  printf("machine as it is   %8.1f tok/s %8.1f tok/s\n", mid[0], mid[1]);
  printf("beside a spinner   %8.1f tok/s %8.1f tok/s\n", mid[2], mid[3]);
  printf("two threads beside a spinner against one thread without: %.2f\n", mid[3] / mid[0]);
  for (lane *l = &one;; l = &two) {
    df_session_free(l->s);
    df_model_close(l->m);
    if (l == &two) break;
  }
  return 0;
}
