"""What all tests share: which are left out and why, where the treebanks are, and what was skipped."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from gpuparse.data import Sentence
from gpuparse.data.vocab import Vocabulary
from gpuparse.ops.backend.cpu import find_compiler

GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace { C10_REGISTER_GUARD_IMPL(CUDA, c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA>) }
"""


# Modules that train, start processes, compile or enumerate: with all that is in them, left out of `make check`. Of a
# package that is slow as a whole, those that are quick stay.
SLOW = (
    *("decoding/chain", "cli", "fuzz", "train"),
    *("decoding/bp/test_belief_propagation.py", "decoding/bp/test_propagators.py"),
    *("distributions/test_every_", "distributions/test_objects.py", "distributions/test_trees.py"),
    *("decoding/dual/test_decomposition.py", "decoding/dual/test_joint.py"),
    *(
        "decoding/lp/test_constrained_decoding.py",
        "decoding/lp/test_doubt.py",
        "decoding/lp/test_ilp.py",
        "decoding/lp/test_p",
    ),
    *("ops/test_chain_operators.py", "ops/test_operators.py"),
    *(
        "ops/backend/test_environment.py",
        "cli/corpus/test_resuming.py",
        "kernels/test_nvrtc.py",
        "nn/test_templates.py",
    ),
    *(
        "ops/test_automata.py",
        "decoding/test_certificates.py",
        "decoding/test_methods.py",
        "cli/test_demo.py",
        "test_fake_cuda.py",
    ),
    *(
        "fuzz",
        "models/test_directories.py",
        "ops/test_pricing.py",
        "structures/test_trees.py",
        "decoding/test_verifying.py",
    ),
)


def _no_emulator() -> str | None:
    """Why kernels cannot be emulated here."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "the PTX emulator needs Linux on x86-64"
    missing = [name for name in ("cupy_backends", "nvidia.cuda_nvrtc") if _missing(name)]
    return f"the PTX emulator needs {' and '.join(missing)}" if missing else None


def _missing(name: str) -> bool:
    try:
        return find_spec(name) is None
    except ModuleNotFoundError:  # what it would be within
        return True


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here, reason = Path(__file__).parent, _no_emulator()
    slow = tuple(str(here / path) for path in SLOW)
    for item in items:
        if str(item.path).startswith(slow):
            item.add_marker(pytest.mark.slow)
        if reason and item.get_closest_marker("emulated"):
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Skipped tests, counted by their reasons."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(_reason(report.longrepr) for report in skipped)
    if reasons:
        terminalreporter.write_sep("=", f"{len(skipped)} skipped")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:5} × {reason}")


def _reason(told: object) -> str:
    """Of a skip, which pytest reports as a file, a line and a text."""
    return str(told[2] if isinstance(told, tuple) else told).removeprefix("Skipped: ")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tensors as small as those of most tests only lose by threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def vocabulary(treebank: list[Sentence]) -> Vocabulary:
    """Of the module's own treebank."""
    return Vocabulary.build(treebank)


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The library that a torch without CUDA needs for fake `cuda` tensors (see fake_cuda.py)."""
    if torch.backends.cuda.is_built():
        return []
    compiler = find_compiler()
    assert compiler is not None, "the tests need a C++ compiler"
    place, home = tmp_path_factory.mktemp("guard"), Path(torch.__file__).parent
    (place / "guard.cpp").write_text(GUARD)
    command = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", f"-I{home}/include", "guard.cpp"]
    subprocess.run([*command, "-o", "guard.so", f"-L{home}/lib", "-lc10"], cwd=place, check=True)
    return [str(place / "guard.so")]
