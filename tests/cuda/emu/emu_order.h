/*
 * tests/cuda/emu/emu_order.h - is every access to a word of shared memory ordered behind the others by barriers?
 *
 * Every thread of a block has a vector clock. Arriving at a barrier gives what the thread has done so far; leaving it
 * takes what all who arrived have given. Two accesses to a word, at least one of them a write, of which neither is
 * behind the other, are a hazard: also when this run happened to do them in the right order. What a chain of barriers
 * orders counts as ordered, whoever waited in between.
 */
#ifndef DF_TESTS_EMU_ORDER_H
#define DF_TESTS_EMU_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include <unordered_map>
#include <utility>
#include <vector>

typedef std::vector<uint32_t> emu_clock; /* by thread */

struct emu_order {
  struct word {
    uint32_t writer = 0, written = 0; /* the last write: who, and when in that thread's clock; 0: none */
    std::vector<std::pair<uint32_t, uint32_t>> reads; /* since then: who, and when */
  };
  std::vector<emu_clock> clock; /* by thread */
  std::unordered_map<uintptr_t, word> words;

  explicit emu_order(uint32_t threads);
  /* What thread t has done joins what a barrier has gathered; t's later accesses are not part of it. */
  void give(uint32_t t, emu_clock *gathered);
  void take(uint32_t t, const emu_clock &gathered);
  /* false: a hazard */
  bool read(uint32_t t, uintptr_t at);
  bool write(uint32_t t, uintptr_t at);
};

#endif
