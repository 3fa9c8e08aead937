"""Break single lines of gpuparse at random and count what its tests catch: ``python -m tools.mutations [--count 60]``.

A mutation changes one operator, number, truth value or call (``+`` to ``-``, ``<`` to ``<=``, ``min`` to ``max``) in a
copy of the project, and those tests of its package that run the line are run, the quickest first, until the first
failure. What no test catches is printed, for somebody to look at: a line that changes nothing but the time it takes
cannot be caught by tests that assert results. Which test runs which line, and for how long, is found first, in some
minutes; ``--data`` keeps and reuses that.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from coverage import CoverageData

PACKAGES = {
    "gpuparse/ops": ("tests/ops", "tests/distributions", "tests/decoding"),
    "gpuparse/distributions": ("tests/distributions",),
    "gpuparse/decoding/ilp": ("tests/decoding",),
    "gpuparse/decoding/ppc": ("tests/decoding",),
    "gpuparse/decoding/dual": ("tests/decoding",),
    "gpuparse/decoding/bp": ("tests/decoding",),
}
"""What is broken, and whose tests have to notice."""
TESTS = "not emulated and not exhaustive"
SECONDS = 60  # of a test run, beside
SLOWER = 10  # times what its tests took before: one that takes longer hangs, and is caught
AT_ONCE = 100  # tests of a line that are run together; the rest only if none of these fails
OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
CALLS = {"min": "max", "max": "min", "amin": "amax", "amax": "amin", "any": "all", "all": "any"}
KEYWORDS = ("strict", "repr", "init", "eq", "frozen", "stacklevel")
"""Arguments that only check or describe the program itself."""


class Mutation(NamedTuple):
    file: str
    line: int
    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        lines = text.split("\n")
        line = lines[self.line - 1].encode()
        lines[self.line - 1] = (line[: self.start] + self.new.encode() + line[self.end :]).decode()
        return "\n".join(lines)


def _between(lines: Sequence[bytes], left: ast.expr, right: ast.expr, old: str, new: str) -> tuple[int, int, int, str]:
    """Where the operator between two operands stands, if that is on one line; else a line of 0."""
    if left.end_lineno != right.lineno or left.end_col_offset is None:
        return 0, 0, 0, ""
    at = lines[right.lineno - 1].find(old.encode(), left.end_col_offset, right.col_offset)
    return (right.lineno, at, at + len(old), new) if at >= 0 else (0, 0, 0, "")


def _of_node(node: ast.AST, lines: Sequence[bytes]) -> Iterator[tuple[int, int, int, str]]:
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        yield _between(lines, node.left, node.right, *OPERATORS[type(node.op)])
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in OPERATORS:
        yield _between(lines, node.left, node.comparators[0], *OPERATORS[type(node.ops[0])])
    elif isinstance(node, ast.BoolOp):
        yield _between(lines, node.values[0], node.values[1], *OPERATORS[type(node.op)])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield node.lineno, node.col_offset, node.col_offset + (4 if isinstance(node.op, ast.Not) else 1), ""
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)) and node.end_col_offset:
        new = str(not node.value) if isinstance(node.value, bool) else str(node.value + 1)
        yield node.lineno, node.col_offset, node.end_col_offset, new
    elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        end = node.func.end_col_offset
        if name in CALLS and end:
            yield node.func.end_lineno or 0, end - len(name), end, CALLS[name]


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """What is run when its function is called: no annotation, no raised message, no assertion."""
    if isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr)):
        return
    if isinstance(node, ast.keyword) and node.arg in KEYWORDS:
        return
    yield node
    skipped = {"annotation", "returns", "decorator_list"}
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in skipped:
                yield from _parts(child)


def mutations(file: Path, root: Path) -> list[Mutation]:
    """All single changes of a file's functions."""
    text = file.read_text(encoding="utf-8")
    lines, found = [line.encode() for line in text.split("\n")], set()
    for function in (x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.FunctionDef)):
        for statement in function.body:
            for node in _parts(statement):
                for line, start, end, new in _of_node(node, lines):
                    if line:
                        found.add(Mutation(str(file.relative_to(root)), line, start, end, new))
    return sorted(found)


def choose(root: Path, count: int, seed: int) -> list[Mutation]:
    """Lines at random, each as likely as any other, with one of their mutations each."""
    rng, by_line = random.Random(seed), {}
    for package in PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            for m in mutations(file, root):
                by_line.setdefault((m.file, m.line), []).append(m)
    return [rng.choice(by_line[line]) for line in rng.sample(sorted(by_line), count)]


def _pytest(copy: Path, *arguments: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", TESTS, *arguments]
    return subprocess.run(command, cwd=copy, env=_environment(copy), capture_output=True, text=True, timeout=seconds)


def _caught(copy: Path, tests: Sequence[str], seconds: Mapping[str, float]) -> str:
    """Which test failed first, or "" if none did."""
    for k in range(0, len(tests), AT_ONCE):
        some = tests[k : k + AT_ONCE]
        try:
            done = _pytest(copy, "-x", *some, seconds=SECONDS + SLOWER * sum(seconds.get(name, 0.0) for name in some))
        except subprocess.TimeoutExpired:
            return "a test that hangs"
        if done.returncode not in (0, 5):
            failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return (failed or [f"pytest, status {done.returncode}"])[0]
    return ""


def _run_by(copy: Path, data: Path) -> tuple[CoverageData, dict[str, float]]:
    """Which tests run which line, and the seconds of each test."""
    times = data.with_suffix(".xml")
    if not (data.exists() and times.exists()):
        tests = sorted({test for tests in PACKAGES.values() for test in tests})
        how = ("--cov=gpuparse", "--cov-context=test", "--cov-report=", f"--junitxml={times}")
        done = _pytest(copy, "-n", "2", *how, *tests)
        if done.returncode:
            sys.exit(f"the tests fail before anything is broken:\n{done.stdout[-3000:]}")
        shutil.copy(copy / ".coverage", data)
    found = CoverageData(str(data))
    found.read()
    cases = ElementTree.parse(times).iter("testcase")
    return found, {_id(x.get("classname", ""), x.get("name", "")): float(x.get("time", 0)) for x in cases}


def _id(module: str, name: str) -> str:
    """A test as pytest takes it on its command line."""
    return f"{module.replace('.', '/')}.py::{name}"


def tests_of(found: CoverageData, m: Mutation, tests: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
    """The tests in those directories that run a line, the quickest first."""
    (file,) = [name for name in found.measured_files() if name.endswith(f"/{m.file}")] or [""]
    contexts = found.contexts_by_lineno(file).get(m.line, []) if file else []
    names = {context.partition("|")[0] for context in contexts}
    ours = [name for name in names if name.startswith(tuple(f"{test}/" for test in tests))]
    return sorted(ours, key=lambda name: (seconds.get(name, 0.0), name))


def _environment(copy: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="how many lines to break")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=0, help="how many of them were tried before")
    parser.add_argument("--data", type=Path, default=Path(tempfile.gettempdir()) / "mutations.coverage")
    args = parser.parse_args()
    root = Path(__file__).resolve().parents[1]
    chosen, survived = [*enumerate(choose(root, args.count, args.seed), 1)][args.skip :], 0
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "gpuparse"
        shutil.copytree(
            root, copy, ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", "results", "__pycache__")
        )
        found, seconds = _run_by(copy, args.data)
        for number, m in chosen:
            tests = next(tests for package, tests in PACKAGES.items() if m.file.startswith(package + "/"))
            text = (copy / m.file).read_text(encoding="utf-8")
            (copy / m.file).write_text(m.apply(text), encoding="utf-8")
            by = _caught(copy, tests_of(found, m, tests, seconds), seconds)
            (copy / m.file).write_text(text, encoding="utf-8")
            survived += not by
            print(f"{number}/{args.count} {m.file}:{m.line}: {by[:100] or 'NOT CAUGHT'}", flush=True)
            if not by:
                print(f"    - {text.split(chr(10))[m.line - 1].strip()}")
                print(f"    + {m.apply(text).split(chr(10))[m.line - 1].strip()}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} caught")


if __name__ == "__main__":
    main()
