"""Training shared among processes: two of them, started by torchrun, against one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gpuparse.data.conllu import write_conllu
from gpuparse.train import distributed, loop
from gpuparse.train.distributed import Processes, own_device
from tests.train.small import outcome, run, sentences, told
from tests.train.two_processes import INTERRUPTED, RUNS

# A gradient is summed in another order, in float32, with an error of some 2^-24 of it. Adam makes of it an error of
# its steps of about the same share; a dozen steps of 0.01 and weights of about 1 stay well within these.
LOSS = 1e-6
WEIGHTS = 2e-6


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """What two processes leave behind, and what they say."""
    directory = tmp_path_factory.mktemp("two")
    write_conllu(sentences(10), directory / "a.conllu")
    program = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    program += ["-m", "tests.train.two_processes", str(directory)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    environment.pop("GPUPARSE_DEBUG", None)
    done = subprocess.run(program, capture_output=True, text=True, timeout=240, check=False, env=environment)
    return directory, done


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same runs in one process."""
    directory, threads = tmp_path_factory.mktemp("one"), torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curve", lambda *_: True)
        patch.setattr(loop, "LOG_EVERY", 1)
        for name, settings in RUNS.items():
            run(directory / name, *settings)
    torch.set_num_threads(threads)
    return directory


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_learn_what_one_does(shared, alone, name):
    directory, done = shared
    assert (directory / name / "training.json").exists(), done.stderr
    one, two = told(alone / name), told(directory / name)
    assert (one[0].pop("processes"), two[0].pop("processes")) == (1, 2)
    assert one[0].pop("threads") == two[0].pop("threads") == 1
    assert one[0] == two[0]
    assert [line["event"] for line in one] == [line["event"] for line in two]
    for line, other in zip(one[1:], two[1:], strict=True):
        for each in ("loss", "gradient_norm", "wrong_labels"):
            assert line.pop(each, 0) == pytest.approx(other.pop(each, 0), rel=LOSS)
        assert line == other  # steps, rates, accuracy on the dev data
    weights, others = (load_file(where / name / "model.safetensors") for where in (alone, directory))
    assert weights.keys() == others.keys()
    for each, value in weights.items():
        torch.testing.assert_close(value, others[each], rtol=0, atol=WEIGHTS)


def test_batches_of_one_sentence(shared, alone):
    """One of the processes has none, and adds nothing."""
    directory, _ = shared
    steps = [line for line in told(directory / "alone") if line["event"] == "step"]
    assert len(steps) == 3 * len(sentences(10))
    name = "alone/model.safetensors"
    assert (directory / name).read_bytes() == (alone / name).read_bytes()


@pytest.mark.parametrize("name", INTERRUPTED)
def test_going_on(shared, name):
    directory, done = shared
    assert (directory / f"{name} again").exists(), done.stderr
    assert outcome(directory / f"{name} again") == outcome(directory / name)


def test_an_error_in_one_process_ends_both(shared):
    """Each says one line: what was wrong, and that the other is gone (unless it was ended before it could say so)."""
    directory, done = shared
    assert done.returncode == 1
    # What torchrun itself has to say of it is not ours, and kernels may have been compiled.
    lines = done.stderr.splitlines()
    said = [line for line in lines if "gpuparse: " in line and "gpuparse: compiling kernels" not in line]
    assert "gpuparse: an error on purpose" in said
    said.remove("gpuparse: an error on purpose")
    assert set(said) <= {"gpuparse: another process of this training has stopped; its own message says why"}
    assert [line["event"] for line in told(directory / "failed")] == ["start", "step", "step"]


def test_parts_of_a_batch():
    batch = list(range(7))
    parts = [Processes(rank, 3).part(batch) for rank in range(3)]
    assert sorted(index for part in parts for index in part) == batch
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert [Processes(rank, 3).part([5]) for rank in range(3)] == [[5], [], []]
    assert Processes().part(batch) == batch
    tensor = torch.ones(3)  # one process alone sums nothing
    Processes().sum_([tensor])
    Processes().wait()
    assert tensor.tolist() == [1, 1, 1]


def test_each_process_has_its_own_gpu(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(distributed, "as_device", lambda device: torch.device("cuda:0" if device == "cuda" else device))
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert own_device("cpu") == torch.device("cpu")
    assert not chosen
    assert own_device("cuda") == torch.device("cuda", 3)
    assert own_device("cuda:1") == torch.device("cuda", 1)
    monkeypatch.delenv("LOCAL_RANK")
    assert own_device("cuda") == torch.device("cuda", 0)
    assert chosen == [torch.device("cuda", index) for index in (3, 1, 0)]
