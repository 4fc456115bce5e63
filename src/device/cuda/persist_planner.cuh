/*
 * device/cuda/persist_planner.cuh - the plan of a whole program while it is made (cuda_persist_plan.cu) and where
 * things lie (cuda_persist_place.cu). Private to device/cuda.
 */
#ifndef DF_DEVICE_CUDA_PERSIST_PLANNER_CUH
#define DF_DEVICE_CUDA_PERSIST_PLANNER_CUH

#include "device/cuda/persist_plan.cuh"
#include "device/cuda/persist_quant.cuh"

enum { MOST_ROWS = 8, MOST_CLUSTER_ROWS = 16, RUNS = 8 };
enum { LEAST_CLUSTER_ROWS = 2, LEAST_SHORT_ROWS = 4 }; /* with more rows clusters are faster: long, short runs */
/* Of a warp's ring: slots, tiles of a slot, all tiles. */
enum {
  LEAST_SLOTS = 2,
  MOST_SLOT = 12,
  MOST_CLUSTER_SLOT = 16,
  LEAST_TILES = 24,
  LEAST_CLUSTER_TILES = 16,
  MOST_TILES = 64
};
enum { LEAST_QUANT_SLOTS = 3, MOST_QUANT_SLOTS = 8 };
enum { QUANT_SLOT = 20 << 10, QUANT_STEPS = 64 << 10, QUANT_TRIES = 3 /* each with half of both */, SUPER_BLOCKS = 8 };

enum { WORDS = 5, PARTS_MOST = 8 << 20 /* bytes of attention's parts as words */ };
static const uint32_t NO_STAGE = UINT32_MAX;

/* What the weights of all products are. */
typedef enum weights_form { FORM_ANY, FORM_BF16, FORM_F16, FORM_QUANT } weights_form;

/* What a stage leaves, when the next one may take it as words. */
typedef struct persist_maker {
  const float *y, *k, *v; /* y NULL: nothing; k NULL: one matrix, else y is q */
  size_t ld;
  persist_words *words; /* of the stage; only when stages are written */
} persist_maker;

/* The plan under way. With no room it only counts. */
struct planner {
  const df_cuda_env *env;
  const df_op *ops;
  uint32_t n;
  df_cuda_list out;
  persist_stage *stages; /* NULL: only counted */
  void *entries;
  const df_op_tap *tap; /* waits for its product */
  uint32_t shift;       /* block that the next product begins with */
  uint32_t in_front;
  weights_form form;
  uint32_t tries;      /* quantised: how often slots and steps have been halved */
  uint32_t slot_bytes; /* quantised: of the largest turn */
  uint64_t blocks;     /* quantised: 32-blocks of all strips */
  struct {
    const float *y;     /* the plain values */
    uint32_t at, stage; /* where; that wrote them last, NO_STAGE: not as words */
    uint32_t ld;
  } words[WORDS];
  uint32_t n_words;
  size_t words_bytes, words_at;
  persist_maker maker; /* of the stage in front */
  const df_actq *held; /* quantised rows that the next product makes, from: */
  const float *held_floats;
  uint32_t cluster;    /* blocks: 1, or those that share the k of a strip */
  const float *packed; /* what the last stage also left as operands, packed_k values a row; NULL: nothing */
  uint32_t packed_k;
  size_t packed_bytes; /* most of that */
  uint32_t queries;    /* of a block of attention */
  struct {
    uint32_t tiles; /* of a warp's run */
    double weight;  /* bytes of all weights with such runs */
  } run[RUNS];
  uint32_t n_runs;
  uint32_t slot_tiles;   /* of a ring; only when stages are written */
  size_t work, attn;     /* most of products and the like; of attention, kept parts included */
  size_t attn_front;     /* of that: may be overwritten by products */
  const attn_args *last; /* of the attention stage before; only when stages are written */
};

/* Blocks or clusters that take strips; blocks of the kernel. */
static inline uint32_t places_of(const planner *p) {
  return p->cluster > 1 ? p->env->card->clusters[p->cluster / 2] : p->env->card->n_sm;
}

static inline uint32_t blocks_of(const planner *p) { return places_of(p) * p->cluster; }

/* Whether a block keeps what it knows of the batch from one attention to the next: not when operands need the room. */
static inline bool keeps_attn(const planner *p) { return p->env->max_rows <= MOST_ROWS; }

static inline size_t stages_at(const df_cuda_list *l) {
  return (size_t)(1 + l->n_stages) * PERSIST_LINE * sizeof(uint32_t);
}
static inline size_t entries_at(const df_cuda_list *l) {
  return stages_at(l) + (size_t)l->n_stages * sizeof(persist_stage);
}
static inline size_t words_at(const df_cuda_list *l) {
  const size_t entry = l->quant_slot ? sizeof(pquant_entry) : sizeof(persist_entry);
  return (entries_at(l) + l->n_entries * entry + 127) & ~(size_t)127;
}

/* Fills *out but for the list's counts; false when a ring has no room for enough slots. */
bool df_cuda_persist_place(const planner *p, df_cuda_list *out);
/* Whether clusters of four are faster though blocks alone have the room. */
bool df_cuda_persist_clusters(const planner *p);

#endif
