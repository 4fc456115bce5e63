/* Options about attention: lists of batch sizes, backend names, page sizes, session parameters. */
// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <string.h>

#include "attention/registry.h"
#include "base/log.h"
#include "base/size.h"
#include "cli/cli_attention.h"
#include "cli/verbs.h"

static void test_batch_sizes_parse__lists_and_ranges(void **state) {
  (void)state;
  static const struct {
    const char *text;
    uint32_t n, want[9];
  } rows[] = {{"1", 1, {1}},
              {"64", 1, {64}},
              {"1,2,4,8", 4, {1, 2, 4, 8}},
              {"1-8", 8, {1, 2, 3, 4, 5, 6, 7, 8}},
              {"3-3", 1, {3}},
              {"1,3-5,8,30-31", 7, {1, 3, 4, 5, 8, 30, 31}}};
  for (size_t i = 0; i < DF_COUNT_OF(rows); i++) {
    uint32_t out[DF_BATCH_SIZES_MAX], n = 0;
    assert_int_equal(df_batch_sizes_parse(rows[i].text, out, &n, NULL), DF_OK);
    assert_int_equal(n, rows[i].n);
    assert_memory_equal(out, rows[i].want, n * sizeof *out);
  }
}

static void test_batch_sizes_parse__longest_list_fits(void **state) {
  (void)state;
  uint32_t out[DF_BATCH_SIZES_MAX + 1], n = 0;
  out[DF_BATCH_SIZES_MAX] = 12345;
  assert_int_equal(df_batch_sizes_parse("1-64", out, &n, NULL), DF_OK);
  assert_int_equal(n, 64);
  assert_int_equal(out[63], 64);
  assert_int_equal(out[DF_BATCH_SIZES_MAX], 12345);
}

static void test_batch_sizes_parse__refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } rows[] = {{"", "needs a batch size from 1 to 64 at character 1"},
              {"0", "needs a batch size from 1 to 64 at character 1"},
              {"65", "needs a batch size from 1 to 64 at character 1"},
              {"4294967297", "needs a batch size from 1 to 64 at character 1"},
              {"-1", "needs a batch size from 1 to 64 at character 1"},
              {"1,", "needs a batch size from 1 to 64 at character 3"},
              {"1,,2", "needs a batch size from 1 to 64 at character 3"},
              {"1-", "needs a batch size from 1 to 64 at character 3"},
              {"1-65", "needs a batch size from 1 to 64 at character 3"},
              {"1-2-3", "unexpected \"-\" at character 4"},
              {"1 2", "unexpected \" \" at character 2"},
              {"2,1", "does not ascend at character 3"},
              {"2,2", "does not ascend at character 3"},
              {"1-4,3-8", "does not ascend at character 5"},
              {"8-1", "does not ascend at character 3"}};
  for (size_t i = 0; i < DF_COUNT_OF(rows); i++) {
    uint32_t out[DF_BATCH_SIZES_MAX], n = 777;
    df_error err = {0};
    assert_int_equal(df_batch_sizes_parse(rows[i].text, out, &n, &err), DF_ERR_ARGUMENT);
    if (!strstr(err.msg, rows[i].message)) fail_msg("\"%s\": %s", rows[i].text, err.msg);
    assert_int_equal(n, 777);
  }
}

static const char *no_environment(const char *name) {
  (void)name;
  return NULL;
}

/* Parses "dflash run -m x" with some more arguments. */
static void parse(df_opts *o, int n, char **args) {
  char *argv[16] = {(char *)"dflash", (char *)"run", (char *)"-m", (char *)"x"};
  static char *kept[16];
  for (int i = 0; i < n; i++) argv[4 + i] = args[i];
  memcpy(kept, argv, sizeof kept);
  assert_int_equal(df_opts_parse(o, DF_VERB_RUN, 4 + n, kept, 2, no_environment, NULL), DF_OK);
}

static void test_session_params_from_opts__all_of_them(void **state) {
  (void)state;
  char *args[] = {(char *)"--page-size=64",
                  (char *)"--cuda-graph-bs=1,2,8",
                  (char *)"--graph-memory=64M",
                  (char *)"--disable-cuda-graph",
                  (char *)"--attention-backend=fa3",
                  (char *)"--speculative-attention-mode=DECODE",
                  (char *)"--enable-two-batch-overlap",
                  (char *)"-ctk=f32",
                  (char *)"--verify-attention-backend=naive"};
  df_opts o;
  df_session_params sp;
  uint32_t sizes[DF_BATCH_SIZES_MAX];
  parse(&o, (int)DF_COUNT_OF(args), args);
  assert_int_equal(df_attention_opts_check(&o, NULL), DF_OK);
  assert_int_equal(df_session_params_from_opts(&o, &sp, sizes, NULL), DF_OK);
  assert_int_equal(sp.page_size, 64);
  assert_int_equal(sp.n_graph_seqs, 3);
  assert_int_equal(sp.graph_seqs[2], 8);
  assert_true(sp.graph_memory == (uint64_t)64 << 20);
  assert_true(sp.no_graph && sp.two_batch_overlap && sp.kv_f32);
  assert_string_equal(sp.attention_backend, "fa3");
  assert_string_equal(sp.verify_attention_backend, "naive");
  assert_null(sp.prefill_attention_backend);
  assert_string_equal(sp.speculative_attention_mode, "decode");
  assert_int_equal(sp.spec_draft_max, -1);
}

static void test_session_params_from_opts__defaults_are_the_library_s(void **state) {
  (void)state;
  df_opts o;
  df_session_params sp, def = df_session_params_default();
  uint32_t sizes[DF_BATCH_SIZES_MAX];
  parse(&o, 0, NULL);
  assert_int_equal(df_session_params_from_opts(&o, &sp, sizes, NULL), DF_OK);
  assert_int_equal(sp.page_size, def.page_size);
  assert_int_equal(sp.spec_draft_max, def.spec_draft_max);
  assert_true(sp.no_graph == def.no_graph && sp.graph_memory == def.graph_memory && !sp.graph_seqs);
}

static void test_attn_find__suggests(void **state) {
  (void)state;
  static const struct {
    const char *name, *near;
  } rows[] = {{"flsh", "flash"},        {"Flash", "flash"}, {"split_kv", "splitkv"}, {"flash-infer", "flashinfer"},
              {"trtllm", "trtllm_mha"}, {"fa", "fa3"},      {"fa5", "fa3"},          {"", NULL},
              {"cutlass", NULL},        {"foo", NULL},      {"fla", "flash"}};
  for (size_t i = 0; i < DF_COUNT_OF(rows); i++) {
    const df_attn_entry *entry = NULL;
    bool alias;
    char want[64];
    df_error err = {0};
    assert_int_equal(df_attn_find(rows[i].name, DF_LEAVES_HOST, &entry, &alias, &err), DF_ERR_ARGUMENT);
    assert_null(entry);
    (void)snprintf(want, sizeof want, "did you mean \"%s\"?", rows[i].near ? rows[i].near : "");
    if (rows[i].near && !strstr(err.msg, want)) fail_msg("\"%s\": %s", rows[i].name, err.msg);
    if (!rows[i].near && !strstr(err.msg, "use flash, splitkv or naive")) fail_msg("\"%s\": %s", rows[i].name, err.msg);
  }
}

/* On a card every name of the processor's leaves and of other engines is the card's leaf; its own name is not known to
 * the processor. */
static void test_attn_find__by_device(void **state) {
  (void)state;
  static const char *const names[] = {"flash", "splitkv", "naive",        "flashinfer", "triton",  "fa3",
                                      "fa4",   "xqa",     "torch_native", "trtllm_mha", "flashmla"};
  const df_attn_entry *entry = NULL;
  bool alias;
  df_error err = {0};
  for (size_t i = 0; i < DF_COUNT_OF(names); i++) {
    assert_int_equal(df_attn_find(names[i], DF_LEAVES_CUDA, &entry, &alias, &err), DF_OK);
    assert_string_equal(entry->name, "cuda");
    assert_true(alias);
  }
  assert_int_equal(df_attn_find("cuda", DF_LEAVES_CUDA, &entry, &alias, &err), DF_OK);
  assert_false(alias);
  assert_int_equal(df_attn_find("cuda", DF_LEAVES_HOST, &entry, &alias, &err), DF_ERR_UNSUPPORTED);
  assert_string_equal(err.msg, "attention backend \"cuda\" runs on a card only");
  assert_non_null(strstr(err.hint, "--device cuda"));
  assert_int_equal(df_attn_find("flsh", DF_LEAVES_CUDA, &entry, &alias, &err), DF_ERR_ARGUMENT);
  assert_non_null(strstr(err.msg, "did you mean \"flash\"?"));
  assert_string_equal(df_attn_default(NULL)->name, "flash");
}

/* With the kernels of flashinfer-python in the build their names mean themselves, and trtllm_mha means xqa. */
static void test_attn_find__on_a_card_with_third_kernels(void **state) {
  (void)state;
  static const struct {
    const char *name, *leaf;
    bool alias;
  } rows[] = {{"cuda", "cuda", false},        {"flashinfer", "flashinfer", false},
              {"xqa", "xqa", false},          {"trtllm_mha", "xqa", true},
              {"triton", "cuda", true},       {"fa3", "cuda", true},
              {"fa4", "cuda", true},          {"flash", "cuda", true},
              {"splitkv", "cuda", true},      {"naive", "cuda", true},
              {"torch_native", "cuda", true}, {"flashmla", "cuda", true}};
  const df_attn_entry *entry = NULL;
  bool alias;
  df_error err = {0};
  for (size_t i = 0; i < DF_COUNT_OF(rows); i++) {
    assert_int_equal(df_attn_find(rows[i].name, DF_LEAVES_CUDA_THIRD, &entry, &alias, &err), DF_OK);
    assert_string_equal(entry->name, rows[i].leaf);
    assert_int_equal(alias, rows[i].alias);
  }
  assert_int_equal(df_attn_find("flashinfr", DF_LEAVES_CUDA_THIRD, &entry, &alias, &err), DF_ERR_ARGUMENT);
  assert_string_equal(err.msg, "unknown attention backend \"flashinfr\", did you mean \"flashinfer\"?");
  uint32_t n;
  const df_attn_entry *leaves = df_attn_leaves(DF_LEAVES_CUDA_THIRD, &n);
  assert_int_equal(n, 3);
  assert_string_equal(leaves[0].name, "cuda"); /* what runs unasked */
  for (uint32_t i = 0; i < n; i++) assert_int_equal(leaves[i].page_sizes, strcmp(leaves[i].name, "xqa") ? 81 : 80);
  (void)df_attn_leaves(DF_LEAVES_CUDA, &n);
  assert_int_equal(n, 1);
}

static int lines;
static void count_line(void *user, df_log_level level, const char *line) {
  assert_int_equal(level, DF_LOG_INFO);
  assert_non_null(strstr(line, user));
  lines++;
}

static void test_attn_alias_report__once_each(void **state) {
  (void)state;
  df_log_set(count_line, (void *)"\"flashinfer\" runs as \"flash\"", DF_LOG_INFO);
  df_attn_alias_report("flash", DF_LEAVES_HOST); /* no alias */
  df_attn_alias_report("nonsense", DF_LEAVES_HOST);
  assert_int_equal(lines, 0);
  for (int i = 0; i < 3; i++) df_attn_alias_report("flashinfer", DF_LEAVES_HOST);
  assert_int_equal(lines, 1);
  df_log_set(count_line, (void *)"\"xqa\" runs as \"splitkv\"", DF_LOG_INFO);
  df_attn_alias_report("xqa", DF_LEAVES_HOST);
  df_attn_alias_report("flashinfer", DF_LEAVES_HOST);
  assert_int_equal(lines, 2);
  df_log_set(count_line, (void *)"\"flash\" runs as \"cuda\"", DF_LOG_INFO);
  for (int i = 0; i < 2; i++) df_attn_alias_report("flash", DF_LEAVES_CUDA); /* a leaf of another device */
  df_attn_alias_report("cuda", DF_LEAVES_CUDA);
  assert_int_equal(lines, 3);
  df_log_set(NULL, NULL, DF_LOG_WARN);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_batch_sizes_parse__lists_and_ranges),
      cmocka_unit_test(test_batch_sizes_parse__longest_list_fits),
      cmocka_unit_test(test_batch_sizes_parse__refused),
      cmocka_unit_test(test_session_params_from_opts__all_of_them),
      cmocka_unit_test(test_session_params_from_opts__defaults_are_the_library_s),
      cmocka_unit_test(test_attn_find__by_device),
      cmocka_unit_test(test_attn_find__on_a_card_with_third_kernels),
      cmocka_unit_test(test_attn_find__suggests),
      cmocka_unit_test(test_attn_alias_report__once_each),
  };
  return cmocka_run_group_tests_name("cli_attention", tests, NULL, NULL);
}
