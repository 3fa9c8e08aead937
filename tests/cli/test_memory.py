"""Memory that stays as it is: what is switched off within, and on again after."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from gpuparse.cli import memory


def test_onednn_is_off_within_and_as_before_after():
    before = torch.backends.mkldnn.is_available() and torch._C._get_mkldnn_enabled()
    with memory.steady_memory():
        assert not torch._C._get_mkldnn_enabled()
    assert torch._C._get_mkldnn_enabled() == before
    with pytest.raises(KeyError), memory.steady_memory():
        raise KeyError
    assert torch._C._get_mkldnn_enabled() == before


def test_large_blocks_are_given_back(monkeypatch):
    calls = []
    library = SimpleNamespace(mallopt=lambda *given: calls.append(given))
    monkeypatch.setattr(memory.ctypes, "CDLL", {None: library}.__getitem__)
    with memory.steady_memory():
        assert calls == [(-3, 1 << 20), (-1, 1 << 20)]
    monkeypatch.setattr(memory.ctypes, "CDLL", {None: object()}.__getitem__)  # one without mallopt
    with memory.steady_memory():
        assert not torch._C._get_mkldnn_enabled()


def test_nothing_is_said():
    """The first change of oneDNN's settings in a process brings a warning about other hardware: not ours to give."""
    program = "from gpuparse.cli.memory import steady_memory\nwith steady_memory(): pass"
    done = subprocess.run([sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, check=True)
    assert "TF32" not in done.stderr
