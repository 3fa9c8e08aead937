"""The examples in docstrings run and print what they say, and what is public has one."""

from __future__ import annotations

import doctest
import inspect
import pkgutil
from importlib import import_module

import pytest

import gpuparse as gp
from gpuparse import dual
from gpuparse.train import loop

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
PUBLIC = ("bp", "data", "distributions", "dual", "evaluate", "lp", "render", "train")
ALSO = ("decoding.parts.DenseParts", "models.pipeline.Pipeline", "decoding.proofs.Proof")
ALSO += ("decoding.viterbi.Tagging", "decoding.viterbi.Transitions")
# Classes to derive from, which their families show, and what others make and give.
WITHOUT = {"bp.Graph", "bp.Values", "distributions.ChainDistribution", "distributions.TreeDistribution"}
WITHOUT |= {"data.ConlluError", "dual.Oracle", "dual.Step", "train.TrainingReport"}
WITHOUT |= {f"evaluate.{name}Row" for name in ("ArcLength", "Label", "SentenceLength")}
WITHOUT |= {f"evaluate.{name}" for name in ("BracketScores", "Breakdown", "Confusion", "Evaluation", "Score")}
WITHOUT |= {f"render.{name}" for name in ("ParsedFile", "Tally", "Token")}


def modules() -> list[str]:
    found = (module.name for module in pkgutil.walk_packages(gp.__path__, "gpuparse."))
    return [name for name in found if not name.endswith("__main__")]


@pytest.mark.parametrize("name", modules())
def test_examples(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "draw_curve", lambda *_: True)  # matplotlib takes seconds
    if name.startswith("gpuparse.integrations."):
        pytest.importorskip("spacy", reason="no spacy")
    module = import_module(name)
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(example)
    assert runner.failures == 0


def public() -> dict[str, object]:
    """What is public, by its name."""
    found: dict[str, object] = {name: getattr(gp, name) for name in gp.__all__}
    names = [*ALSO, *(f"{name}.{each}" for name in PUBLIC for each in import_module(f"gpuparse.{name}").__all__)]
    for name in names:
        module, _, each = name.rpartition(".")
        thing = getattr(import_module(f"gpuparse.{module}"), each)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            found[name] = thing
    return found


@pytest.mark.parametrize("name", [name for name in public() if name not in WITHOUT])
def test_what_is_public_has_an_example(name: str) -> None:
    assert ">>>" in (inspect.getdoc(public()[name]) or "")


def test_what_is_public_says_what_it_is() -> None:
    elsewhere = {*vars(dual.Oracle), *vars(dual.Step), "shrink"}  # the protocol says it
    silent = [
        f"{name}.{each}"
        for name, thing in public().items()
        for each, method in [("", thing), *(vars(thing).items() if inspect.isclass(thing) else ())]
        if not each or (each[0] != "_" and inspect.isfunction(method) and each not in elsewhere)
        if not inspect.getdoc(method)
    ]
    assert silent == []
