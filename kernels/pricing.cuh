// What scores grandparents (g, p, c) inside the pricing kernel: a tensor of all of them, products of three vectors, or
// feature templates. On a CPU a scorer is told p and c, then asked for a list of g, after which there is room for eight
// more; on a GPU each lane asks for one. Siblings are scored alike, g being the sibling and p the head.
//
// A score is the same to the last bit on every machine: products are never fused with the sums that they go into.
#pragma once
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#endif
#include "packs.cuh"

constexpr int SUMS = 8;      // a sum of products is that of r = 0, 8, .. and r = 1, 9, .. and so on
constexpr int AT_ONCE = 16;  // templates, whose rows are found together
constexpr int CODES = 14;    // of how two nodes lie to each other

// A word holds bits of NODES nodes, a byte a pack. ROWS_WORDS(i, rows, j, n): every row i and word j of it.
// OPEN_ARCS: every p and k < sizes[p], for p in 0..n and k below N.
#if ON_GPU
#define ROWS_WORDS(i, rows, j, n) ROWS_PACKS(i, rows, j, n)
#define OPEN_ARCS(p, k, sizes, n, N) \
  LANES(flat_, ((n) + 1) * (N)) if (const int p = flat_ / (N), k = flat_ % (N); k < (sizes)[p])
DEVICE int lowest_bit(u64 x) { return __ffsll((i64)x) - 1; }
DEVICE int count_bits(unsigned x) { return __popc(x); }
typedef unsigned char Word;
constexpr int NODES = 1;
DEVICE double loaded(const double* p, unsigned) { return *p; }
DEVICE void fetch(const double*, int) {}
DEVICE unsigned unknown(double x) { return !(x == x); }
DEVICE double choose_lanes(unsigned lanes, double a, double b) { return lanes ? a : b; }
DEVICE double add_lanes(unsigned lanes, double a, double b) { return lanes ? a + b : a; }
#else
#define ROWS_WORDS(i, rows, j, n) for (int i = 0; i < (rows); ++i) for (int j = 0; j < (n); j += NODES)
#define OPEN_ARCS(p, k, sizes, n, N) for (int p = 0; p <= (n); ++p) for (int k = 0; k < (sizes)[p]; ++k)
DEVICE int lowest_bit(u64 x) { return __builtin_ctzll(x); }
DEVICE int count_bits(u64 x) { return __builtin_popcountll(x); }
typedef u64 Word;
constexpr int NODES = 8 * W;
// A row on its way to the cache.
DEVICE void fetch(const double* p, int count) {
  for (int i = 0; i < count; i += 8) __builtin_prefetch(p + i);
  __builtin_prefetch(p + count - 1);
}

// A pack from p on in the lanes of a mask; the lanes that are NaN; a in the lanes of a mask and b in the others; a + b
// in the lanes of a mask and a in the others; the lanes of a mask put into a list, as from + lane, with room for a
// pack; as many scores as a pack holds.
#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
DEVICE Pack loaded(const double* p, unsigned lanes) { return (Pack)_mm512_maskz_loadu_pd(lanes, p); }
DEVICE unsigned unknown(Pack x) { return _mm512_cmp_pd_mask((__m512d)x, (__m512d)x, _CMP_UNORD_Q); }
DEVICE Pack choose_lanes(unsigned lanes, Pack a, Pack b) {
  return (Pack)_mm512_mask_mov_pd((__m512d)b, lanes, (__m512d)a);
}
DEVICE Pack add_lanes(unsigned lanes, Pack a, Pack b) {
  return (Pack)_mm512_mask_add_pd((__m512d)a, lanes, (__m512d)a, (__m512d)b);
}
DEVICE int append(int* list, unsigned lanes, int from) {
  const __m256i all = _mm256_add_epi32(_mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0), _mm256_set1_epi32(from));
  _mm256_storeu_si256((__m256i*)list, _mm256_maskz_compress_epi32(lanes, all));
  return count_bits(lanes);
}
// Eight sums of eight lanes each: the halves of each two are added, then the pairs of lanes, then the lanes.
DEVICE __m512d halves(__m512d a, __m512d b) {
  return _mm512_shuffle_f64x2(a, b, 0x44) + _mm512_shuffle_f64x2(a, b, 0xee);
}
DEVICE __m512d pairs(__m512d a, __m512d b) {
  return _mm512_shuffle_f64x2(a, b, 0x88) + _mm512_shuffle_f64x2(a, b, 0xdd);
}
DEVICE __m512d singles(__m512d a, __m512d b) {
  const __m512i even = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0), odd = _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1);
  return _mm512_permutex2var_pd(a, even, b) + _mm512_permutex2var_pd(a, odd, b);
}
DEVICE Pack load(const float* p) { return (Pack)_mm512_cvtps_pd(_mm256_loadu_ps(p)); }
DEVICE Pack load(const double* p) { return pack(p); }
#else
DEVICE Pack loaded(const double* p, unsigned lanes) {
  if (lanes == (1u << W) - 1) return pack(p);
  Pack x = {};
  for (int l = 0; l < W; ++l)
    if (lanes >> l & 1) x[l] = p[l];
  return x;
}
DEVICE unsigned unknown(Pack x) { return lanes_where([&](int l) { return !(x[l] == x[l]); }); }
DEVICE Pack choose_lanes(unsigned lanes, Pack a, Pack b) {
  for (int l = 0; l < W; ++l) a[l] = lanes >> l & 1 ? a[l] : b[l];
  return a;
}
DEVICE Pack add_lanes(unsigned lanes, Pack a, Pack b) { return choose_lanes(lanes, a + b, a); }
DEVICE int append(int* list, unsigned lanes, int from) {
  const int count = count_bits(lanes);
  for (; lanes; lanes &= lanes - 1) *list++ = from + lowest_bit(lanes);
  return count;
}
template <class In> DEVICE Pack load(const In* p) { return whole(p); }
#endif
#endif

// The bit of node c in the word of g.
DEVICE Word bit_of(int c, int g) {
  const int i = c - g;
  return i >= 0 && i < NODES ? (Word)1 << (i / W * 8 + i % W) : 0;
}

// The bits of nodes below c in the word of g; a pack has W bits of its byte.
DEVICE Word bits_below(int c, int g) {
  const int i = c - g < 0 ? 0 : c - g;
  if (i >= NODES) return (Word)~(Word)0;
  const Word packs = ((Word)1 << i / W * 8) - 1, lanes = ((Word)1 << i % W) - 1;
  return packs | (Word)(lanes << i / W * 8);
}

// W packs as the columns of `count` rows, `wide` apart.
DEVICE void store_turned(double* to, i64 wide, const Pack (&x)[W], int count) {
#if !ON_GPU && defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
  __m512d two[8], four[8];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // two[i]: even lanes of two packs; two[4 + i]: odd lanes
    two[i] = _mm512_unpacklo_pd((__m512d)x[2 * i], (__m512d)x[2 * i + 1]);
    two[4 + i] = _mm512_unpackhi_pd((__m512d)x[2 * i], (__m512d)x[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // lanes 0 and 4 of four packs, 2 and 6, 1 and 5, 3 and 7
    four[i] = _mm512_shuffle_f64x2(two[i / 2 * 4 + 0], two[i / 2 * 4 + 1], i % 2 ? 0xdd : 0x88);
    four[4 + i] = _mm512_shuffle_f64x2(two[i / 2 * 4 + 2], two[i / 2 * 4 + 3], i % 2 ? 0xdd : 0x88);
  }
#pragma GCC unroll 8
  for (int l = 0; l < 8; ++l) {
    const int i = l % 2 * 2 + l / 2 % 2;
    if (l < count)
      _mm512_storeu_pd(to + l * wide, _mm512_shuffle_f64x2(four[i], four[4 + i], l < 4 ? 0x88 : 0xdd));
  }
#else
  for (int l = 0; l < W && l < count; ++l)
    for (int k = 0; k < W; ++k) to[l * wide + k] = lane_of(x[k], l);
#endif
}

// The tensors of a sentence. `room` [N + 1, rank] and `ints` are a team's, for what scorers make of it.
template <class In> struct Tensors {
  const In *values, *second, *third;
  const int *index, *relations;
  i64 nodes;  // places from one role to the next in index
  int rank, N;
  double* room;
  int* ints;
};

// values [N, N, N]
template <class In> struct Dense {
  const Tensors<In>& all;
  int p, c;
  DEVICE void begin(int) const {}
  DEVICE void arc(int p_, int c_) { p = p_, c = c_; }
  DEVICE double one(int g) const { return (double)all.values[((i64)g * all.N + p) * all.N + c]; }
  template <class F> DEVICE void several(int* list, int count, F tell) const {
    for (int i = 0; i < count; ++i) tell(list[i], one(list[i]));
  }
};

// values [N, N, N] of siblings (h, s, m)
template <class In> struct DenseBeside {
  const Tensors<In>& all;
  int h, m;
  DEVICE void begin(int) const {}
  DEVICE void arc(int h_, int m_) { h = h_, m = m_; }
  DEVICE double one(int s) const { return (double)all.values[((i64)h * all.N + s) * all.N + m]; }
  template <class F> DEVICE void several(int* list, int count, F tell) const {
    for (int i = 0; i < count; ++i) tell(list[i], one(list[i]));
  }
};

// values, second and third [N, rank], a multiple of SUMS: the sum over r of values[g, r] (second[p, r] third[c, r]), in
// doubles, rounded to In at last.
template <class In> struct Trilinear {
  const Tensors<In>& all;
  const In *b, *d;

  DEVICE void begin(int n) const {
#if !ON_GPU
    for (int i = 0; i < (n + 1) * all.rank; i += W) unpack(all.room + all.rank + i, load(all.values + i));
#endif
  }

  DEVICE void arc(int p, int c) {
    b = all.second + (i64)p * all.rank;
    d = all.third + (i64)c * all.rank;
#if !ON_GPU
    for (int r = 0; r < all.rank; r += W) unpack(all.room + r, load(b + r) * load(d + r));
#endif
  }

#if ON_GPU
  DEVICE double one(int g) const {
    const In* const a = all.values + (i64)g * all.rank;
    double sum[SUMS];
#pragma unroll
    for (int l = 0; l < SUMS; ++l) sum[l] = 0;
    for (int r = 0; r < all.rank; r += SUMS)
#pragma unroll
      for (int l = 0; l < SUMS; ++l)
        sum[l] += __dmul_rn((double)a[r + l], __dmul_rn((double)b[r + l], (double)d[r + l]));
#pragma unroll
    for (int half = SUMS / 2; half; half /= 2)
#pragma unroll
      for (int l = 0; l < half; ++l) sum[l] += sum[l + half];
    return (double)(In)sum[0];
  }
#else
  // M of them side by side. They leave as In: GCC 12 forgets to round what goes on as a double, in packs of two.
  template <int M> APART void together(const int* list, In* out) const {
    constexpr int P = SUMS / W;
    const double* a[M];
    Pack acc[M][P] = {};
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) a[m] = all.room + (i64)(1 + list[m]) * all.rank;
    for (int r = 0; r < all.rank; r += SUMS)
#pragma GCC unroll 2
      for (int k = 0; k < P; ++k) {
        const Pack pc = pack(all.room + r + k * W);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) acc[m][k] += pack(a[m] + r + k * W) * pc;
      }
#if defined(__AVX512F__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
    if (M == 8) {
      const __m512d* const x = (const __m512d*)acc;
      const __m512d one = halves(x[0], x[1 % M]), two = halves(x[2 % M], x[3 % M]);
      const __m512d three = halves(x[4 % M], x[5 % M]), four = halves(x[6 % M], x[7 % M]);
      const Pack sums = (Pack)singles(pairs(one, two), pairs(three, four));
      for (int m = 0; m < M; ++m) out[m] = (In)sums[m];
      return;
    }
#endif
    for (int m = 0; m < M; ++m) {
      double sum[SUMS];
      std::memcpy(sum, acc[m], sizeof sum);
      for (int half = SUMS / 2; half; half /= 2)
        for (int l = 0; l < half; ++l) sum[l] += sum[l + half];
      out[m] = (In)sum[0];
    }
  }

  template <class F> DEVICE void several(int* list, int count, F tell) const {
    In out[8];
    for (int m = 0; m < 8; ++m) list[count + m] = list[count - 1];
    for (int i = 0; i < count; i += 8) {
      const int some = count - i < 8 ? count - i : 8;
      if (some > 2) together<8>(list + i, out);
      else together<2>(list + i, out);
      for (int m = 0; m < some; ++m) tell(list[i + m], (double)out[m]);
    }
  }
#endif
};

// How node i lies to node j: 7 if it is to the left, plus the bin of their distance (1, 2, 3, 4, 5, to 10, more).
DEVICE int code(int i, int j) {
  const int far = i < j ? j - i : i - j;
  return (i < j ? CODES / 2 : 0) + (far <= 5 ? far - 1 : far <= 10 ? 5 : 6);
}

// The weights (values) of the templates, added in their order. The row of a template is index[g] + index[p] + index[c]
// (of each role its own) + relations[gp] + relations[gc] + relations[pc], the last by codes. index [3, .., N, wide] and
// relations [3, CODES, wide], with wide the number of templates (rank) in whole AT_ONCE.
template <class In> struct Templates {
  const Tensors<In>& all;
  int p, c, wide;

  DEVICE const int* node(int role, int at) const { return all.index + role * all.nodes + (i64)at * wide; }
  DEVICE const int* relation(int pair, int i, int j) const {
    return all.relations + (pair * CODES + code(i, j)) * wide;
  }

  DEVICE void begin(int) const {}
  DEVICE void arc(int p_, int c_) {
    p = p_, c = c_, wide = (all.rank + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
#if !ON_GPU
    const int *one = node(1, p), *two = node(2, c), *lie = relation(2, p, c);
    for (int t = 0; t < wide; ++t) all.ints[t] = one[t] + two[t] + lie[t];
#endif
  }

  // The same with nobody in the first role: place N of index, that lies where p does.
  DEVICE double nobody() const {
    const int *none = node(0, all.N), *first = node(1, p), *second = node(2, c);
    const int *one = relation(1, p, c), *two = relation(2, p, c);
    In total = 0;
    for (int t = 0; t < all.rank; ++t) total += all.values[none[t] + first[t] + second[t] + one[t] + two[t]];
    return (double)total;
  }

#if ON_GPU
  DEVICE double one(int g) const {
    const int *grand = node(0, g), *gp = relation(0, g, p), *gc = relation(1, g, c);
    const int *parent = node(1, p), *child = node(2, c), *pc = relation(2, p, c);
    In total = 0;
    for (int t = 0; t < all.rank; ++t) total += all.values[grand[t] + parent[t] + child[t] + gp[t] + gc[t] + pc[t]];
    return (double)total;
  }
#else
  // Eight side by side: a weight is seldom in the cache.
  APART void together(const int* list, In* out) const {
    In total[8] = {};
    for (int from = 0; from < all.rank; from += AT_ONCE) {
      int row[8][AT_ONCE];
      for (int m = 0; m < 8; ++m) {
        const int *grand = node(0, list[m]) + from, *gp = relation(0, list[m], p) + from;
        const int* gc = relation(1, list[m], c) + from;
        for (int t = 0; t < AT_ONCE; ++t) row[m][t] = all.ints[from + t] + grand[t] + gp[t] + gc[t];
      }
      const int count = all.rank - from < AT_ONCE ? all.rank - from : AT_ONCE;
      for (int t = 0; t < count; ++t)
#pragma GCC unroll 8
        for (int m = 0; m < 8; ++m) {
          i64 at = row[m][t];
          asm("" : "+r"(at));  // no vector gather: it is slower, and its sums are taken apart again
          total[m] += all.values[at];
        }
    }
    std::memcpy(out, total, sizeof total);
  }

  template <class F> DEVICE void several(int* list, int count, F tell) const {
    In out[8];
    for (int m = 0; m < 8; ++m) list[count + m] = list[count - 1];
    for (int i = 0; i < count; i += 8) {
      together(list + i, out);
      for (int m = 0; m < 8 && i + m < count; ++m) tell(list[i + m], (double)out[m]);
    }
  }
#endif
};

// Nothing is scored: what is not known stays so.
template <class In> struct Listed {
  const Tensors<In>& all;
  DEVICE void begin(int) const {}
  DEVICE void arc(int, int) {}
  DEVICE double one(int) const { return 0; }
  template <class F> DEVICE void several(int*, int, F) const {}
};

template <class In, int KIND> struct ScorerOf;
template <class In> struct ScorerOf<In, 0> { typedef Dense<In> type; };
template <class In> struct ScorerOf<In, 1> { typedef Trilinear<In> type; };
template <class In> struct ScorerOf<In, 2> { typedef Templates<In> type; };
template <class In> struct ScorerOf<In, 3> { typedef Listed<In> type; };
constexpr int LISTED = 3;

// Counts become the sum of those before them; the sum of all.
DEVICE int team_scan(int* counts, int count) {
#if ON_GPU
  __shared__ int part[BLOCK];
  const int each = (count + blockDim.x - 1) / blockDim.x, lo = threadIdx.x * each;
  const int hi = lo + each < count ? lo + each : count;
  int mine = 0;
  for (int i = lo; i < hi; ++i) mine += counts[i];
  BARRIER();
  part[threadIdx.x] = mine;
  for (int step = 1; step < blockDim.x; step *= 2) {
    BARRIER();
    const int before = threadIdx.x >= step ? part[threadIdx.x - step] : 0;
    BARRIER();
    part[threadIdx.x] += before;
  }
  BARRIER();
  const int total = part[blockDim.x - 1];
  int sum = part[threadIdx.x] - mine;
  BARRIER();
  for (int i = lo; i < hi; ++i) {
    const int here = counts[i];
    counts[i] = sum;
    sum += here;
  }
  BARRIER();
  return total;
#else
  int sum = 0;
  for (int i = 0; i < count; ++i) {
    const int here = counts[i];
    counts[i] = sum;
    sum += here;
  }
  return sum;
#endif
}
