"""What all tests share: which are left out and why, where the treebanks are, and what was skipped."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from gpuparse.data import Sentence
from gpuparse.data.vocab import Vocabulary
from gpuparse.ops.backend import choose
from gpuparse.ops.backend.cpu import find_compiler

TESTS = Path(__file__).resolve().parent

# Modules that train, start processes, compile or enumerate: with all that is in them, left out of `make check`. Of a
# package that is slow as a whole, those that are quick stay.
SLOW = (
    *("cli", "decoding/chain", "fuzz", "kernels/test_nvrtc.py", "models/test_directories.py", "nn/test_templates.py"),
    *("decoding/bp/test_belief_propagation.py", "decoding/bp/test_propagators.py", "structures/test_trees.py"),
    *("decoding/dual/test_decomposition.py", "decoding/dual/test_fallback.py", "decoding/dual/test_joint.py"),
    *("decoding/dual/test_priced.py", "decoding/bp/test_paths.py", "train"),
    *("decoding/lp/test_constrained_decoding.py", "decoding/lp/test_doubt.py", "decoding/lp/test_ilp.py"),
    *("decoding/lp/test_p", "decoding/test_certificates.py", "decoding/test_methods.py", "decoding/test_priced.py"),
    "decoding/test_verifying.py",
    *("distributions/test_every_", "distributions/test_objects.py", "distributions/test_trees.py"),
    *("ops/backend/test_environment.py", "ops/test_automata.py", "ops/test_chain_operators.py"),
    *("ops/test_operators.py", "ops/test_pricing.py", "integrations", "models/test_hub.py"),
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


@pytest.fixture(params=["kernels", "torch"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to compute; what is refused and what is not read is the same."""
    if request.param == "torch":
        monkeypatch.setattr(choose, "_prepared", lambda *_: (None, "GPUPARSE_BACKEND=torch"))
    return str(request.param)


@pytest.fixture(scope="module")
def vocabulary(treebank: list[Sentence]) -> Vocabulary:
    """Of the module's own treebank."""
    return Vocabulary.build(treebank)


Simulate = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """Runs a module of the tests, with arguments, in a process whose torch thinks that it has a `cuda` device."""
    given = dict(os.environ)
    if not torch.backends.cuda.is_built():
        compiler = find_compiler()
        assert compiler is not None, "the tests need a C++ compiler"
        library, home = tmp_path_factory.mktemp("guard") / "guard.so", Path(torch.__file__).parent
        command = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", f"-I{home}/include", str(TESTS / "guard.cpp")]
        libraries = [f"-L{home}/lib", f"-Wl,-rpath,{home}/lib", "-lc10", "-ltorch_cpu"]
        subprocess.run([*command, "-o", str(library), *libraries], check=True)
        given["LD_PRELOAD"] = str(library)

    def simulate(module: str, *args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "ignore", "-m", module, *args]
        done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent, env=given)
        assert done.returncode == 0, done.stderr[-3000:]
        return done

    return simulate
