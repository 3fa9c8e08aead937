"""What a program would ask of a GPU, counted on a CPU: waits, operations, bytes, each by the line it came from.

    with budget() as found:
        gp.decode(scores, "dd")
    assert found.waits.total() <= 10, found.waits

A wait makes the host wait for the device. An operation is a torch operator that is no view, or a kernel of ours: about
one launch. Bytes are those of the tensors that operations made. Within it values are looked at only where they would be
on a GPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, cast
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

WAITS = {
    *("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "bincount"),
    *("_unique2", "unique_dim", "unique_consecutive"),
}
METHODS = ("cpu", "tolist", "numpy")  # which dispatch nothing on a CPU
SHOWN = 12


class Tally(Counter[str]):
    """How often, or how much, by what it was and the line that it came from."""

    def add(self, what: str, amount: int = 1) -> None:
        self[f"{what} at {_line()}"] += amount

    def __str__(self) -> str:
        rest = [f"and {len(self) - SHOWN} more"] if len(self) > SHOWN else []
        return "\n".join([f"{self.total()}:", *(f"{n:8} {what}" for what, n in self.most_common(SHOWN)), *rest])

    __repr__ = __str__


def _line() -> str:
    """The innermost line of the package that is being run; within operators that of who called them, if it has any."""
    within, frame = "", cast("FrameType | None", sys._getframe(1))
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("gpuparse."):
            within = f"{module}:{frame.f_lineno}"
            if not module.startswith("gpuparse.ops."):
                return within
        frame = frame.f_back
    return within or "the caller"


def is_launch(func: Any) -> bool:
    """Whether an operator does something, and does not just give a view of what there is."""
    returned = [x.alias_info for x in func._schema.returns]
    view = any(alias is not None and not alias.is_write for alias in returned)
    return not view and func._schema.name not in ("aten::lift_fresh", "aten::_unsafe_view")


class Budget(TorchDispatchMode):
    """What was counted."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.operations, self.bytes = Tally(), Tally(), Tally()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.partition("::")[2]
        if name in WAITS or _looks(name, args, kwargs):
            self.waits.add(name)
        made = func(*args, **kwargs)
        if is_launch(func):
            self.operations.add(name)
            self.bytes.add(name, sum(x.nbytes for x in tree_leaves(made) if isinstance(x, Tensor)))
        return made


def _looks(name: str, args: Any, kwargs: Any) -> bool:
    """Whether an operator waits because of what it is given."""
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name not in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return False
    given = [x for x in args[1] if x is not None]
    masks = [x for x in given if x.dtype in (torch.bool, torch.uint8)]
    filled = name != "index" and len(given) == 1 and args[2].numel() == 1  # which is masked_fill
    return bool(masks) and not filled


@contextmanager
def budget() -> Iterator[Budget]:
    """Counts what is done within it."""
    found = Budget()
    with ExitStack() as stack:
        for name in METHODS:
            stack.enter_context(patch.object(Tensor, name, _counted(getattr(Tensor, name), found, name)))
        for name in ("tensor", "as_tensor"):
            stack.enter_context(patch.object(torch, name, _counted(getattr(torch, name), found, name)))
        for module in [x for name, x in sys.modules.items() if name.partition(".")[0] == "gpuparse"]:
            if hasattr(module, "can_validate"):
                stack.enter_context(patch.object(module, "can_validate", lambda _, wanted: bool(wanted)))
        stack.enter_context(found)
        yield found


def _counted(call: Any, found: Budget, name: str) -> Any:
    def counted(*args: Any, **kwargs: Any) -> Any:
        if name in METHODS or (kwargs.get("device") is not None and not isinstance(args[0], Tensor)):
            found.waits.add(name)
        return call(*args, **kwargs)

    return counted
