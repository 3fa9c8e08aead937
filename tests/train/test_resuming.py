"""Runs that are resumed, refused or written over."""

from __future__ import annotations

import json
import math

import pytest
import torch
from safetensors import safe_open

from gpuparse.parser import Parser
from gpuparse.train import checkpoint, loop
from tests.train.ends import Stop, Told
from tests.train.small import config, outcome, run, sentences

pytestmark = pytest.mark.usefixtures("one_thread")


def test_checkpoint_is_safetensors_and_json(tmp_path, moments, no_curve):
    moments.last = 20
    with pytest.raises(Stop):
        run(tmp_path)
    path = tmp_path / checkpoint.NAME
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
        position = json.loads(file.metadata()["position"])
    assert {"learner.steps", "model.arcs.weight", "learner.optimizer.exp_avg.arcs.weight"} <= names
    assert position["steps"] > 0
    assert position["config"] == config().to_dict()
    position["format"] = 99
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in names}
    path.write_bytes(checkpoint.save(tensors, {"position": json.dumps(position)}))
    moments.last = math.inf
    with pytest.raises(ValueError, match=r"training\.safetensors: a checkpoint of format 99, this version reads 1"):
        run(tmp_path, resume=True)
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"training\.safetensors: not a checkpoint: "):
        run(tmp_path, resume=True)


def test_resuming_what_is_finished(tmp_path, no_curve, moments):
    run(tmp_path)
    before, moments.count, moments.last = outcome(tmp_path), 0, 0  # nothing is to be done or written
    heard = Told()
    parser = run(tmp_path, resume=True, report=heard)
    assert heard.notes == [f"{tmp_path}: training was finished before"]
    assert outcome(tmp_path) == before
    for one, other in zip(parser.scorer.parameters(), Parser.load(tmp_path).scorer.parameters(), strict=True):
        assert torch.equal(one, other)


def test_resuming_what_older_settings_finished(tmp_path, no_curve):
    """Settings that did not exist at the time have their defaults."""
    run(tmp_path)
    saved = json.loads((tmp_path / loop.FINISHED).read_text())
    del saved["config"]["task"], saved["config"]["data"]["tags"], saved["config"]["training"]["transition_l1"]
    (tmp_path / loop.FINISHED).write_text(json.dumps(saved))
    run(tmp_path, resume=True)
    with pytest.raises(ValueError, match=r"cannot go on, training\.epochs was 2 and is 3 now"):
        run(tmp_path, "training.epochs=3", resume=True)


def test_resuming_nothing_begins(tmp_path, no_curve):
    run(tmp_path / "a")
    run(tmp_path / "b", resume=True)
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")


def test_resuming_with_another_number_of_processes(tmp_path, moments, no_curve, monkeypatch):
    moments.last = 20
    with pytest.raises(Stop):
        run(tmp_path)
    moments.last = math.inf
    read = checkpoint.load_checkpoint
    monkeypatch.setattr(checkpoint, "load_checkpoint", lambda *given: {**read(*given), "processes": 2})
    with pytest.raises(ValueError, match=r"begun by 2 processes and would go on with 1; run as many, or begin anew"):
        run(tmp_path, resume=True)


def test_a_model_without_its_training_is_not_trained_over(tmp_path, no_curve):
    run(tmp_path / "a").save(tmp_path / "b")
    before = {path: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    with pytest.raises(ValueError, match="holds a model but no training to go on with; --overwrite begins anew"):
        run(tmp_path / "b", resume=True)
    assert {path: path.read_bytes() for path in (tmp_path / "b").iterdir()} == before


@pytest.mark.parametrize("finished", [True, False])
def test_resuming_something_else(tmp_path, moments, no_curve, finished):
    moments.last = math.inf if finished else 20
    try:
        run(tmp_path)
    except Stop:
        moments.last = math.inf
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for change, was, now in [
        ("training.learning_rate=0.5", 0.002, 0.5),
        ("training.objective=local", "nll", "local"),
        ("scorer.hidden=9", 8, 9),
        ("scorer.kind=templates", "biaffine", "templates"),
    ]:
        name = change.partition("=")[0]
        with pytest.raises(ValueError) as caught:
            run(tmp_path, change, resume=True)
        want = f"{tmp_path}: cannot go on, {name} was {was!r} and is {now!r} now; "
        assert str(caught.value) == want + "leave it as it was, or begin anew with --overwrite"
    for data in ({"train": sentences(9)}, {"dev": sentences(10)[:2]}, {"dev": []}):
        with pytest.raises(ValueError, match=r"^[^\n]* cannot go on, the training or dev data are not "):
            run(tmp_path, resume=True, **data)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    run(tmp_path, "training.checkpoint_seconds=5", resume=True)  # this may be another


def test_a_directory_in_use(tmp_path, moments, no_curve):
    run(tmp_path / "done")
    moments.count, moments.last = 0, 20
    with pytest.raises(Stop):
        run(tmp_path / "begun")
    moments.last = math.inf
    (tmp_path / "file").write_text("something")
    for name, what in [("done", "model.json"), ("begun", checkpoint.NAME)]:
        with pytest.raises(ValueError) as caught:
            run(tmp_path / name)
        want = f"{tmp_path / name}: holds a model already ({what}); "
        assert str(caught.value) == want + "--resume goes on with its training, --overwrite begins anew"
    with pytest.raises(ValueError, match=r"file: is a file; wanted a directory for the model$"):
        run(tmp_path / "file")
    with pytest.raises(ValueError, match=r"^--resume and --overwrite: one or the other$"):
        run(tmp_path / "done", resume=True, overwrite=True)
    # Something else may lie there.
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    run(tmp_path / "other")
    assert (tmp_path / "other" / "notes.txt").read_text() == "mine"


def test_overwriting(tmp_path, moments, no_curve):
    run(tmp_path / "want", "scorer.hidden=9")
    for name, last in [("done", math.inf), ("begun", 20)]:
        moments.count, moments.last = 0, last
        try:
            run(tmp_path / name)
        except Stop:
            assert name == "begun"
        # An end before the first checkpoint of the new run: nothing of the old one is gone on with.
        moments.count, moments.last = 0, 5
        with pytest.raises(Stop):
            run(tmp_path / name, "scorer.hidden=9", overwrite=True)
        moments.last = math.inf
        run(tmp_path / name, "scorer.hidden=9", resume=True)
        assert outcome(tmp_path / name) == outcome(tmp_path / "want")
    run(tmp_path / "want", "scorer.hidden=9", overwrite=True)
    assert outcome(tmp_path / "want") == outcome(tmp_path / "done")
