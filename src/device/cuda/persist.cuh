/*
 * device/cuda/persist.cuh - a whole program as one kernel: what its list in device memory holds. Private to
 * device/cuda.
 *
 * One block on every multiprocessor lives as long as the pass. A stage is a step that all of the grid must have done
 * before the next one reads what it wrote; a block does its share of the stages in order, and waits only where it has
 * work, for those blocks that had work in the stage in front. Weights do not wait for anything: each warp's stream
 * (persist_stream.cuh) runs through all products of the pass as far ahead as its shared memory holds.
 *
 * Why no buffer is overwritten too early: a block that has work in stage s has seen the end of all work in s - 1, whose
 * blocks had seen the end of s - 2, and so on. So when stage s writes, all reads of stages before s - 1 are over, and
 * those of s - 1 as well. Taps are read by the blocks of the product that follows them, as part of that stage.
 *
 * With few rows even that takes too long, where blocks work alone. There a value goes with a stamp beside it, the
 * number of its pass and stage, as one word of 8 bytes, and readers look at the words themselves until all are there.
 * Such a stage is not counted. Since a product reads whole rows, who sees one of its outputs knows that its block has
 * read all there was before, as with counts. Plain values are written too, for whoever reads them behind the next
 * count.
 */
#ifndef DF_DEVICE_CUDA_PERSIST_CUH
#define DF_DEVICE_CUDA_PERSIST_CUH

#include "device/cuda/attn_tile.cuh"
#include "device/cuda/mma_block.cuh"

enum { PERSIST_SLOT_TILES = 8, PERSIST_LINE = 32 /* words */, PERSIST_FEW = 8 /* queries of a block of attention */ };

typedef enum persist_kind {
  PERSIST_EMBED,
  PERSIST_PRODUCT, /* with the norm and the tap in front of it */
  PERSIST_ATTN,    /* with the rotation; leaves parts for the MERGE behind it */
  PERSIST_MERGE,
  PERSIST_ARGMAX
} persist_kind;

typedef struct persist_embed {
  df_weights table;
  df_op_embed op;
} persist_embed;

/* What comes or goes as words, bytes from `state` on; 0: nothing. */
typedef struct persist_words {
  uint32_t in, to;         /* what the stage reads, what it leaves */
  uint32_t old, old_stage; /* products: what outputs are added to, and the stage that wrote it */
} persist_words;

/* Of a product of quantised weights, beside its mma_args. */
typedef struct persist_quant {
  df_actq *out;                  /* the rows quantised; the first block writes them */
  uint32_t turn, buffers;        /* 32-blocks of a turn; sets of steps, in turns */
  bool two, twice;               /* a turn has two strips; some chain adds two products of a block */
  uint8_t pack[DF_LINEAR_PARTS]; /* of each part */
} persist_quant;

typedef struct alignas(16) persist_stage {
  uint32_t kind;
  uint32_t units; /* pieces of work; blocks take them in turn, block `shift` the first */
  uint32_t shift;
  uint32_t in_front; /* blocks that have work in the stage in front; 0: there is none */
  uint32_t has_tap;
  uint32_t again; /* attention: what the batch decides is as in the attention stage before */
  uint32_t packs; /* PERSIST_PACKS_IN, _OUT */
  uint32_t piece; /* products: as that of their entries */
  df_op_tap tap;
  persist_words words;
  persist_quant quant;
  union {
    mma_args product;
    attn_args attn;
    persist_embed embed;
    df_op_argmax argmax;
  };
} persist_stage;

/* One matrix, or gate and up, in the order in which they are read. */
typedef struct alignas(16) persist_entry {
  const uint8_t *w, *u;    /* u NULL: w alone */
  uint32_t strip0, strip1; /* among those of its product */
  uint16_t tiles, piece;   /* of a strip; that a slot takes of a warp's run of them */
  uint32_t shift;          /* as that of the stage; PERSIST_SAME: one more part of the same product */
} persist_entry;

enum { PERSIST_SAME = UINT32_MAX };

/* A quantised matrix: a strip's 32-blocks of `codes` bytes each, then `rest` more bytes for each. */
typedef struct pquant_matrix {
  const uint8_t *w;
  uint32_t strip_bytes;
  uint16_t codes, rest;
} pquant_matrix;

/* One quantised matrix, or gate and up (u), in the order in which they are read: turn by turn. */
typedef struct pquant_entry {
  pquant_matrix w, u;
  uint32_t strip0, strip1; /* among those of its product */
  uint16_t shift;          /* as that of the stage; PQUANT_SAME: one more part of the same product */
  uint16_t nkb, turn;      /* 32-blocks of a strip, of a turn */
  bool pair, two;          /* gate and up; a turn has two strips */
} pquant_entry;

static const uint32_t PQUANT_SAME = UINT16_MAX;
/* Clusters only: a product's input comes as operands ([tile][row][32 bytes], as many rows as products are made for)
 * from where the stage in front left it. */
enum { PERSIST_PACKS_IN = 1, PERSIST_PACKS_OUT = 2 };

/* state: [0] passes so far, [1] blocks that are through, then from PERSIST_LINE on a line for each stage, the first
 * word of which counts the blocks that are through with it, over all passes. */
typedef struct persist_args {
  uint32_t *state;
  const persist_stage *stages;
  const void *entries;                 /* persist_entry, or pquant_entry */
  uint32_t n_stages, n_entries, slots; /* slots of a warp's ring */
  uint32_t quant_slot;                 /* bytes of a slot, quantised weights; then the ring is the block's */
  uint8_t *packed;                     /* see PERSIST_PACKS_IN */
  uint32_t slot_tiles;                 /* of a slot */
  uint32_t cluster, cap;               /* blocks that share a strip's k; rows that products are made for */
  uint32_t attn_at, kept_at; /* in the work memory: attention's, which ends behind all products', and what is kept */
} persist_args;

/* Shared memory, byte offsets: rings, their mailboxes and those of the cluster, what blocks of a cluster send each
 * other of their sums, the list of what rings read, three stages (this one, the next one, one on its way), the work of
 * a stage. */
typedef struct persist_layout {
  uint32_t boxes, sums, entries, stages, work;
} persist_layout;

/* What of an attention stage stays as it is until the next one, behind the work of all stages: the block's part in
 * attention and in the joining of parts, and whether they are its only ones. */
typedef struct persist_kept {
  attn_block attn, merge;
  uint32_t live, only;
  attn_view view; /* of the chunk that the block had last */
} persist_kept;

enum { PERSIST_STAGE_BYTES = (sizeof(persist_stage) + 127) & ~127u, PERSIST_STAGES = 3 };
static_assert(sizeof(persist_stage) % 16 == 0 && sizeof(pquant_entry) % 16 == 0, "copied 16 bytes at a time");

/* Mailboxes of a cluster's block: two for sums, one for operands that other blocks send, then one for those that each
 * pair of parts fetches. */
enum { PERSIST_BOX_SUMS, PERSIST_BOX_SENT = 2, PERSIST_BOX_FETCHED, PERSIST_BOXES = PERSIST_BOX_FETCHED + 4 };

/* Floats of the sums that one turn brings to a block of a cluster: two strips, or gate and up, of 16 outputs. */
DF_FRAG_FN uint32_t persist_sums(uint32_t cap, uint32_t cluster) {
  return 2 * MMA_PAIRS * 32 * (cap > 8 ? 8 : 4) / cluster;
}

DF_FRAG_FN persist_layout persist_place(uint32_t slots, uint32_t slot_tiles, uint32_t n_entries, uint32_t cluster,
                                        uint32_t cap) {
  persist_layout l;
  l.boxes = MMA_WARPS * slots * slot_tiles * DF_FRAG_BYTES;
  l.sums = (l.boxes + (MMA_WARPS * slots + PERSIST_BOXES) * (uint32_t)sizeof(port_mailbox) + 127) & ~127u;
  l.entries = l.sums + (cluster > 1 ? 2 * persist_sums(cap, cluster) * 4 : 0);
  l.stages = (l.entries + n_entries * (uint32_t)sizeof(persist_entry) + 127) & ~127u;
  l.work = l.stages + PERSIST_STAGES * PERSIST_STAGE_BYTES;
  return l;
}

DF_FRAG_FN persist_layout persist_place_quant(uint32_t slots, uint32_t slot_bytes, uint32_t n_entries) {
  persist_layout l;
  l.boxes = slots * slot_bytes;
  l.entries = (l.boxes + slots * (uint32_t)sizeof(port_mailbox) + 127) & ~127u;
  l.stages = (l.entries + n_entries * (uint32_t)sizeof(pquant_entry) + 127) & ~127u;
  l.work = l.stages + PERSIST_STAGES * PERSIST_STAGE_BYTES;
  return l;
}

#endif
