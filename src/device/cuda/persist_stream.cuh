/*
 * device/cuda/persist_stream.cuh - one warp's weights of a whole pass, through a ring of slots in shared memory.
 *
 * A slot takes a few neighbouring tiles of the warp's share of a strip, fetched by one bulk copy. The warp itself
 * asks for the next ones as it frees slots, so that nobody else is needed and nothing is waited for but data.
 */
#ifndef DF_DEVICE_CUDA_PERSIST_STREAM_CUH
#define DF_DEVICE_CUDA_PERSIST_STREAM_CUH

#include "device/cuda/persist.cuh"

enum { PERSIST_SHORT = 16 /* tiles of a run whose parts are chained side by side */ };

struct persist_stream {
  const persist_entry *next, *end; /* entries that are not open yet */
  /* The run that is asked for: the warp's tiles of a strip of the open entry, of w, then of u. */
  const uint8_t *from, *run; /* next tile; first tile of the run of w */
  uint32_t ahead;            /* tiles of the run behind `from`; 0: there is nothing left to ask for */
  bool second;               /* the run is that of u */
  ptrdiff_t to_u;            /* from w's run to u's; 0: no u */
  size_t step;               /* to the next strip */
  uint32_t turn;             /* strips on the way there */
  uint32_t strip, strips;    /* of the run; end of the entry */
  uint32_t share;            /* tiles of a run */
  uint32_t ask;              /* slot for it */
  uint32_t slot, parity;     /* in use, or the next to be */
  uint32_t left, held, used; /* tiles of the run behind the slot; in the slot; used of them */
  uint32_t freed;            /* slots that wait for being asked for again */
  uint32_t slots, slot_tiles, lane, warp;
  uint32_t piece, take; /* tiles that a slot takes of the run that is asked for, and of the one in use */
  /* Strips go to `blocks` blocks, or clusters, in turn, this one the `place`th; parts [part0, part0 + parts) of k are
   * the warp's. In a cluster half of the warps take every second of its strips, or up. */
  uint32_t place, blocks, part0, parts, half;
  bool cluster;
  uint8_t *ring;
  port_mailbox *box;
  uint64_t once; /* how L2 is to keep weights: they are read once */
};

/* Where the `place`th of n begins among the strips, or units, of something that the one at `shift` begins. */
DF_DEV uint32_t persist_turn(uint32_t place, uint32_t n, uint32_t shift) {
  return place >= shift ? place - shift : place + n - shift;
}

DF_DEV uint32_t persist_first(uint32_t shift) { return persist_turn(blockIdx.x, gridDim.x, shift); }

/* To the first run of the entries that follow. */
DF_DEV void pstream_open(persist_stream &s) {
  s.ahead = 0;
#pragma unroll 1
  while (s.next != s.end) {
    const persist_entry &e = *s.next++;
    const bool halves = s.cluster && !e.u;
    if (e.shift != PERSIST_SAME) s.strip = persist_turn(s.place, s.blocks, e.shift) + (halves ? s.half * s.blocks : 0);
    const uint32_t t0 = df_frag_part(e.tiles, s.part0);
    s.share = df_frag_part(e.tiles, s.part0 + s.parts) - t0;
    s.strips = e.strip1;
    s.piece = e.piece;
    s.turn = halves ? 2 * s.blocks : s.blocks;
    if (s.strip >= e.strip1 || s.share == 0) continue;
    s.run = (s.cluster && e.u && s.half ? e.u : e.w) + ((size_t)(s.strip - e.strip0) * e.tiles + t0) * DF_FRAG_BYTES;
    s.to_u = !s.cluster && e.u ? e.u - e.w : 0;
    s.step = (size_t)s.turn * e.tiles * DF_FRAG_BYTES;
    s.from = s.run;
    s.ahead = s.share;
    return;
  }
}

/* The run is all asked for: to the next one. */
DF_DEV void pstream_next_run(persist_stream &s) {
  s.ahead = s.share;
  s.second = s.to_u != 0 && !s.second;
  s.from = s.run + s.to_u;
  if (s.second) return;
  s.strip += s.turn;
  s.run += s.step;
  s.from = s.run;
  if (s.strip >= s.strips) pstream_open(s);
}

/* Asks for what comes next, into the slot that was freed first. */
DF_DEV void pstream_ask(persist_stream &s) {
  const uint32_t n = math_min(s.ahead, s.piece), bytes = n * DF_FRAG_BYTES;
  if (n == 0) return;
  if (port_elect()) {
    port_mailbox_expect(&s.box[s.ask], bytes);
    port_mailbox_fetch(s.ring + s.ask * s.slot_tiles * DF_FRAG_BYTES, s.from, bytes, &s.box[s.ask], s.once);
  }
  s.ask = s.ask + 1 == s.slots ? 0 : s.ask + 1;
  s.from += bytes;
  s.ahead -= n;
  if (s.ahead == 0) pstream_next_run(s);
}

/* Asks for as much as has been freed. */
DF_DEV void stream_rest(persist_stream &s) {
  port_warp_sync(); /* all lanes have read what was in the slots */
#pragma unroll 1
  for (; s.freed > 0; s.freed--) pstream_ask(s);
}

/* Opens the mailboxes; stream_rest fills the ring. The list is in shared memory. */
template <int C>
DF_DEV persist_stream pstream_begin(const persist_args &p, const persist_layout &l, uint8_t *shared) {
  persist_stream s = {};
  s.once = port_read_once();
  s.lane = threadIdx.x % 32;
  s.warp = threadIdx.x / 32;
  s.slots = p.slots;
  s.slot_tiles = p.slot_tiles;
  s.cluster = C > 1;
  s.place = blockIdx.x / C;
  s.blocks = gridDim.x / C;
  s.half = C > 1 ? s.warp % 2 : 0;
  s.parts = C > 1 ? 2 * DF_FRAG_PARTS / MMA_WARPS / C : DF_FRAG_PARTS / MMA_WARPS;
  s.part0 = C > 1 ? port_cluster_rank() * (DF_FRAG_PARTS / C) + s.warp / 2 * s.parts : s.warp * s.parts;
  s.ring = shared + s.warp * p.slots * s.slot_tiles * DF_FRAG_BYTES;
  s.box = (port_mailbox *)(shared + l.boxes) + s.warp * p.slots;
  s.next = (const persist_entry *)(shared + l.entries);
  s.end = s.next + p.n_entries;
  if (s.lane == 0) {
    for (uint32_t i = 0; i < p.slots; i++) port_mailbox_init(&s.box[i]);
    port_mailbox_publish();
  }
  pstream_open(s);
  s.freed = p.slots;
  return s;
}

/* ---- using it: run by run, a run being the warp's tiles of one matrix of a strip ---- */

/* The slot is used up; stream_rest asks for its place. */
DF_DEV void pstream_free(persist_stream &s) {
  s.held = s.used = 0;
  s.freed++;
  if (++s.slot == s.slots) {
    s.slot = 0;
    s.parity ^= 1;
  }
}

/* acc += the next n tiles of the run, a chain; b: this lane's operands of the first of them, `step` bytes apart. */
template <bool F16, int NT>
DF_DEV void pstream_chain(persist_stream &s, uint32_t n, const uint8_t *b, uint32_t step, const bool on[NT],
                          float acc[NT * 4]) {
  while (n > 0) {
    if (s.held == 0) {
      s.held = math_min(s.left, s.take);
      s.left -= s.held;
      port_mailbox_wait_own(&s.box[s.slot], s.parity);
    }
    const uint32_t now = math_min(n, s.held - s.used);
    const uint8_t *p = s.ring + (s.slot * s.slot_tiles + s.used) * DF_FRAG_BYTES + 16 * s.lane;
#pragma unroll 4
    for (uint32_t i = 0; i < now; i++, b += step)
      mma_tile<F16, NT>(acc, *(const uint4 *)(p + i * DF_FRAG_BYTES), b, on);
    n -= now;
    s.used += now;
    if (s.used < s.held) continue;
    pstream_free(s);
    stream_rest(s);
  }
}

/* Four chains at once over a whole run of up to PERSIST_SHORT tiles; chain i has tiles [at[i], at[i + 1]) of it. */
template <bool F16>
DF_DEV void pstream_chains(persist_stream &s, const uint32_t at[5], const uint8_t *b, uint32_t step, bool on,
                           float acc[4][4]) {
  static_assert(PERSIST_SHORT == 2 * PERSIST_SLOT_TILES, "a run lies in one slot or in two");
  const uint32_t n = at[4], bytes = s.slot_tiles * DF_FRAG_BYTES;
  const uint8_t *const first = s.ring + s.slot * bytes + 16 * s.lane, *second = first;
  if (n == 0) return;
  port_mailbox_wait_own(&s.box[s.slot], s.parity);
  s.slot = s.slot + 1 == s.slots ? 0 : s.slot + 1;
  s.parity ^= s.slot == 0;
  s.freed++;
  if (n > PERSIST_SLOT_TILES) {
    second = s.ring + s.slot * bytes + 16 * s.lane - PERSIST_SLOT_TILES * DF_FRAG_BYTES;
    port_mailbox_wait_own(&s.box[s.slot], s.parity);
    s.slot = s.slot + 1 == s.slots ? 0 : s.slot + 1;
    s.parity ^= s.slot == 0;
    s.freed++;
  }
  const uint32_t most = math_max(at[1], n - at[3]); /* parts differ by one tile at most */
#pragma unroll 1
  for (uint32_t j = 0; j <= most; j++) {
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
      const uint32_t t = at[i] + j;
      if (t >= at[i + 1]) continue;
      const uint8_t *const p = (t < PERSIST_SLOT_TILES ? first : second) + t * DF_FRAG_BYTES;
      mma_tile<F16, 1>(acc[i], *(const uint4 *)p, b + t * step, &on);
    }
  }
}

#endif
