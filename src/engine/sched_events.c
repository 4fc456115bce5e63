/* Events: one block each, so that freeing one is one call and making one fails as a whole. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "engine/sched_internal.h"

static void append(df_sched_boxes *q, df_sched_box *b) {
  b->next = NULL;
  if (q->last)
    q->last->next = b;
  else
    q->first = b;
  q->last = b;
}

void df_sched_boxes_append(df_sched_boxes *to, df_sched_boxes *from) {
  if (!from->first) return;
  if (to->last)
    to->last->next = from->first;
  else
    to->first = from->first;
  to->last = from->last;
  *from = (df_sched_boxes){0};
}

/* What an event of n tokens carries besides itself. */
typedef struct payload {
  uint32_t n, n_top;
  const int32_t *ids;
  const float *logprobs;
  const df_token_logprob *top;
  const char *text;
  size_t text_len;
} payload;

static df_sched_box *make(df_sched_job *j, df_sched_kind kind, const payload *p) {
  const size_t n_top = p->top ? (size_t)p->n * p->n_top : 0;
  const size_t top = n_top * sizeof *p->top, lp = p->logprobs ? p->n * sizeof *p->logprobs : 0;
  const size_t ids = p->ids ? p->n * sizeof *p->ids : 0;
  char *at = df_alloc(sizeof(df_sched_box) + top + lp + ids + p->text_len + 1);
  if (!at) {
    j->lost = true;
    return NULL;
  }
  df_sched_box *b = (df_sched_box *)(void *)at;
  at += sizeof *b;
  b->ev = (df_sched_event){.id = j->id, .kind = kind, .matched_id = -1, .matched_string = -1};
  b->ev.top = top ? memcpy(at, p->top, top) : NULL;
  b->ev.n_top = top ? p->n_top : 0;
  b->ev.logprobs = lp ? memcpy(at + top, p->logprobs, lp) : NULL;
  b->ev.ids = ids ? memcpy(at + top + lp, p->ids, ids) : NULL;
  b->ev.n_ids = ids ? p->n : 0;
  b->ev.text = at + top + lp + ids;
  b->ev.text_len = p->text_len;
  if (p->text_len) memcpy(b->ev.text, p->text, p->text_len);
  b->ev.text[p->text_len] = '\0';
  return b;
}

static void fill_times(df_sched_event *ev, const df_sched_job *j) {
  ev->stats = j->q.r.stats;
  ev->stats.cached_tokens = j->cached;
  ev->t_submit = j->t_submit;
  ev->t_admit = j->t_admit;
  ev->t_first = j->q.t_first;
}

static bool send_started(df_sched_job *j) {
  const df_request *q = &j->q;
  payload p = {.n = q->n_prompt, .n_top = q->n_top, .logprobs = q->prompt_logprobs, .top = q->prompt_top};
  if (q->prompt_logprobs) {
    q->prompt_logprobs[0] = NAN; /* nothing predicts the first token */
    for (uint32_t i = 0; i < q->n_top; i++) q->prompt_top[i] = (df_token_logprob){-1, NAN};
  }
  df_sched_box *b = make(j, DF_SCHED_STARTED, &p);
  if (!b) return false;
  fill_times(&b->ev, j);
  j->started = true;
  append(&j->s->made, b);
  return true;
}

bool df_sched_on_tokens(void *user, const df_event *ev) {
  df_sched_job *j = user;
  const df_request *q = &j->q;
  if (!j->started && ev->n_ids && !send_started(j)) return false;
  if (!ev->n_ids && !ev->text_len) return true;
  const payload p = {.n = ev->n_ids,
                     .n_top = q->n_top,
                     .ids = ev->ids,
                     .logprobs = q->logprobs,
                     .top = q->top,
                     .text = ev->text,
                     .text_len = ev->text_len};
  df_sched_box *b = make(j, DF_SCHED_TOKENS, &p);
  if (!b) return false;
  b->ev.n_drafted = ev->n_drafted;
  b->ev.n_accepted = DF_MIN(ev->n_accepted, ev->n_ids);
  j->sent += ev->n_ids;
  j->s->st.generated_tokens += ev->n_ids;
  append(&j->s->made, b);
  return true;
}

static void count(df_sched_stats *st, const df_sched_job *j) {
  if (j->q.failed != DF_OK)
    st->failed++;
  else if (j->timed_out)
    st->timed_out++;
  else if (j->q.r.finish == DF_FINISH_CANCELLED)
    st->cancelled++;
  else
    st->finished++;
}

/* Cut at a character border. */
static void copy_message(char *to, size_t cap, const char *from) {
  size_t n = strlen(from);
  if (n >= cap) n = cap - 1;
  while (n && ((unsigned char)from[n] & 0xC0) == 0x80) n--;
  memcpy(to, from, n);
  to[n] = '\0';
}

void df_sched_send_done(df_sched *s, df_sched_job *j) {
  df_sched_box *b = j->done;
  j->done = NULL;
  b->ev = (df_sched_event){.id = j->id,
                           .kind = DF_SCHED_DONE,
                           .finish = j->q.r.finish,
                           .matched_id = j->q.matched_id,
                           .matched_string = j->q.matched_string,
                           .timed_out = j->timed_out && j->q.failed == DF_OK,
                           .failed = j->q.failed};
  if (j->q.failed != DF_OK) {
    b->ev.finish = DF_FINISH_NONE;
    copy_message(b->ev.message, sizeof b->ev.message, j->q.why.msg);
    if (j->q.failed == DF_ERR_DEVICE && !s->st.device_lost[0])
      copy_message(s->st.device_lost, sizeof s->st.device_lost, j->q.why.msg);
  }
  fill_times(&b->ev, j);
  b->ev.stats.new_tokens = j->sent;
  b->ev.t_done = df_now_ns();
  count(&s->st, j);
  append(&s->made, b);
}
