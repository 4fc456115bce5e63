/* The kernels' own sources on the host (tests/cuda/emu) behind the made-up runtime: what is launched is done when its
 * turn in the stream comes. Linked with --wrap for the functions named __wrap_*. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda/fake/fake_state.h"
#include "device/cuda/cuda_kernels.h"

enum { MAX_LAUNCHES = 1 << 16 };

int __real_df_cuda_launch(const df_cuda_env *env, const df_op *ops, uint32_t n, uint32_t *taken);
int __wrap_df_cuda_launch(const df_cuda_env *env, const df_op *ops, uint32_t n, uint32_t *taken);
const char *__wrap_df_cuda_built_archs(void);

typedef struct launch {
  df_cuda_env env;
  const df_op *ops;
  uint32_t n;
} launch;

static launch g_launches[MAX_LAUNCHES];
static uint32_t g_n;

static void run_launch(const fake_work *w) {
  const launch *l = &g_launches[w->value];
  for (uint32_t at = 0, taken = 0; at < l->n; at += taken) {
    taken = 0;
    const int code = __real_df_cuda_launch(&l->env, l->ops + at, l->n - at, &taken);
    if (code) fail_msg("op %s: error %d", df_op_name(l->ops[at].kind), code);
    assert_true(taken > 0 && taken <= l->n - at);
  }
}

/* All ops that are left go as one piece of work: which of them become one kernel is decided when it is done. */
int __wrap_df_cuda_launch(const df_cuda_env *env, const df_op *ops, uint32_t n, uint32_t *taken) {
  assert_true(g_n < MAX_LAUNCHES);
  g_fake.counts.whole += env->list != NULL;
  g_launches[g_n] = (launch){*env, ops, n};
  fake_enqueue(&(fake_work){.run = run_launch, .value = (int)g_n++});
  *taken = n;
  return 0;
}

const char *__wrap_df_cuda_built_archs(void) { return g_fake.card.archs; }

/* What the emulation asks of the program. */
float emu_f16_value(uint16_t h);
uint16_t emu_f16_round(float f);
float emu_bf16_value(uint16_t h);
float emu_f16_value(uint16_t h) { return df_f16_to_f32(h); }
uint16_t emu_f16_round(float f) { return df_f32_to_f16(f); }
float emu_bf16_value(uint16_t h) { return df_bf16_to_f32(h); }
