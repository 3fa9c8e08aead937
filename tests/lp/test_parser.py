"""A parser under constraints, from Python and from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from gpuparse.cli.parse import parse
from gpuparse.data import read_conllu, write_conllu
from gpuparse.lp import Arcs, Children, Constraint, Unique, Words
from gpuparse.parser import Parser
from gpuparse.train import loop
from tests.train.small import run, sentences


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "parser"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curve", lambda *_: True)
        run(path, "training.epochs=1")
    return path


def violations(parser: Parser, given: Any, parsed: Any, constraints: list[Constraint]) -> int:
    names = parser.vocabulary.labels.names
    count = 0
    for sentence, answer in zip(given, parsed, strict=True):
        words = Words.of(sentence.words, sentence.upos, names)
        labels = [names.index(name) for name in answer.deprels]
        count += any(True for c in constraints for _ in c.violated(words, [-1, *answer.heads], [-1, *labels]))
    return count


def test_constraints_hold(model: Path) -> None:
    parser = Parser.load(model)
    given = list(sentences(30))
    names = frozenset(parser.vocabulary.labels.names)
    asked: list[Constraint] = [Unique(names), Children(at_most=2)]
    before, after = parser.predict(given), parser.predict(given, constraints=asked)
    wrong = violations(parser, given, before, asked)
    assert wrong and parser.constrained["solved"] == wrong
    kept = parser.constrained["infeasible"] + parser.constrained["not proven"]
    assert violations(parser, given, after, asked) == kept < wrong
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    assert 0 < changed <= wrong
    assert parser.predict(given, constraints=[Children(at_most=1000)]) == before


def test_what_cannot_be_satisfied_stays(model: Path) -> None:
    parser = Parser.load(model)
    given = [s for s in sentences(10) if len(s) >= 2]
    asked = [Arcs(required=((0, 1, None), (0, 2, None)))]
    assert parser.predict(given, constraints=asked) == parser.predict(given)
    assert parser.constrained == {"solved": len(given), "infeasible": len(given), "not proven": 0}


def test_the_command(model: Path, tmp_path: Path) -> None:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(parse)
    write_conllu(sentences(20), tmp_path / "in.conllu")
    (tmp_path / "c.toml").write_text('[[constraint]]\nkind = "children"\nat_most = 2\n')

    def command(*arguments: Any) -> Any:
        return CliRunner().invoke(app, [str(x) for x in (model, tmp_path / "in.conllu", *arguments)])

    result = command("-o", tmp_path / "out.conllu", "--constraints", tmp_path / "c.toml")
    assert result.exit_code == 0, result.stderr
    assert "parsed anew under constraints; 0 of them cannot satisfy them, 0 not proven" in result.stderr
    for sentence in read_conllu(tmp_path / "out.conllu"):
        assert all(sentence.heads.count(h) <= 2 for h in range(1, len(sentence) + 1))
    result = command("--constraints", tmp_path / "none.toml")
    assert result.exit_code == 1 and "no such file of constraints; those that come along are" in result.stderr
    assert command("-o", tmp_path / "b.conllu", "--constraints", "ud", "--quiet").exit_code == 0
