"""Training taggers: the perceptron, the losses of chains, what regularises transitions, and whole runs."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch

from gpuparse.config import Config
from gpuparse.data import Sentence
from gpuparse.data.tagging import TagVocabulary, collate_tags
from gpuparse.models.tagger import Tagger
from gpuparse.train import loop, train, train_tagger
from gpuparse.train.report import draw_curve
from gpuparse.train.tagging import TagDescent, TagPerceptron, shrink_, tag_loss, tag_vocabulary
from tests.decoding.refusals import refuses
from tests.train.small import BILSTM, NO_DROPOUT, TAGS, config, run, sentences, told

pytestmark = pytest.mark.usefixtures("one_thread", "no_curve")


def tagger_and_batches(settings, count=6, size=2):
    given = sentences(count)
    vocabulary = tag_vocabulary(settings, given)
    examples = [vocabulary.encode(one, gold=True) for one in given]
    batches = [collate_tags(examples[at : at + size], vocabulary.chars) for at in range(0, count, size)]
    return Tagger.new(settings, vocabulary), batches


def best_of_all(unary, transitions):
    """The best tags of one sentence, of all there are."""
    count = unary.shape[-1]
    scored = {}
    for tags in itertools.product(range(count), repeat=len(unary)):
        pairs = sum(transitions[a, b].item() for a, b in itertools.pairwise(tags))
        scored[tags] = sum(unary[i, t].item() for i, t in enumerate(tags)) + pairs
    return scored


def plain_perceptron(batches, rows, count, l1=0.0, l2=0.0):
    """The same in plain Python, batch by batch, the averages by adding up."""
    weights, transitions = torch.zeros(rows, count), torch.zeros(count, count)
    sums = [torch.zeros_like(weights, dtype=torch.float64), torch.zeros_like(transitions, dtype=torch.float64)]
    wrong = []
    for batch in batches:
        change, moved, missed = torch.zeros_like(weights), torch.zeros_like(transitions), 0
        for row, length in enumerate(batch.lengths.tolist()):
            gold = batch.gold[row, :length].tolist()
            features = [[f for f in some if f] for some in batch.features[row, :length].tolist()]
            unary = torch.stack([weights[some].sum(0) for some in features])
            scored = best_of_all(unary, transitions)
            best = max(scored.values())
            found = [tags for tags, score in scored.items() if score >= best - 1e-6]
            assert len(found) == 1 or not weights.any(), "a tie"
            tags = found[0] if len(found) == 1 else (0,) * length
            missed += sum(a != b for a, b in zip(tags, gold, strict=True))
            for some, right, other in zip(features, gold, tags, strict=True):
                for feature in some:
                    change[feature, right] += 1
                    change[feature, other] -= 1
            for pair in itertools.pairwise(gold):
                moved[pair] += 1
            for pair in itertools.pairwise(tags):
                moved[pair] -= 1
        words = int(batch.lengths.sum())
        weights, transitions = weights + change, transitions + moved
        transitions = transitions.sign() * (transitions.abs() - l1 * words).clamp(min=0) / (1 + l2 * words)
        sums[0] += weights
        sums[1] += transitions
        wrong.append(missed / words)
    return weights, transitions, [total / len(batches) for total in sums], wrong


def few_tags(count=8):
    """Sentences of up to four words with three tags, of features that tell them apart."""
    draw = torch.Generator().manual_seed(3)
    given = []
    for _ in range(count):
        size = int(torch.randint(1, 5, (), generator=draw))
        tags = [int(torch.randint(3, (), generator=draw)) for _ in range(size)]
        words = [f"{'abc'[tag]}{int(torch.randint(3, (), generator=draw))}xyz" for tag in tags]
        given.append(Sentence.from_words(words, ["NVA"[tag] for tag in tags]))
    return given


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.0), (0.01, 0.0), (0.0, 0.02), (0.013, 0.007)])
def test_perceptron_is_a_plain_loop(l1, l2):
    given = few_tags()
    settings = config(*TAGS, f"training.transition_l1={l1}", f"training.transition_l2={l2}")
    vocabulary = TagVocabulary.build(given, "upos", min_count=1, features=4096)
    examples = [vocabulary.encode(one, gold=True) for one in given]
    batches = [collate_tags(examples[at : at + 2], vocabulary.chars) for at in range(0, len(given), 2)] * 3
    model = Tagger.new(settings, vocabulary).scorer
    learner = TagPerceptron(model, settings.training)
    sizes = vocabulary.features.count, len(vocabulary.tags)
    weights, transitions, averages, wrong = plain_perceptron(batches, *sizes, l1, l2)
    for batch, share in zip(batches, wrong, strict=True):
        stats = learner.step(batch, words=int(batch.lengths.sum()))
        assert stats["loss"] == pytest.approx(share)
    assert torch.equal(model.weights, weights)
    torch.testing.assert_close(model.transitions, transitions)
    with learner.evaluation_weights():
        torch.testing.assert_close(model.weights.double(), averages[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(model.transitions.double(), averages[1], rtol=1e-6, atol=1e-6)
    assert torch.equal(model.weights, weights)
    assert not model.weights[0].any()


def test_perceptron_learns_what_can_be_separated():
    settings = config(*TAGS, "data.tags=upos+feats", "scorer.bits=14")
    tagger, batches = tagger_and_batches(settings, size=1)
    learner = TagPerceptron(tagger.scorer, settings.training)
    for _ in range(30):
        wrong = [learner.step(batch, words=int(batch.lengths.sum()))["loss"] for batch in batches]
        if not any(wrong):
            break
    assert not any(wrong)
    before = tagger.scorer.weights.clone()
    learner.step(batches[0], words=10)  # nothing is wrong, so nothing changes
    assert torch.equal(tagger.scorer.weights, before)
    vocabulary = tagger.vocabulary
    bare = collate_tags([vocabulary.encode(sentences(1)[0])], vocabulary.chars)
    refuses("batch has no right tags", learner.step, bare, words=3)


@pytest.mark.parametrize("objective", ["nll", "local", "hinge"])
@pytest.mark.parametrize("margin", [0.0, 1.5])
def test_losses_are_those_of_the_enumeration(objective, margin):
    settings = config(*BILSTM, f"training.objective={objective}", f"training.margin={margin}").training
    torch.manual_seed(2)
    unary = torch.randn(4, 4, 3, dtype=torch.float64, requires_grad=True)
    transitions = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([4, 1, 3, 2])
    gold = torch.full((4, 4), -1)
    expected = []
    for row, length in enumerate(lengths.tolist()):
        tags = torch.randint(3, (length,))
        gold[row, :length] = tags
        own, pairs = unary[row, :length].detach(), transitions.detach()
        if objective == "local":
            pairs = torch.zeros_like(pairs)
        scored = best_of_all(own, pairs)
        right = scored[tuple(tags.tolist())]
        if objective == "hinge":
            costs = (s + margin * sum(map(int.__ne__, t, tags.tolist())) for t, s in scored.items())
            expected.append(max(costs) - right)
        else:
            expected.append(torch.tensor(list(scored.values())).logsumexp(0).item() - right)
    losses = tag_loss(unary, transitions, lengths, gold, settings)
    torch.testing.assert_close(losses, torch.tensor(expected, dtype=losses.dtype), rtol=1e-5, atol=1e-5)
    grads = torch.autograd.grad(losses.sum(), (unary, transitions), allow_unused=True)
    for row, length in enumerate(lengths.tolist()):
        assert not grads[0][row, length:].any()


@pytest.mark.parametrize("objective", ["nll", "local", "hinge"])
@pytest.mark.parametrize("kind", ["bilstm", "templates", "bilstm+templates"])
def test_loss_goes_down(objective, kind):
    settings = config(*TAGS, f"scorer.kind={kind}", f"training.objective={objective}", "training.learning_rate=0.02")
    tagger, batches = tagger_and_batches(settings)
    learner = TagDescent(tagger.scorer, settings.training)
    steps = ((batch, int(batch.lengths.sum())) for _ in range(12) for batch in batches)
    losses = [learner.step(batch, words=words, progress=0.1)["loss"] for batch, words in steps]
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])
    if objective == "local":
        assert not tagger.transitions.any()


def test_parts_of_a_batch_add_up():
    """The gradient of the whole batch is the sum of the parts', each by the words of the whole."""
    settings = config(*BILSTM, *NO_DROPOUT)
    tagger, (whole,) = tagger_and_batches(settings, size=6)
    _, halves = tagger_and_batches(settings, size=3)
    words = int(whole.lengths.sum())
    learner = TagDescent(tagger.scorer.train(), settings.training)
    grads = []
    for some in ([whole], halves):
        total = {name: torch.zeros_like(p) for name, p in tagger.scorer.named_parameters()}
        for batch in some:
            tagger.scorer.zero_grad(set_to_none=True)
            learner._backward(batch, words)
            for name, parameter in tagger.scorer.named_parameters():
                total[name] += parameter.grad
        grads.append(total)
    for name, value in grads[0].items():
        torch.testing.assert_close(value, grads[1][name], rtol=1e-4, atol=1e-6)
    assert grads[0]["transitions"].any()


def test_shrinking_is_the_proximal_step():
    weights = torch.tensor([-3.0, -0.1, 0.0, 0.05, 2.0])
    both = weights.clone()
    shrink_(both, 0.2, 0.5)
    assert torch.allclose(both, torch.tensor([-2.8, 0.0, 0.0, 0.0, 1.8]) / 1.5)
    # It minimises l1 |w| + l2 / 2 w² + (w − before)² / 2.
    for found, before in zip(both.tolist(), weights.tolist(), strict=True):

        def cost(w, before=before):
            return 0.2 * abs(w) + 0.25 * w**2 + (w - before) ** 2 / 2

        assert all(cost(found) <= cost(found + step) + 1e-6 for step in (-1e-3, 1e-3, 0.1, -0.1))
    shrink_(weights, 0.0, 0.0)
    assert weights.tolist() == pytest.approx([-3.0, -0.1, 0.0, 0.05, 2.0])


@pytest.mark.parametrize("kind", ["bilstm", "templates"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_transitions_alone_are_regularised(tmp_path, kind, norm):
    found = {}
    for strength in (0.0, 1e-2 if kind == "templates" else 0.3, 1e3):
        settings = (*TAGS, f"scorer.kind={kind}", f"training.transition_{norm}={strength}", "training.average=0")
        tagger = run(tmp_path / f"{strength}", *settings, "training.learning_rate=0.02", "training.epochs=4")
        found[strength] = tagger.transitions.abs().sum().item()
        others = [p for name, p in tagger.scorer.named_parameters() if name != "transitions"]
        assert all(p.any() for p in others)
    none, some, much = found.values()
    assert none > some > 2 * much


@pytest.mark.parametrize(("kind", "name"), [("bilstm", "xpos"), ("templates", "upos"), ("templates", "upos+feats")])
def test_it_learns(tmp_path, kind, name):
    learned, held = sentences(60)[:45], sentences(60)[45:]
    settings = (f"scorer.kind={kind}", f"data.tags={name}", "training.epochs=6", "training.learning_rate=0.03")
    tagger = run(tmp_path, *TAGS, *settings, "scorer.bits=12", "training.checkpoint_seconds=9", train=learned, dev=held)
    tags = tagger.vocabulary.tag_set.tags
    pairs = zip(map(tags, held), tagger.predict(held), strict=True)
    right = [a == b for gold, found in pairs for a, b in zip(gold, found, strict=True)]
    common = Counter(tag for one in learned for tag in tags(one)).most_common(1)[0][0]
    baseline = [tag == common for one in held for tag in tags(one)]
    assert sum(right) > 1.5 * sum(baseline)
    assert tagger.results["dev_accuracy"] == pytest.approx(sum(right) / len(right))
    lines = told(tmp_path, "epoch")
    best = max(lines, key=lambda line: line["dev_accuracy"])
    assert tagger.results == {"epoch": best["epoch"], "dev_accuracy": best["dev_accuracy"]}


def test_columns_that_are_needed(tmp_path):
    """The tags; not heads. Tags of the dev data that are new are wrong."""
    bare = [Sentence.from_words(one.words, one.upos) for one in sentences(10)]
    for options, what in (({"train": bare}, "training"), ({"dev": bare[:2]}, "dev")):
        with pytest.raises(ValueError, match=rf"^{what} data: the XPOS column is empty and data\.tags is 'xpos'"):
            run(tmp_path, *TAGS, "data.tags=xpos", **options)
    assert not list(tmp_path.iterdir())
    odd = [one.with_tags(upos=["NEW"] * len(one)) for one in sentences(3)]
    assert run(tmp_path, *TAGS, train=bare, dev=odd).results["dev_accuracy"] == 0
    assert told(tmp_path, "start")[0]["sentences"] == 10


def test_the_other_task(tmp_path):
    run(tmp_path / "parser")
    for what, wrong in (
        (r"config\.task is 'tag': train_tagger\(\) trains it", lambda: train(config(*TAGS), tmp_path)),
        (r"config\.task is 'parse': train\(\) trains it", lambda: train_tagger(config(), tmp_path)),
        ("cannot go on, task was 'parse' and is 'tag' now", lambda: run(tmp_path / "parser", *TAGS, resume=True)),
    ):
        refuses(what, wrong)


def test_curve_and_defaults(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "draw_curve", draw_curve)
    run(tmp_path, *TAGS)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    plain, neural = (Config.load(None, ["task=tag", *more]) for more in ([], ["scorer.kind=bilstm"]))
    assert (plain.scorer.kind, plain.training.objective) == ("templates", "perceptron")
    assert (neural.training.objective, neural.training.epochs) == ("nll", Config().training.epochs)
