"""Loops of the kernels count as far as there is to count."""

from __future__ import annotations

import re

from gpuparse.ops.backend.base import kernels_directory

SIZES = r"(?:\(?\b(?:n|N|nodes|row|size)\b(?: [+-] \w+)*\)?)"
BOUND = re.compile(r"\b(?:LANES|PACKS|ROWS)\(\w+, ((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")


def long_bounds(code: str) -> list[str]:
    """Bounds of loops whose counter is an int and which triples of 1290 nodes are beyond; but for that of
    ``Results::fill``, where a longer one would make second-order kernels spill."""
    bounds: list[str] = BOUND.findall(code)
    return [x for x in bounds if re.search(r"\bcube\b", x) or re.search(rf"{SIZES} \* {SIZES} \* {SIZES}", x)]


def test_no_int_counts_triples_of_nodes() -> None:
    assert long_bounds(
        "LANES(k, (int)cube) x; LANES(k, n * N * (n + 1)) y; LANES(k, N * N) z; LONG_LANES(k, cube) u;"
    ) == [
        "(int)cube",
        "n * N * (n + 1)",
    ]
    files = sorted(kernels_directory().glob("*.cu*"))
    found = {file.name: bounds for file in files if (bounds := long_bounds(file.read_text()))}
    assert len(files) > 50 and not found
