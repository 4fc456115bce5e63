/* write_tiny_model TARGET.gguf DRAFT.gguf: the tiny models of support/tiny_model.h as files, for scripts that need a
 * server which is fast rather than sensible (soak tests, made requests). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "support/tiny_model.h"

static const char chatml[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

int main(int argc, char **argv) {
  if (argc != 3) {
    (void)fprintf(stderr, "usage: write_tiny_model TARGET.gguf DRAFT.gguf\n");
    return 2;
  }
  tiny_spec target = tiny_spec_default();
  target.context = 8192;
  target.chat_template = chatml;
  const tiny_draft_spec draft = tiny_draft_default(&target);
  tiny_model_write(&target, argv[1]);
  tiny_draft_write(&draft, argv[2]);
  return 0;
}
