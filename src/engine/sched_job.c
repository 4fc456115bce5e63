/* A submission becomes a job: everything checked and copied in the submitting thread. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/sched_internal.h"

static df_status grammar_mask(void *ctx, const uint64_t **mask, df_error *err) {
  return df_matcher_mask(ctx, mask, err);
}
static df_status grammar_accept(void *ctx, int32_t id, bool *accepted, df_error *err) {
  return df_matcher_accept(ctx, id, accepted, err);
}
static void grammar_rollback(void *ctx, uint32_t n) { df_matcher_rollback(ctx, n); }
static uint32_t grammar_length(void *ctx) { return df_matcher_length(ctx); }

static df_status check(const df_job *job, df_error *err) {
  if (job->n_top > DF_SCHED_MAX_TOP)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "%u alternatives per token, at most %d are given", job->n_top,
                   DF_SCHED_MAX_TOP);
  if (job->n_stop_ids > DF_SCHED_MAX_STOP_IDS)
    return DF_FAIL(err, DF_ERR_ARGUMENT, "%u stop tokens, at most %d are allowed", job->n_stop_ids,
                   DF_SCHED_MAX_STOP_IDS);
  return DF_OK;
}

static df_status copy_bias(df_sched_job *j, df_generate_params *gen, df_error *err) {
  const uint32_t n = gen->sampling.n_bias;
  if (n == 0) return DF_OK;
  j->bias = df_calloc(n, sizeof *j->bias);
  if (!j->bias) return DF_OOM(err, "logit biases", n * sizeof *j->bias);
  memcpy(j->bias, gen->sampling.bias, n * sizeof *j->bias);
  gen->sampling.bias = j->bias;
  return DF_OK;
}

static df_status fill(df_sched_job *j, const df_job *job, df_error *err) {
  df_generate_params gen = job->gen;
  const df_constraint rules = {NULL, grammar_mask, grammar_accept, grammar_rollback, grammar_length};
  df_constraint own = rules;
  df_request_config c = {.gen = &gen,
                         .stop_ids = job->stop_ids,
                         .n_stop_ids = job->n_stop_ids,
                         .logprobs = job->logprobs,
                         .n_top = job->n_top,
                         .prompt_logprobs = job->prompt_logprobs};
  DF_TRY(df_engine_width(&j->s->e, job->spec_width, &c, err));
  DF_TRY(copy_bias(j, &gen, err));
  if (job->grammar) {
    j->grammar = df_grammar_retain(job->grammar);
    DF_TRY(df_matcher_create(job->grammar, &j->matcher, err));
    own.ctx = j->matcher;
    c.constraint = &own;
  }
  gen.on_event = df_sched_on_tokens;
  gen.user = j;
  gen.cancel = NULL;
  j->done = df_calloc(1, sizeof *j->done);
  if (!j->done) return DF_OOM(err, "an event", sizeof *j->done);
  DF_TRY(df_request_init(&j->q, j->s->e.m, job->ids, job->n_ids, j->s->e.n_ctx, &c, err));
  /* The stop strings were copied; nobody may look at the submitter's again. */
  j->q.p.stop = NULL;
  j->q.p.n_stop = 0;
  return DF_OK;
}

df_status df_sched_job_create(df_sched *s, const df_job *job, df_sched_job **out, df_error *err) {
  DF_TRY(check(job, err));
  df_sched_job *j = df_calloc(1, sizeof *j);
  if (!j) return DF_OOM(err, "a request", sizeof *j);
  j->s = s;
  j->priority = job->priority;
  j->client = job->client;
  j->deadline = job->deadline;
  j->no_cache = job->no_cache;
  j->t_submit = df_now_ns();
  const df_status st = fill(j, job, err);
  if (st != DF_OK) {
    df_sched_job_free(j);
    return st;
  }
  j->pub = (df_sched_slot){.state = DF_REQ_PREFILL, .n_prompt = j->q.n_prompt, .width = j->q.width};
  *out = j;
  return DF_OK;
}

void df_sched_job_free(df_sched_job *j) {
  if (!j) return;
  df_request_release(&j->q);
  df_matcher_free(j->matcher);
  df_grammar_release(j->grammar);
  df_free(j->bias);
  df_free(j->done);
  df_free(j);
}
