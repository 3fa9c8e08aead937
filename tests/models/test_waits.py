"""How often predicting and training wait for a GPU, counted on a CPU."""

from __future__ import annotations

import pytest
import torch

from gpuparse.config import Config
from gpuparse.data.artificial import artificial_treebank
from gpuparse.models.directory import Model
from gpuparse.system import transfer
from gpuparse.train.distributed import Processes
from gpuparse.train.learner import read_stats
from gpuparse.train.tagging import TaggingTask
from gpuparse.train.task import Parsing
from tests.budget import Budget, budget

TREEBANK = list(artificial_treebank(30))
SMALL = ("scorer.word=6", "scorer.char=4", "scorer.chars=6", "scorer.hidden=8", "scorer.layers=1")
TASKS = {"parse": Parsing, "tag": TaggingTask}


def elsewhere(found: Budget) -> list[str]:
    """Waits that are not for the one block that results come in."""
    return [what for what in found.waits if transfer.__name__ not in what]


@pytest.mark.parametrize("task", TASKS)
def test_results_come_in_one_block_a_batch_late(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.load(overrides=[*SMALL, f"task={task}"])
    model: Model = TASKS[task](config, TREEBANK, torch.device("cpu"), Processes()).model
    happened: list[str] = []
    begin = transfer.begin_to_host

    def begun(*tensors: torch.Tensor) -> object:
        happened.append("begun")
        get = begin(*tensors)
        return lambda: (happened.append("read"), get())[1]

    for module in ("gpuparse.models.parser", "gpuparse.models.tagger"):
        monkeypatch.setattr(f"{module}.begin_to_host", begun)
    batches = len(list(model.batches(TREEBANK, 100)))
    expected = model.predict(TREEBANK, batch_words=100)
    assert batches > 2 and happened == ["begun", *["begun", "read"] * (batches - 1), "read"]
    options = {"method": "dense"} if task == "tag" else {}
    with budget() as found:
        assert model.predict(TREEBANK, batch_words=100, **options) == expected
    assert elsewhere(found) == []


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("scorer.grandparents=4", "training.objective=bp"),
        ("task=tag", "scorer.kind=bilstm", "training.objective=nll"),
    ],
    ids=["parse", "bp", "tag"],
)
def test_a_step_waits_for_nothing_and_its_numbers_are_read_together(overrides: tuple[str, ...]) -> None:
    config = Config.load(overrides=[*SMALL, *overrides])
    task = TASKS[config.task](config, TREEBANK, torch.device("cpu"), Processes())
    batch, words = task.batch(range(8)), sum(len(sentence) for sentence in TREEBANK[:8])
    with budget() as found:
        told = [task.learner.step(batch, words=words, progress=0.1) for _ in range(3)]
    assert found.waits.total() == 0, found.waits
    with budget() as found:
        stats = read_stats(told)
    assert found.waits.total() == 1, found.waits
    assert all(each["loss"] > 0 and each["gradient_norm"] > 0 for each in stats)
    assert stats[0]["loss"] > stats[2]["loss"] and all(each["seconds_inference"] > 0 for each in stats)
