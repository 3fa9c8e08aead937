"""Files of tensors (safetensors) that anybody may have made: looked at before anything is allocated for them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import isfinite, prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from gpuparse.system.files import open_file, parse_json
from gpuparse.system.quote import quoted, shown

MOST_HEADER = 16 << 20  # bytes of a header
_BYTES = 8  # a file begins with the length of its header
_MOST = 1 << 62  # of a size or a place in the file
_MOST_AXES = 16
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}


class Outline(NamedTuple):
    """What a tensor is, without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> Outline:
        return cls(tuple(tensor.shape), tensor.dtype)

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


class Header(NamedTuple):
    """What a file says of itself, and is."""

    tensors: dict[str, Outline]
    metadata: dict[str, str]


def read_header(path: Path, inside: Path | None = None, wrong: str = "not safetensors") -> Header:
    """The header of a file of tensors; ``ValueError``, in one line, where it is none that is whole.

    Args:
        inside: see ``open_file``.
        wrong: what is said of another file.
    """
    where = f"{path}: {wrong}"
    with open_file(path, inside) as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(_BYTES), "little")
        if size < _BYTES or length > size - _BYTES:
            raise ValueError(f"{where}: {size} bytes are too few; it was cut off, or is something else")
        if length > MOST_HEADER:
            raise ValueError(f"{where}: a header of {length:,} bytes; at most {MOST_HEADER:,} are read")
        saved = parse_json(file.read(length), f"{where}: its header")
    if not isinstance(saved, dict):
        raise ValueError(f"{where}: its header is {quoted(saved)}; wanted an object")
    metadata = saved.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError(f"{where}: __metadata__ is {quoted(metadata)}; wanted an object of strings")
    tensors, places = {}, []
    for name, entry in saved.items():
        try:
            tensors[name], place = _entry(entry)
        except ValueError as error:
            raise ValueError(f"{where}: {quoted(name)}: {error}") from None
        places.append((*place, name))
    end = 0
    for begin, until, name in sorted(places):
        if begin != end:
            what = "overlaps what is before it" if begin < end else f"leaves {begin - end:,} bytes before it"
            raise ValueError(f"{where}: {quoted(name)} {what}")
        end = until
    if end != size - _BYTES - length:
        raise ValueError(
            f"{where}: {size - _BYTES - length:,} bytes of tensors where its header has {end:,}; "
            "it was cut off, or is something else"
        )
    return Header(tensors, metadata)


def _entry(entry: Any) -> tuple[Outline, tuple[int, int]]:
    """A tensor's outline and place."""
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{quoted(entry)}; wanted dtype, shape and data_offsets")
    dtype, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise ValueError(f"dtype is {quoted(dtype)}; wanted one of {', '.join(_DTYPES)}")
    for name, sizes in (("shape", shape), ("data_offsets", place)):
        few = isinstance(sizes, list) and len(sizes) <= _MOST_AXES
        if not few or not all(type(each) is int and 0 <= each < _MOST for each in sizes):
            raise ValueError(f"{name} is {quoted(sizes)}; wanted a list of whole numbers, 0 or more")
    outline = Outline(tuple(shape), _DTYPES[dtype])
    if len(place) != 2 or place[1] - place[0] != outline.bytes:
        raise ValueError(
            f"data_offsets are {quoted(place)}; {dtype} of shape {quoted([*shape])} has {quoted(outline.bytes)} bytes"
        )
    return outline, (place[0], place[1])


def check_outlines(found: Mapping[str, Outline], wanted: Mapping[str, Outline]) -> None:
    """``ValueError``, in one line, where tensors are not those that are wanted, by name and shape.

    Where floating point is wanted, that of any precision will do.
    """
    for name, outline in wanted.items():
        if name not in found:
            raise ValueError(f"{quoted(name)} is missing, and {list(outline.shape)} is wanted")
        own = found[name]
        if own.shape != outline.shape:
            raise ValueError(
                f"{quoted(name)} has the shape {quoted([*own.shape])}, and {list(outline.shape)} is wanted"
            )
        if own.dtype != outline.dtype and not (own.dtype.is_floating_point and outline.dtype.is_floating_point):
            raise ValueError(f"{quoted(name)} is {_name(own.dtype)}, and {_name(outline.dtype)} is wanted")
    for name in found:
        if name not in wanted:
            raise ValueError(f"{quoted(name)} is there, and is not wanted")


def read_tensors(path: Path, inside: Path | None = None, wrong: str = "not safetensors") -> dict[str, Tensor]:
    """The tensors of a file. ``read_header`` says beforehand how much that is, and refuses what is none."""
    try:
        with open_file(path, inside), safe_open(os.path.realpath(path), framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except (SafetensorError, RuntimeError, OSError) as error:
        raise ValueError(f"{path}: {wrong}: {shown(str(error))}") from None


def not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor with a NaN or an infinity, if there is one."""
    for name, value in tensors.items():
        if value.is_floating_point() and value.numel():
            least, most = value.detach().aminmax()  # a NaN is both; quicker than to look at each by itself
            if not (isfinite(least.item()) and isfinite(most.item())):
                return name
    return None


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
