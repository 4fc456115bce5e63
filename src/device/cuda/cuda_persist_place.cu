/* cuda_persist_place.cu - where things of a one-kernel pass lie: attention's work, the rings and their slots. */
#include "device/cuda/cuda_tune.h"
#include "device/cuda/persist_planner.cuh"

/* Tiles of a slot. Blocks alone: that as many tiles as possible of runs that are cut into even slots are on their way
 * while one slot is used. In clusters asking costs more than what two large slots hold less. */
static uint32_t slot_tiles(const planner *p, size_t room) {
  if (df_cuda_tune.persist_tiles) return df_cuda_tune.persist_tiles;
  const size_t half = room / 2 / MMA_WARPS - sizeof(port_mailbox);
  if (p->cluster > 1)
    return math_max(PERSIST_SLOT_TILES, math_min((uint32_t)(half / DF_FRAG_BYTES), MOST_CLUSTER_SLOT));
  uint32_t best = PERSIST_SLOT_TILES;
  double held = 0;
  for (uint32_t t = PERSIST_SLOT_TILES; t <= MOST_SLOT; t++) {
    const size_t slots = room / (MMA_WARPS * (t * DF_FRAG_BYTES + sizeof(port_mailbox)));
    if (slots < LEAST_SLOTS) break;
    double now = 0;
    for (uint32_t i = 0; i < p->n_runs; i++) {
      const uint32_t tiles = p->run[i].tiles, each = tiles > PERSIST_SHORT ? t : (uint32_t)PERSIST_SLOT_TILES;
      const uint32_t pieces = (tiles + each - 1) / each;
      if (pieces) now += (double)(slots - 1) * tiles / pieces * p->run[i].weight;
    }
    if (now <= held) continue;
    held = now;
    best = t;
  }
  return best;
}

/* Whether clusters are faster though blocks alone have the room: with more rows each block alone reads more, and short
 * runs suit it. */
bool df_cuda_persist_clusters(const planner *p) {
  double longer = 0, all = 0;
  for (uint32_t i = 0; i < p->n_runs; i++) {
    all += p->run[i].weight;
    if (p->run[i].tiles > PERSIST_SHORT) longer += p->run[i].weight;
  }
  return p->env->max_rows > (2 * longer > all ? LEAST_CLUSTER_ROWS : LEAST_SHORT_ROWS);
}

/* Rings of quantised weights; rest: bytes of everything else. */
static bool place_quant(const planner *p, size_t rest, df_cuda_list *out) {
  const size_t per_slot = p->slot_bytes + sizeof(port_mailbox), memory = p->env->card->shared_bytes;
  if (rest + LEAST_QUANT_SLOTS * per_slot > memory) return false;
  out->slots = math_min((uint32_t)((memory - rest) / per_slot), MOST_QUANT_SLOTS);
  out->quant_slot = p->slot_bytes;
  out->quant_tries = p->tries;
  return true;
}

/* Rings of BF16 and F16 weights. */
static bool place_float(const planner *p, size_t rest, df_cuda_list *out) {
  const size_t memory = p->env->card->shared_bytes;
  if (rest >= memory) return false;
  out->slot_tiles = slot_tiles(p, memory - rest);
  const size_t per_slot = MMA_WARPS * (out->slot_tiles * DF_FRAG_BYTES + sizeof(port_mailbox));
  out->slots = math_min((uint32_t)((memory - rest) / per_slot), MOST_TILES / out->slot_tiles);
  return out->slots >= LEAST_SLOTS &&
         out->slots * out->slot_tiles >= (uint32_t)(p->cluster > 1 ? LEAST_CLUSTER_TILES : LEAST_TILES);
}

/* Where things lie; false when a ring has no room for enough slots. */
bool df_cuda_persist_place(const planner *p, df_cuda_list *out) {
  const bool quant = p->form == FORM_QUANT;
  const uint32_t rows = p->env->max_rows, n = p->out.n_entries;
  out->n_stages = p->out.n_stages;
  out->n_entries = n;
  out->cluster = p->cluster;
  out->cap = rows;
  out->queries = p->queries;
  out->f16 = p->form == FORM_F16;
  /* Attention's memory lies so that what it keeps comes behind the work of all products. */
  const size_t work = (p->work + 127) & ~(size_t)127;
  out->attn_at = (uint32_t)((work > p->attn_front ? work - p->attn_front + 127 : 0) & ~(size_t)127);
  if (!keeps_attn(p)) out->attn_at = 0;
  out->kept_at = (uint32_t)((math_max(out->attn_at + (uint32_t)p->attn, (uint32_t)work) + 15) & ~15u);
  const size_t all = out->kept_at + sizeof(persist_kept);
  const persist_layout none =
      quant ? persist_place_quant(0, p->slot_bytes, n) : persist_place(0, 0, n, p->cluster, rows);
  if (!(quant ? place_quant(p, none.work + 128 + all, out) : place_float(p, none.work + 256 + all, out))) return false;
  const persist_layout l = quant ? persist_place_quant(out->slots, p->slot_bytes, n)
                                 : persist_place(out->slots, out->slot_tiles, n, p->cluster, rows);
  out->shared = l.work + all;
  out->packed_at = (words_at(out) + p->words_bytes + 255) & ~(size_t)255;
  out->bytes = out->packed_at + p->packed_bytes;
  return true;
}
