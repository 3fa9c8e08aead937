"""The GPU build of the kernels, run without a GPU: an emulator of PTX.

NVRTC compiles CUDA C++ to PTX (``nvrtc.py``), which is read (``parse.py``), translated to C++ (``translate.py``, with
the table in ``operations.py``) and compiled by the system's compiler with a small runtime (``runtime/``). There a
thread of the GPU is a fibre with a stack of its own. So what runs is what the CUDA compiler made of a kernel: its
geometry, arguments, shared memory, barriers.

It finds out-of-bounds and misaligned accesses, races in shared and global memory, threads that miss a barrier, endless
loops and wrong arguments, and names the line of the CUDA source. It knows nothing of a GPU's speed, of its weak memory
model (blocks run one after another) or of instructions that the kernels do not use: those are errors that name them.
It needs Linux on x86-64.
"""

from __future__ import annotations

from .launch import Counts, Function, LaunchError, PtxModule, RawModule
from .parse import PtxError

__all__ = ["Counts", "Function", "LaunchError", "PtxError", "PtxModule", "RawModule"]
