"""How many multiply-adds of doubles a second one core of this machine does at best, by a small compiled loop."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path

from gpuparse.ops.backend.cpu import FLAGS, find_compiler, native_flags

LANES, CHAINS = 8, 12  # twelve sums that wait for nothing but themselves, each of eight doubles
LOOP = f"""
typedef double Pack __attribute__((vector_size({8 * LANES})));
extern "C" double run(long times) {{
  Pack sums[{CHAINS}] = {{}}, factor = Pack{{}} + 0.999, more = Pack{{}} + 0.001;
  for (long i = 0; i < times; ++i)
    for (int k = 0; k < {CHAINS}; ++k) {{
      sums[k] = sums[k] * factor + more;
#if defined(__AVX512F__)
      asm volatile("" : "+v"(sums[k]));
#endif
    }}
  for (int k = 1; k < {CHAINS}; ++k) sums[0] += sums[k];
  return sums[0][0];
}}
"""


def peak_multiply_adds(repeats: int = 5, times: int = 2_000_000) -> float:
    """Multiply-adds a second of one thread, the best of some runs. Raises where there is no compiler."""
    compiler = find_compiler()
    if compiler is None:
        raise RuntimeError("no C++ compiler found")
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "peak.so"
        command = [compiler, *FLAGS, *native_flags(), "-x", "c++", "-", "-o", str(library)]
        subprocess.run(command, input=LOOP, text=True, check=True, capture_output=True)
        run = ctypes.CDLL(str(library)).run
    run.restype, run.argtypes = ctypes.c_double, [ctypes.c_long]
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        run(times)
        seconds.append(time.process_time() - start)
    return LANES * CHAINS * times / min(seconds)
