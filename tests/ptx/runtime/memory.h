// Memory: bounds, alignment and races.
#pragma once

#include <cstdlib>
#include <vector>

#include "blocks.h"

enum Access : int32_t { READ, WRITE, ATOMIC };

constexpr uint32_t SEVERAL = 0xffffffffu;

// Who has touched a place in one way, as far as it matters: those that no barrier divides from what comes next.
struct Seen {
  int32_t line;  // 0: nobody
  uint32_t block, warp, lane, phase, warp_phase;

  bool concurrent(const Thread& t) const {
    if (!line) return false;
    if (block != t.block->id) return true;
    if (phase != t.phase) return false;
    return warp != t.warp->index || (lane != t.lane && warp_phase == t.warp_phase);
  }
  void add(const Thread& t) {
    if (!line || (block == t.block->id && phase != t.phase)) {
      *this = {t.line, t.block->id, t.warp->index, t.lane, t.phase, t.warp_phase};
      return;
    }
    line = t.line;
    if (block != t.block->id) block = SEVERAL;
    if (warp != t.warp->index) warp = SEVERAL;
    if (warp_phase != t.warp_phase)
      warp_phase = t.warp_phase, lane = t.lane;
    else if (lane != t.lane)
      lane = SEVERAL;
  }
};

// Two accesses that no barrier divides are a race, unless both read or both are atomic.
struct Place {
  Seen by[3];

  void check(Thread& t, Access access, const char* space) const {
    static const char* const now[] = {"read", "write", "atomic operation"};
    static const char* const then[] = {"a read", "a write", "an atomic operation"};
    for (int before = READ; before <= ATOMIC; before++)
      if ((before != access || access == WRITE) && by[before].concurrent(t))
        fail(t, "race in %s memory: %s after %s at PTX line %d, with no barrier between", space, now[access],
             then[before], by[before].line);
  }
  void add(const Thread& t, Access access) {
    if (access == WRITE) by[WRITE] = {};  // what was written before, a barrier divides from this
    by[access].add(t);
  }
};

// The places of a piece of memory: words of 4 bytes and, once something smaller was touched, bytes.
struct Shadow {
  uint64_t size = 0;
  Place* words = nullptr;
  Place* bytes = nullptr;

  explicit Shadow(uint64_t size_) : size(size_) { words = make((size + 3) / 4); }
  ~Shadow() { std::free(words), std::free(bytes); }
  Shadow(const Shadow&) = delete;
  static Place* make(uint64_t n) { return static_cast<Place*>(std::calloc(n + 1, sizeof(Place))); }

  void touch(Thread& t, uint64_t offset, uint32_t n, Access access, const char* space) {
    if (n < 4 && !bytes) bytes = make(size + 4);
    for (uint64_t word = offset / 4; word <= (offset + n - 1) / 4; word++) {
      words[word].check(t, access, space);
      if (n >= 4) words[word].add(t, access);
    }
    if (!bytes) return;
    for (uint64_t byte = offset; byte < offset + n; byte++) {
      bytes[byte].check(t, access, space);
      if (n < 4) bytes[byte].add(t, access);
    }
  }
};

struct Region {  // of global memory: an argument or a variable
  uint64_t begin, end;
  Shadow* shadow;
};
static std::vector<Region> regions;
static size_t last_region;
static uint32_t shared_bytes;

static void note_access(const Thread& t, uint64_t address, uint32_t n, bool shared);

static const char* const doing[] = {"load", "store", "atomic operation"};
INLINE void check_aligned(Thread& t, uint64_t a, uint32_t n, Access access, const char* space) {
  if (__builtin_expect(a % n != 0, 0))
    fail(t, "misaligned %s of %u bytes in %s memory at 0x%llx", doing[access], n, space, (unsigned long long)a);
}

static char* global(Thread& t, uint64_t a, uint32_t n, Access access) {
  check_aligned(t, a, n, access, "global");
  for (size_t tried = 0; tried < regions.size(); tried++) {
    const Region& r = regions[last_region];
    if (a >= r.begin && a + n <= r.end) {
      if (RACES) r.shadow->touch(t, a - r.begin, n, access, "global");
      if (COUNTING) note_access(t, a, n, false);
      return reinterpret_cast<char*>(a);
    }
    last_region = (last_region + 1) % regions.size();
  }
  fail(t, "out of bounds: %s of %u bytes in global memory at 0x%llx", doing[access], n, (unsigned long long)a);
  return nullptr;
}

__attribute__((unused)) static char* shared(Thread& t, uint64_t a, uint32_t n, Access access) {
  check_aligned(t, a, n, access, "shared");
  if (__builtin_expect(a + n > shared_bytes, 0))
    fail(t, "out of bounds: %s of %u bytes in shared memory at %lld of %u", doing[access], n, (long long)a, shared_bytes);
  if (RACES) t.block->shadow->touch(t, a, n, access, "shared");
  if (COUNTING) note_access(t, a, n, true);
  return t.block->shared + a;
}

__attribute__((unused)) static char* local(Thread& t, uint64_t a, uint32_t n, Access access) {
  check_aligned(t, a, n, access, "local");
  const uint64_t begin = reinterpret_cast<uint64_t>(t.local);
  if (__builtin_expect(a < begin || a + n > begin + t.local_bytes, 0))
    fail(t, "out of bounds: %s of %u bytes in local memory at %lld of %u", doing[access], n, (long long)(a - begin),
         t.local_bytes);
  return reinterpret_cast<char*>(a);
}

// An address of any of the three.
__attribute__((unused)) static char* generic(Thread& t, uint64_t a, uint32_t n, Access access) {
  const uint64_t in_shared = a - reinterpret_cast<uint64_t>(t.block->shared);
  if (in_shared < shared_bytes) return shared(t, in_shared, n, access);
  if (a - reinterpret_cast<uint64_t>(t.local) < t.local_bytes) return local(t, a, n, access);
  return global(t, a, n, access);
}
