#include "cli/interrupt.h"

#include <string.h>
#include <unistd.h>

#include "cli/term.h"

volatile sig_atomic_t df_interrupted;

static void on_signal(int signo) {
  if (df_interrupted) {
    df_term_reset_async();
    ssize_t n = write(STDERR_FILENO, "\n", 1);
    (void)n;
    _exit(130);
  }
  df_interrupted = signo;
}

void df_interrupt_install(void) {
  struct sigaction sa;
  memset(&sa, 0, sizeof sa);
  sa.sa_handler = on_signal; /* no SA_RESTART: a read from the terminal must return */
  sigemptyset(&sa.sa_mask);
  (void)sigaction(SIGINT, &sa, NULL);
  (void)sigaction(SIGTERM, &sa, NULL);
  (void)sigaction(SIGHUP, &sa, NULL);
}

void df_interrupt_clear(void) { df_interrupted = 0; }
