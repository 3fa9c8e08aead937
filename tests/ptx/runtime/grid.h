// A launch: the blocks of a grid, one after another, and the threads of each in the order that was asked for.
#pragma once

#include <sys/mman.h>

#include <numeric>

#include "counts.h"

struct Launch {  // the same order as in launch.py
  uint32_t grid[3], block[3];
  const char* params;
  uint32_t dynamic_shared_bytes;
  int32_t order;  // 0 forward, 1 backward, 2 at random
  uint64_t seed;
  double seconds;
  uint64_t regions;
  const uint64_t* bounds;  // of the regions: begin, end, begin, end, ...
  char* message;
  uint64_t message_bytes;
  Counts* counts;
};

static const Launch* launched;
static void (*kernel)(Thread&, const char*);

static void fibre() {
  Thread& t = *running;
  kernel(t, launched->params);
  leave_warp(t);
  wait(t, ENDED);
}

constexpr uint64_t STACK_BYTES = 512 * 1024;  // that no kernel's frame is larger is checked when it is compiled

struct Random {
  uint64_t state;
  uint64_t operator()() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
  }
};

template <class T> static void shuffle_all(std::vector<T>& items, Random& random) {
  for (size_t i = items.size(); i > 1; i--) std::swap(items[i - 1], items[random() % i]);
}

static void run_threads(std::vector<Thread>& threads, Random& random) {
  std::vector<uint32_t> order(threads.size());
  std::iota(order.begin(), order.end(), 0u);
  if (launched->order == 1) std::reverse(order.begin(), order.end());
  for (;;) {
    if (launched->order == 2) shuffle_all(order, random);
    bool ran = false;
    for (const uint32_t i : order) {
      if (threads[i].state != READY) continue;
      ran = true;
      running = &threads[i];
      ptx_switch(&scheduler, running->top);
      if (failure[0]) return;
    }
    if (seconds() > deadline) return fail_launch("still running at the time limit: an endless loop?");
    if (!ran) break;
  }
  uint32_t at_barrier = 0, at_warp = 0, ended = 0;
  const Thread* waiting = nullptr;
  for (const Thread& t : threads) {
    at_barrier += t.state == AT_BARRIER, at_warp += t.state == AT_WARP, ended += t.state == ENDED;
    if (t.state != ENDED) waiting = &t;
  }
  if (waiting)
    fail_launch("deadlock: %u threads wait at a barrier, %u for their warp, %u have ended (block %u, a thread at PTX line %d)",
                at_barrier, at_warp, ended, waiting->block->id, waiting->line);
}

static void run_block(uint32_t id, char* stacks, char* memory, Random& random) {
  const uint32_t* size = launched->block;
  const uint32_t* grid = launched->grid;
  const uint32_t threads_there = size[0] * size[1] * size[2];
  std::vector<Thread> threads(threads_there);
  std::vector<Warp> warps((threads_there + 31) / 32);
  Shadow shadow(RACES ? shared_bytes : 0);
  Block block = {id % grid[0], id / grid[0] % grid[1], id / grid[0] / grid[1], id, threads_there, 0, 0, 0, memory,
                 &shadow, threads.data()};
  std::memset(memory, 0xfb, shared_bytes);  // what was never written is not 0
  for (uint32_t i = 0; i < threads_there; i++) {
    Thread& t = threads[i];
    t.block = &block, t.warp = &warps[i / 32], t.index = i, t.lane = i % 32;
    t.x = i % size[0], t.y = i / size[0] % size[1], t.z = i / size[0] / size[1];
    t.warp->index = i / 32, t.warp->live |= 1u << t.lane, t.warp->threads[t.lane] = &t;
    void** top = reinterpret_cast<void**>(stacks + (i + 1) * STACK_BYTES - 64);
    *--top = nullptr;  // so that the stack is aligned as after a call
    *--top = reinterpret_cast<void*>(fibre);
    t.top = top - 6;  // the registers that ptx_switch takes off
  }
  run_threads(threads, random);
  count_phase(block);
}

// 0, or 1 with a message.
static int32_t run(void (*function)(Thread&, const char*), uint32_t static_shared_bytes, const Launch& launch) {
  launched = &launch, kernel = function, failure[0] = 0, last_region = 0, counts = {};
  deadline = seconds() + launch.seconds;
  shared_bytes = static_shared_bytes + launch.dynamic_shared_bytes;
  for (uint64_t i = 0; i < launch.regions; i++) {
    const uint64_t begin = launch.bounds[2 * i], end = launch.bounds[2 * i + 1];
    regions.push_back({begin, end, RACES ? new Shadow(end - begin) : nullptr});
  }
  const uint64_t threads = uint64_t(launch.block[0]) * launch.block[1] * launch.block[2];
#if COUNTING
  runs.assign(threads * BASIC_BLOCKS, 0), touched.clear();
#endif
  void* stacks = mmap(nullptr, threads * STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) fail_launch("no memory for the stacks of %llu threads", (unsigned long long)threads);
  char* memory = static_cast<char*>(std::aligned_alloc(256, (shared_bytes + 256) / 256 * 256));
  Random random = {88172645463325252ull ^ (launch.seed * 0x9e3779b97f4a7c15ull)};
  std::vector<uint32_t> blocks(launch.grid[0] * launch.grid[1] * launch.grid[2]);
  std::iota(blocks.begin(), blocks.end(), 0u);
  if (launch.order == 1) std::reverse(blocks.begin(), blocks.end());
  if (launch.order == 2) shuffle_all(blocks, random);
  for (const uint32_t id : blocks)
    if (!failure[0]) run_block(id, static_cast<char*>(stacks), memory, random);
  if (stacks != MAP_FAILED) munmap(stacks, threads * STACK_BYTES);
  std::free(memory);
  for (const Region& r : regions) delete r.shadow;
  regions.clear();
  *launch.counts = counts;
  std::snprintf(launch.message, launch.message_bytes, "%s", failure);
  return failure[0] != 0;
}
