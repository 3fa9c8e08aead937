// Blocks and warps: barriers, votes and shuffles.
#pragma once

#include "threads.h"

enum WarpOp : int32_t { SYNC, SHFL_UP, SHFL_DOWN, SHFL_BFLY, SHFL_IDX, VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT };

struct Asked {  // by a lane of its warp
  WarpOp op;
  int32_t line;
  uint32_t mask, value, b, c;
};

struct Warp {
  uint32_t index, live, arrived, phase;
  Thread* threads[32];
  Asked asked[32];
  uint32_t answer[32];
  bool inside[32];  // of a shuffle: whether the lane that was named is one of the segment
};

struct Block {
  uint32_t x, y, z, id, size, arrived, phase;
  int32_t barrier_line;
  char* shared;
  struct Shadow* shadow;  // of shared memory
  Thread* threads;
};

static void phase_ended(const Block& block);

__attribute__((noinline, cold)) static void fail(Thread& t, const char* format, ...) {
  char where[160];
  std::snprintf(where, sizeof where, " (block %u,%u,%u, thread %u,%u,%u, PTX line %d)", t.block->x, t.block->y,
                t.block->z, t.x, t.y, t.z, t.line);
  va_list args;
  va_start(args, format);
  note_failure(format, args, where);
  va_end(args);
  wait(t, ENDED);
  __builtin_unreachable();
}

// Every thread of the block has to come, and to the same instruction. One that never comes is found as a deadlock.
__attribute__((noinline, unused)) static void block_barrier(Thread& t) {
  Block& block = *t.block;
  if (block.arrived && block.barrier_line != t.line)
    fail(t, "barrier divergence: other threads of the block wait at PTX line %d", block.barrier_line);
  block.barrier_line = t.line;
  if (++block.arrived < block.size) return wait(t, AT_BARRIER);
  phase_ended(block);
  block.arrived = 0;
  block.phase++;
  for (uint32_t i = 0; i < block.size; i++) {
    Thread& other = block.threads[i];
    other.phase = block.phase;
    if (other.state == AT_BARRIER) other.state = READY;
  }
}

INLINE void shuffle(Warp& w, int lane, uint32_t among, Thread& t) {
  const Asked& a = w.asked[lane];
  const int by = a.b & 31, segment = (a.c >> 8) & 31, clamp = (lane & segment) | (a.c & 31 & ~segment);
  const int from = a.op == SHFL_UP     ? lane - by
                   : a.op == SHFL_DOWN ? lane + by
                   : a.op == SHFL_BFLY ? lane ^ by
                                       : ((lane & segment) | (by & ~segment));
  w.inside[lane] = a.op == SHFL_UP ? from >= clamp : from <= clamp;
  const int source = w.inside[lane] ? from : lane;
  if (!(among >> source & 1)) fail(t, "shuffle: lane %d reads lane %d, which does not take part", lane, source);
  w.answer[lane] = w.asked[source].value;
}

// All lanes of `among` have come, `first` is one of them; `t` is the thread that runs.
static void warp_answers(Warp& w, uint32_t among, uint32_t first, Thread& t) {
  const Asked mine = w.asked[first];
  uint32_t yes = 0;
  for (int lane = 0; lane < 32; lane++) {
    if (!(among >> lane & 1)) continue;
    if (w.asked[lane].op != mine.op || w.asked[lane].mask != mine.mask)
      fail(t, "warp divergence: lane %d of the warp waits for another operation, at PTX line %d", lane, w.asked[lane].line);
    yes |= uint32_t(w.asked[lane].value != 0) << lane;
  }
  if (mine.op == SYNC) w.phase++;
  for (int lane = 0; lane < 32; lane++) {
    if (!(among >> lane & 1)) continue;
    switch (mine.op) {
      case SYNC: w.threads[lane]->warp_phase = w.phase; break;
      case VOTE_ALL: w.answer[lane] = yes == among; break;
      case VOTE_ANY: w.answer[lane] = yes != 0; break;
      case VOTE_UNI: w.answer[lane] = yes == among || yes == 0; break;
      case VOTE_BALLOT: w.answer[lane] = yes; break;
      default: shuffle(w, lane, among, t);
    }
  }
  w.arrived &= ~among;
  for (int lane = 0; lane < 32; lane++)
    if (among >> lane & 1) w.threads[lane]->state = READY;
}

// An operation of the lanes in `mask`.
__attribute__((noinline, unused)) static uint32_t warp_op(Thread& t, WarpOp op, uint32_t mask, uint32_t value = 0,
                                                          uint32_t b = 0, uint32_t c = 0, bool* inside = nullptr) {
  Warp& w = *t.warp;
  if (!(mask >> t.lane & 1)) fail(t, "warp operation: lane %u is not in its own mask %08x", t.lane, mask);
  w.asked[t.lane] = {op, t.line, mask, value, b, c};
  w.arrived |= 1u << t.lane;
  const uint32_t among = mask & w.live;
  if ((w.arrived & among) == among)
    warp_answers(w, among, t.lane, t);
  else
    wait(t, AT_WARP);
  if (inside) *inside = w.inside[t.lane];
  return w.answer[t.lane];
}

// Lanes that have ended are not waited for: the last that others waited for may be this one.
static void leave_warp(Thread& t) {
  Warp& w = *t.warp;
  w.live &= ~(1u << t.lane);
  for (uint32_t lane = 0; lane < 32; lane++) {
    const uint32_t among = w.asked[lane].mask & w.live;
    if ((w.arrived >> lane & 1) && (w.arrived & among) == among) warp_answers(w, among, lane, t);
  }
}
