"""Treebanks and their folds, models that are there, what gpuparse parse says at its end."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from bench import models
from bench.commands import parse_summary, settings
from bench.models import Treebank, check_trained, train, treebanks
from bench.output import Problem
from bench.parsers import Sums
from bench.suites.ilp_conjunctions import conjunction_headed
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.conllu import write_conllu


@pytest.fixture
def args(tmp_path: Path) -> Namespace:
    for name, seed in (("a.conllu", 0), ("b.conllu", 1)):
        write_conllu(artificial_treebank(7, seed=seed), tmp_path / name)
    return Namespace(treebanks=tmp_path)


def test_folds_parse_every_sentence_once(args: Namespace) -> None:
    folds = Treebank("a.conllu").folds(args, 3)
    assert [len(fold.parsed) for fold in folds] == [3, 2, 2]
    for fold in folds:
        assert isinstance(fold.learned, list)
        learned, parsed = ({s.text for s in some} for some in fold)
        assert len(learned | parsed) == 7 and not learned & parsed
    (fold,) = Treebank("a.conllu", "b.conllu").folds(args, 3)  # a file to learn from is one fold
    assert fold.learned == args.treebanks / "b.conllu" and len(fold.parsed) == 7


def test_treebanks_by_the_environment(args: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPARSE_TREEBANKS", str(args.treebanks))
    assert treebanks(Namespace(treebanks=None)) == args.treebanks
    monkeypatch.delenv("GPUPARSE_TREEBANKS")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Problem, match="shared/treebanks: say where"):
        patch.setattr(models, "PROJECT", args.treebanks / "project")
        treebanks(Namespace(treebanks=None))


def test_what_is_not_there_is_a_line(args: Namespace, tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text("1\tbroken\n\n", encoding="utf-8")
    nowhere = Namespace(treebanks=tmp_path / "nowhere")
    for what, wrong in (
        (r"c\.conllu is not among the treebanks", lambda: Treebank("c.conllu").folds(args, 2)),
        ("say where they are by --treebanks or GPUPARSE_TREEBANKS", lambda: treebanks(nowhere)),
        ("no trained parser; python -m bench run ppc train", lambda: check_trained(tmp_path / "model", "ppc")),
        (r"a\.conllu", lambda: Treebank("a.conllu").folds(args, 2)),
    ):
        with pytest.raises(Problem, match=what):
            wrong()


def test_a_model_is_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(*given: object, show: bool) -> Namespace:
        asked.append([str(each) for each in given])
        return Namespace(seconds=3.0)

    monkeypatch.setattr(models, "run", run)
    model = tmp_path / "model"
    values = {"training.epochs": 2}
    assert train(model, list(artificial_treebank(2)), config="dutch.toml", values=values, threads=1) == 3.0
    assert asked[0][:4] == ["train", str(model), "--train", str(tmp_path / "model.train.conllu")]
    assert asked[0][-3:] == [*settings(values), "--resume"] and (tmp_path / "model.train.conllu").is_file()
    model.mkdir()
    for name in ("training.json", "model.safetensors"):
        (model / name).touch()
    assert train(model) is None and len(asked) == 1
    assert train(model, anew=True) == 3.0 and asked[1][-1] == "--overwrite"


def test_figures_and_conversions() -> None:
    line = "1,234 sentences, 20,000 words in 4.50 s, 4,444 words/s: encoder 80 %, decoding 15 %, other 5 %\n"
    found = parse_summary(f"progress\n{line}")
    assert (found["sentences"], found["words"], found["seconds"]) == (1234, 20000, 4.5)
    assert found["shares"] == {"encoder": 80.0, "decoding": 15.0, "other": 5.0}
    with pytest.raises(Problem, match="did not end with its summary"):
        parse_summary("killed")
    sums = Sums()
    for right, words in ((1, 2), (2, 4)):
        sums.add(right=right, words=words)
    assert sums == {"right": 3.0, "words": 6.0} and sums["never"] == 0.0
    assert sums.percent("right", "words") == 50.0
    # Cats and dogs run .
    heads, labels = conjunction_headed([4, 3, 1, 0, 4], ["nsubj", "cc", "conj", "root", "punct"])
    assert heads == [2, 4, 2, 0, 4] and labels == ["conj", "nsubj", "conj", "root", "punct"]
