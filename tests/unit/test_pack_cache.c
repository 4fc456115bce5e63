/* Packed weights kept between starts: the same bytes as packing gives, whatever happened to the file meanwhile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "dflash/dflash.h"
#include "model/model.h"
#include "model/pack_cache.h"
#include "support/sample_files.h"
#include "support/tiny_model.h"

typedef struct place {
  char *dir;
  char model[256], cache[256];
  tiny_spec spec;
} place;

static int setup(void **state) {
  place *p = df_calloc(1, sizeof *p);
  if (!p) return -1;
  p->dir = test_dir_create();
  p->spec = tiny_spec_default();
  p->spec.dtype = DF_Q8_0;
  (void)snprintf(p->model, sizeof p->model, "%s/m.gguf", p->dir);
  (void)snprintf(p->cache, sizeof p->cache, "%s/packed", p->dir);
  tiny_model_write(&p->spec, p->model);
  *state = p;
  return 0;
}

static int teardown(void **state) {
  place *p = *state;
  test_dir_remove(p->dir);
  df_free(p);
  return 0;
}

/* A copy of the packed block; owned by the caller. */
static uint8_t *packed(const char *model, const char *cache, bool exact, size_t *n, bool *cached) {
  df_model_params mp = df_model_params_default();
  df_model *m = NULL;
  df_error err = {0};
  mp.n_threads = 2;
  mp.weights_cache = cache;
  mp.exact = exact;
  assert_int_equal(df_model_open(model, &mp, &m, &err), DF_OK);
  uint8_t *copy = df_alloc(m->block_bytes);
  assert_non_null(copy);
  memcpy(copy, m->block, m->block_bytes);
  *n = m->block_bytes;
  *cached = df_model_get_info(m).weights_cached;
  df_model_close(m);
  return copy;
}

/* Opens with the folder and compares with a model that was packed; returns whether the folder served. */
static bool same_as_packed(const place *p, const char *cache) {
  size_t n, k;
  bool cached, none;
  uint8_t *want = packed(p->model, NULL, false, &n, &none), *got = packed(p->model, cache, false, &k, &cached);
  assert_false(none);
  assert_int_equal(n, k);
  assert_memory_equal(want, got, n);
  df_free(want);
  df_free(got);
  return cached;
}

/* The only file of the folder; asserts that there are `want` of them. */
static void only_file(const place *p, uint32_t want, char *path, size_t cap) {
  DIR *d = opendir(p->cache);
  assert_non_null(d);
  uint32_t n = 0;
  for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
    if (e->d_name[0] == '.') continue;
    n++;
    assert_non_null(strstr(e->d_name, ".dfpack"));
    assert_null(strstr(e->d_name, ".tmp"));
    (void)snprintf(path, cap, "%s/%s", p->cache, e->d_name);
  }
  (void)closedir(d);
  assert_int_equal(n, want);
}

static void test_cache__serves_the_second_start(void **state) {
  const place *p = *state;
  char file[1024];
  assert_false(same_as_packed(p, p->cache));
  only_file(p, 1, file, sizeof file);
  assert_true(same_as_packed(p, p->cache));
  assert_true(same_as_packed(p, p->cache));
  only_file(p, 1, file, sizeof file);
}

/* Every byte that is turned anywhere in the file is noticed, and the file is made anew. */
static void test_cache__a_damaged_file_is_replaced(void **state) {
  const place *p = *state;
  char file[1024];
  struct stat st;
  assert_false(same_as_packed(p, p->cache));
  only_file(p, 1, file, sizeof file);
  assert_int_equal(stat(file, &st), 0);
  const long at[] = {0, 8, 16, 24, 32, 4096, (long)st.st_size / 2, (long)st.st_size - 1};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    FILE *f = fopen(file, "r+be");
    assert_non_null(f);
    assert_int_equal(fseek(f, at[i], SEEK_SET), 0);
    const int c = fgetc(f);
    assert_int_equal(fseek(f, at[i], SEEK_SET), 0);
    assert_int_equal(fputc(c ^ 1, f), c ^ 1);
    assert_int_equal(fclose(f), 0);
    assert_false(same_as_packed(p, p->cache));
    assert_true(same_as_packed(p, p->cache));
  }
  assert_int_equal(truncate(file, st.st_size - 1), 0);
  assert_false(same_as_packed(p, p->cache));
  assert_int_equal(truncate(file, 0), 0);
  assert_false(same_as_packed(p, p->cache));
  assert_true(same_as_packed(p, p->cache));
}

static void test_cache__another_model_in_its_place_is_not_served(void **state) {
  place *p = *state;
  char file[1024];
  assert_false(same_as_packed(p, p->cache));
  char other[300];
  (void)snprintf(other, sizeof other, "%s.new", p->model);
  p->spec.seed++; /* the same shapes, other weights */
  tiny_model_write(&p->spec, other);
  assert_int_equal(rename(other, p->model), 0);
  assert_false(same_as_packed(p, p->cache));
  assert_true(same_as_packed(p, p->cache));
  only_file(p, 1, file, sizeof file); /* the old one made room */
}

/* Weights widened to float32 are another block, with a file of its own. */
static void test_cache__ways_of_packing_do_not_mix(void **state) {
  const place *p = *state;
  size_t n, k;
  bool cached;
  char file[1024];
  assert_false(same_as_packed(p, p->cache));
  uint8_t *want = packed(p->model, NULL, true, &n, &cached), *got = packed(p->model, p->cache, true, &k, &cached);
  assert_false(cached);
  df_free(got);
  got = packed(p->model, p->cache, true, &k, &cached);
  assert_true(cached);
  assert_int_equal(n, k);
  assert_memory_equal(want, got, n);
  df_free(want);
  df_free(got);
  assert_true(same_as_packed(p, p->cache));
  only_file(p, 2, file, sizeof file);
}

static void test_cache__a_folder_that_cannot_be_is_no_fault(void **state) {
  const place *p = *state;
  char bad[512], deep[2048];
  (void)snprintf(bad, sizeof bad, "%s/missing/folder", p->dir);
  assert_false(same_as_packed(p, bad));
  assert_false(same_as_packed(p, p->model)); /* a file */
  memset(deep, 'x', sizeof deep - 1);
  deep[sizeof deep - 1] = '\0';
  assert_false(same_as_packed(p, deep));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_cache__serves_the_second_start, setup, teardown),
      cmocka_unit_test_setup_teardown(test_cache__a_damaged_file_is_replaced, setup, teardown),
      cmocka_unit_test_setup_teardown(test_cache__another_model_in_its_place_is_not_served, setup, teardown),
      cmocka_unit_test_setup_teardown(test_cache__ways_of_packing_do_not_mix, setup, teardown),
      cmocka_unit_test_setup_teardown(test_cache__a_folder_that_cannot_be_is_no_fault, setup, teardown),
  };
  return cmocka_run_group_tests_name("pack_cache", tests, NULL, NULL);
}
