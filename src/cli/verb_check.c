/* dflash check: losslessness on the user's own pair of model and draft. */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/size.h"
#include "cli/cli_attention.h"
#include "cli/cli_model.h"
#include "cli/interrupt.h"
#include "cli/known.h"
#include "engine/check.h"
#include "format/json.h"

/* All combinations that share leaves and verify routing. */
typedef struct group {
  df_check_case c; /* prefill, decode, verify and mode are what the group shares */
  uint64_t combinations, identical, near_ties;
  df_check_outcome first; /* that differs; a near tie only when nothing else does */
} group;

typedef struct check_run {
  df_cli *cli;
  df_progress bar;
  group *groups; /* owned, in the order they came */
  size_t n_groups, cap_groups;
  df_check_outcome *bad; /* owned: every combination that differs */
  size_t n_bad, cap_bad;
  df_check_summary sum;
  bool failed; /* out of memory */
} check_run;

static bool same_text(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static bool same_group(const df_check_case *a, const df_check_case *b) {
  return same_text(a->prefill, b->prefill) && same_text(a->decode, b->decode) && same_text(a->verify, b->verify) &&
         same_text(a->mode, b->mode);
}

static bool all_good(const df_check_summary *s) { return s->identical + s->near_ties == s->combinations; }

/* Room for one more element of `size` bytes in *list. */
static bool grow(void **list, size_t n, size_t *cap, size_t size) {
  if (n < *cap) return true;
  const size_t want = *cap ? *cap * 2 : 32;
  size_t bytes;
  if (!df_mul_size(want, size, &bytes)) return false;
  void *p = df_realloc(*list, bytes);
  if (!p) return false;
  *list = p;
  *cap = want;
  return true;
}

static group *group_of(check_run *r, const df_check_case *c) {
  for (size_t i = 0; i < r->n_groups; i++)
    if (same_group(&r->groups[i].c, c)) return &r->groups[i];
  void *list = r->groups;
  if (!grow(&list, r->n_groups, &r->cap_groups, sizeof *r->groups)) return NULL;
  r->groups = list;
  r->groups[r->n_groups] = (group){.c = *c};
  return &r->groups[r->n_groups++];
}

static bool on_case(void *user, const df_check_outcome *o, const df_check_summary *so_far) {
  check_run *r = user;
  group *g = group_of(r, &o->c);
  void *list = r->bad;
  if (!g || !grow(&list, r->n_bad, &r->cap_bad, sizeof *r->bad)) {
    r->failed = true;
    return false;
  }
  r->bad = list;
  r->sum = *so_far;
  if (r->bar.total == 0) r->bar.total = so_far->planned;
  df_progress_update(&r->bar, so_far->combinations);
  g->combinations++;
  g->identical += o->identical;
  g->near_ties += o->near_tie;
  if (!o->identical) {
    const uint64_t differ = g->combinations - g->identical;
    if (differ == 1 || (!o->near_tie && differ - g->near_ties == 1)) g->first = *o;
    r->bad[r->n_bad++] = *o;
  }
  return !df_interrupted;
}

/* ---- text ---- */

/* A token as C would write it, so that a line feed stays on the line. */
static void quoted(char *out, size_t cap, const char *text, int32_t id) {
  df_buf b;
  if (id < 0) {
    (void)snprintf(out, cap, "the end");
    return;
  }
  df_buf_init(&b, 0);
  if (df_json_quote(&b, text, strlen(text), NULL) == DF_OK && df_buf_puts(&b, "", NULL) == DF_OK)
    (void)snprintf(out, cap, "%s", b.data);
  else
    (void)snprintf(out, cap, "token %d", id);
  df_buf_release(&b);
}

static void verify_routing(char *out, size_t cap, const df_check_case *c) {
  (void)snprintf(out, cap, "%s (%s)",
                 c->verify                        ? c->verify
                 : strcmp(c->mode, "decode") == 0 ? c->decode
                                                  : c->prefill,
                 c->verify ? "own slot" : c->mode);
}

static void difference(char *out, size_t cap, const df_check_outcome *o) {
  char want[128], got[128];
  if (o->refused) {
    (void)snprintf(out, cap, "refused: %s", o->reason);
    return;
  }
  if (o->logits_only) {
    (void)snprintf(out, cap, "request %u: same tokens, other logits", o->request);
    return;
  }
  quoted(want, sizeof want, o->expected_text, o->expected);
  quoted(got, sizeof got, o->got_text, o->got);
  (void)snprintf(out, cap, "%srequest %u, token %u: %s, not %s (margin %.4g)", o->near_tie ? "near tie: " : "",
                 o->request, o->position, got, want, (double)o->margin);
}

static void print_table(const check_run *r) {
  static const char *const head[] = {"prefill", "decode", "verify", "combinations", "identical", "first difference"};
  const df_term *term = &r->cli->term;
  df_table t;
  df_table_init(&t, 6, head, "lllrrl");
  for (size_t i = 0; i < r->n_groups; i++) {
    const group *g = &r->groups[i];
    char verify[64], n[2][24], first[640] = "";
    verify_routing(verify, sizeof verify, &g->c);
    (void)snprintf(n[0], sizeof n[0], "%llu", (unsigned long long)g->combinations);
    (void)snprintf(n[1], sizeof n[1], "%llu", (unsigned long long)g->identical);
    if (g->identical != g->combinations) difference(first, sizeof first, &g->first);
    df_table_add(&t, g->c.prefill, g->c.decode, verify, n[0], n[1], first);
  }
  df_table_print(&t, stdout, 0, df_term_out(term, DF_STYLE_BOLD), df_term_out(term, DF_STYLE_RESET));
  df_table_release(&t);
  if (strcmp(r->sum.device, r->sum.reference) != 0)
    printf("run on %s, compared with plain decoding on %s\n", r->sum.device, r->sum.reference);
  for (size_t i = 0; i < r->n_groups; i++) {
    const df_check_outcome *o = &r->groups[i].first;
    if (r->groups[i].identical == r->groups[i].combinations) continue;
    printf("first of %s/%s: %s, %s, width %u, batch %u, pages of %u, %s prefix, %u thread%s\n", o->c.prefill,
           o->c.decode, o->c.graph ? "recorded" : "eager", o->c.tbo ? "overlap" : "no overlap", o->c.width, o->c.batch,
           o->c.page_size, o->c.prefix_hit ? "cached" : "cold", o->c.threads, o->c.threads == 1 ? "" : "s");
  }
  char near_ties[64] = "", refused[40] = "";
  if (r->sum.near_ties)
    (void)snprintf(near_ties, sizeof near_ties, ", %llu with near ties", (unsigned long long)r->sum.near_ties);
  if (r->sum.refused) (void)snprintf(refused, sizeof refused, ", %llu refused", (unsigned long long)r->sum.refused);
  printf("%s%llu combinations, %llu identical%s%s, %.1f s%s\n",
         df_term_out(term, all_good(&r->sum) ? DF_STYLE_GREEN : DF_STYLE_RED), (unsigned long long)r->sum.combinations,
         (unsigned long long)r->sum.identical, near_ties, refused, r->sum.seconds, df_term_out(term, DF_STYLE_RESET));
}

/* ---- JSON ---- */

static void put_case(df_json_out *w, const df_check_outcome *o) {
  const df_check_case *c = &o->c;
  df_json_out_object(w);
  df_json_out_key(w, "prefill"), df_json_out_cstr(w, c->prefill);
  df_json_out_key(w, "decode"), df_json_out_cstr(w, c->decode);
  df_json_out_key(w, "verify");
  if (c->verify)
    df_json_out_cstr(w, c->verify);
  else
    df_json_out_null(w);
  df_json_out_key(w, "mode"), df_json_out_cstr(w, c->mode);
  df_json_out_key(w, "graph"), df_json_out_bool(w, c->graph);
  df_json_out_key(w, "two_batch_overlap"), df_json_out_bool(w, c->tbo);
  df_json_out_key(w, "prefix_hit"), df_json_out_bool(w, c->prefix_hit);
  df_json_out_key(w, "width"), df_json_out_u64(w, c->width);
  df_json_out_key(w, "batch"), df_json_out_u64(w, c->batch);
  df_json_out_key(w, "page_size"), df_json_out_u64(w, c->page_size);
  df_json_out_key(w, "threads"), df_json_out_u64(w, c->threads);
  df_json_out_key(w, "refused");
  if (o->refused)
    df_json_out_cstr(w, o->reason);
  else
    df_json_out_null(w);
  df_json_out_key(w, "near_tie"), df_json_out_bool(w, o->near_tie);
  df_json_out_key(w, "logits_only"), df_json_out_bool(w, o->logits_only);
  df_json_out_key(w, "request"), df_json_out_u64(w, o->request);
  df_json_out_key(w, "position"), df_json_out_u64(w, o->position);
  df_json_out_key(w, "expected"), df_json_out_i64(w, o->expected);
  df_json_out_key(w, "expected_text"), df_json_out_cstr(w, o->expected_text);
  df_json_out_key(w, "got"), df_json_out_i64(w, o->got);
  df_json_out_key(w, "got_text"), df_json_out_cstr(w, o->got_text);
  df_json_out_key(w, "margin"), df_json_out_f64(w, (double)o->margin);
  df_json_out_close(w);
}

static df_status print_json(const check_run *r, df_error *err) {
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, err);
  df_json_out_object(&w);
  df_json_out_key(&w, "model"), df_json_out_cstr(&w, df_opt_text(&r->cli->opts, OPT_MODEL, ""));
  df_json_out_key(&w, "draft");
  if (df_opt_given(&r->cli->opts, OPT_DRAFT_MODEL))
    df_json_out_cstr(&w, r->cli->opts.v[OPT_DRAFT_MODEL].text);
  else
    df_json_out_null(&w);
  df_json_put_cstr(&w, "device", r->sum.device);
  df_json_put_cstr(&w, "reference", r->sum.reference);
  df_json_out_key(&w, "logits"), df_json_out_bool(&w, df_opt_on(&r->cli->opts, OPT_LOGITS, false));
  df_json_out_key(&w, "combinations"), df_json_out_u64(&w, r->sum.combinations);
  df_json_out_key(&w, "identical"), df_json_out_u64(&w, r->sum.identical);
  df_json_out_key(&w, "near_ties"), df_json_out_u64(&w, r->sum.near_ties);
  df_json_out_key(&w, "refused"), df_json_out_u64(&w, r->sum.refused);
  df_json_out_key(&w, "planned"), df_json_out_u64(&w, r->sum.planned);
  df_json_out_key(&w, "seconds"), df_json_out_f64(&w, r->sum.seconds);
  df_json_out_key(&w, "different"), df_json_out_array(&w);
  for (size_t i = 0; i < r->n_bad; i++) put_case(&w, &r->bad[i]);
  df_json_out_close(&w);
  df_json_out_close(&w);
  df_status st = df_json_out_end(&w);
  if (st == DF_OK) puts(b.data);
  df_buf_release(&b);
  return st;
}

/* ---- the verb ---- */

static df_status run_check(check_run *r, df_error *err) {
  const df_opts *o = &r->cli->opts;
  char *model = NULL, *draft = NULL;
  df_status st;
  df_check_params p = {.logits = df_opt_on(o, OPT_LOGITS, false), .on_case = on_case, .user = r};
  const char *matrix = df_opt_text(o, OPT_MATRIX, "quick");
  p.matrix = strcasecmp(matrix, "full") == 0    ? DF_CHECK_FULL
             : strcasecmp(matrix, "batch") == 0 ? DF_CHECK_BATCH
                                                : DF_CHECK_QUICK;
  p.device = df_opt_text(o, OPT_DEVICE, NULL);
  p.n_tokens = (uint32_t)df_opt_int(o, OPT_PREDICT, 0);
  DF_TRY(df_need_model(o, err));
  DF_TRY(df_attention_opts_check(o, err));
  DF_TRY_GOTO(st, df_target_resolve(o, df_opt_text(o, OPT_MODEL, NULL), &model, err), done);
  if (df_opt_given(o, OPT_DRAFT_MODEL))
    DF_TRY_GOTO(st, df_draft_resolve(o, df_opt_text(o, OPT_DRAFT_MODEL, NULL), &draft, err), done);
  else
    fputs("note: no draft given (-md FILE): backends are compared without drafting\n", stderr);
  df_progress_begin(&r->bar, &r->cli->term, "checking", 0, 0, false);
  st = df_check_run(model, draft, &p, &r->sum, err);
  df_progress_end(&r->bar);
done:
  df_free(model);
  df_free(draft);
  return st;
}

int df_verb_check(df_cli *cli) {
  check_run r = {.cli = cli};
  df_error err = {0};
  df_interrupt_install();
  df_status st = run_check(&r, &err);
  bool stopped = st == DF_ERR_CANCELLED && df_interrupted && !r.failed;
  if (r.failed) st = DF_FAIL(&err, DF_ERR_MEMORY, "could not keep the results of the check");
  if ((st == DF_OK || stopped) && df_opt_on(&cli->opts, OPT_JSON, false)) {
    df_status wrote = print_json(&r, &err);
    if (wrote != DF_OK) st = wrote;
  } else if (st == DF_OK || stopped) {
    print_table(&r);
  }
  if (stopped)
    fprintf(stderr, "interrupted: %llu combinations were not run\n",
            (unsigned long long)(r.sum.planned - r.sum.combinations));
  int status = stopped            ? DF_EXIT_INTERRUPTED
               : st != DF_OK      ? df_cli_report(cli, &err)
               : all_good(&r.sum) ? DF_EXIT_OK
                                  : DF_EXIT_FAILURE;
  df_free(r.groups);
  df_free(r.bad);
  return status;
}
