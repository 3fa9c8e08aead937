"""Memory that does not grow with the length of a file."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import torch

# Of glibc's mallopt: what is at least so large is given back to the system when it is freed.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGE = 1 << 20  # bytes


@contextmanager
def steady_memory() -> Iterator[None]:
    """Within it, batches of ever new shapes leave nothing behind.

    oneDNN keeps compiled routines for every shape that it meets, and glibc keeps freed blocks of every size: after a
    million sentences that was a seventh more than after ten thousand. The price is speed: torch's other routines run
    the encoder at about 0.6 times the rate of oneDNN's.
    """
    with suppress(OSError, AttributeError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, _LARGE)
    with ExitStack() as stack:
        with warnings.catch_warnings():  # of a setting for Intel GPUs, which is set along with the others
            warnings.filterwarnings("ignore", message="TF32 acceleration")
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
        yield
