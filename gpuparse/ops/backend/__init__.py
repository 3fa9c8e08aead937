"""Find, compile, cache and launch the kernels: CuPy on a GPU, the system's C++ compiler on a CPU."""

from gpuparse.ops.backend.base import Argument, Backend, Kernel, Long
from gpuparse.ops.backend.choose import backend_for, describe, has_kernel

__all__ = ["Argument", "Backend", "Kernel", "Long", "backend_for", "describe", "has_kernel"]
