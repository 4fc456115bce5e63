/*
 * cli/interrupt.h - Ctrl-C: the first one asks the running generation to stop, the second leaves with status 130.
 * SIGTERM and SIGHUP ask the same way, so that statistics and history are still written.
 */
#ifndef DF_CLI_INTERRUPT_H
#define DF_CLI_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* Set by the handler; hand it to df_generate_params.cancel. */
extern volatile sig_atomic_t df_interrupted;

void df_interrupt_install(void);
/* Forgets earlier signals (a new answer begins). */
void df_interrupt_clear(void);

#endif
