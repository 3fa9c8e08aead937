"""The top of the package: its names, and what importing it imports."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import gpuparse as gp

ROOT = Path(__file__).parents[1]
MODULES = ["evaluate", "render", "train"]  # in the README by these names
BESIDE = ["BeliefPropagation", "DualDecomposition", "Proof"]  # in the README too, and at home in their modules


def run(code: str) -> str:
    """The output of a program in a fresh process."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    return done.stdout


def test_at_most_sixteen_names():
    assert len(gp.__all__) <= 16
    assert [name for name in dir(gp) if not name.startswith("_")] == sorted(gp.__all__)


def test_names_of_the_readme():
    used = set(re.findall(r"\bgp\.([A-Za-z]\w*)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert used <= {*gp.__all__, *BESIDE, *MODULES}
    assert all(callable(getattr(gp, name)) for name in used - {*MODULES})


def test_no_class_has_the_name_of_another():
    files = (path.read_text(encoding="utf-8") for path in Path(gp.__file__).parent.rglob("*.py"))
    names = Counter(name for text in files for name in re.findall(r"^class (\w+)", text, re.MULTILINE))
    assert [name for name, count in names.items() if count > 1] == []


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(gp.__file__).read_text(encoding="utf-8"))
    seen = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("gpuparse.") and "system" not in node.module:
            seen |= dict.fromkeys((name.name for name in node.names), node.module)
    assert sorted(seen) == sorted([*gp.__all__, *BESIDE])
    for name, module in seen.items():
        assert getattr(gp, name) is getattr(importlib.import_module(module), name), name


def test_names_that_are_not_there():
    with pytest.raises(AttributeError, match="module 'gpuparse' has no attribute 'Nothing'"):
        _ = gp.Nothing
    with pytest.raises(ImportError, match="Nothing"):
        from gpuparse import Nothing  # noqa: F401


def test_importing_imports_no_torch():
    assert run("import sys, gpuparse; print('torch' in sys.modules)") == "False\n"


def test_modules_come_by_their_names_and_not_before():
    """And what is drawn from the top needs no torch, what is trained no other library that is there."""
    found = run(
        "import sys, gpuparse as gp; print('gpuparse.render' in sys.modules);"
        "print(gp.render.write_page.__name__, 'torch' in sys.modules);"
        "print(gp.evaluate.evaluate.__name__, gp.train.train.__name__);"
        "print(*({'huggingface_hub', 'resvg_py', 'spacy', 'transformers'} & {*sys.modules}))"
    )
    assert found.split() == ["False", "write_page", "False", "evaluate", "train"]
    assert not {*MODULES} & {*gp.__all__}


@pytest.mark.slow
def test_functions_are_functions_whatever_was_imported_before():
    """Also where a module was imported first; and submodules come by their names."""
    code = """
        import importlib, sys, types
        import gpuparse
        for module in {modules!r}:
            importlib.import_module(module)
        for name in {names!r}:
            assert not isinstance(getattr(gpuparse, name), types.ModuleType), name
        from gpuparse import decode, mst, verify, viterbi
        assert (decode, mst) == (gpuparse.decode, gpuparse.mst) and callable(decode) and callable(verify)
        assert gpuparse.lp is sys.modules["gpuparse.lp"] and gpuparse.dual.second_order
        assert "torch._dynamo" not in sys.modules
    """
    names = [*gp.__all__, *BESIDE]
    before = [
        "gpuparse.decoding.methods",
        "gpuparse.decoding.spanning",
        "gpuparse.decoding.verifying",
        "gpuparse.decoding.parse",
        "gpuparse.decoding.viterbi",
    ]
    for modules, order in (([], names), (["gpuparse.lp", "gpuparse.train"], names[::-1]), (before, names)):
        assert run(re.sub(r"(?m)^ {8}", "", code).format(modules=modules, names=order)) == ""
