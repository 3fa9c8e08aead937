"""The training loop: what it leaves behind, when it stops, and that an end at any moment changes nothing."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import pickle
import random
import re
import signal
import sys
import time

import pytest
import torch

from gpuparse.config import LIMITS, Config, Limits
from gpuparse.data.batches import shuffled_batches
from gpuparse.data.sentence import Sentence
from gpuparse.decoding.methods import decode
from gpuparse.evaluate import attachment_scores
from gpuparse.models.parser import Parser
from gpuparse.train import task
from gpuparse.train.gradient import LossLearner
from gpuparse.train.online import OnlineLearner
from gpuparse.train.report import read_log
from gpuparse.train.tagging import TagPerceptron
from tests.decoding.refusals import refuses
from tests.train.ends import Stop, Told
from tests.train.small import BILSTM, NO_DROPOUT, TAGS, TEMPLATES, config, outcome, run, run_alone, sentences, told

pytestmark = pytest.mark.usefixtures("one_thread")

RUNS = {
    "nll": (),
    "hinge, projective": ("training.objective=hinge", "training.projective=true"),
    "perceptron": ("training.objective=perceptron", *TEMPLATES),
    "mira": ("training.objective=mira", *TEMPLATES),
    "tags, perceptron": (*TAGS, "training.transition_l1=1e-3", "training.transition_l2=1e-3"),
    "tags, templates, nll": (*TAGS, "training.objective=nll"),
    "tags, nll": (*BILSTM, "scorer.kind=bilstm+templates", "training.transition_l1=0.1"),
}
LEARNERS = {"perceptron": OnlineLearner, "mira": OnlineLearner, "tags, perceptron": TagPerceptron}


def test_what_a_run_leaves(tmp_path, monkeypatch, every_step):
    def refuse(*_, **__):
        raise AssertionError("pickle")

    monkeypatch.setattr(torch, "save", refuse)
    for name in ("dump", "dumps", "Pickler"):
        monkeypatch.setattr(pickle, name, refuse)
    heard = Told()
    directory = tmp_path / "new" / "model"
    parser = run(directory, "training.epochs=3", report=heard)
    assert outcome(directory)
    assert (directory / "curve.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert Config.load(directory / "config.toml") == config("training.epochs=3")
    start, *lines, end = read_log(directory / "log.jsonl")
    assert start["event"] == "start"
    assert start["config"] == config("training.epochs=3").to_dict()
    assert (start["sentences"], start["dev_sentences"], start["processes"]) == (10, 3, 1)
    assert start["words"] == sum(map(len, sentences(10)))
    assert start["parameters"] == sum(p.numel() for p in parser.scorer.parameters())
    epochs, steps = ([line for line in lines if line["event"] == event] for event in ("epoch", "step"))
    assert [line["epoch"] for line in epochs] == [1, 2, 3]
    assert [line["step"] for line in steps] == list(range(1, len(steps) + 1))
    for line in epochs:
        assert 0 < line["loss"] < 20 and 0 < line["inference_share"] < 1
        assert 0 <= line["dev_las"] <= line["dev_uas"] <= 1
    assert (heard.epochs, heard.begins, len(heard.steps)) == (epochs, [{"epochs": 3, "epoch": 0}], len(steps))
    best = max(epochs, key=lambda line: (line["dev_las"], -line["epoch"]))
    about = {name: best[name] for name in ("epoch", "dev_uas", "dev_las")}
    assert (end["event"], end["best"]) == ("end", about) and 0 < end["inference_share"] < 1
    assert json.loads((directory / "model.json").read_text())["results"] == about
    # What was kept is what was evaluated, and what is given back.
    dev = sentences(10)[:3]
    for one in (parser, Parser.load(directory)):
        assert attachment_scores(dev, one.predict(dev)) == (best["dev_uas"], best["dev_las"])


def test_loss_of_an_epoch_is_per_word(tmp_path, no_curve, every_step):
    run(tmp_path, "training.epochs=1")
    (*steps, epoch) = told(tmp_path, "step", "epoch")
    settings, lengths = config().training, [len(one) for one in sentences(10)]
    batches = shuffled_batches(lengths, settings.batch_words, seed=settings.seed, epoch=0)
    words = [sum(lengths[index] for index in batch) for batch in batches]
    assert len(set(words)) > 1
    total = sum(line["loss"] * count for line, count in zip(steps, words, strict=True))
    assert math.isclose(epoch["loss"], total / sum(lengths), rel_tol=1e-12)


def test_it_learns(tmp_path, no_curve):
    """By heart: no dropout, and the dev data are training data."""
    run(tmp_path, *NO_DROPOUT, "training.epochs=40", "training.learning_rate=0.03", "training.average=0.9")
    first, *_, last = told(tmp_path, "epoch")
    assert last["loss"] < 0.2 * first["loss"]
    assert max(line["dev_las"] for line in told(tmp_path, "epoch")) > 0.9
    one = Sentence.from_words(["a"], heads=[0], deprels=["root"])  # all that there is to learn
    run(tmp_path / "word", train=[one, Sentence("# nothing\n\n"), one], dev=[one])
    assert told(tmp_path / "word", "epoch")[-1]["dev_las"] == 1


def test_without_dev_data_the_last_weights_are_kept(tmp_path):
    for name, epochs in (("one", 1), ("two", 2)):
        run(tmp_path / name, f"training.epochs={epochs}", dev=[])
        assert (tmp_path / name / "curve.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert all(line["best"] and "dev_las" not in line for line in told(tmp_path / "two", "epoch"))
    assert json.loads((tmp_path / "two" / "model.json").read_text())["results"] == {"epoch": 2}
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert one != two


def test_no_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    heard = Told()
    run(tmp_path, report=heard)
    assert heard.notes == ["no curve.png: matplotlib is not installed (pip install 'gpuparse[plot]')"]
    assert not (tmp_path / "curve.png").exists()
    assert outcome(tmp_path)


@pytest.mark.parametrize(("patience", "stops"), [(0, 8), (1, 4), (2, 7), (3, 8)])
def test_patience(tmp_path, monkeypatch, no_curve, patience, stops):
    """LAS by epoch is given; training stops after so many epochs without a better one, and keeps the best."""
    las = iter([0.1, 0.2, 0.3, 0.3, 0.4, 0.2, 0.4, 0.1])
    monkeypatch.setattr(task, "attachment_scores", lambda *_: (0.5, next(las)))
    saved = []
    real = Parser.save

    def save(parser, directory):
        saved.append(parser.results["epoch"])
        real(parser, directory)

    monkeypatch.setattr(Parser, "save", save)
    run(tmp_path, "training.epochs=8", f"training.patience={patience}")
    lines = told(tmp_path, "epoch")
    assert len(lines) == stops
    want = [epoch for epoch in (1, 2, 3, 5) if epoch <= stops]
    assert saved == [line["epoch"] for line in lines if line["best"]] == want
    assert told(tmp_path, "end")[0]["best"]["epoch"] == want[-1]


@pytest.mark.parametrize("name", RUNS)
def test_an_end_at_any_step(tmp_path, monkeypatch, no_curve, every_step, name):
    """Without checkpoints within an epoch, and with one after every step."""
    run(tmp_path / "whole", *RUNS[name])
    want = outcome(tmp_path / "whole")
    steps = len(told(tmp_path / "whole", "step"))
    learner = LEARNERS.get(name, LossLearner)
    real = learner.step
    for number in range(steps):
        for seconds in (0, 1000):
            left = number

            def step(self, *arguments, **options):
                nonlocal left
                if not left:
                    raise Stop
                left -= 1
                return real(self, *arguments, **options)

            directory = tmp_path / f"{number}-{seconds}"
            settings = (*RUNS[name], f"training.checkpoint_seconds={seconds}")
            with monkeypatch.context() as patch, pytest.raises(Stop):
                patch.setattr(learner, "step", step)
                run(directory, *settings)
            heard = Told()
            run(directory, *RUNS[name], resume=True, report=heard)
            got = outcome(directory)
            got["log"][0]["config"]["training"]["checkpoint_seconds"] = 0.0
            got["config.toml"] = want["config.toml"]
            assert got == want
            # And it did go on, not begin anew.
            begun = number if seconds == 0 else number - number % (steps // 2)
            assert len(heard.steps) == steps - begun
            assert len(heard.notes) == (begun > 0)


def test_an_end_at_any_moment(tmp_path, moments, stopped_at, no_curve):
    """Before or after any step, line of the log, or file."""
    large = "training.batch_words=60"
    run(tmp_path / "whole", large)
    want, count = outcome(tmp_path / "whole"), moments.count
    assert count > 30
    for last in range(count):
        directory = tmp_path / str(last)
        stopped_at(directory, last, large)
        assert not list(directory.glob(".*"))
        run(directory, large, resume=True)
        assert outcome(directory) == want


def test_many_ends(tmp_path, moments, no_curve):
    """Ends of resumed runs, too, as long as they come on at all."""
    run(tmp_path / "whole")
    want = outcome(tmp_path / "whole")
    draw = random.Random(0)
    ends = 0
    while True:
        moments.count, moments.last = 0, draw.randint(8, 16)
        try:
            run(tmp_path / "part", resume=True)
            break
        except Stop:
            ends += 1
    assert ends > 3
    assert outcome(tmp_path / "part") == want


def test_a_log_cut_short(tmp_path, moments, stopped_at, no_curve, every_step):
    """The file system may have lost the end of the log: training goes on, and so does the log."""
    run(tmp_path / "whole")
    directory, name = tmp_path / "part", "model.safetensors"
    stopped_at(directory, moments.count // 2)
    log = directory / "log.jsonl"
    os.truncate(log, log.stat().st_size - 25)
    assert read_log(log)  # the line cut off is left out
    os.truncate(log, 10)
    run(directory, resume=True)
    assert (directory / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert told(directory) == told(tmp_path / "whole")[-len(told(directory)) :]


def test_kill(tmp_path):
    """kill −9 of a process at random moments, its continuations too; then what an undisturbed run leaves."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.train.small"])

    def begin(name, resume):
        """Start a run; wait until it trains."""
        process = context.Process(target=run_alone, args=(str(tmp_path / name), ("training.epochs=5",), resume))
        process.start()
        while not (tmp_path / name / "log.jsonl").exists() and process.is_alive():
            time.sleep(0.002)
        return process

    def end(name, resume):
        """Run to the end; the seconds of its training, and what it leaves."""
        process, begun = begin(name, resume), time.perf_counter()
        process.join(120)
        assert process.exitcode == 0 and not list((tmp_path / name).glob(".*"))
        return time.perf_counter() - begun, outcome(tmp_path / name)

    duration, want = end("whole", False)
    draw, killed = random.Random(1), 0
    for name, kills in [("once", 1), ("twice", 2)]:
        for number in range(kills):
            process = begin(name, number > 0)
            time.sleep(draw.uniform(0.1, 0.6) * duration)
            os.kill(process.pid, signal.SIGKILL)
            process.join(60)
            killed += process.exitcode == -signal.SIGKILL
        assert end(name, True)[1] == want
    assert killed > 1  # the others came too late


@pytest.mark.parametrize("setting", ["data.tags=xpos", "training.transition_l1=0.5", "training.transition_l2=1"])
def test_a_parser_has_no_settings_of_a_tagger(tmp_path, setting):
    refuses("and a parser has none; --task tag trains a tagger", run, tmp_path, setting)


@pytest.mark.parametrize(
    ("rate", "batch_words", "what"),
    [
        ("1e38", 40, r"the loss of epoch 1, batch [23] is nan"),
        ("1e25", 10_000, r"after epoch 1 the dev data cannot be parsed: arcs\[.*\] is nan .*"),
        ("1e300", 10_000, r"the weights after epoch 1 are no numbers"),
    ],
)
def test_numbers_out_of_range(tmp_path, monkeypatch, rate, batch_words, what):
    """Within an epoch, and after its only batch; by a rate that is otherwise refused."""
    monkeypatch.setitem(LIMITS, "training.learning_rate", Limits(0, 10**301))
    settings = (f"training.learning_rate={rate}", "training.warmup=0", f"training.batch_words={batch_words}")
    with pytest.raises(ValueError) as caught:
        run(tmp_path, *settings)
    form = f"training: {what}; a lower training.learning_rate or training.clip may help"
    assert re.fullmatch(form, str(caught.value)), str(caught.value)
    assert not (tmp_path / "model.json").exists()


@pytest.mark.parametrize("name", ["grandparents", "siblings"])
def test_parts_that_are_not_learned(tmp_path, name):
    local = ("training.objective=local", "training.projective=true")
    for settings, what in (((), "'nll' learns them over projective trees"), (local, "'local' is first order")):
        refuses(f"^scorer.{name}: training.objective {what}", run, tmp_path, f"scorer.{name}=2", *settings)
    assert not list(tmp_path.iterdir())


def test_second_order_parser(tmp_path, no_curve):
    """Learned, saved, loaded, and decoded exactly: no other projective tree scores more."""
    settings = ("scorer.grandparents=3", "scorer.siblings=3", "training.projective=true", "training.epochs=4")
    run(tmp_path, *settings)
    parser = Parser.load(tmp_path)
    given = list(sentences(6))
    found = parser.predict(given, confidence=True)
    other = parser.predict(given, method="ilp")
    assert [each.heads for each in found] == [each.heads for each in other]
    assert all(0 <= p <= 1.0001 for each in found for p in each.confidence)


@pytest.mark.parametrize("objective", ["bp", "bp_l2"])
def test_a_parser_learned_by_beliefs_decodes_by_them(tmp_path, no_curve, monkeypatch, objective):
    run(tmp_path, f"training.objective={objective}", "scorer.siblings=2", "training.epochs=1")
    parser, methods, given = Parser.load(tmp_path), [], list(sentences(3))

    def watched(scores, method, **options):
        methods.append(method)
        return decode(scores, method, **options)

    monkeypatch.setattr("gpuparse.models.parser.decode", watched)
    found = parser.predict(given)
    parser.predict(given, method="ilp")
    assert set(methods) == {"bp", "ilp"} and methods[0] == "bp"
    assert all(len(each.heads) == len(sentence) for each, sentence in zip(found, given, strict=True))
