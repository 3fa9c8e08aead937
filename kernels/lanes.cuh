// One source, two machines. A kernel is a sequence of data-parallel loops with barriers between them, and a
// team takes one sentence: on a GPU the team is a block of threads, on a CPU it is one thread whose loops run
// over SIMD packs.
//
//   SENTENCES(b, B)  the sentences of this team         SLOT       which team this is (its workspace)
//   LANES(i, n)      i = 0..n-1, shared out             PACKS(i,n) the same in steps of a pack of W lanes
//   LONG_LANES(i, n) the same where n may be 2^31 or more: all triples of 1290 nodes
//   ROWS_PACKS(i, rows, j, n)  every row i and pack j of it
//   ROWS(i, n)       i = 0..n-1, each taken by a warp   WARP_LANES(i, n), WARP_PACKS(i, n)  shared out in each warp
//   IN_FIRST_WARP    where one warp does                WARP_BARRIER()  between its loops
//   BARRIER()        between loops                      LEADER     true in one lane
//   LANE_NUMBER      this lane, for storage of its own
//
// DEVICE: a function that is inlined; APART: one that a CPU does not inline, to have all registers, or to be there once.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ON_GPU 1
#else
#define ON_GPU 0
#endif

typedef long long i64;
typedef unsigned long long u64;

#if ON_GPU

constexpr int W = 1;         // lanes in a pack
constexpr int PAD = 0;       // zeros kept around rows, so that packs may run over their ends
constexpr int BLOCK = 256;   // most threads in a block
typedef double Pack;
typedef bool Mask;

#define DEVICE __device__ __forceinline__
#define INLINED  // lambdas in device code are
#define APART DEVICE
#define KERNEL __global__ void __launch_bounds__(BLOCK, 1)
#define SENTENCES(b, B) for (int b = blockIdx.x; b < (B); b += gridDim.x)
#define SLOT ((i64)blockIdx.x)
#define LANES(i, n) for (int i = threadIdx.x; i < (n); i += blockDim.x)
#define LONG_LANES(i, n) for (i64 i = threadIdx.x; i < (n); i += blockDim.x)
#define PACKS(i, n) LANES(i, n)
#define ROWS_PACKS(i, rows, j, n) LANES(flat_, (rows) * (n)) if (const int i = flat_ / (n), j = flat_ % (n); true)
#define ROWS(i, n) for (int i = threadIdx.x / 32; i < (n); i += blockDim.x / 32)
#define WARP_LANES(i, n) for (int i = threadIdx.x % 32; i < (n); i += 32)
#define WARP_PACKS(i, n) WARP_LANES(i, n)
#define BARRIER() __syncthreads()
#define WARP_BARRIER() __syncwarp()
#define IN_FIRST_WARP (threadIdx.x < 32)
#define LEADER (threadIdx.x == 0)
#define LANE_NUMBER ((i64)threadIdx.x)
#define EXPORT(name, ...)

DEVICE double infinity() { return __longlong_as_double(0x7ff0000000000000LL); }
DEVICE i64 bits(double x) { return __double_as_longlong(x); }
DEVICE double from_bits(i64 x) { return __longlong_as_double(x); }
DEVICE double choose(bool m, double a, double b) { return m ? a : b; }
DEVICE double pack(const double* p) { return *p; }
DEVICE void unpack(double* p, double v) { *p = v; }
template <class V> DEVICE V splat(double x) { return x; }
DEVICE bool lanes_below(int i, int n) { return i < n; }  // which lanes of the pack at i are < n
DEVICE bool lane_is(int i, int k) { return i == k; }

#else

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif
constexpr int PAD = 8;
typedef double Pack __attribute__((vector_size(8 * W)));
typedef i64 PackBits __attribute__((vector_size(8 * W)));
typedef decltype(Pack{} < Pack{}) Mask;

// The team of the calling thread: sentences are handed out one by one, so ragged batches balance.
struct Team { std::atomic<int>* next; int slot; };
static thread_local Team team;

#define DEVICE inline __attribute__((always_inline))
#define INLINED __attribute__((always_inline))  // a lambda: else what it captures is read from memory
#define APART __attribute__((noinline))
#define KERNEL static void
#define SENTENCES(b, B) for (int b; (b = team.next->fetch_add(1, std::memory_order_relaxed)) < (B);)
#define SLOT ((i64)team.slot)
#define LANES(i, n) for (int i = 0; i < (n); ++i)
#define LONG_LANES(i, n) for (i64 i = 0; i < (n); ++i)
#define PACKS(i, n) for (int i = 0; i < (n); i += W)
#define ROWS_PACKS(i, rows, j, n) for (int i = 0; i < (rows); ++i) PACKS(j, n)
#define ROWS(i, n) LANES(i, n)
#define WARP_LANES(i, n) LANES(i, n)
#define WARP_PACKS(i, n) PACKS(i, n)
#define BARRIER()
#define WARP_BARRIER()
#define IN_FIRST_WARP true
#define LEADER true
#define LANE_NUMBER ((i64)0)

DEVICE double infinity() { return __builtin_inf(); }
DEVICE i64 bits(double x) { i64 r; std::memcpy(&r, &x, 8); return r; }
DEVICE double from_bits(i64 x) { double r; std::memcpy(&r, &x, 8); return r; }
DEVICE PackBits bits(Pack x) { return (PackBits)x; }
DEVICE Pack from_bits(PackBits x) { return (Pack)x; }
DEVICE double choose(bool m, double a, double b) { return m ? a : b; }
template <class M> DEVICE Pack choose(M m, Pack a, Pack b) { return (Mask)m ? a : b; }
DEVICE Pack pack(const double* p) { Pack v; std::memcpy(&v, p, sizeof v); return v; }
DEVICE void unpack(double* p, Pack v) { std::memcpy(p, &v, sizeof v); }
DEVICE void unpack(double* p, double v) { *p = v; }
template <class V> DEVICE V splat(double x) { return x - V{}; }
DEVICE PackBits lane_numbers(int i) {
  PackBits v;
  for (int l = 0; l < W; ++l) v[l] = i + l;
  return v;
}
DEVICE Mask lanes_below(int i, int n) { return (Mask)(lane_numbers(i) < (PackBits{} + (i64)n)); }
DEVICE Mask lane_is(int i, int k) { return (Mask)(lane_numbers(i) == (PackBits{} + (i64)k)); }
DEVICE Pack moved_down(Pack v, int by) {  // lane l + by in lane l; others are any of v
#if defined(__clang__)
  Pack r;
  for (int l = 0; l < W; ++l) r[l] = v[(l + by) % W];
  return r;
#else
  return __builtin_shuffle(v, lane_numbers(by));
#endif
}

// Exported symbol <name>: a pointer to a function (runner, threads, kernel arguments...) that runs a team a thread. The
// runner is run_in_threads of threads.cpp.
typedef void (*Runner)(int slots, void (*work)(void* data, int slot), void* data);
template <auto F> struct Entry;
template <class... A, void (*F)(A...)> struct Entry<F> {
  static void call(Runner run, int threads, A... args) {
    std::atomic<int> next{0};
    auto work = [&](int slot) { team = Team{&next, slot}; F(args...); };
    run(threads, [](void* data, int slot) { (*static_cast<decltype(work)*>(data))(slot); }, &work);
  }
};
#define EXPORT(name, ...) extern "C" { extern void* const name; void* const name = (void*)&Entry<&__VA_ARGS__>::call; }

#endif

// The instances of a kernel for float and double, and for the orders of its derivatives.
#define EXPORT_TYPES(name) EXPORT(name##_float, name<float>) EXPORT(name##_double, name<double>)
#define EXPORT_TYPE_ORDERS(name, type) \
  EXPORT(name##_##type##_0, name<type, 0>) EXPORT(name##_##type##_1, name<type, 1>) EXPORT(name##_##type##_2, name<type, 2>)
#define EXPORT_ORDERS(name) EXPORT_TYPE_ORDERS(name, float) EXPORT_TYPE_ORDERS(name, double)

struct Best { double value; int index; };

// Reductions over each warp; all of its lanes get the result. Warps that reduce the same need no barrier for it.
#if ON_GPU
template <class T, class Shuffle> DEVICE T by_words(T mine, Shuffle shuffle) {
  static_assert(sizeof(T) % 4 == 0, "shuffled by words");
  union { T all; int word[sizeof(T) / 4]; } as{mine};
#pragma unroll
  for (unsigned k = 0; k < sizeof(T) / 4; ++k) as.word[k] = shuffle(as.word[k]);
  return as.all;
}
template <class Shuffle> DEVICE Best by_words(Best mine, Shuffle shuffle) {  // without what fills it up to 16 bytes
  return Best{by_words(mine.value, shuffle), shuffle(mine.index)};
}
#endif
template <class T, class Op> DEVICE T warp_reduce(T mine, Op op) {
#if ON_GPU
#pragma unroll
  for (int by = 16; by > 0; by /= 2)
    mine = op(mine, by_words(mine, [&](int word) { return __shfl_down_sync(~0u, word, by); }));
  mine = by_words(mine, [](int word) { return __shfl_sync(~0u, word, 0); });
#endif
  return mine;
}

// Reductions over the whole team; every lane gets the result. What was written before can be read after.
template <class T, class Op> DEVICE T team_reduce(T mine, Op op) {
#if ON_GPU
  __shared__ T part[BLOCK / 32];
  mine = warp_reduce(mine, op);
  WARP_LANES(first, 1) part[threadIdx.x / 32] = mine;
  BARRIER();
  mine = part[0];
  for (int warp = 1; warp < blockDim.x / 32; ++warp) mine = op(mine, part[warp]);
  BARRIER();
#endif
  return mine;
}

// A value that one lane knows, told to the team.
template <class T> DEVICE T team_broadcast(T leaders) {
#if ON_GPU
  __shared__ T told;
  if (LEADER) told = leaders;
  BARRIER();
  leaders = told;
  BARRIER();
#endif
  return leaders;
}

// Named, not lambdas: a reduction's shared memory is one for each type and operation.
struct Plus { template <class T> DEVICE T operator()(T a, T b) const { return a + b; } };
struct Or { DEVICE int operator()(int a, int b) const { return a | b; } };

struct Better {
  DEVICE Best operator()(Best a, Best b) const {
    bool second = a.index < 0 || (b.index >= 0 && (b.value > a.value || (b.value == a.value && b.index < a.index)));
    return second ? b : a;
  }
};

// First index in [lo, hi) with the greatest value(index); -1 if none is above -inf. By the team, or by each warp.
template <class F> DEVICE Best team_argmax(int lo, int hi, F value) {
  Best best{-infinity(), -1};
  LANES(k, hi - lo)
    if (const double v = value(lo + k); v > best.value) best = Best{v, lo + k};
  return team_reduce(best, Better{});
}
template <class F> DEVICE Best warp_argmax(int lo, int hi, F value) {
  Best best{-infinity(), -1};
  WARP_LANES(k, hi - lo)
    if (const double v = value(lo + k); v > best.value) best = Best{v, lo + k};
  return warp_reduce(best, Better{});
}
