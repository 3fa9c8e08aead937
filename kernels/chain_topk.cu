// The k best chains of tags, exactly: every state keeps the k best ways to it.
#include "chain.cuh"

// k entries a state, best first: score, and where it came from: the tag forgotten, rank of the state before (k <= 64).
struct Lists {
  double* score;
  int* from;
  int k;
  DEVICE void clear(i64 list) const {
    for (int r = 0; r < k; ++r) score[list * k + r] = -infinity();
  }
  // room for a candidate after those as good; the last entry falls out
  DEVICE void insert(i64 list, double s, int f) const {
    double* scores = score + list * k;
    int *origins = from + list * k, r = k - 1;
    for (; r > 0 && s > scores[r - 1]; --r) scores[r] = scores[r - 1], origins[r] = origins[r - 1];
    scores[r] = s, origins[r] = f;
  }
  // the entries of another list plus `extra`
  DEVICE void merge(i64 list, const double* other, double extra, int tag) const {
    for (int r = 0; r < k && other[r] + extra > score[list * k + k - 1]; ++r) insert(list, other[r] + extra, tag << 6 | r);
  }
};

// tags [k, B, n]; -1 for ranks that do not exist, and everywhere where a NaN or +inf was read.
template <class In>
KERNEL chain_topk(const In* unary, const In* pairs, const i64* lengths, i64* out, double* work, int* from, i64 list_size,
                  i64 pairs_sentence, i64 pairs_place, int k, int B, int n, int T, int trigrams) {
  const int M = trigrams ? T : 1, first = trigrams ? 2 : 1;
  const i64 states = (i64)M * T;
  double* scores = work + SLOT * 2 * list_size;           // of a word and of the one before, by turns
  int* origins = from + SLOT * ((i64)n * list_size + k);  // of all words, and of the end
  int* ends = origins + (i64)n * list_size;
  SENTENCES(b, B) {
    const In* x = unary + (i64)b * n * T;
    const In* y = pairs + b * pairs_sentence;
    const int length = words_in(lengths, b, n + 1);
    int bad = 0;
    BARRIER();
    LANES(r, k)
      for (int i = 0; i < n; ++i) out[((i64)r * B + b) * n + i] = -1;
    LANES(i, length) bad |= top_of_row<Max<Pack>>(x + (i64)i * T, T).bad;
    for (int p = 0; p < (pairs_place ? length - first : length > first ? 1 : 0); ++p)
      LANES(s, (int)states) bad |= top_of_row<Max<Pack>>(y + p * pairs_place + (i64)s * T, T).bad;
    bad = team_reduce(bad, Or{});
    if (bad || length == 0) continue;
    for (int i = 0; i < length; ++i) {
      const In* tag = x + (i64)i * T;
      const In* row = i < first ? y : y + (i - first) * pairs_place;
      const double* before = scores + ((i - 1) & 1) * list_size;
      const Lists to{scores + (i & 1) * list_size, origins + i * list_size, k};
      LANES(s, i == 0 ? T : (int)states) {  // state (y, c)
        const int kept = s / T, c = s % T;
        to.clear(s);
        if (i == 0) to.insert(s, (double)tag[c], 0);
        else if (i < first) to.merge(s, before + (i64)kept * k, (double)tag[c], 0);
        else {
          for (int t = 0; t < T; ++t) {
            const i64 state = (i64)t * M + kept;
            to.merge(s, before + state * k, (double)row[state * T + c], t);
          }
          for (int r = 0; r < k; ++r) to.score[s * k + r] += (double)tag[c];
        }
      }
      BARRIER();
    }
    // the best of all states at the end; the first state's list is free to take them once the other word's is used
    const double* last = scores + ((length - 1) & 1) * list_size;
    const Lists best{scores + (length & 1) * list_size, ends, k};
    const int count = length == 1 ? T : (int)states;
    if (LEADER) {
      best.clear(0);
      for (int s = 0; s < count; ++s) best.merge(0, last + (i64)s * k, 0., s);
    }
    BARRIER();
    LANES(r, k)
      if (best.score[r] > -infinity()) {
        i64* tags = out + ((i64)r * B + b) * n;
        int state = ends[r] >> 6, rank = ends[r] & 63;
        for (int i = length - 1; i >= 0; --i) {
          const int origin = origins[i * list_size + (i64)state * k + rank];
          tags[i] = state % T;
          state = (origin >> 6) * M + state / T, rank = origin & 63;
        }
      }
  }
}

EXPORT_TYPES(chain_topk)
