"""Which path a device takes: the kernels, or plain torch and why."""

from __future__ import annotations

import os
import warnings
from functools import cache

import torch

from gpuparse.ops.backend.base import Backend, kernels_directory
from gpuparse.ops.backend.cache import describe_cache
from gpuparse.ops.backend.cpu import FLAGS, CpuBackend, compiler_version, cpu_model, find_compiler, native_flags
from gpuparse.ops.backend.gpu import GpuBackend


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@cache
def _choose(device_type: str) -> tuple[Backend | None, str]:
    """The backend of a kind of device, or None and the reason."""
    wanted = os.environ.get("GPUPARSE_BACKEND", "kernels")
    if wanted == "torch":
        return None, "GPUPARSE_BACKEND=torch"
    if wanted != "kernels":
        raise ValueError(f"GPUPARSE_BACKEND must be 'kernels' or 'torch', got {wanted!r}")
    try:
        if device_type == "cpu":
            return CpuBackend(), "compiled kernels"
        if device_type == "cuda":
            return GpuBackend(), "compiled kernels"
    except Exception as error:  # whatever a broken CuPy or compiler throws, the torch path works
        hint = " (install gpuparse[cuda12] or gpuparse[cuda13])" if device_type == "cuda" else ""
        return None, f"{_first_line(error)}{hint}"
    return None, f"no kernels for {device_type} devices"


@cache
def _warn(device_type: str, reason: str) -> None:
    if reason != "GPUPARSE_BACKEND=torch":
        warnings.warn(
            f"gpuparse uses its slower plain torch path on {device_type}: {reason}", RuntimeWarning, stacklevel=2
        )


@cache
def _prepared(device: torch.device, name: str, number: str) -> tuple[Backend | None, str]:
    """The same of one device for one kernel, which is compiled now if it can be."""
    backend, reason = _choose(device.type)
    if backend is not None:
        try:
            backend.prepare(name, number, device)
        except Exception as error:  # as above
            return None, _first_line(error)
    return backend, reason


def backend_for(device: torch.device) -> Backend | None:
    """The backend for tensors on ``device``; None stands for the plain torch path (one warning tells why)."""
    backend, reason = _choose(device.type)
    if backend is None:
        _warn(device.type, reason)
    return backend


def has_kernel(device: torch.device, name: str, number: str) -> bool:
    """Whether the kernel ``name`` serves a device, or the plain torch path does (one warning tells why)."""
    backend, reason = _prepared(device, name, number)
    if backend is None:
        _warn(device.type, reason)
    return backend is not None


# What torch.compiler.assume_constant_result does, without importing torch._dynamo, which takes as long as torch.
has_kernel._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _version(package: str) -> str | None:
    from importlib.metadata import distributions

    return next((d.version for d in distributions() if (d.metadata["Name"] or "").lower().startswith(package)), None)


def describe() -> dict[str, object]:
    """Everything about kernels, compiler, cache and devices, for ``gpuparse info``."""
    cpu, cpu_reason = _choose("cpu")
    cuda = []
    if torch.cuda.is_available():
        gpu, gpu_reason = _choose("cuda")
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            cuda.append(
                {
                    "name": properties.name,
                    "capability": f"{properties.major}.{properties.minor}",
                    "path": "torch" if gpu is None else "kernels",
                    "reason": gpu_reason,
                }
            )
    try:
        directory = str(kernels_directory())
    except FileNotFoundError as error:
        directory = str(error)
    return {
        "kernels_dir": directory,
        "cache": describe_cache(),
        "compiler": {"path": find_compiler(), "version": compiler_version(), "flags": [*FLAGS, *native_flags()]},
        "cpu": {
            "path": "torch" if cpu is None else "kernels",
            "reason": cpu_reason,
            "threads": torch.get_num_threads(),
            "model": cpu_model(),
        },
        "cupy": _version("cupy"),
        "cuda": cuda,
    }
