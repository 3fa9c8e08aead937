"""Runs that are resumed, refused or written over."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors import safe_open

from gpuparse.models.parser import Parser
from gpuparse.train import checkpoint, loop
from tests.decoding.refusals import refuses
from tests.train.ends import Told
from tests.train.small import config, outcome, run, sentences

pytestmark = pytest.mark.usefixtures("one_thread")


def test_checkpoint_is_safetensors_and_json(tmp_path, stopped_at, no_curve):
    stopped_at(tmp_path)
    path = tmp_path / checkpoint.NAME
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        position = json.loads(file.metadata()["position"])
    assert {"learner.steps", "model.arcs.weight", "learner.optimizer.exp_avg.arcs.weight"} <= tensors.keys()
    assert position["steps"] > 0 and position["config"] == config().to_dict()
    older = checkpoint.save(tensors, {"position": json.dumps({**position, "format": 99})})
    for content, what in ((older, "a checkpoint of format 99, this version reads 1"), (b"x", "not a checkpoint: ")):
        path.write_bytes(content)
        refuses(rf"training\.safetensors: {what}", run, tmp_path, resume=True)


def test_resuming_what_is_finished(tmp_path, no_curve, moments):
    run(tmp_path, resume=True)  # there is nothing yet: it begins
    before, moments.count, moments.last = outcome(tmp_path), 0, 0  # nothing is to be done or written
    heard = Told()
    parser = run(tmp_path, resume=True, report=heard)
    assert heard.notes == [f"{tmp_path}: training was finished before"]
    assert outcome(tmp_path) == before
    for one, other in zip(parser.scorer.parameters(), Parser.load(tmp_path).scorer.parameters(), strict=True):
        assert torch.equal(one, other)
    moments.last = math.inf
    run(tmp_path, overwrite=True)
    assert outcome(tmp_path) == before


def test_resuming_what_older_settings_finished(tmp_path, no_curve):
    """Settings that did not exist at the time have their defaults."""
    run(tmp_path)
    saved = json.loads((tmp_path / loop.FINISHED).read_text())
    del saved["config"]["task"], saved["config"]["data"]["tags"], saved["config"]["training"]["transition_l1"]
    (tmp_path / loop.FINISHED).write_text(json.dumps(saved))
    run(tmp_path, resume=True)
    refuses(r"cannot go on, training\.epochs was 2 and is 3 now", run, tmp_path, "training.epochs=3", resume=True)


def test_resuming_with_another_number_of_processes(tmp_path, stopped_at, no_curve, monkeypatch):
    stopped_at(tmp_path)
    read = checkpoint.load_checkpoint
    monkeypatch.setattr(checkpoint, "load_checkpoint", lambda *given: {**read(*given), "processes": 2})
    refuses(r"begun by 2 processes and would go on with 1; run as many, or begin anew", run, tmp_path, resume=True)


def test_a_model_without_its_training_is_not_trained_over(tmp_path, no_curve):
    run(tmp_path / "a").save(tmp_path / "b")
    before = {path: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    refuses("holds a model but no training to go on with; --overwrite begins anew", run, tmp_path / "b", resume=True)
    assert {path: path.read_bytes() for path in (tmp_path / "b").iterdir()} == before


@pytest.mark.parametrize("finished", [True, False])
def test_resuming_something_else(tmp_path, stopped_at, no_curve, finished):
    run(tmp_path) if finished else stopped_at(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for change, was, now in [
        ("training.learning_rate=0.5", 0.002, 0.5),
        ("training.objective=local", "nll", "local"),
        ("scorer.hidden=9", 8, 9),
        ("scorer.kind=templates", "biaffine", "templates"),
    ]:
        with pytest.raises(ValueError) as caught:
            run(tmp_path, change, resume=True)
        want = f"{tmp_path}: cannot go on, {change.partition('=')[0]} was {was!r} and is {now!r} now; "
        assert str(caught.value) == want + "leave it as it was, or begin anew with --overwrite"
    for data in ({"train": sentences(9)}, {"dev": sentences(10)[:2]}, {"dev": []}):
        refuses(r"^[^\n]* cannot go on, the training or dev data are not ", run, tmp_path, resume=True, **data)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    run(tmp_path, "training.checkpoint_seconds=5", resume=True)  # this may be another


def test_a_directory_in_use(tmp_path, stopped_at, no_curve):
    run(tmp_path / "done")
    stopped_at(tmp_path / "begun")
    (tmp_path / "file").write_text("something")
    held = "holds a model already ({}); --resume goes on with its training, --overwrite begins anew"
    for name, options, what in [
        ("done", {}, f"{tmp_path / 'done'}: {held.format('model.json')}"),
        ("begun", {}, f"{tmp_path / 'begun'}: {held.format(checkpoint.NAME)}"),
        ("file", {}, f"{tmp_path / 'file'}: is a file; wanted a directory for the model"),
        ("done", {"resume": True, "overwrite": True}, "--resume and --overwrite: one or the other"),
    ]:
        with pytest.raises(ValueError) as caught:
            run(tmp_path / name, **options)
        assert str(caught.value) == what
    # Something else may lie there.
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    run(tmp_path / "other")
    assert (tmp_path / "other" / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("finished", [True, False])
def test_overwriting(tmp_path, stopped_at, no_curve, finished):
    other = "scorer.hidden=9"
    run(tmp_path / "want", other)
    run(tmp_path / "old") if finished else stopped_at(tmp_path / "old")
    # An end before the first checkpoint of the new run: nothing of the old one is gone on with.
    stopped_at(tmp_path / "old", 5, other, overwrite=True)
    run(tmp_path / "old", other, resume=True)
    assert outcome(tmp_path / "old") == outcome(tmp_path / "want")
