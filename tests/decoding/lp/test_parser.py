"""A parser under constraints, from Python and from the command line."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from gpuparse.cli.corpus import parse_corpus
from gpuparse.cli.corpus.output import FileOutput
from gpuparse.cli.parse import parse
from gpuparse.data import read_conllu, write_conllu
from gpuparse.data.batches import collate
from gpuparse.data.sentence import ConlluError
from gpuparse.decoding.methods import decode
from gpuparse.lp import Arcs, Children, Constraint, Only, Soft, Unique, Words
from gpuparse.models.parser import Parser
from gpuparse.train import loop
from tests.train.small import config, parser_and_batch, run, sentences


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "parser"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curve", lambda *_: True)
        run(path, "training.epochs=60")
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
    assert wrong and after.counts["solved"] == wrong and not before.counts
    kept = after.counts["infeasible"] + after.counts["not proven"]
    assert violations(parser, given, after, asked) == kept < wrong
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    assert 0 < changed <= wrong
    assert parser.predict(given, constraints=[Children(at_most=1000)]) == before


def test_what_cannot_be_satisfied_stays(model: Path) -> None:
    parser = Parser.load(model)
    given = [s for s in sentences(10) if len(s) >= 2]
    asked = [Arcs(required=((0, 1, None), (0, 2, None)))]
    found, plain = parser.predict(given, constraints=asked), parser.predict(given)
    assert [replace(p, constraints=None) for p in found] == plain
    assert found.counts == {"solved": len(given), "infeasible": len(given), "not proven": 0}
    for prediction in found:
        assert prediction.constraints is not None and prediction.constraints == prediction.remark
        assert not prediction.certified and prediction.bound == math.inf and prediction.stats["infeasible"] == 1
        kind, _, why = prediction.constraints.partition(": ")
        assert kind == "infeasible"
        assert set(why.split("; ")) == {"one word under the root", "the arc 0 -> 1", "the arc 0 -> 2"}


def test_remarks_are_comments_and_go_with_their_parse(model: Path) -> None:
    parser = Parser.load(model)
    given = [s for s in sentences(10) if len(s) >= 2]
    impossible = [Arcs(required=((0, 1, None), (0, 2, None)))]
    plain, marked = parser.parse(given), parser.parse(given, constraints=impossible)
    for without, one in zip(plain, marked, strict=True):
        (remark,) = set(one.comments) - set(without.comments)
        assert remark.startswith("# constraints = infeasible: ")
        assert one.with_comment("constraints", None).text == without.text
    assert [s.text for s in parser.parse(marked)] == [s.text for s in plain]
    assert [s.text for s in parser.parse(marked, constraints=impossible)] == [s.text for s in marked]


def test_no_time(model: Path) -> None:
    parser = Parser.load(model)
    asked: list[Constraint] = [Children(at_most=1)]
    found = parser.predict(list(sentences(20)), constraints=asked, time_limit=0.0)
    late = [p for p in found if p.constraints is not None]
    assert late and found.counts["not proven"] == len(late) == found.counts["solved"]
    assert [p for p in found if not p.certified] == late
    assert all(p.constraints and p.constraints.startswith("not proven: ") for p in late)


def test_soft_constraints_are_weighed(model: Path) -> None:
    parser, given = Parser.load(model), list(sentences(30))
    rule = Children(at_most=1)
    plain, hard = parser.predict(given), parser.predict(given, constraints=[rule])
    light, heavy = (parser.predict(given, constraints=[Soft(rule, weight)]) for weight in (1e-6, 1e6))
    assert light == plain
    possible = [k for k, prediction in enumerate(hard) if prediction.constraints is None]
    assert possible and [heavy[k] for k in possible] == [hard[k] for k in possible]
    counts = [violations(parser, given, parser.predict(given, constraints=[Soft(rule, w)]), [rule]) for w in (0.1, 1.0)]
    assert violations(parser, given, plain, [rule]) >= counts[0] >= counts[1]


def test_single_sentences_by_their_name(model: Path) -> None:
    parser, given = Parser.load(model), [s for s in sentences(10) if len(s) >= 4]
    name = given[2].sent_id
    assert name is not None and len({s.sent_id for s in given}) == len(given)
    arcs = Arcs(required=((1, len(given[2]), None),), forbidden=((0, 1, None),))
    plain, found = parser.predict(given), parser.predict(given, constraints=[Only(arcs, frozenset({name}))])
    assert found[2].heads[-1] == 1 and found[2].heads[0] != 0 and found[2].constraints is None
    assert [p for k, p in enumerate(found) if k != 2] == [p for k, p in enumerate(plain) if k != 2]
    with pytest.raises(ConlluError, match=r":\d+: constraints: no arc 0 -> 99 in a sentence of \d+ words"):
        parser.predict(given, constraints=[Arcs(forbidden=((0, 99, None),))])


def test_second_order_scores() -> None:
    parser, _ = parser_and_batch(config("scorer.grandparents=4", "scorer.siblings=4"))
    with torch.no_grad():
        for weights in parser.scorer.parameters():
            weights.normal_(0.0, 0.5)
    given = list(sentences(2, longest=6))
    asked: list[Constraint] = [Children(at_most=1)]
    before, after = parser.predict(given, method="ilp"), parser.predict(given, method="ilp", constraints=asked)
    assert violations(parser, given, before, asked) and not violations(parser, given, after, asked)
    with torch.inference_mode():
        scores = parser.scorer(collate([parser.vocabulary.encode(s) for s in given], parser.vocabulary.chars)).scores
    best = decode(scores, "ilp", constraints=asked, words=[Words.of(s.words, s.upos) for s in given])
    assert best.certified.all()
    for prediction, heads in zip(after, best.heads.tolist(), strict=True):
        assert prediction.heads == heads[1 : len(prediction.heads) + 1]


def command(*arguments: Any) -> Any:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(parse)
    return CliRunner().invoke(app, [str(x) for x in arguments])


def test_the_command(model: Path, tmp_path: Path) -> None:
    write_conllu(sentences(20), tmp_path / "in.conllu")
    (tmp_path / "c.toml").write_text('[[constraint]]\nkind = "children"\nat_most = 2\n')
    run_it = partial(command, model, tmp_path / "in.conllu")
    result = run_it("-o", tmp_path / "out.conllu", "--constraints", tmp_path / "c.toml")
    assert result.exit_code == 0, result.stderr
    assert "sentences parsed anew under constraints; 0 of them cannot satisfy them, 0 not proven" in result.stderr
    for sentence in read_conllu(tmp_path / "out.conllu"):
        assert all(sentence.heads.count(h) <= 2 for h in range(1, len(sentence) + 1))
    result = run_it("--constraints", tmp_path / "none.toml")
    assert result.exit_code == 1 and "no such file of constraints; those that come along are" in result.stderr
    (tmp_path / "d.toml").write_text('[[constraint]]\nkind = "children"\nheads = [""]\nexactly = 1\n')
    both = ("--constraints", tmp_path / "d.toml", "--constraints", tmp_path / "c.toml")
    result = run_it("-o", tmp_path / "b.conllu", *both, "--quiet")
    assert result.exit_code == 0 and not result.stderr
    for sentence in read_conllu(tmp_path / "b.conllu"):
        assert all(sentence.heads.count(h) <= 2 for h in range(1, len(sentence) + 1))


def test_the_command_on_labels_that_the_model_does_not_know(model: Path, tmp_path: Path) -> None:
    write_conllu(sentences(3), tmp_path / "in.conllu")
    file = tmp_path / "c.toml"
    file.write_text('[[constraint]]\nkind = "projective"\n[[constraint]]\nkind = "unique"\nlabels = ["zz", "xx"]\n')
    arguments = (model, tmp_path / "in.conllu", "-o", tmp_path / "out.conllu", "--constraints", file)
    result = command(*arguments)
    assert result.exit_code == 0
    assert f"{file}: the model knows none of the labels of constraint 2 (xx, zz)\n" in result.stderr
    assert not command(*arguments, "--quiet").stderr


def test_resumed_with_other_constraints(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_conllu(sentences(20), tmp_path / "in.conllu")
    (tmp_path / "c.toml").write_text('[[constraint]]\nkind = "children"\nat_most = 2\n')
    run_it = partial(command, model, tmp_path / "in.conllu", "-o", tmp_path / "out.conllu", "--constraints")
    defaults: Any = parse_corpus.__kwdefaults__
    monkeypatch.setitem(defaults, "save_seconds", 0.0)
    monkeypatch.setitem(defaults, "window", 5)
    with monkeypatch.context() as patch:
        patch.setattr(FileOutput, "finish", lambda *_: sys.exit(7))
        assert run_it(tmp_path / "c.toml").exit_code == 7
    result = run_it("ud", "--resume")
    assert result.exit_code == 1 and "constraints (digests of their files): [" in result.stderr
    assert "give the same, or --overwrite to start anew" in result.stderr
    assert run_it(tmp_path / "c.toml", "--resume").exit_code == 0


def test_the_command_on_what_some_sentences_do_not_have(model: Path, tmp_path: Path) -> None:
    given = [s for s in sentences(30) if len(s) >= 3]
    lengths = sorted(len(s) for s in given)
    write_conllu(given, tmp_path / "in.conllu")
    (tmp_path / "c.toml").write_text(f'[[constraint]]\nkind = "span"\nfirst = 1\nlast = {lengths[5]}\n')
    result = command(model, tmp_path / "in.conllu", "-o", tmp_path / "out.conllu", "--constraints", tmp_path / "c.toml")
    short = sum(length < lengths[5] for length in lengths)
    assert result.exit_code == 1 and result.stderr.count("constraints: no span from 1 to") == short > 0
    assert "parsed anew under constraints" in result.stderr


def test_resumed_in_another_process(model: Path, tmp_path: Path) -> None:
    """The settings of a run are the same wherever it goes on; sets of strings are in another order there."""
    write_conllu(sentences(40), tmp_path / "in.conllu")
    files = [str(path) for path in (model, tmp_path / "in.conllu", "-o", tmp_path / "out.conllu")]
    arguments = [*files, "--constraints", "ud", "--batch-words", "50"]
    code = "import gpuparse.cli.corpus.driver as d; d.parse_corpus.__kwdefaults__.update(window=5, save_seconds=0.0); "
    code += "import sys; from gpuparse.cli import main; main()"
    stop = "import gpuparse.cli.corpus.output as o; o.FileOutput.finish = lambda *_: sys.exit(7); "

    def process(before: str, seed: str, *more: str) -> int:
        full = [sys.executable, "-c", f"import sys; {before}{code}", "parse", *arguments, *more]
        return subprocess.run(full, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True).returncode

    assert process("", "1") == 0
    whole = (tmp_path / "out.conllu").read_bytes()
    (tmp_path / "out.conllu").unlink()
    assert process(stop, "2") == 7 and not (tmp_path / "out.conllu").exists()
    assert process("", "3", "--resume") == 0
    assert (tmp_path / "out.conllu").read_bytes() == whole
