/* cuda_emu.cpp - fibers, warps, barriers. See cuda_emu.h. */
#include "cuda_emu.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <memory>
#include <string>
#include <vector>

#include "emu_order.h"

namespace {

enum { STACK_BYTES = 96 << 10, WARP = 32, SLOT_BYTES = 64 };

struct copy_op {
  void *to;
  const void *from;
  size_t bytes;
};

struct warp_state {
  const char *what = nullptr;
  uint32_t arrived = 0, live = 0;
  uint64_t epoch = 0;
  uint8_t slot[2][WARP * SLOT_BYTES];
};

struct barrier {
  uint32_t arrived = 0;
  uint64_t epoch = 0;
  emu_clock gathered, done; /* of the phase that fills, and of the last that is complete */
};

struct block_state {
  std::vector<uint8_t> shared;
  uint8_t *base = nullptr;
  std::vector<warp_state> warps;
  barrier all, named[16];
  uint32_t live = 0;
  std::unique_ptr<emu_order> order; /* from the first watched access on: nothing before it has to be ordered */
};

struct fiber {
  emu_here here;
  jmp_buf regs;
  ucontext_t start;
  std::vector<uint8_t> stack;
  bool started = false, done = false;
  block_state *block = nullptr;
  std::vector<copy_op> open;
  std::vector<std::vector<copy_op>> groups;
  uint64_t cluster_epoch = 0;
  uint32_t cluster0 = 0, cluster = 1; /* first block of its cluster, blocks of it */
};

std::vector<fiber *> pool; /* reused from launch to launch: stacks are expensive */
std::vector<fiber *> live;
std::vector<block_state *> blocks;
std::vector<barrier> cluster_barriers; /* one for each cluster of the blocks that run */
fiber *now;
jmp_buf scheduler;
const std::function<void()> *body;
uint64_t order = 88172645463325252u;

void die(const char *text) {
  fprintf(stderr, "cuda emulation: %s (block %u, thread %u)\n", text, now ? now->here.block.x : 0,
          now ? now->here.thread.x : 0);
  abort();
}

void entry() {
  (*body)();
  now->done = true;
  _longjmp(scheduler, 1);
}

void give_turn() {
  if (!_setjmp(now->regs)) _longjmp(scheduler, 1);
}

/* Waits until cond holds; others run meanwhile. */
template <typename F>
void until(F cond) {
  while (!cond()) give_turn();
}

void resume(fiber *f) {
  now = f;
  emu_cur = &f->here;
  if (_setjmp(scheduler)) return;
  if (f->started) _longjmp(f->regs, 1);
  f->started = true;
  setcontext(&f->start);
}

fiber *make_fiber(size_t i) {
  if (i == pool.size()) {
    pool.push_back(new fiber);
    pool.back()->stack.resize(STACK_BYTES);
  }
  fiber *f = pool[i];
  f->started = f->done = false;
  f->open.clear();
  f->groups.clear();
  f->cluster_epoch = 0;
  getcontext(&f->start);
  f->start.uc_stack.ss_sp = f->stack.data();
  f->start.uc_stack.ss_size = f->stack.size();
  f->start.uc_link = nullptr;
  makecontext(&f->start, entry, 0);
  return f;
}

/* All live fibers in turn, starting anywhere, until none is left. A full round in which none moved on is a deadlock;
 * since a waiting fiber cannot be told from a running one here, rounds are simply bounded. */
void run_all() {
  uint64_t rounds = 0;
  while (!live.empty()) {
    order ^= order << 13, order ^= order >> 7, order ^= order << 17;
    const size_t n = live.size(), first = order % n;
    const bool back = order >> 40 & 1;
    for (size_t i = 0; i < n; i++) resume(live[back ? (first + n - i) % n : (first + i) % n]);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
      if (!live[i]->done) {
        live[kept++] = live[i];
        continue;
      }
      block_state *b = live[i]->block;
      b->live--;
      b->warps[live[i]->here.thread.x / WARP].live--;
    }
    live.resize(kept);
    if (++rounds > 50u * 1000 * 1000) die("threads wait for each other without end");
  }
}

void run_blocks(dim3 grid, uint32_t threads, size_t shared_bytes, uint32_t together, uint32_t cluster, dim3 first) {
  cluster_barriers.assign(together / cluster, barrier());
  size_t id = 0;
  for (uint32_t r = 0; r < together; r++) {
    block_state *b = new block_state;
    b->shared.resize(shared_bytes + 4096, 0xA5);
    b->base = (uint8_t *)(((uintptr_t)b->shared.data() + 127) & ~(uintptr_t)127);
    memset(b->shared.data(), 0xA5, b->shared.size());
    b->warps.resize((threads + WARP - 1) / WARP);
    b->live = threads;
    blocks.push_back(b);
    for (uint32_t t = 0; t < threads; t++) {
      fiber *f = make_fiber(id++);
      f->block = b;
      f->here.thread = dim3(t, 0, 0);
      f->here.block = dim3(first.x + r, first.y, first.z);
      f->here.block_dim = dim3(threads);
      f->here.grid_dim = grid;
      f->here.rank = r % cluster;
      f->cluster0 = r - r % cluster;
      f->cluster = cluster;
      f->here.shared = b->base;
      b->warps[t / WARP].live++;
      live.push_back(f);
    }
  }
  run_all();
  for (block_state *b : blocks) {
    const uint8_t *end = b->base + shared_bytes;
    for (size_t i = 0; i < 256; i++)
      if (end[i] != 0xA5) die("write behind the end of shared memory");
    delete b;
  }
  blocks.clear();
}

void arrive(barrier *b, uint32_t n) {
  if (++b->arrived < n) return;
  b->arrived = 0;
  b->epoch++;
  b->done.swap(b->gathered);
  b->gathered.clear();
}

/* A barrier of the block, with what it orders. */
void pass(barrier *b, uint32_t n, bool wait) {
  block_state *block = now->block;
  const uint32_t t = now->here.thread.x;
  const uint64_t epoch = b->epoch;
  if (block->order) block->order->give(t, &b->gathered);
  arrive(b, n);
  if (!wait) return;
  until([=] { return b->epoch != epoch; });
  if (block->order) block->order->take(t, b->done); /* which may have been made meanwhile */
}

emu_order *order_of(block_state *b) {
  if (!b->order) b->order.reset(new emu_order((uint32_t)b->warps.size() * WARP));
  return b->order.get();
}

void watched(bool ordered, const char *what) {
  if (ordered) return;
  emu_hazards++;
  if (!emu_hazards_allowed) die((std::string("unordered ") + what + " in shared memory").c_str());
}

float dot_value(uint32_t word, uint32_t i, float (*value)(uint16_t)) { return value((uint16_t)(word >> 16 * i)); }

}  // namespace

emu_here *emu_cur;
uint64_t emu_hazards;
bool emu_hazards_allowed;

float emu_watched_get(const float *p) {
  watched(order_of(now->block)->read(now->here.thread.x, (uintptr_t)p), "read");
  return *p;
}

void emu_watched_put(float *p, float v) {
  watched(order_of(now->block)->write(now->here.thread.x, (uintptr_t)p), "write");
  *p = v;
}

void emu_run(dim3 grid, uint32_t threads, size_t shared_bytes, uint32_t together, uint32_t cluster,
             const std::function<void()> &f) {
  body = &f;
  if (grid.x % together || together % cluster) die("grid is no multiple of the cluster");
  for (uint32_t z = 0; z < grid.z; z++)
    for (uint32_t y = 0; y < grid.y; y++)
      for (uint32_t x = 0; x < grid.x; x += together)
        run_blocks(grid, threads, shared_bytes, together, cluster, dim3(x, y, z));
}

const void *emu_warp(const char *what, const void *mine, size_t bytes) {
  const uint32_t t = now->here.thread.x;
  warp_state *w = &now->block->warps[t / WARP];
  if (bytes > SLOT_BYTES) die("too much for a warp exchange");
  if (w->arrived == 0) w->what = what;
  if (strcmp(w->what, what) != 0) die((std::string("lanes of a warp are at ") + w->what + " and " + what).c_str());
  const uint64_t epoch = w->epoch;
  uint8_t *slots = w->slot[epoch & 1];
  memcpy(slots + t % WARP * bytes, mine, bytes);
  if (++w->arrived == w->live) {
    w->arrived = 0;
    w->epoch++;
  } else {
    until([=] { return w->epoch != epoch; });
  }
  return slots; /* overwritten two exchanges later, when every lane has read it */
}

void emu_give_turn(void) { give_turn(); }
void emu_die(const char *text) { die(text); }

void emu_block_sync(void) { pass(&now->block->all, now->block->live, true); }

void emu_named(uint32_t id, uint32_t n, bool wait) {
  if (id == 0 || id > 15 || n % WARP) die("bad named barrier");
  pass(&now->block->named[id], n, wait);
}

void emu_cluster_arrive(void) {
  barrier *const b = &cluster_barriers[now->cluster0 / now->cluster];
  now->cluster_epoch = b->epoch;
  uint32_t n = 0;
  for (uint32_t i = 0; i < now->cluster; i++) n += blocks[now->cluster0 + i]->live;
  arrive(b, n);
}

void emu_cluster_wait(void) {
  const uint64_t epoch = now->cluster_epoch;
  barrier *const b = &cluster_barriers[now->cluster0 / now->cluster];
  until([=] { return b->epoch != epoch; });
}

void emu_copy(void *shared, const void *global, size_t bytes) {
  if (((uintptr_t)shared | (uintptr_t)global) % bytes) die("copy of unaligned memory");
  now->open.push_back({shared, global, bytes});
}

void emu_copy_commit(void) {
  now->groups.push_back(now->open);
  now->open.clear();
}

void emu_copy_wait(uint32_t newest) {
  while (now->groups.size() > newest) {
    for (const copy_op &c : now->groups.front()) memcpy(c.to, c.from, c.bytes);
    now->groups.erase(now->groups.begin());
  }
}

uint8_t *emu_shared_of(uint32_t rank) {
  if (now->cluster0 + rank >= blocks.size()) die("no such block in the cluster");
  return blocks[now->cluster0 + rank]->base;
}

/* Every lane gives its a (4 words) and b (2 words) and computes its four elements. */
void emu_mma(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1, float (*value)(uint16_t)) {
  uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1}, all[WARP][6];
  memcpy(all, emu_warp("mma", mine, sizeof mine), sizeof all);
  const uint32_t lane = now->here.thread.x % WARP, g = lane / 4, j = lane % 4;
  for (uint32_t e = 0; e < 4; e++) {
    const uint32_t high = e >> 1, col = 2 * j + (e & 1);
    double sum = c[e];
    for (uint32_t k = 0; k < 16; k++) {
      const uint32_t from = k / 2 % 4, pair = k / 8;
      sum += (double)dot_value(all[4 * g + from][high + 2 * pair], k & 1, value) *
             dot_value(all[4 * col + from][4 + pair], k & 1, value);
    }
    c[e] = (float)sum;
  }
}

void emu_mma_u8s8(int32_t c[4], const uint32_t *a, uint32_t n_a, uint32_t b0, uint32_t b1) {
  uint32_t mine[6] = {a[0], a[1], n_a == 4 ? a[2] : 0, n_a == 4 ? a[3] : 0, b0, b1}, all[WARP][6];
  memcpy(all, emu_warp("integer mma", mine, sizeof mine), sizeof all);
  const uint32_t lane = now->here.thread.x % WARP, g = lane / 4, j = lane % 4;
  for (uint32_t e = 0; e < 4; e++) {
    const uint32_t high = e >> 1, col = 2 * j + (e & 1);
    for (uint32_t k = 0; k < 8 * n_a; k++) {
      const uint32_t from = k / 4 % 4, pair = k / 16, shift = 8 * (k % 4);
      c[e] += (int32_t)(uint8_t)(all[4 * g + from][high + 2 * pair] >> shift) *
              (int32_t)(int8_t)(all[4 * col + from][4 + pair] >> shift);
    }
  }
}
