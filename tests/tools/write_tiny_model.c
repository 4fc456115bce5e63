/* write_tiny_model [--type f32|f16|bf16|q8_0] [--hidden N] [--layers N] TARGET.gguf DRAFT.gguf: the tiny models of
 * support/tiny_model.h as files, for scripts that need a server which is fast rather than sensible (soak tests, made
 * requests), or weights of a type whose models are too large to keep. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/tiny_model.h"

static const char chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

static int usage(void) {
  (void)fprintf(stderr,
                "usage: write_tiny_model [--type f32|f16|bf16|q8_0] [--hidden N] [--layers N] "
                "TARGET.gguf DRAFT.gguf\n");
  return 2;
}

static bool set_type(tiny_spec *s, const char *name) {
  static const struct {
    const char *name;
    df_dtype type;
  } k[] = {{"f32", DF_F32}, {"f16", DF_F16}, {"bf16", DF_BF16}, {"q8_0", DF_Q8_0}};
  for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
    if (strcmp(k[i].name, name) != 0) continue;
    s->dtype = k[i].type;
    return true;
  }
  return false;
}

/* A number that makes sense as a width or a count of layers; 0: it does not. */
static uint32_t number(const char *text) {
  char *end;
  const unsigned long n = strtoul(text, &end, 10);
  return *end || n == 0 || n > 4096 ? 0 : (uint32_t)n;
}

int main(int argc, char **argv) {
  tiny_spec target = tiny_spec_default();
  target.context = 8192;
  target.chat_template = chatml;
  int at = 1;
  for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
    const char *value = argv[at + 1];
    bool good = false;
    if (strcmp(argv[at], "--type") == 0) good = set_type(&target, value);
    if (strcmp(argv[at], "--layers") == 0) good = (target.n_layers = number(value)) > 0;
    if (strcmp(argv[at], "--hidden") == 0) { /* heads of 64, feed-forward of twice the width */
      const uint32_t n = number(value);
      good = n >= 128 && n % 128 == 0;
      target.hidden = n;
      target.head_dim = 64;
      target.n_heads = n / 64;
      target.n_kv_heads = n / 128;
      target.ffn = 2 * n;
    }
    if (!good) return usage();
  }
  if (argc - at != 2) return usage();
  tiny_draft_spec draft = tiny_draft_default(&target);
  draft.dtype = target.dtype;
  tiny_model_write(&target, argv[at]);
  tiny_draft_write(&draft, argv[at + 1]);
  return 0;
}
