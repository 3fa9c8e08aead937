"""Every kernel compiles, and for every supported GPU generation spills nothing, fits in shared memory, and leaves room
for enough warps at once."""

from __future__ import annotations

import re

import pytest

from gpuparse.ops.backend.base import SOURCES, instances, source_text
from gpuparse.ops.backend.gpu import MAX_BLOCK, OPTIONS
from tests.ptx.nvrtc import assembler_report, compile_ptx

ARCHITECTURES = ("75", "80", "86", "90", "100", "120")
STATIC_SHARED_BYTES = 48 * 1024
# Of a multiprocessor: kilobytes of shared memory, of which each block takes one for itself, and registers.
SHARED = {"75": 64, "80": 164, "86": 100, "90": 228, "100": 228, "120": 100}
REGISTERS = 65536
# Warps that are to run side by side on one, by registers and shared memory; LEAST of those not named. A warp takes
# registers by 8 for each of its lanes.
LEAST = 8
WARPS = {
    32: ("bp_settle", "check", "readings"),
    25: ("chain_topk", "eisner_topk", "multipliers"),
    16: (
        *("bp_grand", "cky_argmax", "eisner_sample", "lexical_argmax", "matrix_tree_sample", "mst"),
        *("viterbi", "viterbi_beam", "viterbi_forward"),
    ),
    12: (
        *("automata", "bp_children", "chain_sample", "cky_sample", "eisner", "eisner_argmax", "grandsiblings_argmax"),
        *("lexical_sample", "pricing", "siblings_argmax"),
    ),
}


def _assembles(name: str, virtual: str, architecture: str) -> None:
    """The PTX of one generation, as those after it are given it too."""
    kernels = instances(name)
    ptx, _ = compile_ptx(source_text(name), OPTIONS, [kernel.expression for kernel in kernels], virtual)
    told = assembler_report(ptx, architecture)
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", told)
    assert len(spills) == len(kernels), told
    assert set(spills) == {("0", "0")}, told
    least = next((warps for warps, names in WARPS.items() if name in names), LEAST)
    used = re.findall(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?", told)
    assert len(used) == len(kernels), told
    for registers, shared in ((int(x), int(y or 0)) for x, y in used):
        assert shared <= STATIC_SHARED_BYTES, told
        by_registers = REGISTERS // (-(-registers // 8) * 8 * 32)
        by_shared = SHARED[architecture] * 1024 // (shared + 1024) * MAX_BLOCK // 32
        assert min(by_registers, by_shared) >= least, told


def test_names_of_warps() -> None:
    named = [name for names in WARPS.values() for name in names]
    assert len(named) == len(set(named)) and set(named) <= set(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_compiles_without_spills(name: str) -> None:
    for architecture in ARCHITECTURES:
        _assembles(name, ARCHITECTURES[0], architecture)


@pytest.mark.exhaustive
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", SOURCES)
def test_compiles_for_each_architecture(name: str, architecture: str) -> None:
    _assembles(name, architecture, architecture)
