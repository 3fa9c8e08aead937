"""Going on with training in a directory that a stranger or a broken disk made."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import save

from gpuparse.system.tensors import read_header, read_tensors
from gpuparse.train import checkpoint, loop
from tests.train.ends import Stop
from tests.train.small import outcome, run


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped within its second epoch."""
    directory = tmp_path_factory.mktemp("run") / "model"
    with pytest.MonkeyPatch.context() as patch:
        written = checkpoint.save_checkpoint

        def write_and_stop(where, learner, position):
            written(where, learner, position)
            if position["epoch"] == 1 and position["batch"] == 1:
                raise Stop

        patch.setattr(checkpoint, "save_checkpoint", write_and_stop)
        with pytest.raises(Stop):
            run(directory)
    return directory


@pytest.fixture
def model(stopped, tmp_path, monkeypatch):
    """A copy to break."""
    monkeypatch.setattr(loop, "draw_curve", lambda *_: True)
    shutil.copytree(stopped, tmp_path / "model")
    return tmp_path / "model"


def refused(directory):
    before = sorted(os.listdir(directory))
    with pytest.raises(ValueError) as caught:
        run(directory, resume=True)
    line = str(caught.value)
    assert line.startswith(str(directory)) and line.isprintable() and len(line) < 1000
    assert sorted(os.listdir(directory)) == before
    return line.removeprefix(f"{directory}")


def rewrite(directory, tensors=None, **changes):
    """Other tensors, or another position; a change to ``...`` leaves it out."""
    path = directory / checkpoint.NAME
    position = {**json.loads(read_header(path).metadata["position"]), **changes}
    position = {name: value for name, value in position.items() if value is not ...}
    found = {**read_tensors(path), **(tensors or {})}
    found = {name: value.clone() for name, value in found.items() if value is not None}
    path.write_bytes(save(found, {"position": json.dumps(position)}))


def test_it_goes_on(model, tmp_path):
    run(model, resume=True)
    run(tmp_path / "other")
    assert outcome(model) == outcome(tmp_path / "other")


NAME = f"/{checkpoint.NAME}: "


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        *((name, -1, "a whole number, 0 or more") for name in ("epoch", "batch", "steps", "log_length")),
        *(("epoch", value, "a whole number, 0 or more") for value in (None, 1.5, True, "1", [], 2**63)),
        ("processes", ..., "a whole number, 0 or more"),
        *((name, None, "a number") for name in ("loss", "seconds", "inference")),
        ("loss", ..., "a number"),
        ("words", 0, "a number above 0"),
        ("step_seconds", -1.0, "a number above 0"),
        ("best", None, "scores by their names"),
        ("best", {"epoch": "x"}, "scores by their names"),
        ("best", {"dev_las": 0.5}, "also the epoch that they are of"),
    ],
)
def test_positions_that_there_are_not(model, name, value, wanted):
    rewrite(model, **{name: value})
    shown = repr(None if value is ... else value)
    assert refused(model) == f"{NAME}not a checkpoint: {name} is {shown}; wanted {wanted}"


@pytest.mark.parametrize(
    ("position", "message"),
    [
        ("[" * 10**5, "not a checkpoint: its position: more than 32 lists or objects in one another"),
        ("null", "not a checkpoint: its position is None; wanted an object"),
        ("{", "not a checkpoint: its position: not JSON: "),
        ('{"format": "x"}', "a checkpoint of format 'x', this version reads 1: start anew"),
        (None, "not a checkpoint: its metadata have no position"),
    ],
)
def test_positions_of_strangers(model, position, message):
    path = model / checkpoint.NAME
    path.write_bytes(save(read_tensors(path), None if position is None else {"position": position}))
    assert refused(model).startswith(NAME + message)


def test_settings_of_strangers(model):
    for config, message in ((None, "the settings that it began with are not there"), ({}, "")):
        rewrite(model, config=config)
        assert refused(model).startswith(f": cannot go on, {message}")
    rewrite(model, config={"scorer": {"hidden": 10**9}})
    assert refused(model) == ": scorer.hidden is 1000000000; wanted 1 to 65536"


def test_tensors_of_another_run(model):
    path = model / checkpoint.NAME
    content = path.read_bytes()
    name, weights = "model.arcs.weight", read_tensors(path)["model.arcs.weight"].clone()
    moment = "learner.optimizer.exp_avg.arcs.weight"
    for tensors, message in (
        ({name: None}, "'arcs.weight' is missing, and [9, 8] is wanted"),
        ({name: weights[1:]}, "'arcs.weight' has the shape [8, 8], and [9, 8] is wanted"),
        ({name: weights.int()}, "'arcs.weight' is int32, and float32 is wanted"),
        ({"model.more": weights}, "'more' is there, and is not wanted"),
        ({name: weights * torch.nan}, "'model.arcs.weight' has a NaN or an infinity"),
        ({moment: None}, "the optimizer's moments of 'arcs.weight' have other names or shapes than its weights"),
        ({moment: weights[1:]}, "the optimizer's moments of 'arcs.weight' have other names or shapes than its weights"),
        ({"learner.steps": None}, "'steps' is missing"),
        ({"learner.average.arcs.weight": None}, "'average.arcs.weight' is missing"),
        ({"learner.average.arcs.weight": weights[:5]}, "The size of tensor a (9) must match"),
        ({"learner.steps": torch.arange(3)}, ""),
    ):
        path.write_bytes(content)
        rewrite(model, tensors)
        assert refused(model).startswith(f"{NAME}not of this model: {message}")


def test_files_that_are_none(model, tmp_path):
    path = model / checkpoint.NAME
    content = path.read_bytes()
    (tmp_path / "outside").write_bytes(content)
    for put, told in (
        (lambda: os.mkfifo(path), "a pipe; wanted a file"),
        (lambda: path.symlink_to("../outside"), f"a link out of {model}; put the file itself there"),
        (lambda: path.write_bytes(content[:-1]), "not a checkpoint: "),
    ):
        path.unlink()
        put()
        assert refused(model).startswith(NAME + told)


def test_a_log_that_is_a_link_is_not_written_to(model, tmp_path):
    """Nor cut to the length that the checkpoint says."""
    outside = tmp_path / "precious"
    outside.write_bytes((model / "log.jsonl").read_bytes() + b"precious\n")
    before = outside.read_bytes()
    (model / "log.jsonl").unlink()
    (model / "log.jsonl").symlink_to(outside)
    run(model, resume=True)
    assert outside.read_bytes() == before and not (model / "log.jsonl").is_symlink()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[]", ":1: []; wanted an object with an event"),
        (b'{"event": 3}', ":1: {'event': 3}; wanted an object with an event"),
        (b'{"event": "epoch", "epoch": 1}', ":1: loss is ''; wanted a number"),
        (b'{"event": "epoch", "epoch": 1, "loss": 1, "dev_las": "x"}', ":1: dev_las is 'x'; wanted a number"),
        (b"[" * 10**5, ":1: more than 32 lists or objects in one another"),
        (b"\xff", ":1: not JSON: "),
    ],
    ids=range(6),
)
def test_a_log_of_something_else(model, line, message):
    log = model / "log.jsonl"
    log.write_bytes(line + b"\n")
    rewrite(model, log_length=len(line) + 1)
    assert refused(model).startswith(f"/log.jsonl{message}")


def test_a_finished_run_of_strangers(model):
    run(model, resume=True)
    finished = model / loop.FINISHED
    for content, message in (
        (b"[" * 10**5, f"/{loop.FINISHED}: more than 32 lists or objects in one another"),
        (b"[]", ": cannot go on, the settings that it began with are not there"),
        (b'{"config": 3}', ": cannot go on, the settings that it began with are not there"),
    ):
        finished.write_bytes(content)
        assert refused(model).startswith(message)
    finished.unlink()
    os.mkfifo(finished)
    assert refused(model) == f"/{loop.FINISHED}: a pipe; wanted a file"
