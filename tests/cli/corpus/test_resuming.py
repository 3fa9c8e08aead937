"""Runs that end early, and go on."""

from __future__ import annotations

import gzip
import itertools
import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

from gpuparse.cli.corpus import parse_corpus
from gpuparse.data import read_conllu
from tests.cli.corpus.made import left, predict, words


class Stop(BaseException):
    pass


def stopping(after):
    """A predictor that is interrupted in its ``after``-th batch."""
    calls = itertools.count(1)

    def stop(sentences):
        if next(calls) >= after:
            raise Stop
        return predict(sentences)

    return stop


OPTIONS = {"window": 32, "batch_words": 200, "confidence": True, "save_seconds": 0.0}


@pytest.mark.parametrize("name", ["out.conllu", "out.conllu.gz"])
@pytest.mark.parametrize("packed", [False, True])
def test_resume_gives_the_same_bytes(corpus, tmp_path, name, packed):
    source = corpus
    if packed:
        source = tmp_path / "in.gz"
        source.write_bytes(gzip.compress(corpus.read_bytes()))
    folder = tmp_path / "out"
    folder.mkdir()
    whole = parse_corpus(source, tmp_path / f"whole.{name}", predict, **OPTIONS)
    report, runs = until_done(source, folder / name, after=9, **OPTIONS)
    assert runs > 3
    assert (folder / name).read_bytes() == (tmp_path / f"whole.{name}").read_bytes()
    assert os.listdir(folder) == [name]
    assert (report.sentences, report.words, report.bytes) == (whole.sentences, whole.words, whole.bytes)
    assert 0 < report.earlier_sentences < report.sentences


def until_done(*arguments, after, **options):
    """Runs that are interrupted, each going on; the last one's report, and how many they were."""
    for runs in itertools.count(1):
        try:
            return parse_corpus(*arguments, stopping(after), resume=True, **options), runs
        except Stop:
            assert runs < 200 and not arguments[1].exists()


def test_resume_with_several_inputs(tmp_path, out):
    paths = []
    for number in range(12):
        paths.append(tmp_path / f"{number}.conllu")
        paths[-1].write_text(words(number * 3, seed=number).rstrip("\n"), newline="", encoding="utf-8")
    options = {**OPTIONS, "window": 3}
    parse_corpus(paths, tmp_path / "whole", predict, **options)
    until_done(paths, out, after=6, **options)
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()


def test_failures_and_lines_after_resuming(corpus, out):
    lines = {one.sent_id: one.line for one in read_conllu(corpus) if len(one)}
    early, stop, late = [*lines][20], [*lines][-40], [*lines][-30]

    def fails(sentences):
        for one in sentences:
            if one.sent_id in {early, late}:
                raise ValueError("no tree")
        return predict(sentences)

    def stops(sentences):
        if any(one.sent_id == stop for one in sentences):
            raise Stop
        return fails(sentences)

    with pytest.raises(Stop):
        parse_corpus(corpus, out, stops, **OPTIONS)
    report = parse_corpus(corpus, out, fails, resume=True, **OPTIONS)
    assert report.failed == 2
    assert [str(failure) for failure in report.failures] == [f"{corpus}:{lines[late]} ({late}): no tree"]


def interrupted(corpus, out, after=9, **options):
    with pytest.raises(Stop):
        parse_corpus(corpus, out, stopping(after), **{**OPTIONS, **options})
    assert left(out) == ["out.conllu.partial", "out.conllu.progress"]


def test_an_interrupted_run_is_not_thrown_away(corpus, out):
    with pytest.raises(Stop):
        parse_corpus(corpus, out, stopping(1), **OPTIONS)
    assert left(out) == []  # it had saved nothing
    interrupted(corpus, out)
    with pytest.raises(ValueError, match=r"out\.conllu\.partial: left by an interrupted run; pass --resume"):
        parse_corpus(corpus, out, predict, **OPTIONS)
    parse_corpus(corpus, out, predict, overwrite=True, **OPTIONS)
    assert left(out) == ["out.conllu"]


def test_what_was_written_after_the_last_save_is_cut_off(corpus, out):
    parse_corpus(corpus, out.parent.parent / "whole", predict, **OPTIONS)
    interrupted(corpus, out)
    with open(f"{out}.partial", "ab") as stream:
        stream.write(b"half a sent")
    parse_corpus(corpus, out, predict, resume=True, **OPTIONS)
    assert out.read_bytes() == (out.parent.parent / "whole").read_bytes()


def change_the_beginning(path):
    data = bytearray(path.read_bytes())
    data[data.index(b"haus")] = ord("H")
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "options", "what"),
    [
        (change_the_beginning, {}, r"in\.conllu: not what the interrupted run had read; give the same input"),
        (lambda path: path.write_bytes(path.read_bytes() + b"\n"), {}, "input sizes: .* now"),
        (lambda path: path.write_bytes(path.read_bytes()[:500]), {}, "input sizes: .* now"),
        (None, {"batch_words": 100}, "batch_words: 200 when .* was begun, 100 now; give the same, or --overwrite"),
        (None, {"confidence": False}, "confidence: true when"),
        (None, {"settings": {"model": "b"}}, 'model: "a" when .* "b" now'),
    ],
)
def test_resume_wants_the_same_run(corpus, out, change, options, what):
    interrupted(corpus, out, settings={"model": "a"})
    before = Path(f"{out}.progress").read_bytes(), Path(f"{out}.partial").read_bytes()
    if change is not None:
        change(corpus)
    with pytest.raises(ValueError, match=what) as caught:
        parse_corpus(corpus, out, predict, resume=True, **{**OPTIONS, "settings": {"model": "a"}, **options})
    assert "\n" not in str(caught.value)
    assert (Path(f"{out}.progress").read_bytes(), Path(f"{out}.partial").read_bytes()) == before


def test_records_that_are_broken(corpus, out):
    for content in ["", "[]", "{}", '{"version": 1, "run": {}}', '{"version": 99}']:
        interrupted(corpus, out)
        Path(f"{out}.progress").write_text(content)
        with pytest.raises(ValueError, match=r"not a record of this version; pass --overwrite"):
            parse_corpus(corpus, out, predict, resume=True, **OPTIONS)
        parse_corpus(corpus, out, predict, overwrite=True, **OPTIONS)
        out.unlink()
    interrupted(corpus, out)
    Path(f"{out}.partial").write_bytes(b"")
    with pytest.raises(ValueError, match=r"shorter than .*progress says"):
        parse_corpus(corpus, out, predict, resume=True, **OPTIONS)


def test_resume_with_nothing_to_resume(corpus, out):
    report = parse_corpus(corpus, out, predict, resume=True, **OPTIONS)  # from the start
    assert not report.finished_before
    before = out.read_bytes()
    report = parse_corpus(corpus, out, stopping(1), resume=True, **OPTIONS)
    assert report.finished_before
    assert out.read_bytes() == before


@pytest.mark.parametrize("renamed", [False, True])
def test_killed_at_the_very_end(corpus, out, monkeypatch, renamed):
    """Before the file takes its name, and after that but before the record goes."""

    def die(path):
        if renamed:
            os.replace(f"{path}.partial", path)
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr("gpuparse.cli.corpus.output._publish", die)
        with pytest.raises(Stop):
            parse_corpus(corpus, out, predict, **OPTIONS)
    assert json.loads(Path(f"{out}.progress").read_text())["state"]["complete"]
    report = parse_corpus(corpus, out, stopping(1), resume=True, **OPTIONS)
    assert report.finished_before
    assert left(out) == ["out.conllu"]
    parse_corpus(corpus, out.parent.parent / "whole", predict, **OPTIONS)
    assert out.read_bytes() == (out.parent.parent / "whole").read_bytes()


def test_two_runs_do_not_write_one_file(corpus, out):
    def second(sentences):
        with pytest.raises(ValueError, match="another process is writing"):
            parse_corpus(corpus, out, predict, resume=True, **OPTIONS)
        with pytest.raises(ValueError, match="another process is writing"):
            parse_corpus(corpus, out, predict, overwrite=True, **OPTIONS)
        return predict(sentences)

    report = parse_corpus(corpus, out, second, **OPTIONS)
    assert report.failed == 0
    assert len(list(read_conllu(out))) == 300


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("name", ["out.conllu", "out.conllu.gz"])
def test_kill_9_at_any_moment(tmp_path, name):
    rng = random.Random(name)
    source, target = tmp_path / "in.conllu", tmp_path / "out" / name
    target.parent.mkdir()
    source.write_text(words(1500, seed=3), newline="", encoding="utf-8")
    parse_corpus(source, tmp_path / f"whole.{name}", predict, **OPTIONS)
    partial = Path(f"{target}.partial")
    kills = 0
    for _ in range(40):
        size = partial.stat().st_size if partial.exists() else 0
        options = {**OPTIONS, "resume": True}  # in a process that has everything imported already
        child = multiprocessing.get_context("fork").Process(
            target=parse_corpus, args=(source, target, predict), kwargs=options
        )
        child.start()
        if kills < 10:
            # Some in their first moments, most after a bit of progress; none needs a fast machine.
            wanted, end = size + rng.choice([0, 0, 2000, 10_000]), time.monotonic() + 10
            while wanted > size and time.monotonic() < end and not target.exists():
                if partial.exists() and partial.stat().st_size > wanted:
                    break
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 0.01))
            child.kill()
        child.join()
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        kills += 1
    assert kills == 10
    assert target.read_bytes() == (tmp_path / f"whole.{name}").read_bytes()
    assert os.listdir(target.parent) == [name]
