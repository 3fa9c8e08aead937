"""Training by gradients: the rate, clipping, averages, determinism, and that it learns."""

from __future__ import annotations

import copy
import math
import time

import pytest
import torch
from torch import nn

from gpuparse.config import TrainingConfig
from gpuparse.data.vocab import Vocabulary
from gpuparse.models.parser import Parser
from gpuparse.nn.scorer import NeuralScorer
from gpuparse.system.devices import takes_bf16
from gpuparse.train import gradient
from gpuparse.train.checkpoint import load_checkpoint, save_checkpoint
from gpuparse.train.gradient import GradientLearner, rate_at
from gpuparse.train.learner import read_stats
from gpuparse.train.objectives import label_loss
from gpuparse.train.treebank import is_projective
from tests.train.small import NO_DROPOUT, TEMPLATES, batch_of, config, parser_and_batch, sentences

pytestmark = pytest.mark.usefixtures("one_thread")

SECOND = ("training.projective=true", "scorer.grandparents=3", "scorer.siblings=3")
OBJECTIVES = {
    "nll": ("training.objective=nll",),
    "nll, projective": ("training.objective=nll", "training.projective=true"),
    "local": ("training.objective=local",),
    "hinge": ("training.objective=hinge",),
    "hinge, projective": ("training.objective=hinge", "training.projective=true"),
    "templates": ("training.objective=nll", *TEMPLATES),
    "second order": (*SECOND, "training.objective=nll"),
    "second order, hinge": (*SECOND, "training.objective=hinge"),
    "belief propagation": (*SECOND[1:], "training.objective=bp"),
    "belief propagation, L2": (*SECOND[1:], "training.objective=bp_l2"),
    "second order, templates": ("training.objective=nll", *TEMPLATES, *SECOND),
}
objectives = pytest.mark.parametrize("objective", OBJECTIVES)


def learner_and_batch(*overrides):
    """A learner of a new model, and a batch."""
    parser, batch = parser_and_batch(config(*overrides))
    return GradientLearner(parser.scorer, parser.config.training), batch


def step(learner, batch, progress=0.5):
    (stats,) = read_stats([learner.step(batch, words=int(batch.lengths.sum()), progress=progress)])
    return {name: value for name, value in stats.items() if name != "seconds_inference"}


def weights(learner):
    return {name: value.clone() for name, value in learner.model.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.parametrize(
    ("decay", "at"),
    [
        ("linear", {0.2: 1.0, 0.4: 0.75, 0.6: 0.5, 1.0: 0.0}),
        ("cosine", {0.2: 1.0, 0.4: 0.5 + 0.5 * math.cos(math.pi / 4), 0.6: 0.5, 1.0: 0.0}),
        ("none", {0.2: 1.0, 0.4: 1.0, 0.6: 1.0, 1.0: 1.0}),
    ],
)
def test_rate(decay, at):
    settings = TrainingConfig(warmup=0.2, decay=decay)
    for progress, share in at.items():
        assert math.isclose(rate_at(progress, settings), share, abs_tol=1e-12)
    rising = [rate_at(progress / 100, settings) for progress in range(21)]
    assert rising == sorted(rising)
    assert 0 < rising[0] < 0.01  # the first step is small, and not lost
    assert math.isclose(rising[10], 0.5, abs_tol=0.01)
    # Without a warm-up the first step is at the full rate.
    assert rate_at(0.0, TrainingConfig(warmup=0.0, decay=decay)) == 1.0


def test_clipping():
    free, batch = learner_and_batch("training.clip=0")
    norm = step(free, batch)["gradient_norm"]
    gradient = {name: parameter.grad for name, parameter in free.parameters.items()}
    total = math.sqrt(sum(float(value.double().square().sum()) for value in gradient.values()))
    assert math.isclose(norm, total, rel_tol=1e-5)  # float32 sums
    for clip, share in [(norm / 4, 1 / 4), (norm * 4, 1.0)]:
        bound, batch = learner_and_batch(f"training.clip={clip}")
        assert step(bound, batch)["gradient_norm"] == norm  # the one before clipping
        for name, parameter in bound.parameters.items():
            torch.testing.assert_close(parameter.grad, gradient[name] * share, rtol=1e-4, atol=1e-8)


def test_average():
    learner, batch = learner_and_batch("training.average=0.5")
    average = {name: value.double() for name, value in weights(learner).items()}
    for count in range(1, 13):
        step(learner, batch)
        keep = min(0.5, (1 + count) / (10 + count))
        for name, value in weights(learner).items():
            average[name] = keep * average[name] + (1 - keep) * value.double()
    assert keep == 0.5  # so that both branches were taken
    before = weights(learner)
    with learner.evaluation_weights():
        for name, value in weights(learner).items():
            torch.testing.assert_close(value.double(), average[name], rtol=1e-5, atol=1e-6)  # float32 each step
            assert not torch.equal(value, before[name]) or not value.any()
    assert_same(weights(learner), before)
    with pytest.raises(RuntimeError, match="on purpose"), learner.evaluation_weights():
        raise RuntimeError("on purpose")
    assert_same(weights(learner), before)
    learner, batch = learner_and_batch("training.average=0", "training.learning_rate=0.5", "training.warmup=0")
    assert step(learner, batch, progress=0.75)["learning_rate"] == 0.125
    assert [group["lr"] for group in learner.optimizer.param_groups] == [0.125]
    before = weights(learner)
    with learner.evaluation_weights():
        assert_same(weights(learner), before)
    assert not any(name.startswith("average") for name in learner.state())


@pytest.mark.parametrize("average", [0.0, 0.9])
@pytest.mark.parametrize("before", [0, 2])
def test_state_goes_on_to_the_bit(tmp_path, before, average):
    learner, batch = learner_and_batch(f"training.average={average}")
    for _ in range(before):
        step(learner, batch)
    save_checkpoint(tmp_path, learner, {"mark": 3})
    other, _ = learner_and_batch(f"training.average={average}", "training.seed=5")
    other.config = learner.config
    assert load_checkpoint(tmp_path, other)["mark"] == 3
    for _ in range(3):
        assert step(learner, batch) == step(other, batch)
    assert_same(weights(learner), weights(other))
    assert_same(learner.state(), other.state())
    with learner.evaluation_weights(), other.evaluation_weights():
        assert_same(weights(learner), weights(other))


def test_steps_depend_on_the_seed_alone():
    learners = [learner_and_batch()[0] for _ in range(2)]
    batch = learner_and_batch()[1]
    torch.manual_seed(1)
    first = [step(learners[0], batch) for _ in range(3)]
    torch.manual_seed(2)  # what others draw is of no concern
    second = [step(learners[1], batch) for _ in range(3)]
    assert first == second
    assert_same(weights(learners[0]), weights(learners[1]))
    # Another seed, or another step, drops other places. (It does not show at first: the last layers are zero.)
    for changes in ({"config": config("training.seed=2").training}, {"steps": 1}):
        other, _ = learner_and_batch()
        for name, value in changes.items():
            setattr(other, name, value)
        losses = [step(other, batch)["loss"] for _ in range(3)]
        assert losses[0] == first[0]["loss"]
        assert losses[2] != first[2]["loss"]


@objectives
def test_loss_goes_down(objective):
    given = tuple(one for one in sentences(18) if is_projective(one.heads))
    settings = config(*OBJECTIVES[objective], *NO_DROPOUT, "training.learning_rate=0.05", "training.warmup=0")
    vocabulary = Vocabulary.build(given, min_count=1)
    learner = GradientLearner(Parser.new(settings, vocabulary).scorer, settings.training)
    batches = [batch_of(given[start : start + 6], vocabulary) for start in range(0, len(given), 6)]
    losses = [sum(step(learner, batch)["loss"] for batch in batches) for _ in range(12)]
    assert losses[-1] < 0.6 * losses[0]
    assert losses[5] < 0.9 * losses[0]


def test_bf16():
    """The encoder in bfloat16, with eight bits a number; trees and weights in float32."""
    full, batch = learner_and_batch(*NO_DROPOUT)
    half, _ = learner_and_batch(*NO_DROPOUT, "training.bf16=true")
    for _ in range(3):
        want, got = step(full, batch)["loss"], step(half, batch)["loss"]
        assert math.isclose(got, want, rel_tol=2**-5)
    assert got != want
    assert {value.dtype for value in half.model.state_dict().values()} == {torch.float32}
    assert all(bool(value.isfinite().all()) for value in half.model.state_dict().values())


def test_a_card_without_bf16_trains_in_float32(monkeypatch):
    """And says so."""
    device = torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "an old card")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    assert takes_bf16(device) and takes_bf16(torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    with pytest.warns(
        RuntimeWarning, match=r"^training.bf16: an old card has no bfloat16; training goes on in float32$"
    ):
        assert not takes_bf16(device)
    monkeypatch.setattr(gradient, "takes_bf16", lambda _: False)
    full, batch = learner_and_batch(*NO_DROPOUT)
    half, _ = learner_and_batch(*NO_DROPOUT, "training.bf16=true")
    assert step(full, batch)["loss"] == step(half, batch)["loss"]


@objectives
def test_gradient_is_that_of_the_whole_loss(objective):
    """Cutting the scores from the graph changes nothing."""
    learner, batch = learner_and_batch(*OBJECTIVES[objective], *NO_DROPOUT)
    words = int(batch.lengths.sum())
    for _ in range(2):  # away from the first weights, some of which are zero
        step(learner, batch)
    begun = time.perf_counter()
    (stats,) = read_stats([learner.step(batch, words=words, progress=0.0)])
    assert 0 < stats["seconds_inference"] <= time.perf_counter() - begun
    learner.model.train()
    learner.optimizer.zero_grad(set_to_none=True)
    loss, _ = learner._backward(batch, words)
    found = {name: parameter.grad for name, parameter in learner.parameters.items()}
    learner.optimizer.zero_grad(set_to_none=True)
    scored = learner.model(batch)
    trees = learner.objective(scored.scores, batch.heads).sum()
    plain = (trees + label_loss(scored.label_scores(batch.heads), batch.labels).sum()) / words
    plain.backward()
    assert math.isclose(float(loss), float(plain.detach()), rel_tol=1e-6)
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in learner.parameters.values())
    for name, parameter in learner.parameters.items():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-5, atol=1e-7)  # float32 in another order


def test_parts_of_a_batch_add_up():
    """A process that has no sentence, or some, of a batch: the loss is per word of all of it."""
    learner, batch = learner_and_batch(*NO_DROPOUT)
    words, given = int(batch.lengths.sum()), sentences(6)
    vocabulary = Vocabulary.build(given, min_count=1)
    parts = [batch_of(part, vocabulary) for part in (given[0::2], given[1::2])]
    whole, *others = (float(learner._backward(each, words)[0]) for each in (batch, *parts))
    assert math.isclose(whole, sum(others), rel_tol=1e-6)
    assert learner.step(None, words=words, progress=0.0)["loss"] == 0.0


class Pretrained(nn.Module):
    """Stands for an encoder that knows something already."""

    out_features = 3

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(1, 3)

    def forward(self, forms, device):
        lengths = torch.tensor([len(words) for words in forms])
        place = torch.arange(int(lengths.max()) + 1)
        return self.model((place <= lengths[:, None]).float()[..., None])


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_rate_of_a_pretrained_encoder(share):
    settings = config(f"training.pretrained_rate={share}", "training.warmup=0", "training.decay=none")
    given = sentences(6)
    vocabulary = Vocabulary.build(given, min_count=1)
    torch.manual_seed(0)
    model = NeuralScorer(settings.scorer, vocabulary, Pretrained())
    learner = GradientLearner(model, settings.training)
    before = weights(learner)
    for _ in range(3):  # the first gradients are zero, since the last layers' weights are
        step(learner, batch_of(given, vocabulary))
    moved = {name: not torch.equal(value, before[name]) for name, value in weights(learner).items()}
    assert moved["pretrained.model.weight"] == (share > 0)
    assert moved["arcs.weight"]
    rate = settings.training.learning_rate
    assert [group["lr"] for group in learner.optimizer.param_groups] == [rate, rate * share]


def test_frozen_weights_are_left_alone():
    parser, batch = parser_and_batch(config())
    parser.scorer.embedding.requires_grad_(False)
    frozen = copy.deepcopy(parser.scorer.embedding.state_dict())
    learner = GradientLearner(parser.scorer, parser.config.training)
    for _ in range(2):
        step(learner, batch)
    with learner.evaluation_weights():
        assert_same(parser.scorer.embedding.state_dict(), frozen)
    for objective in ("perceptron", "mira"):
        with pytest.raises(ValueError, match=f"'{objective}' is not trained by gradients"):
            GradientLearner(nn.Linear(1, 1), TrainingConfig(objective=objective))
