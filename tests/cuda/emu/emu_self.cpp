/* emu_self.cpp - does the emulation see hazards? Four warps hand a sum round, rightly and with faults. */
#include "cuda_emu.h"

enum { WARPS = 4, TURNS = 12 };

extern "C" uint64_t emu_self_hazards(int fault);

static void hand_round(int fault, float *total) {
  float *const slots = (float *)emu_cur->shared;
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, next = (warp + 1) % WARPS;
  for (uint32_t turn = warp; turn < TURNS; turn += WARPS) {
    float v = 0;
    if (turn > 0 && fault != 1) emu_named(1 + warp, 64, true);
    if (turn > 0) v = emu_watched_get(slots + 32 * warp + lane);
    v += 1;
    if (turn + 1 == TURNS) *total = v;
    if (turn + 1 == TURNS) continue;
    if (fault == 2) emu_named(1 + next, 64, false); /* told before it is written */
    emu_watched_put(slots + 32 * next + lane, v);
    if (fault != 2 && fault != 1) emu_named(1 + next, 64, false);
    if (fault == 3 && turn > 0) (void)emu_watched_get(slots + 32 * warp + lane); /* read when the slot is free again */
  }
}

/* Hazards of the hand-over. fault 0: none; 1: without barriers; 2: arrives before it writes; 3: reads once too late. */
uint64_t emu_self_hazards(int fault) {
  static float total;
  total = 0;
  emu_hazards = 0;
  emu_hazards_allowed = true;
  emu_run(dim3(1), 32 * WARPS, WARPS * 32 * sizeof(float), 1, 1, [=] { hand_round(fault, &total); });
  emu_hazards_allowed = false;
  const uint64_t n = emu_hazards;
  emu_hazards = 0;
  return fault == 0 && total != TURNS ? UINT64_MAX : n;
}
