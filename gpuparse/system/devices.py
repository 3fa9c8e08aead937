"""Devices by their names."""

from __future__ import annotations

import warnings

import torch


def as_device(device: torch.device | str) -> torch.device:
    """The device that is named, if it is one that parsers run on and is to be had."""
    try:
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device: {str(device)!r} is not to be had ({reason}); cpu, cuda or cuda:0, say") from None
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device: {str(device)!r} is neither cpu nor cuda")
    return found


def takes_bf16(device: torch.device) -> bool:
    """Whether a device works in bfloat16: a CPU does, and a GPU of capability 8.0 or more. If not, that is said."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0):
        return True
    name = torch.cuda.get_device_name(device)
    warnings.warn(f"training.bf16: {name} has no bfloat16; training goes on in float32", RuntimeWarning, stacklevel=2)
    return False
