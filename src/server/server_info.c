/* What the server tells about itself: health, models, version, settings, slots, metrics. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "dflash/dflash.h"
#include "server/routes.h"

/* ---- health, version, embeddings ---- */

void df_handle_health(df_server *s, df_exchange *x) {
  static const char ok[] = "{\"status\":\"ok\"}";
  df_sched_stats st;
  const char *why = s->phase == DF_PHASE_LOADING ? "the model is loading" : "the server is shutting down";
  if (s->phase == DF_PHASE_READY) {
    df_sched_get_stats(s->sched, &st);
    why = st.device_lost;
  }
  if (*why)
    df_reply_error(x, 503, "unavailable_error", NULL, "%s", why);
  else
    df_exchange_send(x, 200, "application/json", ok, sizeof ok - 1);
}

void df_handle_version(df_server *s, df_exchange *x) {
  df_buf b;
  df_json_out w;
  (void)s;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, NULL);
  df_json_out_object(&w);
  df_json_put_cstr(&w, "version", df_version());
  df_json_out_close(&w);
  df_reply_json(x, &b, df_json_out_end(&w));
}

void df_handle_embeddings(df_server *s, df_exchange *x) {
  (void)s;
  df_reply_error(x, 501, "not_supported_error", NULL, "embeddings are not implemented by this server");
}

/* ---- models ---- */

static void model_json(df_json_out *w, const df_server *s) {
  df_json_out_object(w);
  df_json_put_cstr(w, "id", s->m.alias);
  df_json_put_cstr(w, "object", "model");
  df_json_out_key(w, "created"), df_json_out_i64(w, s->started);
  df_json_put_cstr(w, "owned_by", "dflash");
  df_json_put_cstr(w, "root", s->m.alias);
  df_json_out_key(w, "parent"), df_json_out_null(w);
  df_json_put_u64(w, "max_model_len", s->n_ctx);
  df_json_out_key(w, "meta");
  df_json_out_object(w);
  df_json_put_u64(w, "n_vocab", s->info.vocab);
  df_json_put_u64(w, "n_ctx_train", s->info.n_ctx_train);
  df_json_put_u64(w, "n_embd", s->info.hidden);
  df_json_put_u64(w, "n_params", s->info.n_params);
  df_json_put_u64(w, "size", s->info.file_bytes);
  df_json_out_close(w);
  df_json_out_close(w);
}

void df_handle_models(df_server *s, df_exchange *x) {
  static const char prefix[] = "/v1/models/";
  df_buf b;
  df_json_out w;
  const char *id = strncmp(x->head.path, prefix, sizeof prefix - 1) == 0 ? x->head.path + sizeof prefix - 1 : NULL;
  if (id && strcmp(id, s->m.alias) != 0) {
    df_reply_error(x, 404, "not_found_error", "model", "the model \"%.100s\" is not here; \"%s\" is", id, s->m.alias);
    return;
  }
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, NULL);
  if (id) {
    model_json(&w, s);
  } else {
    df_json_out_object(&w);
    df_json_put_cstr(&w, "object", "list");
    df_json_out_key(&w, "data");
    df_json_out_array(&w);
    model_json(&w, s);
    df_json_out_close(&w);
    df_json_out_close(&w);
  }
  df_reply_json(x, &b, df_json_out_end(&w));
}

/* ---- SGLang's views ---- */

void df_handle_model_info(df_server *s, df_exchange *x) {
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, NULL);
  df_json_out_object(&w);
  df_json_put_cstr(&w, "model_path", s->m.model_path);
  df_json_put_cstr(&w, "tokenizer_path", s->m.model_path);
  df_json_put_bool(&w, "is_generation", true);
  df_json_out_key(&w, "preferred_sampling_params"), df_json_out_null(&w);
  df_json_put_cstr(&w, "weight_version", "default");
  df_json_put_bool(&w, "has_image_understanding", false);
  df_json_put_bool(&w, "has_audio_understanding", false);
  df_json_put_cstr(&w, "model_type", s->info.arch);
  df_json_out_close(&w);
  df_reply_json(x, &b, df_json_out_end(&w));
}

static double accept_length(const df_sched_stats *st) {
  return st->verify_steps ? (double)st->emitted_verify / (double)st->verify_steps : 1.0;
}

static void internal_state(df_json_out *w, const df_server *s, const df_sched_stats *st) {
  df_json_out_object(w);
  df_json_put_f64(w, "last_gen_throughput", st->busy_s > 0 ? (double)st->generated_tokens / st->busy_s : 0);
  df_json_put_f64(w, "avg_spec_accept_length", accept_length(st));
  df_json_put_u64(w, "effective_max_running_requests_per_dp", s->max_seqs);
  df_json_put_u64(w, "num_running_reqs", st->running);
  df_json_put_u64(w, "num_queue_reqs", st->waiting);
  df_json_put_u64(w, "num_used_tokens", (uint64_t)st->pages_used * st->page_size);
  df_json_put_u64(w, "num_cached_tokens", (uint64_t)st->pages_cached * st->page_size);
  df_json_put_u64(w, "preempted", st->preempted);
  df_json_out_close(w);
}

void df_handle_server_info(df_server *s, df_exchange *x) {
  df_sched_stats st;
  df_buf b;
  df_json_out w;
  df_sched_get_stats(s->sched, &st);
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, NULL);
  df_json_out_object(&w);
  df_json_put_cstr(&w, "model_path", s->m.model_path);
  df_json_put_cstr(&w, "tokenizer_path", s->m.model_path);
  df_json_put_cstr(&w, "served_model_name", s->m.alias);
  df_json_put_cstr(&w, "speculative_algorithm", s->m.draft ? "DFLASH" : NULL);
  df_json_put_cstr(&w, "speculative_draft_model_path", s->m.draft_path);
  df_json_put_u64(&w, "speculative_num_draft_tokens", s->width);
  df_json_put_u64(&w, "context_length", s->n_ctx);
  df_json_put_u64(&w, "max_running_requests", s->max_seqs);
  df_json_put_u64(&w, "max_queued_requests", s->p.sched.max_waiting);
  df_json_put_u64(&w, "max_total_num_tokens", (uint64_t)st.pages_total * st.page_size);
  df_json_put_u64(&w, "page_size", st.page_size);
  df_json_put_bool(&w, "disable_radix_cache", s->p.sched.no_prefix_cache);
  df_json_put_cstr(&w, "host", s->p.host);
  df_json_put_u64(&w, "port", df_http_port(s->http));
  df_json_put_u64(&w, "tp_size", 1);
  df_json_put_u64(&w, "dp_size", 1);
  df_json_put_cstr(&w, "version", df_version());
  df_json_put_cstr(&w, "status", s->phase != DF_PHASE_READY ? "draining" : st.device_lost[0] ? "device lost" : "ready");
  df_json_out_key(&w, "internal_states");
  df_json_out_array(&w);
  internal_state(&w, s, &st);
  df_json_out_close(&w);
  df_json_out_close(&w);
  df_reply_json(x, &b, df_json_out_end(&w));
}

void df_handle_flush_cache(df_server *s, df_exchange *x) {
  static const char text[] = "Cache flushed.\n";
  df_sched_flush_cache(s->sched);
  df_exchange_send(x, 200, "text/plain; charset=utf-8", text, sizeof text - 1);
}

void df_handle_abort(df_server *s, df_exchange *x) {
  df_json *body = df_body_parse(x);
  if (!body) return;
  const df_json *rid = df_json_member(body, "rid"), *all = df_json_member(body, "abort_all");
  const char *id = df_json_str(rid, NULL);
  const bool every = df_json_bool(all);
  if (df_json_kind_of(rid) != DF_JSON_NULL && !id) {
    df_reply_error(x, 400, "invalid_request_error", "rid", "\"rid\" must be a string, not %s",
                   df_json_kind_name(df_json_kind_of(rid)));
  } else if (df_json_kind_of(all) != DF_JSON_NULL && df_json_kind_of(all) != DF_JSON_BOOL) {
    df_reply_error(x, 400, "invalid_request_error", "abort_all", "\"abort_all\" must be a boolean, not %s",
                   df_json_kind_name(df_json_kind_of(all)));
  } else if (!id && !every) {
    df_reply_error(x, 400, "invalid_request_error", "rid", "\"rid\" or \"abort_all\": true is needed");
  } else {
    for (df_task *t = s->tasks; t; t = t->next) df_task_cancel(t, every ? NULL : id);
    df_exchange_send(x, 200, "application/json", "{}", 2);
  }
  df_json_free(body);
}

/* ---- llama-server's views ---- */

static void sampling_json(df_json_out *w, const df_server *s) {
  const df_sampling_params *d = &s->p.defaults.sampling;
  df_json_out_key(w, "params");
  df_json_out_object(w);
  df_json_out_key(w, "n_predict"), df_json_out_i64(w, s->p.defaults.max_tokens);
  df_json_out_key(w, "seed"), df_json_out_i64(w, s->p.defaults.random_seed ? -1 : (int64_t)d->seed);
  df_json_put_f64(w, "temperature", (double)d->temperature);
  df_json_out_key(w, "top_k"), df_json_out_i64(w, d->top_k);
  df_json_put_f64(w, "top_p", (double)d->top_p);
  df_json_put_f64(w, "min_p", (double)d->min_p);
  df_json_put_f64(w, "repeat_penalty", (double)d->repetition_penalty);
  df_json_put_f64(w, "presence_penalty", (double)d->presence_penalty);
  df_json_put_f64(w, "frequency_penalty", (double)d->frequency_penalty);
  df_json_put_bool(w, "stream", false);
  df_json_put_u64(w, "speculative.n_max", s->width - 1);
  df_json_out_close(w);
}

static void token_member(df_json_out *w, const char *key, const df_server *s, int32_t id) {
  df_json_out_key(w, key);
  if (id >= 0)
    df_token_json(w, s, id);
  else
    df_json_out_cstr(w, "");
}

void df_handle_props(df_server *s, df_exchange *x) {
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  df_json_out_begin(&w, &b, NULL);
  df_json_out_object(&w);
  df_json_out_key(&w, "default_generation_settings");
  df_json_out_object(&w);
  df_json_put_u64(&w, "n_ctx", s->n_ctx);
  df_json_put_bool(&w, "speculative", s->m.draft != NULL);
  sampling_json(&w, s);
  df_json_out_close(&w);
  df_json_put_u64(&w, "total_slots", s->max_seqs);
  df_json_put_cstr(&w, "model_alias", s->m.alias);
  df_json_put_cstr(&w, "model_path", s->m.model_path);
  df_json_out_key(&w, "modalities");
  df_json_out_object(&w);
  df_json_put_bool(&w, "vision", false);
  df_json_put_bool(&w, "audio", false);
  df_json_out_close(&w);
  df_json_out_key(&w, "speculative");
  df_json_out_object(&w);
  df_json_put_cstr(&w, "type", s->m.draft ? "draft-dflash" : "none");
  df_json_put_cstr(&w, "draft_model_path", s->m.draft_path);
  df_json_put_u64(&w, "width", s->width);
  df_json_put_u64(&w, "n_max", s->width - 1);
  df_json_out_close(&w);
  df_json_out_key(&w, "chat_template_available"), df_json_out_bool(&w, s->chat != NULL);
  token_member(&w, "bos_token", s, df_tokenizer_bos(s->m.model->tok));
  token_member(&w, "eos_token", s, df_tokenizer_eos(s->m.model->tok));
  df_json_put_cstr(&w, "build_info", s->fingerprint);
  df_json_put_cstr(&w, "isa", s->info.cpu_tier);
  df_json_put_u64(&w, "threads", s->info.n_threads);
  df_json_out_close(&w);
  df_reply_json(x, &b, df_json_out_end(&w));
}

static const char *slot_state(const df_sched_slot *p) {
  if (!p->running) return "queued";
  return p->state == DF_REQ_PREFILL ? "prefill" : p->state == DF_REQ_DECODE ? "decode" : "done";
}

static void slot_json(df_json_out *w, const df_server *s, uint32_t id, const df_sched_slot *p) {
  df_json_out_object(w);
  df_json_put_u64(w, "id", id);
  df_json_out_key(w, "id_task"), df_json_out_i64(w, p ? (int64_t)p->id : -1);
  df_json_put_u64(w, "n_ctx", s->n_ctx);
  df_json_put_bool(w, "speculative", p ? p->width > 1 : s->m.draft != NULL);
  df_json_put_bool(w, "is_processing", p != NULL);
  if (p) {
    df_json_put_cstr(w, "state", slot_state(p));
    df_json_put_u64(w, "n_prompt_tokens", p->n_prompt);
    df_json_put_u64(w, "n_prompt_tokens_cache", p->n_cached);
    df_json_put_u64(w, "n_prompt_tokens_processed", p->n_done_prompt);
    df_json_put_u64(w, "spec_width", p->width);
    df_json_put_u64(w, "preemptions", p->preemptions);
    df_json_out_key(w, "next_token");
    df_json_out_object(w);
    df_json_put_u64(w, "n_decoded", p->n_generated);
    df_json_out_close(w);
  }
  df_json_out_close(w);
}

void df_handle_slots(df_server *s, df_exchange *x) {
  enum { CAP = 1024 };
  df_sched_slot *v = df_calloc(CAP, sizeof *v);
  df_buf b;
  df_json_out w;
  df_buf_init(&b, 0);
  const uint32_t n = v ? df_sched_slots(s->sched, v, CAP) : 0;
  df_json_out_begin(&w, &b, NULL);
  df_json_out_array(&w);
  for (uint32_t i = 0; i < n || i < s->max_seqs; i++) slot_json(&w, s, i, i < n ? &v[i] : NULL);
  df_json_out_close(&w);
  df_reply_json(x, &b, v ? df_json_out_end(&w) : DF_ERR_MEMORY);
  df_free(v);
}

/* ---- metrics ---- */

void df_handle_metrics(df_server *s, df_exchange *x) {
  df_sched_stats st;
  df_buf b;
  const bool up = s->n_ctx != 0; /* before, the loader's thread owns the rest */
  if (up) df_sched_get_stats(s->sched, &st);
  const df_metrics_view v = {.m = &s->metrics,
                             .s = up ? &st : NULL,
                             .model = up ? s->m.alias : "",
                             .version = df_version(),
                             .isa = up ? s->info.cpu_tier : "",
                             .n_ctx = s->n_ctx,
                             .width = s->width,
                             .max_seqs = s->max_seqs,
                             .connections = df_http_connections(s->http),
                             .uptime_s = (double)((int64_t)time(NULL) - s->started),
                             .started = s->started};
  df_buf_init(&b, 0);
  if (df_metrics_write(&v, &b, NULL) == DF_OK)
    df_exchange_send(x, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
  else
    df_reply_error(x, 503, "unavailable_error", NULL, "out of memory");
  df_buf_release(&b);
}
