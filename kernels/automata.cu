// The best head and the best children of every node, each for itself: the head automata of automata.cuh.
#include "automata.cuh"

// down [B, N, N] (p, c), up [B, N, N] (g, p) or null, in doubles; siblings [B, N, N, N] (p, s, m) and grandparents
// [B, N, N, N] (g, p, c), or null; children [B, N, N], heads and values [B, N]. On a GPU every node of a sentence has
// its rooms, on a CPU they take turns.
template <class In>
KERNEL automata(const double* down, const double* up, const In* siblings, const In* grandparents, const i64* lengths,
                unsigned char* children, i64* heads, double* values, double* work, int* lists, i64 work_size,
                i64 lists_size, int single_root, int B, int N) {
  double* const doubles = work + SLOT * work_size;
  int* const ints = lists + SLOT * lists_size;
  const i64 square = (i64)N * N;
  SENTENCES(b, B) {
    const int n = words_in(lengths, b, N), nodes = n ? n + 1 : 0;
    const i64 from = b * square;
    const auto node = [&](int p) {
      const i64 room = ON_GPU ? p : 0;
      return Automaton<In>(down + from, up ? up + from : nullptr, siblings ? siblings + from * N : nullptr,
                           grandparents ? grandparents + from * N : nullptr, p, n, N, single_root != 0,
                           doubles + room * doubles_of(N), ints + room * ints_of(N), children + from + (i64)p * N);
    };
    const bool bounded = !siblings || grandparents;
    BARRIER();
    LANES(k, N) if (k >= nodes) heads[(i64)b * N + k] = -1, values[(i64)b * N + k] = 0;
    LANES(k, (N - nodes) * N) children[from + (i64)nodes * N + k] = 0;
#if ON_GPU
    LANES(k, nodes * nodes) node(k / nodes).prepare(k % nodes);
    BARRIER();
    if (bounded) LANES(k, nodes * nodes) {
      const Automaton<In> it = node(k / nodes);
      if (!it.headless()) it.weigh(k % nodes);
      else if (k % nodes == 0 && !siblings) it.weigh(-1);
    }
    BARRIER();
    if (siblings) {
      LANES(p, nodes) if (!node(p).one) node(p).begin();
      BARRIER();
      LANES(k, nodes * nodes) {
        const Automaton<In> it = node(k / nodes);
        if (const int i = W + k % nodes; !it.one && i < *it.count) it.template run<1>(i);
      }
      BARRIER();
    }
    LANES(p, nodes) node(p).finish(heads + (i64)b * N + p, values + (i64)b * N + p);
#else
    for (int p = 0; p < nodes; ++p) {
      const Automaton<In> it = node(p);
      if (p < n) node(p + 1).prefetch();
      for (int c = 0; c <= n; c += W) it.prepare(c);
      if (it.headless()) {
        if (!siblings) it.weigh(-1);
      } else if (bounded) {
        for (int g = 0; g <= n; ++g) it.weigh(g);
      }
      if (siblings && !it.one) {
        it.begin();
        int i = W;
        for (; i + W < *it.count; i += 2 * W) it.template run<2>(i);
        if (i < *it.count) it.template run<1>(i);
      }
      it.finish(heads + (i64)b * N + p, values + (i64)b * N + p);
    }
#endif
  }
}

EXPORT_TYPES(automata)
