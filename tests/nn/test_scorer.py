"""The neural scorer and its parts: against plain formulas, torch's own LSTM, and itself without company."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from gpuparse.config import ScorerConfig
from gpuparse.data import Sentence
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.batches import collate
from gpuparse.data.vocab import PAD, Vocabulary
from gpuparse.nn.biaffine import MLP, BiaffineArcs, BiaffineLabels
from gpuparse.nn.build import build_scorer, save_files
from gpuparse.nn.dropout import SentenceDropout, drop_vectors
from gpuparse.nn.embedding import CharacterEncoder, TokenEmbedding
from gpuparse.nn.encoder import BiLSTM
from gpuparse.nn.scorer import NeuralScorer
from gpuparse.nn.templates import TemplateScorer
from gpuparse.nn.trilinear import TrilinearParts
from gpuparse.parts import legal_triples

TINY = ScorerConfig(word=6, char=4, chars=7, tag=3, feats=3, hidden=8, layers=2, arc=6, label=4)
NO_VECTORS = {"word": 0, "chars": 0, "tag": 0, "feats": 0}
SECOND_ORDER = {"grandparents": 3, "siblings": 2}
# float32, values of order one, sums whose order may depend on the batch's shape
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(11)


@pytest.fixture(scope="module")
def treebank():
    return list(artificial_treebank(40, seed=3))


@pytest.fixture(scope="module")
def vocabulary(treebank):
    return Vocabulary.build(treebank)


def stir(module):
    """Values for what is zero before training, so that everything matters."""
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.any():
                parameter.normal_(std=0.5)
    return module


def make(vocabulary, **changes):
    return stir(build_scorer(dataclasses.replace(TINY, **changes), vocabulary)).eval()


def batch_of(vocabulary, sentences, tree=False):
    return collate([vocabulary.encode(sentence, tree=tree) for sentence in sentences], vocabulary.chars)


def everything(scorer, batch):
    """All scores of each sentence, cut to its size: arcs, labels given two trees, pairs of arcs."""
    with torch.no_grad():
        scores, label_scores = scorer(batch)
        chain = torch.arange(batch.words.shape[1]).expand_as(batch.words) - 1
        to_first = torch.ones_like(batch.words).masked_fill(chain == 0, 0)
        tensors = [scores.arcs, label_scores(chain), label_scores(to_first)]
        parts = [part.dense() for part in (scores.grandparents, scores.siblings) if part is not None]
    found = []
    for row, length in enumerate(batch.lengths.tolist()):
        end = length + 1
        arcs, *labels = (tensor[row] for tensor in tensors)
        found.append([arcs[:end, :end], *(x[1:end] for x in labels), *(p[row, :end, :end, :end] for p in parts)])
    return found


def same(one, two):
    for ours, theirs in zip(one, two, strict=True):
        torch.testing.assert_close(ours, theirs, **CLOSE)


# ------------------------------------------------------------------------------------------------ company and padding

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


def test_the_same_sentence_twice(vocabulary, treebank):
    one, two = everything(make(vocabulary), batch_of(vocabulary, [treebank[0], treebank[0]]))
    same(one, two)


def test_in_eval_the_same_every_time(vocabulary, treebank):
    scorer = make(vocabulary, **SECOND_ORDER)
    batch = batch_of(vocabulary, treebank[:3])
    for one, two in zip(everything(scorer, batch), everything(scorer, batch), strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, two, strict=True))
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


# ------------------------------------------------------------------------------------------------ the LSTM


def copied(encoder):
    """torch's own bidirectional LSTM with the weights of ours."""
    first = encoder.onward[0]
    theirs = nn.LSTM(
        first.input_size, first.hidden_size, len(encoder.onward), batch_first=True, bidirectional=True
    ).double()
    state = {}
    for direction, suffix in ((encoder.onward, ""), (encoder.backward_, "_reverse")):
        for number, layer in enumerate(direction):
            for name, weight in layer.named_parameters():
                state[name.replace("_l0", f"_l{number}") + suffix] = weight.detach().clone()
    theirs.load_state_dict(state)
    return theirs


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_encoder_is_a_bidirectional_lstm(layers):
    encoder = stir(BiLSTM(5, 4, layers, 0.5)).double().eval()
    lengths = torch.tensor([3, 7, 1, 5])
    x = torch.randn(4, 8, 5, dtype=torch.float64)
    packed = pack_padded_sequence(x, lengths + 1, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(copied(encoder)(packed)[0], batch_first=True, total_length=8)
    past_the_end = torch.arange(8) > lengths[:, None]
    found = encoder(x.masked_fill(past_the_end[..., None], torch.nan), lengths)  # padding reaches nothing
    assert found.shape == (4, 8, 8) and encoder.out_features == 8
    torch.testing.assert_close(
        found.masked_fill(past_the_end[..., None], 0), expected, rtol=1e-12, atol=1e-12
    )  # two ways to the same sums, in float64


def test_an_encoder_without_layers_gives_back_what_it_gets():
    encoder = BiLSTM(5, 4, 0, 0.5)
    x = torch.randn(2, 3, 5)
    assert torch.equal(encoder(x, torch.tensor([2, 1])), x) and encoder.out_features == 5


def test_dropout_between_layers_only():
    """One layer has none; two drop the same places of all the words of a sentence."""
    lengths, x = torch.tensor([4, 4]), torch.randn(2, 5, 3)
    one = BiLSTM(3, 4, 1, 0.5).train()
    assert torch.equal(one(x, lengths), one(x, lengths))
    two = BiLSTM(3, 4, 2, 0.5).train()
    seen = []
    two.onward[1].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    two(x, lengths)
    dropped = seen[0] == 0
    assert 0 < dropped.sum() < dropped.numel() and (dropped == dropped[:, :1]).all()


# ------------------------------------------------------------------------------------------------ dropout


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_one_mask_a_sentence(p):
    dropout = SentenceDropout(p).train()
    found = dropout(torch.ones(400, 3, 50))
    assert (found == found[:, :1]).all()  # shared by the words
    assert len(found[:, 0].unique(dim=0)) > 390  # not by the sentences
    assert sorted(found.unique().tolist()) == pytest.approx([0, 1 / (1 - p)])
    # 20,000 draws: five standard deviations
    assert (found[:, 0] == 0).float().mean().item() == pytest.approx(p, abs=5 * (p * (1 - p) / 20_000) ** 0.5)


def test_no_dropout():
    x = torch.randn(2, 3, 4)
    assert SentenceDropout(0.5).eval()(x) is x
    assert SentenceDropout(0.0).train()(x) is x


def test_whole_vectors_are_dropped():
    vectors = [torch.full((500, 8, width), float(width)) for width in (1, 2, 5, 3)]
    found = drop_vectors(vectors, 0.4)
    kept = []
    for vector, given in zip(found, vectors, strict=True):
        assert vector.shape == given.shape
        assert (vector == vector[..., :1]).all()  # all of it or nothing
        kept.append(vector[..., 0] / given[..., 0])
    kept = torch.stack(kept, -1)  # [500, 8, 4]
    left = (kept > 0).sum(-1, keepdim=True)
    torch.testing.assert_close(kept, torch.where(kept > 0, 4 / left, 0.0))  # those that are left stand for all
    assert set(left.unique().tolist()) == {0, 1, 2, 3, 4}
    # 16,000 draws: five standard deviations
    assert (kept > 0).float().mean().item() == pytest.approx(0.6, abs=5 * (0.24 / 16_000) ** 0.5)
    assert not (kept == kept[:, :1]).all()  # word by word


def test_masks_of_the_scorer_are_shared_within_a_sentence(vocabulary, treebank):
    scorer = make(vocabulary, encoder_dropout=0.5, embedding_dropout=0.0, mlp_dropout=0.0).train()
    dropped = scorer.encode(batch_of(vocabulary, treebank[:6])) == 0
    assert (dropped == dropped[:, :1]).all() and 0.3 < dropped.float().mean() < 0.7
    assert len(dropped[:, 0].unique(dim=0)) == 6
    mlp = MLP(4, 32, 0.5).train()
    dropped = mlp(torch.randn(6, 5, 4)) == 0
    assert (dropped == dropped[:, :1]).all() and 0.3 < dropped.float().mean() < 0.7


def test_dropout_of_embeddings_by_configuration(vocabulary, treebank):
    batch = batch_of(vocabulary, treebank[:4])
    kept = TokenEmbedding(dataclasses.replace(TINY, embedding_dropout=0.0), vocabulary).train()
    assert torch.equal(kept(batch), kept.eval()(batch))
    dropping = TokenEmbedding(dataclasses.replace(TINY, embedding_dropout=0.5), vocabulary).train()
    real = torch.arange(batch.words.shape[1]) <= batch.lengths[:, None]
    words = dropping(batch)[real][:, : TINY.word]
    whole = (words == 0).all(-1)
    assert (whole == (words == 0).any(-1)).all() and 0.3 < whole.float().mean() < 0.7


# ------------------------------------------------------------------------------------------------ embeddings


@pytest.mark.parametrize("out", [1, 2, 3, 7])
def test_characters_by_hand(out):
    """The largest value of every filter over the word with zeros around it."""
    encoder = CharacterEncoder(9, 4, out).double()
    words = [[3, 4, 5, 6, 7, 3], [2], [8, 8], [4, 3]]
    chars = torch.zeros(4, 6, dtype=torch.int64)
    for row, word in zip(chars, words, strict=True):
        row[: len(word)] = torch.tensor(word)
    found = encoder(chars)
    assert found.shape == (4, out)
    for word, vector in zip(words, found, strict=True):
        expected = []
        for convolution in encoder.convolutions:
            width = convolution.kernel_size[0]
            zeros = torch.zeros(width - 1, 4, dtype=torch.float64)
            padded = torch.cat((zeros, encoder.embedding.weight[word], zeros))
            values = [
                torch.einsum("we,oew->o", padded[start : start + width], convolution.weight) + convolution.bias
                for start in range(len(word) + width - 1)
            ]
            expected.append(torch.stack(values).amax(0))
        torch.testing.assert_close(vector, torch.cat(expected), rtol=1e-12, atol=1e-12)
    assert (found[2] - found[3]).abs().max() > 1e-3


def test_a_word_is_its_parts_side_by_side(vocabulary, treebank):
    embedding = TokenEmbedding(TINY, vocabulary).eval()
    batch = batch_of(vocabulary, treebank[:3])
    word, chars, tag, feats = embedding(batch).split([TINY.word, TINY.chars, TINY.tag, TINY.feats], -1)
    assert embedding.out_features == TINY.word + TINY.chars + TINY.tag + TINY.feats
    assert torch.equal(word, embedding.word.weight[batch.words])
    assert torch.equal(tag, embedding.tag.weight[batch.tags])
    assert torch.equal(chars, embedding.chars(batch.chars)[batch.forms])
    for row, example in enumerate(map(vocabulary.encode, treebank[:3])):
        for node, bag in enumerate(example.feats):
            torch.testing.assert_close(feats[row, node], embedding.feats.weight[bag].sum(0))
        assert not feats[row, len(example.feats) :].any()
    assert any(len(bag) > 1 for bag in vocabulary.encode(treebank[0]).feats)
    for table in (embedding.word, embedding.tag, embedding.feats, embedding.chars.embedding):
        assert not table.weight[PAD].any()


@pytest.mark.parametrize("name", ["word", "chars", "tag", "feats"])
def test_one_part_alone_sees_nothing_else(vocabulary, treebank, name):
    """And the model works without any of them."""
    sentence = next(sentence for sentence in treebank if len(sentence) >= 5)
    other = Sentence.from_words(["dod"] * len(sentence), ["X"] * len(sentence))
    same_part = {
        "word": Sentence.from_words(sentence.words),
        "chars": Sentence.from_words(sentence.words),
        "tag": Sentence.from_words(other.words, sentence.upos),
        "feats": Sentence.from_words(other.words, feats=sentence.feats),
    }[name]
    scorer = make(vocabulary, **{**NO_VECTORS, name: 5})
    expected, found, different = (
        everything(scorer, batch_of(vocabulary, [one]))[0] for one in (sentence, same_part, other)
    )
    same(found, expected)
    assert (different[0] - expected[0]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["word", "chars", "tag", "feats"])
def test_without_one_part(vocabulary, treebank, name):
    scorer = make(vocabulary, **{name: 0})
    parts = {key: getattr(scorer.embedding, key) for key in NO_VECTORS}
    assert [key for key, part in parts.items() if part is None] == [name]
    sentence = treebank[0]
    tags = None if name == "tag" else sentence.upos
    feats = None if name == "feats" else sentence.feats
    expected, found = (
        everything(scorer, batch_of(vocabulary, [one]))[0]
        for one in (sentence, Sentence.from_words(sentence.words, tags, feats=feats))
    )
    same(found, expected)


# ------------------------------------------------------------------------------------------------ biaffine


def test_arcs_by_the_formula():
    module = stir(BiaffineArcs(5, 3, 0.5)).double().eval()
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    found = module(x)
    assert found.shape == (2, 4, 4)
    weight, bias = module.weight[:-1], module.weight[-1]
    for b in range(2):
        for h in range(4):
            for m in range(4):
                head, modifier = module.head(x)[b, h], module.modifier(x)[b, m]
                torch.testing.assert_close(found[b, h, m], head @ weight @ modifier + bias @ head)


def test_labels_by_the_formula():
    module = stir(BiaffineLabels(5, 3, 6, 0.5)).double().eval()
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    heads = torch.tensor([[-1, 2, 0, 1], [-1, 0, 1, -1]])
    found = module(x, heads)
    assert found.shape == (2, 4, 6) and found.isfinite().all()
    one = torch.ones(1, dtype=torch.float64)
    for b in range(2):
        for m in range(1, 4):
            if heads[b, m] >= 0:
                head = torch.cat((module.head(x)[b, heads[b, m]], one))
                modifier = torch.cat((module.modifier(x)[b, m], one))
                for label in range(6):
                    torch.testing.assert_close(found[b, m, label], head @ module.weight[label] @ modifier)


def test_an_mlp_by_the_formula():
    mlp = stir(MLP(4, 3, 0.5)).eval()
    x = torch.randn(2, 5, 4)
    value = x @ mlp.linear.weight.T + mlp.linear.bias
    torch.testing.assert_close(mlp(x), torch.where(value > 0, value, 0.1 * value))


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


# ------------------------------------------------------------------------------------------------ the whole


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


def test_unknown_words_and_characters(vocabulary):
    odd = Sentence.from_words(["\U0001f600", "日本語", "\u0301", "x" * 500, "<pad>", "\x00"], ["?"] * 6)
    for found in everything(make(vocabulary), batch_of(vocabulary, [odd]))[0]:
        assert found.isfinite().all()


# ------------------------------------------------------------------------------------------------ Hugging Face


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """A tiny model with random weights."""
    pytest.importorskip("transformers")
    pytest.importorskip("tokenizers")
    from tests.nn.test_huggingface import make_bert

    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("bert")
    make_bert(directory)
    return str(directory)


@pytest.fixture
def offline(monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("changes", [{}, {**NO_VECTORS, "layers": 0}], ids=["beside embeddings", "alone"])
def test_a_pretrained_encoder(vocabulary, treebank, bert, offline, changes):
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


def test_a_frozen_pretrained_encoder(vocabulary, treebank, bert, offline):
    scorer = make(vocabulary, pretrained=bert, pretrained_freeze=True).train()
    loss_of(scorer, batch_of(vocabulary, treebank[:8], tree=True)).backward()
    assert all(parameter.grad is None for parameter in scorer.pretrained.model.parameters())
    assert scorer.pretrained.mix.grad.any()


def test_a_pretrained_encoder_from_its_directory(vocabulary, treebank, bert, offline, tmp_path):
    """Its weights are among the scorer's; the model it came from is not asked for again."""
    scorer = make(vocabulary, pretrained=bert, pretrained_layers=2)
    save_files(scorer, tmp_path)
    config = dataclasses.replace(TINY, pretrained="gone/for-ever", pretrained_layers=2)
    again = build_scorer(config, vocabulary, tmp_path)
    again.load_state_dict(scorer.state_dict())
    batch = batch_of(vocabulary, treebank[:3])
    for one, two in zip(everything(scorer, batch), everything(again.eval(), batch), strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, two, strict=True))


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
