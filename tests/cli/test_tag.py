"""The command that tags, and parsing what was tagged before."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from gpuparse.data import Sentence, read_conllu, write_conllu
from gpuparse.models.parser import Parser
from gpuparse.models.tagger import Tagger
from gpuparse.train import loop
from tests.cli.interruption import interruption
from tests.train.small import TAGS, run, sentences


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A tagger of UPOS and features, one of XPOS, and a parser."""
    path = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curve", lambda *_: True)
        run(path / "joint", *TAGS, "data.tags=upos+feats", "scorer.bits=12")
        run(path / "xpos", *TAGS, "data.tags=xpos", "training.epochs=1")
        run(path / "parser", "training.epochs=1")
    return path


@pytest.fixture
def corpus(tmp_path):
    """Words alone."""
    bare = [Sentence.from_words(one.words, comments=[f"# sent_id = s{i}"]) for i, one in enumerate(sentences(20))]
    write_conllu(bare, tmp_path / "in.conllu")
    return tmp_path / "in.conllu"


def test_a_file(command, models, corpus, tmp_path):
    out = tmp_path / "out.conllu"
    result = command("tag", models / "joint", corpus, "-o", out)
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(r"20 sentences, \d+ words in [\d.]+ s, [\d,]+ words/s: encoder .*\n", result.stderr)
    before, after = list(read_conllu(corpus)), list(read_conllu(out))
    expected = Tagger.load(models / "joint").tag(before)
    assert [one.text for one in after] == [one.text for one in expected]
    assert {tag for one in after for tag in one.upos} <= {tag for one in sentences(10) for tag in one.upos}
    assert all(one.xpos == ["_"] * len(one) for one in after)
    piped = command("tag", models / "joint", "--quiet", stdin=corpus.read_bytes())
    assert (piped.exit_code, piped.stderr, piped.stdout_bytes) == (0, "", out.read_bytes())


def test_one_after_the_other(command, models, corpus, tmp_path):
    """Taggers fill their own columns and leave the others' alone."""
    assert command("tag", models / "joint", corpus, "-o", tmp_path / "a").exit_code == 0
    assert command("tag", models / "xpos", tmp_path / "a", "-o", tmp_path / "b").exit_code == 0
    assert command("tag", models / "xpos", corpus, "-o", tmp_path / "c").exit_code == 0
    files = [list(read_conllu(tmp_path / name)) for name in "abc"]
    for joint, both, xpos in zip(*files, strict=True):
        assert (both.upos, both.feats, both.xpos) == (joint.upos, joint.feats, xpos.xpos)
        assert set(xpos.xpos) != {"_"}


def test_evaluation(command, models, tmp_path):
    """Taggers are measured by the official metrics."""
    gold = tmp_path / "gold.conllu"
    write_conllu(sentences(10), gold)
    assert command("tag", models / "joint", gold, "-o", tmp_path / "out").exit_code == 0
    told = command("evaluate", gold, tmp_path / "out").stdout
    one, other = (list(read_conllu(path)) for path in (gold, tmp_path / "out"))
    for name, column in (("UPOS", "upos"), ("UFeats", "feats"), ("XPOS", "xpos")):
        pairs = [
            list(zip(getattr(a, column), getattr(b, column), strict=True)) for a, b in zip(one, other, strict=True)
        ]
        right = [a == b for words in pairs for a, b in words]
        assert re.search(rf"^{name} +{100 * sum(right) / len(right):.2f} ", told, re.MULTILINE)
    assert sum(right) == len(right)  # XPOS is left alone


def test_tagging_and_parsing(command, models, corpus, tmp_path):
    """The same as one after the other."""
    assert command("tag", models / "joint", corpus, "-o", tmp_path / "tagged").exit_code == 0
    assert command("parse", models / "parser", tmp_path / "tagged", "-o", tmp_path / "two").exit_code == 0
    options = ("--tagger", models / "joint")
    result = command("parse", models / "parser", corpus, "-o", tmp_path / "one", *options)
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert command("parse", models / "parser", corpus, "-o", tmp_path / "none").exit_code == 0
    assert (tmp_path / "one").read_bytes() != (tmp_path / "none").read_bytes()
    sure = command("parse", models / "parser", corpus, "-o", tmp_path / "sure", *options, "--confidence")
    assert sure.exit_code == 0
    for one, other in zip(read_conllu(tmp_path / "sure"), read_conllu(tmp_path / "one"), strict=True):
        assert (one.heads, one.upos, one.feats) == (other.heads, other.upos, other.feats)
        assert all(misc.startswith("Confidence=") for misc in one.misc)


def test_interruption_and_resumption(command, models, tmp_path, monkeypatch):
    corpus = tmp_path / "in.conllu"
    write_conllu((Sentence.from_words(one.words) for one in sentences(20)[:11] * 200), corpus)  # more than a window
    for kind, *arguments in (
        (Tagger, "tag", models / "joint"),
        (Parser, "parse", models / "parser", "--tagger", models / "joint"),
    ):
        out = tmp_path / f"{arguments[0]}.conllu"
        assert command(*arguments, corpus, "-o", tmp_path / "whole", "--threads", 1).exit_code == 0
        with interruption(monkeypatch, kind, after=2100):
            result = command(*arguments, corpus, "-o", out)
        assert (result.exit_code, result.stderr) == (130, "gpuparse: interrupted; pass --resume to go on\n")
        if kind is Parser:  # the tagger is part of what is gone on with
            result = command("parse", models / "parser", corpus, "-o", out, "--resume")
            assert result.exit_code == 1
            assert re.match(r"gpuparse: tagger: .* was begun, .* now; give the same", result.stderr)
        result = command(*arguments, corpus, "-o", out, "--resume")
        assert result.exit_code == 0, result.stderr
        assert "before the interruption" in result.stderr
        assert out.read_bytes() == (tmp_path / "whole").read_bytes()
        result = command(*arguments, corpus, "-o", out, "--resume")
        assert f"leave out --resume to {arguments[0]} anew" in result.stderr


def test_sentences_that_fail(command, models, corpus, tmp_path):
    corpus.write_bytes(corpus.read_bytes() + b"1\ta\n\n")
    result = command("tag", models / "xpos", corpus, "-o", tmp_path / "out", "--max-words", 12)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert re.search(r"in\.conllu:\d+: 2 columns where .*; written untagged$", lines[-3])
    assert lines[-1].endswith("of 21 written untagged")
    assert (tmp_path / "out").read_bytes().endswith(b"1\ta\n\n")


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (("tag", "parser"), 1, "holds a parser, and a tagger is wanted; gpuparse train --task tag makes one"),
        (("tag", "none"), 1, "no model here"),
        (("tag", "xpos", "--method", "guess"), 2, "guess"),
        (("tag", "xpos", "--resume"), 2, "--resume needs an output file"),
        (("tag", "xpos", "--resume", "--overwrite"), 2, "choose one"),
        (("parse", "joint"), 1, "holds a tagger, and a parser is wanted"),
        (("parse", "parser", "--tagger", "parser"), 1, "holds a parser, and a tagger is wanted"),
        (("parse", "parser", "--tagger", "none"), 1, "no model here"),
        (("parse", "parser", "--tagger", "xpos"), 1, "gives XPOS, and the parser reads UPOS and FEATS; train one of"),
    ],
)
def test_wrong_options(command, models, corpus, monkeypatch, arguments, code, what):
    monkeypatch.chdir(models)
    name, model, *options = arguments
    result = command(name, model, corpus, *options)
    assert (result.exit_code, result.stdout) == (code, "")
    assert what in result.stderr


def test_methods(command, models, corpus):
    def told(*options):
        result = command("tag", models / "joint", corpus, "--quiet", *options)
        assert result.exit_code == 0, result.stderr
        return result.stdout

    for options in (["dense"], ["column_generation"], ["beam", "--beam", 1000]):
        assert told("--method", *options) == told()
    told("--method", "beam", "--beam", 1)


def test_a_tagger_of_some_columns_says_so(command, models, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "draw_curve", lambda *_: True)
    run(tmp_path / "upos", *TAGS, "training.epochs=1")
    result = command("parse", models / "parser", corpus, "-o", tmp_path / "out", "--tagger", tmp_path / "upos")
    assert result.exit_code == 0
    assert "gives UPOS; the parser also reads FEATS, taken as it is" in result.stderr


def test_a_model_whose_files_are_at_odds(command, models, corpus, tmp_path):
    shutil.copytree(models / "joint", tmp_path / "odd")
    about = json.loads((tmp_path / "odd" / "model.json").read_text())
    for task, message in ((["x"], "holds a ['x'], and a tagger is wanted"), ("parse", "holds a parser")):
        (tmp_path / "odd" / "model.json").write_text(json.dumps({**about, "task": task}))
        assert message in command("tag", tmp_path / "odd", corpus).stderr
    result = command("parse", tmp_path / "odd", corpus)
    assert result.exit_code == 1
    assert "config.toml is that of a tagger and model.json is not" in result.stderr
