// Threads as fibres, each with a stack of its own; they run one at a time, until they wait for each other or end.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <ctime>

#include "values.h"

struct Block;
struct Warp;

enum State : int32_t { READY, AT_BARRIER, AT_WARP, ENDED };

struct Thread {
  void* top;  // of its stack, while another runs
  Block* block;
  Warp* warp;
  uint32_t x, y, z, index, lane;
  State state;
  int32_t line;         // of the PTX: the last that touched memory or other threads
  uint32_t phase;       // barriers of the block that it has passed
  uint32_t warp_phase;  // those of its warp
  uint32_t jumps;       // backward, to look at the clock now and then
  char* local;
  uint32_t local_bytes;
};

static Thread* running;
static void* scheduler;
static char failure[1024];  // what went wrong first; empty while nothing has
static double deadline;

extern "C" __attribute__((visibility("hidden"))) void ptx_switch(void** save, void* to);
asm(R"(
.text
.globl ptx_switch
.hidden ptx_switch
.type ptx_switch, @function
ptx_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

INLINE double seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

static void wait(Thread& t, State state) {
  t.state = state;
  ptx_switch(&t.top, scheduler);
}

static void note_failure(const char* format, va_list args, const char* where) {
  if (failure[0]) return;
  const int n = std::vsnprintf(failure, sizeof failure, format, args);
  if (n >= 0 && n < int(sizeof failure)) std::snprintf(failure + n, sizeof failure - n, "%s", where);
}

__attribute__((noinline, cold)) static void fail(Thread& t, const char* format, ...);

__attribute__((noinline, cold)) static void fail_launch(const char* format, ...) {
  va_list args;
  va_start(args, format);
  note_failure(format, args, "");
  va_end(args);
}

__attribute__((noinline, cold, unused)) static void look_at_clock(Thread& t) {
  if (seconds() > deadline) fail(t, "still running at the time limit: an endless loop?");
}
// Before a jump backward.
#define JUMP_BACK(number) \
  do { if ((++t.jumps & 0xffff) == 0) { t.line = (number); look_at_clock(t); } } while (0)
