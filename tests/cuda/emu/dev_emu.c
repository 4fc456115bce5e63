/* dev_emu.c - "device" memory of the emulation: host memory between unreadable pages. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "cuda/cuda_rig.h"

enum { PAGE = 4096, HEAD = PAGE };

int dev_open(const char **why) {
  *why = "";
  return 0;
}

/* [header page, then unreadable][data up to the end of a page][unreadable page] */
int dev_alloc(size_t bytes, void **out) {
  const size_t body = (bytes + PAGE - 1) / PAGE * PAGE, all = body + 3 * (size_t)PAGE;
  uint8_t *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return 2;
  memcpy(p, &all, sizeof all);
  (void)mprotect(p + PAGE, PAGE, PROT_NONE);
  (void)mprotect(p + 2 * PAGE + body, PAGE, PROT_NONE);
  *out = p + 2 * PAGE + (body - (bytes + 63) / 64 * 64);
  return 0;
}

void dev_free(void *p) {
  if (!p) return;
  uint8_t *page = (uint8_t *)((uintptr_t)p & ~(uintptr_t)(PAGE - 1));
  size_t all;
  memcpy(&all, page - 2 * PAGE, sizeof all); /* blocks end in their last page; see dev_alloc for small ones */
  (void)munmap(page - 2 * PAGE, all);
}

int dev_put(void *device, const void *host, size_t bytes) {
  memcpy(device, host, bytes);
  return 0;
}

int dev_get(void *host, const void *device, size_t bytes) {
  memcpy(host, device, bytes);
  return 0;
}

int dev_sync(void) { return 0; }
void *dev_stream(void) { return NULL; }

float emu_f16_value(uint16_t h);
uint16_t emu_f16_round(float f);
float emu_bf16_value(uint16_t h);
float emu_f16_value(uint16_t h) { return df_f16_to_f32(h); }
uint16_t emu_f16_round(float f) { return df_f32_to_f16(f); }
float emu_bf16_value(uint16_t h) { return df_bf16_to_f32(h); }
