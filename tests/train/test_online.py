"""Perceptron and MIRA: what they learn, the size of their steps, averages, states, processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gpuparse.data.batches import Batch
from gpuparse.data.sentence import Sentence
from gpuparse.data.vocab import Vocabulary
from gpuparse.decoding.methods import decode
from gpuparse.nn.templates import TemplateConfig, TemplateScorer, read_templates
from gpuparse.structures.masks import word_mask
from gpuparse.train.learner import Learner
from gpuparse.train.online import OnlineLearner
from tests.nn import templates_oracle as oracle

ARCS = read_templates(
    "h.tag m.tag direction+distance; h.word m.word; h.tag between.tag m.tag; m.feat h.tag; h.word h.tag"
)
LABELS = read_templates("h.tag m.tag; m.word direction; m.feat")
SECOND = {
    "grandparents": read_templates("g.tag p.tag c.tag; g.word c.word"),
    "siblings": read_templates("s.tag m.tag hm.direction"),
}
algorithms = pytest.mark.parametrize("algorithm", ["perceptron", "mira"])


def grammar(count: int, seed: int) -> list[Sentence]:
    """Sentences whose tags and distances decide on the trees: subject, verb, object, a determiner before each noun."""
    g = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        one, other, thing = torch.randint(2, (3,), generator=g).tolist()
        verb, subject = 2 + one, 1 + one
        target = verb + 1 + other
        rows = [("the", "DET", subject, "det")] * one + [
            (f"thing{thing}", "NOUN", verb, "nsubj"),
            ("sees", "VERB", 0, "root"),
        ]
        rows += [("the", "DET", target, "det")] * other + [(f"thing{thing}", "NOUN", verb, "obj")]
        words, tags, heads, labels = (list(column) for column in zip(*rows, strict=True))
        made.append(Sentence.from_words(words, tags, heads=heads, deprels=labels))
    return made


def make(
    sentences: list[Sentence], *, second_order: bool = False, seed: int | None = None, **options: Any
) -> tuple[OnlineLearner, list[Batch]]:
    """A learner and a batch a sentence; random weights where there is a seed."""
    vocabulary = Vocabulary.build(sentences, min_count=1)
    model = TemplateScorer(TemplateConfig(ARCS, LABELS, **(SECOND if second_order else {}), bits=10), vocabulary)
    if seed is not None:
        g = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=g))
    return OnlineLearner(model, **options), [oracle.batch_of([each], vocabulary) for each in sentences]


def weights(model: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def heads_of(learner: OnlineLearner, batch: Batch) -> Tensor:
    return decode(learner.scorer(batch).scores.first_order(), projective=learner.projective).heads


@algorithms
@pytest.mark.parametrize("projective", [False, True])
def test_learns_what_can_be_separated(algorithm: str, projective: bool) -> None:
    learner, batches = make(grammar(12, 0), algorithm=algorithm, projective=projective, C=1.0)
    _: Learner = learner
    first = learner.step(batches[0])
    assert first["loss"] > 0 and first["wrong_labels"] > 0
    for _epoch in range(10):
        stats = [learner.step(batch, words=int(batch.lengths.sum()), progress=0.5) for batch in batches]
    assert sum(each["loss"] + each["wrong_labels"] for each in stats) == 0 or algorithm == "mira"
    with learner.evaluation_weights():
        for batch in batches:
            assert torch.equal(heads_of(learner, batch), batch.heads)
            labels = learner.scorer(batch).label_scores(batch.heads).argmax(-1)
            assert torch.equal(labels[batch.heads >= 0], batch.labels[batch.heads >= 0])


def differences(learner: OnlineLearner, batch: Batch, predicted: Tensor) -> tuple[Tensor, float]:
    """Features of the right tree minus those of another, and the wrong heads; plainly."""
    model = learner.scorer
    total = torch.zeros(model.weights.numel(), dtype=torch.float64)
    for sign, heads in ((1, batch.heads), (-1, predicted)):
        for feature in model.tree_features(batch, heads).flatten().tolist():
            if feature >= 0:
                total[feature] += sign
    word = word_mask(batch.lengths, batch.heads.shape[1])
    return total, float(((predicted != batch.heads) & word).sum())


@pytest.mark.parametrize("cost_augmented", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_mira_s_step_is_the_least_that_gives_the_margin(seed: int, cost_augmented: bool) -> None:
    learner, (batch, *_) = make(oracle.sentences((8,), seed), seed=seed, C=1e9, cost_augmented=cost_augmented)
    model = learner.scorer.double()
    predicted = learner._predict(model(batch).scores, batch.heads)
    change, loss = differences(learner, batch, predicted)
    before, labels_before = (p.detach().clone() for p in (model.weights, model.label_weights))
    margin = float(before @ change)
    assert loss > margin
    learner.step(batch)
    after = model.weights.detach()
    assert float(after @ change) == pytest.approx(loss, abs=1e-9)
    torch.testing.assert_close(after - before, change * (loss - margin) / float(change @ change), atol=1e-12, rtol=0)
    # Labels the same way: all wrong ones of the sentence together.
    rows, word = model.label_features(batch, batch.heads)[0], batch.heads[0] >= 0
    chosen = torch.zeros_like(labels_before)
    scores = torch.stack([labels_before[row[row >= 0]].sum(0) for row in rows])
    best = scores.argmax(-1)
    wrong = (word & (best != batch.labels[0])).nonzero()[:, 0].tolist()
    assert wrong
    for m in wrong:
        for row in rows[m][rows[m] >= 0].tolist():
            chosen[row, batch.labels[0, m]] += 1
            chosen[row, best[m]] -= 1
    assert float((model.label_weights.detach() * chosen).sum()) == pytest.approx(len(wrong), abs=1e-9)


def test_mira_s_step_is_at_most_c_and_none_where_the_margin_is_there() -> None:
    learner, (batch,) = make(oracle.sentences((8,), 0), seed=0, C=1e-3, cost_augmented=False)
    change, _ = differences(learner, batch, heads_of(learner, batch))
    before = learner.scorer.weights.detach().double()
    learner.step(batch)
    torch.testing.assert_close(learner.scorer.weights.detach().double() - before, 1e-3 * change, atol=1e-6, rtol=0)
    learner, (batch,) = make(grammar(1, 0), C=1e9)
    for _ in range(20):
        learner.step(batch)
    known = weights(learner.model)
    assert learner.step(batch)["wrong_labels"] == 0
    for value, want in zip(weights(learner.model), known, strict=True):
        torch.testing.assert_close(value, want, atol=1e-6, rtol=0)


@algorithms
def test_a_batch_adds_up_its_sentences_steps(algorithm: str) -> None:
    made = oracle.sentences((8, 3, 12), 1)
    learner, batches = make(made, seed=1, algorithm=algorithm, C=1e9)
    start = weights(learner.model)
    changes = []
    for batch in batches:
        learner.step(batch)
        changes.append([after - before for after, before in zip(weights(learner.model), start, strict=True)])
        learner, _ = make(made, seed=1, algorithm=algorithm, C=1e9)
    learner.step(oracle.batch_of(made, Vocabulary.build(made, min_count=1)))
    for number, after in enumerate(weights(learner.model)):
        want = start[number] + sum(change[number] for change in changes)
        torch.testing.assert_close(after, want, atol=1e-5, rtol=0)


@algorithms
def test_average_is_the_mean_of_the_weights_after_each_step(algorithm: str) -> None:
    learner, batches = make(oracle.sentences((5, 9, 3, 7), 2), seed=2, algorithm=algorithm)
    sums = [torch.zeros_like(value, dtype=torch.float64) for value in weights(learner.model)]
    steps = 0
    for batch in (*batches, None, *batches, *batches):
        learner.step(batch)
        steps += 1
        for total, value in zip(sums, weights(learner.model), strict=True):
            total += value
    last = weights(learner.model)
    with learner.evaluation_weights():
        for value, total in zip(weights(learner.model), sums, strict=True):
            torch.testing.assert_close(value.double(), total / steps, atol=1e-6, rtol=0)  # float32's rounding
        assert any(not torch.equal(value, want) for value, want in zip(weights(learner.model), last, strict=True))
    assert all(torch.equal(value, want) for value, want in zip(weights(learner.model), last, strict=True))
    exact = [learner._sums["weights"], learner._sums["label_weights"]]
    for value, total, u in zip(last, sums, exact, strict=True):
        torch.testing.assert_close(value.double() - u / steps, total / steps, atol=1e-12, rtol=0)


@algorithms
def test_state_round_trip(algorithm: str) -> None:
    made = oracle.sentences((5, 9, 3, 7), 3)
    learner, batches = make(made, algorithm=algorithm)
    for batch in batches:
        learner.step(batch)
    saved = {name: value.clone() for name, value in learner.state().items()}
    model = {name: value.clone() for name, value in learner.scorer.state_dict().items()}
    for batch in batches:
        learner.step(batch)
    other, _ = make(made, algorithm=algorithm)
    other.model.load_state_dict(model)
    other.load_state(saved)
    for batch in batches:
        other.step(batch)
    assert learner.steps == other.steps == 8
    with learner.evaluation_weights(), other.evaluation_weights():
        for one, two in zip(weights(learner.model), weights(other.model), strict=True):
            assert torch.equal(one, two)
    for one, two in zip(learner.state().values(), other.state().values(), strict=True):
        assert torch.equal(one, two)


def test_features_of_pairs_of_arcs_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever predicts the tree, the step is along all the features of the trees."""
    learner, (batch,) = make(oracle.sentences((8,), 4), second_order=True, C=1e9)
    parent = int(batch.heads[0][batch.heads[0] >= 1][0])  # with a child, whose grandparent changes with this head
    predicted = batch.heads.clone()
    predicted[0, parent] = next(h for h in range(1, 9) if h not in (parent, int(batch.heads[0, parent])))
    monkeypatch.setattr(learner, "_predict", lambda scores, gold: predicted)
    change, loss = differences(learner, batch, predicted)
    assert bool((change[learner.scorer.table("g.tag p.tag c.tag", "grandparents").storage_offset() :] != 0).any())
    learner.step(batch)
    want = change * loss / float(change @ change)
    torch.testing.assert_close(learner.scorer.weights.detach().double(), want, atol=1e-6, rtol=0)


def test_what_may_be_missing_or_wrong() -> None:
    learner, (batch, *_) = make(grammar(2, 0))
    assert learner.step(replace(batch, labels=None))["wrong_labels"] == 0
    assert learner.step(replace(batch, labels=torch.full_like(batch.labels, -1)))["wrong_labels"] == 0
    assert not bool(learner.scorer.label_weights.any())
    for what, wrong in (
        ("batch has no heads", lambda: learner.step(replace(batch, heads=None))),
        ("algorithm is 'sgd'", lambda: make(grammar(1, 0), algorithm="sgd")),
        (r"C is 0\.0; wanted", lambda: make(grammar(1, 0), C=0.0)),
        ("model is a Linear", lambda: OnlineLearner(nn.Linear(1, 1))),  # type: ignore[arg-type]
    ):
        with pytest.raises(ValueError, match=what):
            wrong()
