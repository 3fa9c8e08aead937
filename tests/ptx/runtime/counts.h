// What a launch costs, as far as it does not depend on the machine.
#pragma once

#include <algorithm>
#include <tuple>

#include "memory.h"

struct Counts {  // the same order as in launch.py
  uint64_t barriers, warp_instructions, critical_instructions, lane_instructions, double_instructions;
  uint64_t global_requests, global_sectors, shared_requests, shared_passes;
};
static Counts counts;

#if COUNTING
static std::vector<uint32_t> runs;  // of each basic block by each thread, since the last barrier
#define COUNT(basic) (runs[size_t(t.index) * BASIC_BLOCKS + (basic)]++)

struct Touched {
  int32_t line;
  uint32_t thread, turn;  // how often the thread has been at this line
  bool shared;
  uint64_t address;
  uint32_t bytes;
};
static std::vector<Touched> touched;

static void note_access(const Thread& t, uint64_t address, uint32_t n, bool shared) {
  touched.push_back({t.line, t.index, 0, shared, address, n});
}

// A request is what the lanes of a warp ask for in the same turn of an instruction: sectors of 32 bytes in global
// memory; in shared memory passes, one for each distinct word in the fullest of the 32 banks.
static void count_requests() {
  const auto by_thread = [](const Touched& a) { return std::make_tuple(a.line, a.thread); };
  const auto by_warp = [](const Touched& a) { return std::make_tuple(a.line, a.thread / 32, a.turn); };
  std::stable_sort(touched.begin(), touched.end(), [&](auto& a, auto& b) { return by_thread(a) < by_thread(b); });
  for (size_t i = 1; i < touched.size(); i++)
    if (by_thread(touched[i]) == by_thread(touched[i - 1])) touched[i].turn = touched[i - 1].turn + 1;
  std::sort(touched.begin(), touched.end(), [&](auto& a, auto& b) { return by_warp(a) < by_warp(b); });
  for (size_t i = 0, end; i < touched.size(); i = end) {
    const bool shared = touched[i].shared;
    const uint64_t unit = shared ? 4 : 32;
    std::vector<uint64_t> units;
    for (end = i; end < touched.size() && by_warp(touched[end]) == by_warp(touched[i]); end++)
      for (uint64_t u = touched[end].address / unit; u <= (touched[end].address + touched[end].bytes - 1) / unit; u++)
        units.push_back(u);
    std::sort(units.begin(), units.end());
    units.erase(std::unique(units.begin(), units.end()), units.end());
    uint64_t banks[32] = {};
    for (const uint64_t u : units) banks[u % 32]++;
    (shared ? counts.shared_requests : counts.global_requests)++;
    (shared ? counts.shared_passes : counts.global_sectors) += shared ? *std::max_element(banks, banks + 32) : units.size();
  }
  touched.clear();
}

// A warp issues what its busiest lane runs; a block is through with a phase when its busiest warp is.
static void count_phase(const Block& block) {
  uint64_t critical = 0;
  for (uint32_t first = 0; first < block.size; first += 32) {
    uint64_t issued = 0;
    for (uint32_t basic = 0; basic < BASIC_BLOCKS; basic++) {
      uint32_t most = 0;
      for (uint32_t i = first; i < std::min(first + 32, block.size); i++) {
        const uint32_t n = runs[size_t(i) * BASIC_BLOCKS + basic];
        most = std::max(most, n);
        counts.lane_instructions += uint64_t(n) * basic_blocks[basic].size;
      }
      issued += uint64_t(most) * basic_blocks[basic].size;
      counts.double_instructions += uint64_t(most) * basic_blocks[basic].doubles;
    }
    counts.warp_instructions += issued;
    critical = std::max(critical, issued);
  }
  counts.critical_instructions += critical;
  std::fill(runs.begin(), runs.end(), 0u);
  count_requests();
}
#else
#define COUNT(basic) ((void)0)
static void note_access(const Thread&, uint64_t, uint32_t, bool) {}
static void count_phase(const Block&) {}
#endif

static void phase_ended(const Block& block) {
  counts.barriers++;
  count_phase(block);
}
