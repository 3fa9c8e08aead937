"""Devices by their names."""

from __future__ import annotations

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
