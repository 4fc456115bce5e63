/* self_emu.c - what the emulation has to see, before it is believed. */
#include "cuda/cuda_rig.h"

uint64_t emu_self_hazards(int fault);

void test_device(rig *r) {
  rig_case(r, emu_self_hazards(0) == 0, "hand-over between warps: no hazard");
  for (int fault = 1; fault <= 3; fault++)
    rig_case(r, emu_self_hazards(fault) > 0, "hand-over with fault %d: a hazard", fault);
}
