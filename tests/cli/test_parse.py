from __future__ import annotations

import gzip
import io
import re
from functools import partial

import pytest
from rich.console import Console

from gpuparse.cli import stream
from gpuparse.cli.corpus import CorpusReport
from gpuparse.cli.stream import summary
from gpuparse.data import Sentence, check_tree, read_conllu, write_conllu
from gpuparse.models import parser as parser_module
from gpuparse.models.parser import Parser
from tests.cli.interruption import interruption


def sentences(number):
    for index in range(number):
        count = 1 + index * 7 % 13
        forms = [f"w{(index + word) % 5}" for word in range(count)]
        yield Sentence.from_words(forms, ["X"] * count, comments=[f"# sent_id = s{index}"], heads=[0, *range(1, count)])


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "in.conllu"
    write_conllu(sentences(60), path)
    return path


@pytest.fixture
def run(command):
    return partial(command, "parse")


def test_a_file(run, model, corpus, tmp_path):
    out = tmp_path / "out.conllu"
    result = run(model, corpus, "-o", out, "--batch-words", 50)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    before, after = list(read_conllu(corpus)), list(read_conllu(out))
    for one, new in zip(before, after, strict=True):
        check_tree(new)
        assert new.with_parse(one.heads, one.deprels).text == one.text
    words = sum(map(len, before))
    form = (
        rf"60 sentences, {words} words in [\d.]+ s, [\d,]+ words/s: "
        r"encoder [\d.]+ %, batching [\d.]+ %, decoding [\d.]+ %, reading and writing [\d.]+ %\n"
    )
    assert re.fullmatch(form, result.stderr)
    assert summary(CorpusReport(), 0.0).startswith("0 sentences, 0 words in 0.0 s, 0 words/s")


def test_standard_input_and_output(run, model, corpus, tmp_path):
    run(model, corpus, "-o", tmp_path / "out")
    for arguments in [(model,), (model, "-"), (model, "-", "-o", "-")]:
        result = run(*arguments, "--quiet", stdin=corpus.read_bytes())
        assert result.exit_code == 0
        assert result.stdout_bytes == (tmp_path / "out").read_bytes()
        assert result.stderr == ""


def test_several_and_packed(run, model, corpus, tmp_path):
    packed = tmp_path / "in.gz"
    packed.write_bytes(gzip.compress(corpus.read_bytes()))
    assert run(model, corpus, packed, "-o", tmp_path / "out.gz").exit_code == 0
    assert run(model, corpus, corpus, "-o", tmp_path / "out").exit_code == 0
    assert gzip.decompress((tmp_path / "out.gz").read_bytes()) == (tmp_path / "out").read_bytes()
    assert len(list(read_conllu(tmp_path / "out"))) == 120


@pytest.mark.parametrize(
    "options", [("--method", "mst"), ("--method", "eisner", "--projective"), ("--projective", "--multi-root")]
)
def test_confidence_is_a_probability(run, model, corpus, tmp_path, options):
    result = run(model, corpus, "-o", tmp_path / "out", "--confidence", *options)
    assert result.exit_code == 0, result.stderr
    for one in read_conllu(tmp_path / "out"):
        check_tree(one, single_root="--multi-root" not in options)
        for misc in one.misc:
            assert re.fullmatch(r"Confidence=[01]\.\d{4}", misc)
            assert 0 < float(misc.removeprefix("Confidence=")) <= 1


def test_sentences_that_fail(run, model, corpus, tmp_path, monkeypatch):
    real = Parser.predict

    def fails(self, given, **options):
        if any(one.sent_id == "s7" for one in given):
            raise RuntimeError("no memory")
        return real(self, given, **options)

    monkeypatch.setattr(Parser, "predict", fails)
    result = run(model, corpus, "-o", tmp_path / "out", "--max-words", 12)
    assert result.exit_code == 1
    before, after = list(read_conllu(corpus)), list(read_conllu(tmp_path / "out"))
    left = [one for one in before if one.sent_id == "s7" or len(one) > 12]
    lines = result.stderr.splitlines()
    named = [line for line in lines if line.endswith("; written unparsed")]
    assert [re.search(r"\((s\d+)\)", line)[1] for line in named] == [one.sent_id for one in left]
    assert f"gpuparse: {corpus}:{before[7].line} (s7): RuntimeError: no memory; written unparsed" in lines
    assert lines[-1] == f"gpuparse: {len(left)} sentences of 60 written unparsed"
    for one in left:
        assert after[before.index(one)].text == one.text


def test_interruption_and_resumption(run, model, tmp_path, monkeypatch):
    corpus, out = tmp_path / "in.conllu", tmp_path / "out.conllu"
    write_conllu(sentences(2500), corpus)  # more than a window
    options = ("--confidence", "--threads", 1)
    assert run(model, corpus, "-o", tmp_path / "whole", *options).exit_code == 0
    with interruption(monkeypatch, Parser, after=2300):
        result = run(model, corpus, "-o", out, *options)
    assert (result.exit_code, result.stderr) == (130, "gpuparse: interrupted; pass --resume to go on\n")
    assert not out.exists()
    for more, code, what in [
        (options, 1, "pass --resume to go on, or --overwrite"),
        (("--resume",), 1, "gpuparse: confidence: true when"),
        (("--resume", *options), 0, "before the interruption"),
        (("--resume", *options), 0, "is complete"),
    ]:
        result = run(model, corpus, "-o", out, *more)
        assert result.exit_code == code, result.stderr
        assert what in result.stderr
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


def test_another_model_cannot_go_on(run, model, corpus, tmp_path, monkeypatch):
    """A model trained further under the same name."""
    copy = tmp_path / "model"
    parser = Parser.load(model)
    parser.save(copy)

    def stops(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("gpuparse.cli.corpus.output._publish", stops)
        assert run(copy, corpus, "-o", tmp_path / "out").exit_code == 130
    for weights in parser.scorer.parameters():
        weights.data += 1
    parser.save(copy)
    result = run(copy, corpus, "-o", tmp_path / "out", "--resume")
    assert result.exit_code == 1
    assert re.match(r"gpuparse: model: .* was begun, .* now; give the same", result.stderr)


def test_options_of_the_method(run, model, corpus, tmp_path, monkeypatch):
    seen = []
    real = parser_module.decode

    def decode(scores, method, **options):
        seen.append((method, options.get("exact"), options.get("time_limit")))
        return real(scores, method, **options)

    monkeypatch.setattr(parser_module, "decode", decode)
    options = ("--method", "ppc", "--option", "exact=true", "--option", "time_limit=9")
    result = run(model, corpus, "-o", tmp_path / "out", *options)
    assert result.exit_code == 0, result.stderr
    assert set(seen) == {("ppc", True, 9)}


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (("--resume", "--overwrite", "-o", "out"), 2, "choose one"),
        (("--resume",), 2, "--resume needs an output file"),
        (("--method", "guess"), 2, "method must be one of"),
        (("--method", "mst", "--projective"), 2, "non-projective"),
        (("--option", "exact"), 2, "--option exact: wanted name=value"),
        (("--option", "exact=true", "--method", "mst"), 2, "method \"mst\" has no option 'exact'"),
        (("--device", "moon"), 1, "not to be had"),
        (("--batch-words", "0"), 2, "batch-words"),
    ],
)
def test_wrong_options(run, model, corpus, tmp_path, monkeypatch, arguments, code, what):
    monkeypatch.chdir(tmp_path)
    result = run(model, corpus, *arguments)
    assert result.exit_code == code
    assert what in result.stderr
    assert result.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.conllu"]


def test_files_that_are_not_there(run, model, corpus, tmp_path):
    gone = "No such file or directory"
    for given, out, what in [
        ((model, tmp_path / "none"), "out", f"gpuparse: {tmp_path / 'none'}: {gone}\n"),
        ((tmp_path / "nothing", corpus), "out", "no model here"),
        ((model, corpus), "folder/out", gone),
        ((model, corpus), "in.conllu", "an input and the output"),
    ]:
        result = run(*given, "-o", tmp_path / out)
        assert result.exit_code == 1 and what in result.stderr


@pytest.mark.parametrize("terminal", [False, True])
def test_a_bar_on_a_terminal(run, model, corpus, tmp_path, monkeypatch, terminal):
    shown = io.StringIO()

    def console(**options):
        assert options.pop("stderr")
        return Console(file=shown, force_terminal=terminal, width=100, **options)

    monkeypatch.setattr(stream, "Console", console)
    result = run(model, corpus, "-o", tmp_path / "out", "--batch-words", 50, "--max-words", 12)
    assert result.exit_code == 1
    assert ("parsing" in shown.getvalue()) == terminal
    assert "60 sentences" in result.stderr
    named = shown.getvalue() if terminal else result.stderr
    assert "13 words, more than the 12 allowed; written unparsed" in named
