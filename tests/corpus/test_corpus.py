from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import random
import signal
import time
import tracemalloc
import zlib
from pathlib import Path

import pytest

from gpuparse.corpus import Failure, Report, parse_corpus
from gpuparse.corpus.report import KEPT
from gpuparse.data import ConlluError, Sentence, read_conllu
from gpuparse.data.prediction import Prediction


def words(number, seed=0):
    """Sentences of varied lengths, ranges and empty nodes among them; a few blocks of comments only."""
    rng = random.Random(seed)
    parts = []
    for index in range(number):
        parts.append(f"# sent_id = s{index}\n")
        if rng.random() < 0.03:
            parts.append("\n")
            continue
        length = min(1 + int(rng.expovariate(1 / 12)), 80)
        for word in range(1, length + 1):
            if word + 1 <= length and rng.random() < 0.05 and "-" not in parts[-1][:6]:
                parts.append(f"{word}-{word}\tzus\t_\t_\t_\t_\t_\t_\t_\t_\n")
            form = rng.choice(["haus", "größe", "ü", "a\u2028b", "日本"])
            parts.append(f"{word}\t{form}\t_\tX\t_\t_\t_\t_\t_\t{rng.choice(['_', 'A=1'])}\n")
            if rng.random() < 0.03:
                parts.append(f"{word}.1\te\t_\t_\t_\t_\t_\t_\t_\t_\n")
        parts.append("\n" * rng.choice([1, 1, 1, 2]))
    return "".join(parts)


def predict(sentences):
    """Heads by a hash of the words; the confidence depends on the batch too, as rounding does."""
    widest = max(map(len, sentences))
    results = []
    for one in sentences:
        rng = random.Random(zlib.crc32("".join(one.words).encode()))
        heads = [rng.randint(0, len(one)) for _ in range(len(one))]
        sure = [(len(one) / widest + len(sentences)) / 1000] * len(one)
        results.append(Prediction(heads, [f"l{head}" for head in heads], sure))
    return results


def expected(text):
    return "".join(
        one.with_parse((found := predict([one])[0]).heads, found.deprels).text if len(one) else one.text
        for one in read_conllu(io.BytesIO(text.encode()))
    )


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "in.conllu"
    path.write_text(words(300), newline="", encoding="utf-8")
    return path


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / "out.conllu"


def left(out):
    return sorted(os.listdir(out.parent))


# Order and batches


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


def test_batches_are_within_the_budget_and_alike(corpus, out):
    sizes = []

    def watch(sentences):
        lengths = [len(one) for one in sentences]
        sizes.append((len(lengths), min(lengths), max(lengths)))
        return predict(sentences)

    parse_corpus(corpus, out, watch, batch_words=40)
    assert all(number == 1 or number * (longest + 1) <= 40 for number, _, longest in sizes)
    assert any(longest + 1 > 40 for _, _, longest in sizes)  # longer than a batch: alone
    assert sum(number for number, _, _ in sizes) == sum(1 for one in read_conllu(corpus) if len(one))
    assert sum(longest - shortest for _, shortest, longest in sizes) < len(sizes)


def test_a_window_holds_few_characters_too(corpus, out, monkeypatch):
    monkeypatch.setattr("gpuparse.corpus.driver._WINDOW_CHARACTERS", 3000)
    held = []

    def watch(sentences):
        held.append(sum(len(one.text) for one in sentences))
        return predict(sentences)

    parse_corpus(corpus, out, watch, batch_words=10**9)
    assert len(held) > 10
    assert max(held) < 3000 + 80 * 60
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


# Files


@pytest.mark.parametrize("packed_in", [False, True])
@pytest.mark.parametrize("packed_out", [False, True])
def test_gzip(corpus, out, packed_in, packed_out):
    text = corpus.read_bytes().decode()
    source = corpus
    if packed_in:
        source = corpus.with_suffix(".gz")
        source.write_bytes(gzip.compress(text.encode()))
    target = Path(f"{out}.gz") if packed_out else out
    parse_corpus(source, target, predict, window=64)
    data = target.read_bytes()
    assert (gzip.decompress(data) if packed_out else data).decode() == expected(text)
    again = Path(f"{out}.again.gz") if packed_out else Path(f"{out}.again")
    parse_corpus(source, again, predict, window=64)
    assert again.read_bytes() == data


@pytest.mark.parametrize("name", ["out.conllu", "out.conllu.gz"])
def test_empty_input(tmp_path, name):
    source, target = tmp_path / "in", tmp_path / name
    source.write_bytes(b"")
    report = parse_corpus(source, target, predict)
    assert (report.sentences, report.words, report.failed) == (0, 0, 0)
    assert (gzip.decompress(target.read_bytes()) if name.endswith(".gz") else target.read_bytes()) == b""
    assert sorted(os.listdir(tmp_path)) == ["in", name]


def test_stdin_and_stdout(corpus, monkeypatch, capfdbinary):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
    standard = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr("sys.stdout", standard)
    parse_corpus("-", "-", predict)
    assert standard.buffer.getvalue().decode() == expected(corpus.read_bytes().decode())
    with pytest.raises(ValueError, match="standard output"):
        parse_corpus(corpus, "-", predict, resume=True)


def test_a_device_is_written_to(corpus, tmp_path):
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    parse_corpus(corpus, link, predict)
    assert not Path("/dev/null").is_file()
    assert sorted(os.listdir(tmp_path)) == ["in.conllu", "null"]
    with pytest.raises(ValueError, match="no regular file"):
        parse_corpus(corpus, link, predict, resume=True)


@pytest.mark.skipif(not os.path.exists("/dev/fd"), reason="no /dev/fd here")
def test_a_pipe_is_written_to(tmp_path):
    """As with ``-o >(gzip > out.gz)``: a pipe has a name but no path."""
    corpus = tmp_path / "in.conllu"
    corpus.write_text(f"{WORD}\n\n")
    out, into = os.pipe()
    parse_corpus(corpus, f"/dev/fd/{into}", root)
    os.close(into)
    with os.fdopen(out, "rb") as stream:
        assert stream.read().decode() == f"{DONE}\n\n"
    assert os.listdir(tmp_path) == ["in.conllu"]


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


# Failures


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


def test_long_sentences_are_left_out(corpus, out):
    longest = []

    def watch(sentences):
        longest.append(max(map(len, sentences)))
        return predict(sentences)

    report = parse_corpus(corpus, out, watch, max_words=20)
    before = list(read_conllu(corpus))
    assert max(longest) == 20
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


def test_failures_that_are_kept_are_few():
    report = Report()
    for line in range(3 * KEPT):
        report.add(Failure("f", line, None, "why"))
    assert report.failed == 3 * KEPT
    assert [failure.line for failure in report.failures] == list(range(KEPT))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"batch_words": 0}, "batch_words: 0 is not positive"),
        ({"window": 0}, "window: 0"),
        ({"max_words": -1}, "max_words: -1"),
        ({"resume": True, "overwrite": True}, "choose one"),
    ],
)
def test_wrong_arguments(corpus, out, options, what):
    with pytest.raises(ValueError, match=what):
        parse_corpus(corpus, out, predict, **options)
    assert left(out) == []


def test_wrong_inputs(tmp_path, out):
    with pytest.raises(ValueError, match="no input"):
        parse_corpus([], out, predict)
    with pytest.raises(ValueError, match="more than once"):
        parse_corpus(["-", "-"], out, predict)
    with pytest.raises(FileNotFoundError, match="nothing"):
        parse_corpus(tmp_path / "nothing", out, predict)
    assert left(out) == []


# Interruptions


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
    runs = 0
    while runs < 100:
        runs += 1
        try:
            report = parse_corpus(source, folder / name, stopping(9), resume=True, **OPTIONS)
            break
        except Stop:
            assert not (folder / name).exists()
    assert runs > 3
    assert (folder / name).read_bytes() == (tmp_path / f"whole.{name}").read_bytes()
    assert os.listdir(folder) == [name]
    assert (report.sentences, report.words, report.bytes) == (whole.sentences, whole.words, whole.bytes)
    assert 0 < report.earlier_sentences < report.sentences


def test_resume_with_several_inputs(tmp_path, out):
    paths = []
    for number in range(12):
        paths.append(tmp_path / f"{number}.conllu")
        paths[-1].write_text(words(number * 3, seed=number).rstrip("\n"), newline="", encoding="utf-8")
    options = {**OPTIONS, "window": 3}
    parse_corpus(paths, tmp_path / "whole", predict, **options)
    for _ in range(200):
        try:
            parse_corpus(paths, out, stopping(6), resume=True, **options)
            break
        except Stop:
            pass
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
    interrupted(corpus, out)
    with pytest.raises(ValueError, match=r"out\.conllu\.partial: left by an interrupted run; pass --resume"):
        parse_corpus(corpus, out, predict, **OPTIONS)
    parse_corpus(corpus, out, predict, overwrite=True, **OPTIONS)
    assert left(out) == ["out.conllu"]


def test_a_run_that_saved_nothing_leaves_nothing(corpus, out):
    with pytest.raises(Stop):
        parse_corpus(corpus, out, stopping(1), **OPTIONS)
    assert left(out) == []


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
        patch.setattr("gpuparse.corpus.output._publish", die)
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


def in_a_child(run):
    """Start ``run`` in a process of its own that has everything imported already."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run()
            code = 0
        finally:
            os._exit(code)
    return child


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
        child = in_a_child(lambda: parse_corpus(source, target, predict, resume=True, **OPTIONS))
        if kills < 10:
            # Some in their first moments, most after a bit of progress; none needs a fast machine.
            wanted, end = size + rng.choice([0, 0, 2000, 10_000]), time.monotonic() + 10
            while wanted > size and time.monotonic() < end and not target.exists():
                if partial.exists() and partial.stat().st_size > wanted:
                    break
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 0.01))
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            break
        assert status == -signal.SIGKILL
        kills += 1
    assert kills == 10
    assert target.read_bytes() == (tmp_path / f"whole.{name}").read_bytes()
    assert os.listdir(target.parent) == [name]


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


def test_sentences_of_other_sources_are_named_by_line(tmp_path):
    """What a predictor sees knows where it is from."""
    source = tmp_path / "in"
    source.write_text(f"\n\n{WORD}\n\n{WORD}\n")
    places = []

    def watch(sentences):
        places.extend((one.source, one.line_of(1)) for one in sentences)
        assert all(isinstance(one, Sentence) for one in sentences)
        return root(sentences)

    parse_corpus(str(source), str(tmp_path / "out"), watch)
    assert sorted(places) == [(str(source), 3), (str(source), 5)]


def test_a_long_path_does_not_spoil_the_report(tmp_path):
    path = tmp_path / ("d" * 200) / ("f" * 90 + ".conllu")
    path.parent.mkdir()
    good = "1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n\n"
    path.write_text(good + "1\ta\t_\n\n")
    report = parse_corpus(path, tmp_path / "out.conllu", predict)
    assert [(failure.line, "3 columns" in failure.reason) for failure in report.failures] == [(3, True)]
