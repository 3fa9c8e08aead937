"""Kernels for a GPU as a process of its own gets them: compiled by NVRTC or from the cache. Run by test_gpu, which see.

Arguments are kernels, by their expressions; what comes out is how many programs NVRTC compiled, and what was given to a
stand-in for the driver.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any
from unittest import mock

import torch
from cupy.cuda import function, nvrtc

from gpuparse.ops.backend import gpu
from gpuparse.ops.backend.base import source_text


class Driver:
    """Stands in for ``cupy.cuda.function.Module``."""

    def load(self, content: bytes) -> None:
        loaded.append(hashlib.sha256(content).hexdigest())

    def get_function(self, name: str) -> Any:
        return name


if __name__ == "__main__":
    loaded: list[str] = []
    with (
        mock.patch.object(torch.cuda, "get_device_capability", lambda: (8, 0)),
        mock.patch.object(function, "Module", Driver),
        mock.patch.object(nvrtc, "createProgram", side_effect=nvrtc.createProgram) as compiled,
    ):
        names = []
        for expression in sys.argv[1:]:
            code = source_text(expression.partition("<")[0])
            made = gpu.CachedModule(code=code, options=gpu.OPTIONS, name_expressions=[expression])
            names.append(made.get_function(expression))
    print(json.dumps({"compiled": compiled.call_count, "loaded": loaded, "names": names}))
