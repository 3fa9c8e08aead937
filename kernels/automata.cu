// The best head and the best children of every node, each for itself: the head automata of automata.cuh.
#include "automata.cuh"

// down [B, N, N] (p, c), up [B, N, N] (g, p) or null, in doubles; siblings [B, N, N, N] (p, s, m) and grandparents
// [B, N, N, N] (g, p, c), or null; children [B, N, N], heads and values [B, N]. On a GPU every node of a sentence has
// its rooms, on a CPU they take turns. The last five, or null, are down and up of a former call and what it found: nodes
// whose scores have not changed are as they were ("lazy decoding" of Koo et al. 2010, section 6).
template <class In>
KERNEL automata(const double* down, const double* up, const In* siblings, const In* grandparents, const i64* lengths,
                unsigned char* children, i64* heads, double* values, const double* old_down, const double* old_up,
                const unsigned char* old_children, const i64* old_heads, const double* old_values, double* work,
                int* lists, i64 work_size, i64 lists_size, int single_root, int B, int N) {
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
    const auto is_old = [&](const Automaton<In>& it) INLINED {
      return old_down && it.is_as(old_down + from, old_up ? old_up + from : nullptr);
    };
    const auto finish = [&](const Automaton<In>& it, bool old) INLINED {
      const i64 at = (i64)b * N + it.p;
      if (!old) return it.finish(heads + at, values + at);
      for (int c = 0; c < N; ++c) it.children[c] = old_children[at * N + c];
      heads[at] = old_heads[at], values[at] = old_values[at];
    };
    BARRIER();
    LANES(k, N) if (k >= nodes) heads[(i64)b * N + k] = -1, values[(i64)b * N + k] = 0;
    LANES(k, (N - nodes) * N) children[from + (i64)nodes * N + k] = 0;
#if ON_GPU
    LANES(p, nodes) *node(p).old = is_old(node(p));
    BARRIER();
    LANES(k, nodes * nodes) if (const Automaton<In> it = node(k / nodes); !*it.old) it.prepare(k % nodes);
    BARRIER();
    if (bounded) LANES(k, nodes * nodes) {
      const Automaton<In> it = node(k / nodes);
      if (*it.old) continue;
      if (!it.headless()) it.weigh(k % nodes);
      else if (k % nodes == 0 && !siblings) it.weigh(-1);
    }
    BARRIER();
    if (siblings) {
      LANES(p, nodes) if (const Automaton<In> it = node(p); !it.one && !*it.old) it.begin();
      BARRIER();
      LANES(k, nodes * nodes) {
        const Automaton<In> it = node(k / nodes);
        if (const int i = W + k % nodes; !it.one && !*it.old && i < *it.count) it.template run<1>(i);
      }
      BARRIER();
    }
    LANES(p, nodes) finish(node(p), *node(p).old);
#else
    for (int p = 0; p < nodes; ++p) {
      const Automaton<In> it = node(p);
      if (is_old(it)) {
        finish(it, true);
        continue;
      }
      if (p < n && !is_old(node(p + 1))) node(p + 1).prefetch();
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
      finish(it, false);
    }
#endif
  }
}

EXPORT_TYPES(automata)
