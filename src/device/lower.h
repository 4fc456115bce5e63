/*
 * device/lower.h - a program in the addresses of a device: every pointer in an op's arguments is looked up in the table
 * of mirrors. What an op refers to and no mirror holds is an error that names the op and the field.
 *
 * In a lowered program
 *   - addresses of data, of live counts and of a df_batch are addresses of the device;
 *   - df_weights and df_mask_buffer are copies in the host's memory, beside the arguments, whose data, bytes and start
 * are addresses of the device: who launches an op may read shapes there. A df_batch changes from run to run, so the
 * device translates it whenever it takes one over (df_lower_batch).
 */
#ifndef DF_DEVICE_LOWER_H
#define DF_DEVICE_LOWER_H

#include "device/mirror.h"

/* Mirrors that a program refers to and that are more than addresses. */
typedef struct df_lower_uses {
  df_mirror **items;
  uint32_t n, cap;
} df_lower_uses;

/* *out is a lowered copy for the caller (df_program_free). uses receives the mirrors of the kinds SCRATCH, INPUT, BATCH
 * and OUTPUT that it refers to, each once, those that its batches point to included (release with
 * df_lower_uses_release). INTERNAL, MEMORY, LIMIT. On failure nothing is left. */
df_status df_lower_program(const df_program *p, df_mirrors *m, df_program **out, df_lower_uses *uses,
                           df_error *err) DF_CHECK;
void df_lower_uses_release(df_lower_uses *u);

/* The batch in the device's addresses, without a mask. INTERNAL. */
df_status df_lower_batch(const df_mirrors *m, const df_batch *host, df_batch *out, df_error *err) DF_CHECK;

#endif
