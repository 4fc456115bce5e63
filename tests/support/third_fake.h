/*
 * support/third_fake.h - made-up attention kernels for the leaves flashinfer and xqa: they compute nothing, remember
 * what they were asked and answer what they are told to.
 *
 * Threads: one; what they remember is one global.
 */
#ifndef DF_TEST_SUPPORT_THIRD_FAKE_H
#define DF_TEST_SUPPORT_THIRD_FAKE_H

#include "device/cuda/third/third_attn.h"

enum { FAKE_SEQS = 4, FAKE_PAGES = 800 };

struct df_fa2 {
  int32_t q_start[FAKE_SEQS + 1], page_start[FAKE_SEQS + 1], last[FAKE_SEQS], mask_start[FAKE_SEQS], pages[FAKE_PAGES];
};

extern struct third_fake {
  df_third_shape shape;
  struct df_fa2 fa2; /* the workspace; its address is xqa's too */
  uint32_t created, freed, staged, planned, masks, launched;
  uint32_t seqs, rows; /* of the last plan */
  bool recorded;
  int64_t drift;    /* makes recorded plans come out otherwise */
  int code;         /* what every call answers */
  df_fa2_plan plan; /* of the last launch */
  const df_op_extern *op;
  const void *env;
  uint32_t xqa_rows;
} third_fake;

extern const df_fa2_api third_fake_fa2;
extern const df_xqa_api third_fake_xqa;

#endif
