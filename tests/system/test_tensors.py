"""Files of tensors that anybody may have made."""

from __future__ import annotations

import json
import os
import struct
import time

import pytest
import torch
from safetensors.torch import save_file

from gpuparse.system.tensors import MOST_HEADER, Outline, check_outlines, not_finite, read_header, read_tensors
from tests.refusals import refusal

SMALL = {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(4, dtype=torch.int64), "c": torch.zeros(0, 5)}


@pytest.fixture
def path(tmp_path):
    save_file(SMALL, tmp_path / "x.safetensors", {"note": "größe"})
    return tmp_path / "x.safetensors"


def rewrite(path, change=None, *, length=None, data=None):
    """Another header, or another length of it, or other data."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size]
    if change is not None:
        changed = json.loads(header)
        result = change(changed)
        header = result if isinstance(result, bytes) else json.dumps(changed if result is None else result).encode()
    data = content[8 + size :] if data is None else data(content[8 + size :])
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + data)


def refused(path):
    began = time.perf_counter()
    line = refusal(read_header, path, path.parent, "not the weights", longest=700)
    assert time.perf_counter() - began < 1 and line.startswith(f"{path}: not the weights: ")
    return line.removeprefix(f"{path}: not the weights: ")


def test_a_file_that_is_whole(path):
    header = read_header(path)
    assert header.metadata == {"note": "größe"}
    assert header.tensors == {name: Outline.of(value) for name, value in SMALL.items()}
    found = read_tensors(path, path.parent)
    assert found.keys() == SMALL.keys() and all(torch.equal(found[name], SMALL[name]) for name in SMALL)


def entry(name, **changes):
    return lambda header: header[name].update(changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: b"[" * 100_000, "its header: more than 32 lists or objects in one another"),
        (lambda header: b"[]", "its header is []; wanted an object"),
        (lambda header: b'{"a":1,"a":2}', "its header: not JSON: 'a' is there twice"),
        (lambda header: b"\xff", "its header: not JSON: 'utf-8' codec can't decode"),
        (lambda header: header.update(a=None), "'a': None; wanted dtype, shape and data_offsets"),
        (lambda header: header["a"].update(more=1), "'a': {"),
        (lambda header: header["a"].pop("dtype") and None, "'a': {"),
        (lambda header: header.update(__metadata__={"x": 1}), "__metadata__ is {'x': 1}; wanted an object of strings"),
        (lambda header: header.update(__metadata__=[]), "__metadata__ is []; wanted an object of strings"),
        (entry("a", dtype="F31"), "'a': dtype is 'F31'; wanted one of BOOL"),
        (entry("a", dtype=None), "'a': dtype is None; wanted one of BOOL"),
        (entry("a", dtype=["F32"]), "'a': dtype is ['F32']; wanted one of BOOL"),
        (entry("a", dtype="F64"), "'a': data_offsets are [32, 56]; F64 of shape [2, 3] has 48 bytes"),
        (entry("a", shape=[2, 4]), "'a': data_offsets are [32, 56]; F32 of shape [2, 4] has 32 bytes"),
        (entry("a", shape=[2**40, 2**40]), "'a': data_offsets are [32, 56]; F32 of shape"),
        (entry("a", shape=[2**62]), "'a': shape is [4611686018427387904]; wanted a list of whole numbers"),
        (entry("a", shape=[-2, -3]), "'a': shape is [-2, -3]; wanted a list of whole numbers"),
        (entry("a", shape=[2.0, 3]), "'a': shape is [2.0, 3]; wanted a list of whole numbers"),
        (entry("a", shape=[True, 6]), "'a': shape is [True, 6]; wanted a list of whole numbers"),
        (entry("a", shape="23"), "'a': shape is '23'; wanted a list of whole numbers"),
        (entry("a", shape=[2**61] * 100_000), "'a': shape is [2305843009213693952, "),
        (entry("a", data_offsets=[32]), "'a': data_offsets are [32]; F32"),
        (entry("a", data_offsets=[56, 32]), "'a': data_offsets are [56, 32]; F32"),
        (entry("a", data_offsets=[0, 24]), "'b' overlaps what is before it"),
        (entry("a", data_offsets=[36, 60]), "'a' leaves 4 bytes before it"),
        (entry("a", data_offsets=[10**12, 10**12 + 24]), "'c' leaves 24 bytes before it"),
        (lambda header: header.pop("a") and None, "'c' leaves 24 bytes before it"),
        (lambda header: header.update({"x" * 10**5: 1}), "'xxx"),
        (lambda header: header.update({"\x1b[31m\n": 1}), r"'\x1b[31m\n': 1; wanted dtype"),
    ],
)
def test_headers_of_strangers(path, change, message):
    rewrite(path, change)
    assert refused(path).startswith(message)


@pytest.mark.parametrize("length", [0, 1, 2**31, 2**63, 2**64 - 1])
def test_headers_of_another_length(path, length):
    rewrite(path, length=length)
    refused(path)


def test_a_header_that_is_too_long(path):
    rewrite(path, lambda header: json.dumps(header).encode() + b" " * MOST_HEADER)
    assert refused(path).startswith("a header of 16,77")


def test_more_and_less_data(path):
    rewrite(path, data=lambda data: data[:-1])
    assert refused(path).startswith("55 bytes of tensors where its header has 56")
    rewrite(path, data=lambda data: data + b"\0\0")
    assert refused(path).startswith("57 bytes of tensors where its header has 56")
    os.truncate(path, 1 << 40)  # a hole
    assert "bytes of tensors where its header has 56" in refused(path)
    for size in (0, 7, 8, 20):
        path.write_bytes(b"\x30" * size)
        refused(path)


def test_outlines():
    wanted = {"a": Outline((2, 3), torch.float32), "b": Outline((4,), torch.int64)}
    check_outlines(wanted, wanted)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        check_outlines({**wanted, "a": Outline((2, 3), dtype)}, wanted)
    for found, message in (
        ({"a": wanted["a"]}, "'b' is missing, and [4] is wanted"),
        ({**wanted, "c": wanted["a"]}, "'c' is there, and is not wanted"),
        ({**wanted, "a": Outline((3, 2), torch.float32)}, "'a' has the shape [3, 2], and [2, 3] is wanted"),
        ({**wanted, "a": Outline((2, 3), torch.int64)}, "'a' is int64, and float32 is wanted"),
        ({**wanted, "b": Outline((4,), torch.float32)}, "'b' is float32, and int64 is wanted"),
    ):
        assert refusal(check_outlines, found, wanted) == message


def test_numbers_that_are_none():
    assert not_finite(SMALL) is None
    for wrong in (torch.nan, torch.inf, -torch.inf):
        assert not_finite({**SMALL, "d": torch.tensor([1.0, wrong])}) == "d"
