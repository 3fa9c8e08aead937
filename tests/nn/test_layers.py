"""The layers of a scorer: LSTM, dropout, embeddings, biaffine."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from gpuparse.data import Sentence
from gpuparse.data.vocab import PAD
from gpuparse.nn.biaffine import MLP, BiaffineArcs, BiaffineLabels
from gpuparse.nn.dropout import SentenceDropout, drop_vectors
from gpuparse.nn.embedding import CharacterEncoder, TokenEmbedding
from gpuparse.nn.encoder import BiLSTM
from tests.nn.small_scorers import NO_VECTORS, TINY, batch_of, everything, make, same, stir

pytestmark = pytest.mark.usefixtures("seeded")

EXACT = {"rtol": 1e-12, "atol": 1e-12}  # two ways to the same sums, in float64


def copied(encoder):
    """torch's own bidirectional LSTM with the weights of ours."""
    first, how = encoder.onward[0], {"batch_first": True, "bidirectional": True}
    theirs = nn.LSTM(first.input_size, first.hidden_size, len(encoder.onward), **how).double()
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
    past_the_end = (torch.arange(8) > lengths[:, None])[..., None]
    found = encoder(x.masked_fill(past_the_end, torch.nan), lengths)  # padding reaches nothing
    assert found.shape == (4, 8, 8) and encoder.out_features == 8
    torch.testing.assert_close(found.masked_fill(past_the_end, 0), expected, **EXACT)
    none = BiLSTM(5, 4, 0, 0.5).double()
    assert none(x, lengths) is x and none.out_features == 5  # without layers


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


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_one_mask_a_sentence(p):
    dropout, x = SentenceDropout(p).train(), torch.randn(2, 3, 4)
    assert SentenceDropout(p).eval()(x) is x and SentenceDropout(0.0).train()(x) is x
    found = dropout(torch.ones(400, 3, 50))
    assert (found == found[:, :1]).all()  # shared by the words
    assert len(found[:, 0].unique(dim=0)) > 390  # not by the sentences
    assert sorted(found.unique().tolist()) == pytest.approx([0, 1 / (1 - p)])
    # 20,000 draws: five standard deviations
    assert (found[:, 0] == 0).float().mean().item() == pytest.approx(p, abs=5 * (p * (1 - p) / 20_000) ** 0.5)


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
        torch.testing.assert_close(vector, torch.cat(expected), **EXACT)
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


@pytest.mark.parametrize("name", NO_VECTORS)
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
    given = (sentence, same_part, other)
    expected, found, different = (everything(scorer, batch_of(vocabulary, [one]))[0] for one in given)
    same(found, expected)
    assert (different[0] - expected[0]).abs().max() > 1e-3


@pytest.mark.parametrize("name", NO_VECTORS)
def test_without_one_part(vocabulary, treebank, name):
    scorer, sentence = make(vocabulary, **{name: 0}), treebank[0]
    assert [key for key in NO_VECTORS if getattr(scorer.embedding, key) is None] == [name]
    columns = {"upos": sentence.upos, "feats": sentence.feats} | {"tag": {"upos": None}, "feats": {"feats": None}}.get(
        name, {}
    )
    other = Sentence.from_words(sentence.words, **columns)
    expected, found = (everything(scorer, batch_of(vocabulary, [one]))[0] for one in (sentence, other))
    same(found, expected)


def test_biaffine_scores_by_the_formula():
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    arcs, labels = (stir(each).double().eval() for each in (BiaffineArcs(5, 3, 0.5), BiaffineLabels(5, 3, 6, 0.5)))
    head, modifier = arcs.head(x), arcs.modifier(x)
    weight, bias = arcs.weight[:-1], arcs.weight[-1]
    wanted = torch.einsum("bhi,ij,bmj->bhm", head, weight, modifier) + (head @ bias)[:, :, None]
    torch.testing.assert_close(arcs(x), wanted)
    heads = torch.tensor([[-1, 2, 0, 1], [-1, 0, 1, -1]])
    found, one = labels(x, heads), torch.ones(2, 4, 1, dtype=torch.float64)
    assert found.shape == (2, 4, 6) and found.isfinite().all()
    head, modifier = torch.cat((labels.head(x), one), -1), torch.cat((labels.modifier(x), one), -1)
    every = torch.einsum("bhi,lij,bmj->bmhl", head, labels.weight, modifier)
    for b, m in (heads >= 0).nonzero().tolist():
        torch.testing.assert_close(found[b, m], every[b, m, heads[b, m]])
    mlp = stir(MLP(5, 3, 0.5)).double().eval()
    value = x @ mlp.linear.weight.T + mlp.linear.bias
    torch.testing.assert_close(mlp(x), torch.where(value > 0, value, 0.1 * value))
