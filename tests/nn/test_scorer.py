"""The neural scorer and its parts: against plain formulas, torch's own LSTM, and itself without company."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
import torch
from torch import nn

from gpuparse.data import Sentence
from gpuparse.data.vocab import PAD
from gpuparse.decoding.parts import legal_triples
from gpuparse.nn.build import build_scorer, save_files
from gpuparse.nn.scorer import NeuralScorer
from gpuparse.nn.templates import TemplateScorer
from gpuparse.nn.trilinear import TrilinearParts
from tests.nn.small_scorers import CLOSE, NO_VECTORS, TINY, batch_of, everything, make, same

pytestmark = pytest.mark.usefixtures("seeded")
SECOND_ORDER = {"grandparents": 3, "siblings": 2}

VARIANTS = {
    "default": {},
    "second order": SECOND_ORDER,
    "no encoder": {"layers": 0},
    "one layer": {"layers": 1},
    "words": {**NO_VECTORS, "word": 5},
    "characters": {**NO_VECTORS, "chars": 5},
    "tags": {**NO_VECTORS, "tag": 5},
    "features": {**NO_VECTORS, "feats": 5},
    "templates": {"kind": "templates", "bits": 8, "label_bits": 6},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_scores_do_not_depend_on_company_or_padding(vocabulary, treebank, changes):
    """Alone, in a batch, in another order, beside a long sentence with a long word and many features."""
    scorer = make(vocabulary, **changes)
    words = ["x" * 31, *["Größe"] * 59]
    long = Sentence.from_words(words, feats=["|".join(f"F{n}=1" for n in range(9))] * 60)
    letters = [Sentence.from_words([char]) for char in vocabulary.chars.to_json()[:6]]  # the shortest forms
    some = [*letters, *sorted(treebank[:12], key=len)]
    alone = [everything(scorer, batch_of(vocabulary, [sentence]))[0] for sentence in some]
    for sentence, expected in zip(some, alone, strict=True):
        assert [len(x) for x in expected[:2]] == [len(sentence) + 1, len(sentence)]
    together = everything(scorer, batch_of(vocabulary, some))
    backwards = everything(scorer, batch_of(vocabulary, [long, *reversed(some)]))[:0:-1]
    for expected, *others in zip(alone, together, backwards, strict=True):
        for other in others:
            same(other, expected)
    # It would have been seen: scores are of order one and sentences differ.
    spread = torch.cat([x.flatten() for expected in alone for x in expected])
    assert spread.std() > 0.1
    assert sum((one[0][:4, :4] - two[0][:4, :4]).abs().max() > 0.001 for one, two in pairwise(alone[6:])) > 8


def test_in_eval_the_same_every_time(vocabulary, treebank):
    scorer = make(vocabulary, **SECOND_ORDER)
    batch = batch_of(vocabulary, [*treebank[:3], treebank[0]])
    first, second = everything(scorer, batch), everything(scorer, batch)
    for one, two in zip(first, second, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, two, strict=True))
    same(first[0], first[3])
    assert not torch.equal(scorer.train()(batch).scores.arcs, scorer(batch).scores.arcs)  # dropout


def test_every_word_is_seen_from_everywhere(vocabulary, treebank):
    """What the encoder is for: another word at the end changes the scores at the beginning, and the other way."""
    scorer = make(vocabulary)
    words, tags = treebank[0].words, treebank[0].upos
    expected = everything(scorer, batch_of(vocabulary, [Sentence.from_words(words, tags)]))[0][0]
    for place in (0, len(words) - 1):
        changed = [*words[:place], words[3], *words[place + 1 :]]
        found = everything(scorer, batch_of(vocabulary, [Sentence.from_words(changed, tags)]))[0][0]
        assert ((found - expected).abs() > 1e-5).all()


def test_labels_depend_on_the_words_own_head(vocabulary, treebank):
    scorer = make(vocabulary)
    batch = batch_of(vocabulary, treebank[:2], tree=True)
    with torch.no_grad():
        scored = scorer(batch)
        expected = scored.label_scores(batch.heads)
        assert expected.shape == (*batch.words.shape, len(vocabulary.labels)) and expected.isfinite().all()
        changed = batch.heads.clone()
        changed[0, 2] = 4 if changed[0, 2] != 4 else 1
        found = scored.label_scores(changed)
    differs = (found - expected).abs().amax(-1) > 1e-4
    assert differs.nonzero().tolist() == [[0, 2]]


def test_before_training_all_are_equal(vocabulary, treebank):
    """Nothing is preferred by chance."""
    scorer = NeuralScorer(dataclasses.replace(TINY, **SECOND_ORDER), vocabulary).eval()
    with torch.no_grad():
        scores, label_scores = scorer(batch_of(vocabulary, treebank[:2], tree=True))
        assert not scores.arcs.any() and not scores.grandparents.dense().any() and not scores.siblings.dense().any()
        assert not label_scores(torch.zeros_like(scores.arcs[:, 0], dtype=torch.int64)).any()


@pytest.mark.parametrize("kinds", [(), ("grandparents",), ("siblings",), ("siblings", "grandparents")])
def test_second_order_parts(vocabulary, treebank, kinds):
    batch = batch_of(vocabulary, treebank[:3])
    scorer = make(vocabulary, **{kind: SECOND_ORDER[kind] for kind in kinds})
    with torch.no_grad():
        scores = scorer(batch).scores
        x = scorer.encode(batch)
    assert set(scores.second_order) == set(kinds)
    assert torch.equal(scores.lengths, batch.lengths)
    for kind in ("grandparents", "siblings"):
        parts = getattr(scores, kind)
        if kind not in kinds:
            assert parts is None
            continue
        assert isinstance(parts, TrilinearParts) and parts.kind == kind
        assert parts.factors[0].shape == (*batch.words.shape, SECOND_ORDER[kind])
        module = getattr(scorer, kind)
        first, second, third = (
            out(module.activation(hidden(x))) for hidden, out in zip(module.hidden, module.out, strict=True)
        )
        expected = torch.einsum("bir,bjr,bkr->bijk", first, second, third)
        read = legal_triples(kind, batch.lengths, batch.words.shape[1])
        torch.testing.assert_close(parts.dense()[read], expected[read], **CLOSE)
        assert expected.abs().max() > 0.01


def loss_of(scorer, batch):
    """Something that depends on every score that is read."""
    scores, label_scores = scorer(batch)
    real = torch.arange(batch.words.shape[1]) <= batch.lengths[:, None]
    total = (scores.arcs * torch.randn_like(scores.arcs))[real[:, :, None] & real[:, None]].sum()
    labels = label_scores(batch.heads)
    total = total + (labels * torch.randn_like(labels))[batch.heads >= 0].sum()
    for parts in (scores.grandparents, scores.siblings):
        if parts is not None:
            total = total + parts.dense()[0].square().sum()
    return total


@pytest.mark.parametrize("training", [True, False])
def test_gradients_reach_every_parameter(vocabulary, treebank, training):
    scorer = make(vocabulary, **SECOND_ORDER).train(training)
    batch = batch_of(vocabulary, treebank[:8], tree=True)
    loss_of(scorer, batch).backward()
    for name, parameter in scorer.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all() and parameter.grad.any(), name
    embedding = scorer.embedding
    for table in (embedding.word, embedding.tag, embedding.feats, embedding.chars.embedding):
        assert not table.weight.grad[PAD].any()  # padding stays nothing
    if not training:  # where no word is dropped
        rows = embedding.word.weight.grad.any(-1).nonzero().flatten()
        assert set(rows.tolist()) == set(batch.words.unique().tolist()) - {PAD}


def test_two_steps_train_every_parameter_from_the_start(vocabulary, treebank):
    """Where a product begins as zero, its other factors have a gradient one step later."""
    scorer = build_scorer(dataclasses.replace(TINY, **SECOND_ORDER), vocabulary).train()
    batch = batch_of(vocabulary, treebank[:8], tree=True)
    reached = set()
    for _ in range(3):
        scorer.zero_grad()
        scores, label_scores = scorer(batch)
        total = scores.arcs.sum() + label_scores(batch.heads)[..., 0].sum()
        (total + scores.grandparents.dense().sum() + scores.siblings.dense().sum()).backward()
        with torch.no_grad():
            for name, parameter in scorer.named_parameters():
                if parameter.grad is not None and parameter.grad.any():
                    reached.add(name)
                    parameter.sub_(0.1 * parameter.grad.sign())
    assert reached == {name for name, _ in scorer.named_parameters()}


def test_a_scorer_learns(vocabulary, treebank):
    """Head selection of a handful of sentences, by heart."""
    none = {"embedding_dropout": 0.0, "encoder_dropout": 0.0, "mlp_dropout": 0.0}
    scorer = build_scorer(dataclasses.replace(TINY, layers=1, **none), vocabulary).train()
    batch = batch_of(vocabulary, sorted(treebank, key=len)[:4], tree=True)
    optimiser = torch.optim.Adam(scorer.parameters(), lr=0.03)
    word = batch.heads >= 0
    losses = []
    for _ in range(50):
        optimiser.zero_grad()
        arcs = scorer(batch).scores.arcs
        loss = nn.functional.cross_entropy(arcs.transpose(1, 2)[word], batch.heads[word])
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_autocast(vocabulary, treebank):
    """bfloat16 inside, float32 out, and about the same."""
    scorer = make(vocabulary, **SECOND_ORDER).train()
    batch = batch_of(vocabulary, treebank[:4], tree=True)
    with torch.autocast("cpu", torch.bfloat16):
        scores, label_scores = scorer(batch)
        labels = label_scores(batch.heads)
        (scores.arcs.sum() + labels.sum() + scores.siblings.dense().sum()).backward()
    assert scores.arcs.dtype == labels.dtype == scores.grandparents.dtype == torch.float32
    assert all(p.grad is None or p.grad.isfinite().all() for p in scorer.parameters())
    scorer.eval()
    with torch.no_grad():
        expected = scorer(batch).scores.arcs
        with torch.autocast("cpu", torch.bfloat16):
            found = scorer(batch).scores.arcs
    # bfloat16 has 8 bits; a few layers of it
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05 * float(expected.abs().max()))


def test_weights_that_are_not_numbers_are_noticed(vocabulary, treebank):
    scorer = make(vocabulary)
    odd = Sentence.from_words(["\U0001f600", "日本語", "\u0301", "x" * 500, "<pad>", "\x00"], ["?"] * 6)
    assert all(found.isfinite().all() for found in everything(scorer, batch_of(vocabulary, [odd]))[0])
    with torch.no_grad():
        scorer.arcs.weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"is nan \(sentence 0, head 0, modifier 1\)"), torch.no_grad():
        scorer(batch_of(vocabulary, treebank[:2]))


def test_built_by_kind(vocabulary, tmp_path):
    assert isinstance(build_scorer(TINY, vocabulary), NeuralScorer)
    templates = build_scorer(dataclasses.replace(TINY, kind="templates", bits=6, label_bits=5), vocabulary)
    assert isinstance(templates, TemplateScorer)
    for scorer in (build_scorer(TINY, vocabulary), templates):
        save_files(scorer, tmp_path)
    assert not list(tmp_path.iterdir())  # the weights are all there is to them


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A tiny model with random weights, and no network."""
    pytest.importorskip("transformers")
    from tests.nn.tiny_models import make_bert

    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("bert")
    make_bert(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        yield str(directory)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {**NO_VECTORS, "layers": 0}], ids=["beside embeddings", "alone"])
def test_a_pretrained_encoder(vocabulary, treebank, bert, changes):
    scorer = make(vocabulary, pretrained=bert, pretrained_layers=2, **changes, **SECOND_ORDER)
    assert (scorer.embedding is None) == bool(changes)
    sentences = [*treebank[:3], Sentence.from_words(["the"] * 60)]  # windows, too
    together = everything(scorer, batch_of(vocabulary, sentences))
    for sentence, found in zip(sentences, together, strict=True):
        # a transformer's sums are of another order in another shape of batch
        for one, two in zip(found, everything(scorer, batch_of(vocabulary, [sentence]))[0], strict=True):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-4)
    loss_of(scorer.train(), batch_of(vocabulary, treebank[:8], tree=True)).backward()
    for name, parameter in scorer.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name
    frozen = make(vocabulary, pretrained=bert, pretrained_freeze=True, **changes).train()
    loss_of(frozen, batch_of(vocabulary, treebank[:8], tree=True)).backward()
    assert all(parameter.grad is None for parameter in frozen.pretrained.model.parameters())
    assert frozen.pretrained.mix.grad.any()


@pytest.mark.parametrize("changes", [VARIANTS["templates"], {}], ids=["templates", "biaffine"])
def test_labels_of_every_arc(vocabulary, treebank, changes):
    with torch.inference_mode():
        scored = make(vocabulary, **changes)(batch_of(vocabulary, treebank[:3]))
        every = scored.all_labels()
        assert every.shape[:3] == scored.scores.arcs.shape and every.std() > 0.01
        for head in range(every.shape[1]):
            one = scored.label_scores(torch.full(every.shape[:2], head))
            torch.testing.assert_close(every[:, head], one, rtol=1e-4, atol=1e-5)
        some = torch.tensor([2, 0])
        torch.testing.assert_close(scored.all_labels(some), every[some], rtol=1e-4, atol=1e-5)
