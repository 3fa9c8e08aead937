"""Memory: how much there is."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from gpuparse.system import room

CPU = torch.device("cpu")


def test_there_is_some():
    free = room.available(CPU)
    assert free is not None and 0 < free < 1 << 50


@pytest.mark.parametrize("name", ["RLIMIT_AS", "RLIMIT_DATA"])
def test_limits_of_the_process(monkeypatch, name):
    wanted = getattr(resource, name)
    monkeypatch.setattr(
        room.resource, "getrlimit", lambda kind: (1000, 1000) if kind == wanted else (resource.RLIM_INFINITY,) * 2
    )
    assert room.available(CPU) == 0  # more is in use than is allowed


@pytest.mark.parametrize(
    ("line", "base", "names"),
    [
        ("0::/a/b", "", ("memory.max", "memory.current")),
        ("5:cpu,memory:/a/b", "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")),
    ],
)
def test_limits_of_containers(tmp_path, monkeypatch, line, base, names):
    above = tmp_path / base / "a"
    (above / "b").mkdir(parents=True)
    (above / "b" / names[0]).write_text("max\n")
    (above / "b" / names[1]).write_text("5\n")
    (above / names[0]).write_text("5000\n")
    (above / names[1]).write_text("3000\n")
    (above / "memory.stat").write_text("anon 7\ninactive_file 400\n")
    monkeypatch.setattr(room, "_CGROUP", tmp_path)
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: line if str(path) == "/proc/self/cgroup" else read(path))
    assert room._cgroups() == [2400]
    assert room.available(CPU) == 2400


def test_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 9000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    assert room.available(torch.device("cuda:1")) == 1300


def test_parts(monkeypatch):
    """What fits is done in one piece, what does not in halves, and what never does is left."""
    monkeypatch.setattr(room, "available", lambda device: 1 << 30)
    tried = []

    def run(some):
        tried.append(list(some))
        if sum(some) > 12:
            raise MemoryError
        return [10 * each for each in some]

    found = room.in_parts([1, 2, 3, 4, 50, 6, 20], lambda some: 1 << 33 if 50 in some else 1, run, CPU)
    assert [each for each in found if not isinstance(each, room.NoRoom)] == [10, 20, 30, 40, 60]
    assert [place for place, each in enumerate(found) if isinstance(each, room.NoRoom)] == [4, 6]
    assert "needs about 9 GB of memory and 1 GB are free" in str(found[4])
    assert "which could not be had" in str(found[6])
    assert not any(50 in some for some in tried)


def test_a_gpu_gives_back_what_it_keeps(monkeypatch):
    emptied = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))

    def run(some):
        raise torch.OutOfMemoryError("CUDA out of memory")

    found = room.in_parts([1, 2], lambda some: 1, run, torch.device("cuda"))
    assert all(isinstance(each, room.NoRoom) for each in found) and emptied
