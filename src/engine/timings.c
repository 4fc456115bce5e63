#include "engine/timings.h"

double df_stats_prompt_speed(const df_stats *st) {
  uint32_t n = st->prompt_tokens - st->cached_tokens;
  return n > 0 && st->prefill_ms > 0 ? n * 1000.0 / st->prefill_ms : 0;
}

double df_stats_generation_speed(const df_stats *st) {
  return st->steps > 0 && st->decode_ms > 0 ? st->new_tokens * 1000.0 / st->decode_ms : 0;
}

void df_stats_timings(df_json_out *w, const df_stats *st) {
  const uint32_t prompt_n = st->prompt_tokens - st->cached_tokens;
  unsigned last = 0;
  df_json_put_u64(w, "cache_n", st->cached_tokens);
  df_json_put_u64(w, "prompt_n", prompt_n);
  df_json_put_f64(w, "prompt_ms", st->prefill_ms);
  df_json_put_f64(w, "prompt_per_token_ms", prompt_n ? st->prefill_ms / prompt_n : 0);
  df_json_put_f64(w, "prompt_per_second", df_stats_prompt_speed(st));
  df_json_put_u64(w, "predicted_n", st->new_tokens);
  df_json_put_f64(w, "predicted_ms", st->decode_ms);
  df_json_put_f64(w, "predicted_per_token_ms", st->new_tokens ? st->decode_ms / st->new_tokens : 0);
  df_json_put_f64(w, "predicted_per_second", df_stats_generation_speed(st));
  df_json_put_f64(w, "first_token_ms", st->first_token_ms);
  df_json_put_u64(w, "draft_n", st->drafted);
  df_json_put_u64(w, "draft_n_accepted", st->accepted);
  df_json_put_u64(w, "verify_n", st->verify_steps);
  df_json_put_f64(w, "accept_length", df_stats_accept_length(st));
  df_json_out_key(w, "accepted_per_pos");
  df_json_out_array(w);
  for (unsigned j = 0; j < DF_MAX_WIDTH; j++) {
    if (st->drafted_at[j]) last = j + 1;
  }
  for (unsigned j = 0; j < last; j++)
    df_json_out_f64(w, st->drafted_at[j] ? (double)st->accepted_at[j] / st->drafted_at[j] : 0);
  df_json_out_close(w);
}
