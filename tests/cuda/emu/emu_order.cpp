/* emu_order.cpp - vector clocks. See emu_order.h. */
#include "emu_order.h"

namespace {

void join(emu_clock *a, const emu_clock &b) {
  if (a->size() < b.size()) a->resize(b.size(), 0);
  for (size_t i = 0; i < b.size(); i++)
    if ((*a)[i] < b[i]) (*a)[i] = b[i];
}

}  // namespace

emu_order::emu_order(uint32_t threads) : clock(threads, emu_clock(threads, 0)) {
  for (uint32_t t = 0; t < threads; t++) clock[t][t] = 1;
}

void emu_order::give(uint32_t t, emu_clock *gathered) {
  join(gathered, clock[t]);
  clock[t][t]++;
}

void emu_order::take(uint32_t t, const emu_clock &gathered) { join(&clock[t], gathered); }

bool emu_order::read(uint32_t t, uintptr_t at) {
  word &w = words[at];
  w.reads.push_back({t, clock[t][t]});
  return w.written <= clock[t][w.writer];
}

bool emu_order::write(uint32_t t, uintptr_t at) {
  word &w = words[at];
  bool ordered = w.written <= clock[t][w.writer];
  for (const auto &r : w.reads) ordered &= r.second <= clock[t][r.first];
  w = {t, clock[t][t], {}};
  return ordered;
}
