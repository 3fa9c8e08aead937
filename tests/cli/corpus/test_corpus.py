from __future__ import annotations

import gzip
import io
import os
import tracemalloc
from pathlib import Path

import pytest

from gpuparse.cli.corpus import CorpusReport, Failure, parse_corpus
from gpuparse.cli.corpus.report import KEPT
from gpuparse.data import ConlluError, read_conllu
from gpuparse.data.prediction import Prediction
from tests.cli.corpus.made import expected, left, predict, words


@pytest.mark.parametrize(("window", "batch_words"), [(1, 1), (7, 50), (100, 1000), (10_000, 100_000)])
def test_the_order_stays(corpus, out, window, batch_words):
    text = corpus.read_bytes().decode()
    report = parse_corpus(corpus, out, predict, window=window, batch_words=batch_words)
    assert out.read_bytes().decode() == expected(text)
    assert left(out) == ["out.conllu"]
    sentences = list(read_conllu(corpus))
    assert (report.sentences, report.words, report.failed) == (300, sum(map(len, sentences)), 0)
    assert report.bytes == corpus.stat().st_size
    assert set(report.seconds) == {"read", "predict", "write"}
    assert all(spent > 0 for spent in report.seconds.values())


@pytest.fixture
def watched():
    """A predictor that notes the sentences of every batch."""

    def watch(sentences):
        watch.batches.append(list(sentences))
        return predict(sentences)

    watch.batches = []
    return watch


def test_batches_are_within_the_budget_and_alike(corpus, out, watched, monkeypatch):
    parse_corpus(corpus, out, watched, batch_words=40)
    lengths = [[len(one) for one in batch] for batch in watched.batches]
    assert all(len(some) == 1 or len(some) * (max(some) + 1) <= 40 for some in lengths)
    assert any(max(some) + 1 > 40 for some in lengths)  # longer than a batch: alone
    assert sum(map(len, lengths)) == sum(1 for one in read_conllu(corpus) if len(one))
    assert sum(max(some) - min(some) for some in lengths) < len(lengths)
    # A window holds few characters, too.
    monkeypatch.setattr("gpuparse.cli.corpus.driver._WINDOW_CHARACTERS", 3000)
    watched.batches.clear()
    parse_corpus(corpus, out, watched, batch_words=10**9)
    held = [sum(len(one.text) for one in batch) for batch in watched.batches]
    assert len(held) > 10 and max(held) < 3000 + 80 * 60
    assert out.read_bytes().decode() == expected(corpus.read_bytes().decode())


def test_confidence_goes_to_misc(corpus, out):
    def sure(sentences):
        return [Prediction([0] * len(one), ["x"] * len(one), [0.97306] * len(one)) for one in sentences]

    parse_corpus(corpus, out, sure, confidence=True)
    for before, after in zip(read_conllu(corpus), read_conllu(out), strict=True):
        added = ["Confidence=0.9731" if misc == "_" else f"{misc}|Confidence=0.9731" for misc in before.misc]
        assert after.misc == added


def test_progress(corpus, out):
    seen = []
    parse_corpus(corpus, out, predict, window=100, batch_words=100, progress=lambda r: seen.append((r.bytes, r.words)))
    assert len(seen) > 20
    assert seen == sorted(seen)
    assert seen[-1][0] <= corpus.stat().st_size


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("packed_in", [False, True])
@pytest.mark.parametrize("packed_out", [False, True])
def test_gzip(corpus, out, packed_in, packed_out, empty):
    text = "" if empty else corpus.read_bytes().decode()
    source = corpus.with_suffix(".gz" if packed_in else ".conllu")
    source.write_bytes(gzip.compress(text.encode()) if packed_in else text.encode())
    written = []
    for name in ("a", "b"):  # twice the same
        target = out.with_name(name + (".gz" if packed_out else ""))
        report = parse_corpus(source, target, predict, window=64)
        assert (report.sentences, report.failed) == ((0, 0) if empty else (300, 0))
        written.append(target.read_bytes())
    assert (gzip.decompress(written[0]) if packed_out else written[0]).decode() == expected(text)
    assert written[0] == written[1] and len(left(out)) == 2


def test_stdin_and_stdout(corpus, monkeypatch, capfdbinary):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
    standard = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", standard)
    parse_corpus("-", "-", predict)
    assert standard.buffer.getvalue().decode() == expected(corpus.read_bytes().decode())
    with pytest.raises(ValueError, match="standard output"):
        parse_corpus(corpus, "-", predict, resume=True)


def test_devices_and_pipes_are_written_to(corpus, tmp_path):
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    parse_corpus(corpus, link, predict)
    assert not Path("/dev/null").is_file()
    with pytest.raises(ValueError, match="no regular file"):
        parse_corpus(corpus, link, predict, resume=True)
    if os.path.exists("/dev/fd"):  # as with ``-o >(gzip > out.gz)``: a pipe has a name but no path
        corpus.write_text(f"{WORD}\n\n")
        out, into = os.pipe()
        parse_corpus(corpus, f"/dev/fd/{into}", root)
        os.close(into)
        with os.fdopen(out, "rb") as stream:
            assert stream.read().decode() == f"{DONE}\n\n"
    assert sorted(os.listdir(tmp_path)) == ["in.conllu", "null"]


WORD = "1\ta\t_\tX\t_\t_\t_\t_\t_\t_"
DONE = "1\ta\t_\tX\t_\t_\t0\tx\t_\t_"


def root(sentences):
    return [Prediction([0] * len(one), ["x"] * len(one)) for one in sentences]


@pytest.mark.parametrize("window", [1, 2, 100])
def test_several_inputs_become_one_file(tmp_path, window):
    texts = [WORD, f"\ufeff{WORD}\r\n", "", f"{WORD}\n \n", "# end", f"\ufeff# c\n{WORD}"]
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"{number}")
        paths[-1].write_text(text, newline="", encoding="utf-8")
    report = parse_corpus(paths, tmp_path / "out", root, window=window)
    assert (tmp_path / "out").read_bytes().decode() == (
        f"{DONE}\n\n{DONE}\r\n\r\n{DONE}\n \n# end\n\n# c\n{DONE}"  # the last one stays as it is
    )
    assert (report.sentences, report.words) == (5, 4)
    assert report.bytes == sum(path.stat().st_size for path in paths)


def test_an_input_is_not_replaced_by_accident(corpus):
    before = corpus.read_bytes()
    with pytest.raises(ValueError, match="an input and the output"):
        parse_corpus(corpus, corpus, predict)
    assert corpus.read_bytes() == before
    parse_corpus(corpus, corpus, predict, overwrite=True)
    assert corpus.read_bytes().decode() == expected(before.decode())


def test_a_finished_file_is_replaced_at_the_end(corpus, out):
    out.write_text("old")
    seen = []
    parse_corpus(corpus, out, predict, window=50, progress=lambda _: seen.append(out.read_text()))
    assert set(seen) == {"old"}
    assert out.read_bytes().decode() == expected(corpus.read_bytes().decode())


def test_a_sentence_that_fails_is_named_and_written_as_it_is(corpus, out):
    failing = {"s17", "s200"}

    def fails(sentences):
        for one in sentences:
            if one.sent_id in failing:
                raise RuntimeError(f"no tree\nin {one.sent_id}")
        return predict(sentences)

    named = []
    report = parse_corpus(corpus, out, fails, on_failure=named.append)
    before, after = list(read_conllu(corpus)), list(read_conllu(out))
    assert report.failed == 2
    assert report.failures == named
    assert [failure.sent_id for failure in named] == ["s17", "s200"]
    assert str(named[0]) == f"{corpus}:{before[17].line} (s17): RuntimeError: no tree in s17"
    assert report.words == sum(map(len, before)) - len(before[17]) - len(before[200])
    for one, new in zip(before, after, strict=True):
        failed = one.sent_id in failing or not len(one)
        assert new.text == (one.text if failed else expected(one.text))


def test_predictions_that_do_not_fit(tmp_path):
    source = tmp_path / "in"
    source.write_text(f"{WORD}\n\n" * 3)
    for wrong, what in [
        (lambda some: [], "0 predictions for 1 sentences"),
        (lambda some: [Prediction([0, 0], ["a", "b"])] * len(some), "heads: 2 for 1 words"),
        (lambda some: [Prediction([2], ["a"])] * len(some), "heads: not between 0 and 1"),
        (lambda some: [Prediction([0], ["a\tb"])] * len(some), "deprels"),
    ]:
        report = parse_corpus(source, tmp_path / "out", wrong)
        assert report.failed == 3
        assert what in report.failures[0].reason
        assert (tmp_path / "out").read_text() == source.read_text()
    report = parse_corpus(source, tmp_path / "out", root, confidence=True)
    assert "without confidence" in report.failures[2].reason


def test_long_sentences_are_left_out(corpus, out, watched):
    report = parse_corpus(corpus, out, watched, max_words=20)
    before = list(read_conllu(corpus))
    assert max(len(one) for batch in watched.batches for one in batch) == 20
    assert report.failed == sum(len(one) > 20 for one in before) > 10
    assert "words, more than the 20 allowed" in report.failures[0].reason
    for one, new in zip(before, read_conllu(out), strict=True):
        assert (new.text == one.text) == (len(one) > 20 or not len(one))


def test_malformed_sentences_are_written_as_they_are(tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    bad = b"# sent_id = x\n" + WORD.encode() + b"\n3\tb\n\n"
    not_utf8 = WORD.encode().replace(b"a", b"\xe4") + b"\n\n"
    good = f"{WORD}\n\n".encode()
    source.write_bytes(good + bad + not_utf8 + good)
    report = parse_corpus(source, target, root)
    done = f"{DONE}\n\n".encode()
    assert target.read_bytes() == done + bad + not_utf8 + done
    assert [str(failure) for failure in report.failures] == [
        f"{source}:5 (x): 2 columns where CoNLL-U has 10; separate columns by one tab",
        f"{source}:7: not UTF-8; convert the file to UTF-8",
    ]


def test_some_other_file_is_refused(tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("Once upon a time.\n\nThere was a file.\n")
    with pytest.raises(ConlluError, match=r"in:1: 1 column where CoNLL-U has 10"):
        parse_corpus(source, target, root)
    assert os.listdir(tmp_path) == ["in"]


def test_a_predictor_that_always_fails_stops_the_run(corpus, out):
    def broken(sentences):
        raise OSError("the device is gone")

    with pytest.raises(RuntimeError, match=r"all of \d+ sentences failed; the first: .*the device is gone"):
        parse_corpus(corpus, out, broken)
    assert left(out) == []
    report = CorpusReport()
    for line in range(3 * KEPT):  # those that are kept are few
        report.add(Failure("f", line, None, "why"))
    assert report.failed == 3 * KEPT
    assert [failure.line for failure in report.failures] == list(range(KEPT))


@pytest.mark.parametrize(
    ("inputs", "options", "what"),
    [
        (None, {"batch_words": 0}, "batch_words: 0 is not positive"),
        (None, {"window": 0}, "window: 0"),
        (None, {"max_words": -1}, "max_words: -1"),
        (None, {"resume": True, "overwrite": True}, "choose one"),
        ([], {}, "no input"),
        (["-", "-"], {}, "more than once"),
        ("nothing", {}, "nothing"),
    ],
)
def test_wrong_arguments(corpus, out, inputs, options, what):
    with pytest.raises((ValueError, FileNotFoundError), match=what):
        parse_corpus(corpus if inputs is None else inputs, out, predict, **options)
    assert left(out) == []


def test_memory_does_not_grow(tmp_path):
    """Twenty times the sentences, the same memory."""
    peaks = []
    for times in (2, 40):
        source = tmp_path / f"{times}.conllu"
        source.write_text(words(150, seed=1) * times, newline="", encoding="utf-8")
        tracemalloc.start()
        parse_corpus(source, tmp_path / "out", root, window=50)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # What is read ahead is a block; a file shorter than one takes less.
    assert peaks[1] < peaks[0] + 4 * (1 << 20)


def test_what_a_predictor_sees_knows_where_it_is_from(tmp_path, watched):
    (tmp_path / "in").write_text(f"\n\n{WORD}\n\n{WORD}\n")
    parse_corpus(str(tmp_path / "in"), str(tmp_path / "out"), watched)
    places = [(one.source, one.line_of(1)) for batch in watched.batches for one in batch]
    assert sorted(places) == [(str(tmp_path / "in"), line) for line in (3, 5)]


def test_a_long_path_does_not_spoil_the_report(tmp_path):
    path = tmp_path / ("d" * 200) / ("f" * 90 + ".conllu")
    path.parent.mkdir()
    good = "1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n\n"
    path.write_text(good + "1\ta\t_\n\n")
    report = parse_corpus(path, tmp_path / "out.conllu", predict)
    assert [(failure.line, "3 columns" in failure.reason) for failure in report.failures] == [(3, True)]
