"""What is counted in treebanks: probabilities sum to 1, rare rules go, and all of it is the same when read again."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuparse as gp
from gpuparse.data import Sentence
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.brackets import Constituent
from gpuparse.data.constituents import heads_of, lexicalise_sentence, number_rows
from gpuparse.data.grammar import Bilexical, CountedModels, Emissions, Trigrams, add_heads, read_grammar, read_models
from tests.refusals import refusal

# Sums of some thousand float64 numbers.
CLOSE = {"rtol": 0, "atol": 1e-9}


@pytest.fixture(scope="module")
def sentences():
    return list(artificial_treebank(150, seed=3))


@pytest.fixture(scope="module")
def models(sentences):
    return read_models(sentences, dtype=torch.float64)


def leaf(tag):
    return Constituent(tag, word=tag.lower())


def pair(label, left, right, head=0):
    return Constituent(label, (left, right), head=head)


def rules(grammar):
    columns = (grammar.parents, grammar.lefts, grammar.rights)
    named = (tuple(grammar.symbols[i] for i in rule) for rule in zip(*(c.tolist() for c in columns), strict=True))
    return {
        (*names, head): math.exp(score)
        for names, head, score in zip(named, grammar.heads.tolist(), grammar.scores.tolist(), strict=True)
    }


def check_sums(grammar):
    """Probabilities of what a phrase becomes add up to 1, and nothing is dead."""
    S = len(grammar.symbols)
    sums = torch.zeros(S, dtype=torch.float64).index_add_(0, grammar.parents, grammar.scores.double().exp())
    torch.testing.assert_close(sums[grammar.tags :], torch.ones(S - grammar.tags).double(), **CLOSE)
    torch.testing.assert_close(grammar.roots.exp().sum(), torch.tensor(1.0).double(), **CLOSE)
    assert alive(grammar) == set(range(S))


def test_by_hand():
    a, b = leaf("A"), leaf("B")
    trees = [pair("X", a, b), pair("X", a, b), pair("X", a, b, head=1), pair("X", pair("X", a, b), b), a]
    grammar = read_grammar(trees, dtype=torch.float64)
    assert grammar.symbols == ("A", "B", "X")
    assert grammar.tags == 2
    assert rules(grammar) == pytest.approx(
        {("X", "A", "B", 0): 3 / 5, ("X", "A", "B", 1): 1 / 5, ("X", "X", "B", 0): 1 / 5}
    )
    assert grammar.roots.exp().tolist() == pytest.approx([1 / 5, 0, 4 / 5])
    smooth = read_grammar(trees, smoothing=2, tags=["C"], dtype=torch.float64)
    assert smooth.symbols == ("A", "B", "C", "X")
    assert rules(smooth) == pytest.approx(
        {("X", "A", "B", 0): 5 / 11, ("X", "A", "B", 1): 3 / 11, ("X", "X", "B", 0): 3 / 11}
    )
    assert smooth.roots.exp().tolist() == pytest.approx([3 / 9, 0, 0, 6 / 9])
    few = read_grammar(trees, min_count=3, dtype=torch.float64)
    assert rules(few) == pytest.approx({("X", "A", "B", 0): 1})


def test_rare_rules_that_stay():
    """Y and Z are rare: a rule stays that makes them, and the commonest that has them."""
    a = leaf("A")
    y = pair("Y", a, pair("X", a, a))
    trees = [*[pair("X", a, a)] * 5, *[pair("X", y, a)] * 2, pair("X", a, y), pair("X", pair("Z", y, a), a)]
    trees.append(pair("X", pair("Y", a, a), a))
    grammar = read_grammar(trees, min_count=6, dtype=torch.float64)
    kept = {" ".join(rule[:3]) for rule in rules(grammar)}
    assert kept == {"X A A", "Y A X", "Z Y A", "X Y A", "X Z A"}  # without "X A Y" and "Y A A"
    check_sums(grammar)


def alive(grammar):
    """Symbols that words can be derived from and that can be derived from a root."""
    table = list(zip(grammar.parents.tolist(), grammar.lefts.tolist(), grammar.rights.tolist(), strict=True))
    up = set(range(grammar.tags))
    down = {s for s, score in enumerate(grammar.roots.tolist()) if score > -math.inf}
    for _ in grammar.symbols:
        up |= {parent for parent, left, right in table if left in up and right in up}
    for _ in grammar.symbols:
        down |= {child for parent, left, right in table if parent in down for child in (left, right)}
    return up & (down | set(range(grammar.tags)))


TREES = st.recursive(
    st.sampled_from([leaf("A"), leaf("B")]),
    lambda some: st.builds(pair, st.sampled_from("XYZ"), some, some, st.integers(0, 1)),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(TREES, min_size=1, max_size=12), st.integers(1, 6), st.sampled_from([0.0, 0.5]))
def test_any_trees(trees, min_count, smoothing):
    grammar = read_grammar(trees, min_count=min_count, smoothing=smoothing, dtype=torch.float64)
    everything = read_grammar(trees, dtype=torch.float64)
    assert grammar.symbols == everything.symbols
    assert set(rules(grammar)) <= set(rules(everything))
    check_sums(grammar)


@pytest.mark.parametrize("relations", [False, True])
def test_treebank(sentences, relations):
    trees = [lexicalise_sentence(sentence, relations=relations).tree for sentence in sentences]
    sizes = []
    for min_count in (1, 3, 10):
        grammar = read_grammar(trees, min_count=min_count, dtype=torch.float64)
        sizes.append(len(grammar.scores))
        check_sums(grammar)
    assert sizes[0] > sizes[1] > sizes[2] > 0


def test_heads_by_rules(sentences, models):
    for sentence in sentences[:20]:
        made = lexicalise_sentence(sentence)
        rows = number_rows(made.rows, models.grammar.symbols)
        padded = torch.cat([rows[:, :4], torch.full((3, 4), -1)])
        found = add_heads(padded, models.grammar)
        assert (found[-3:] == -1).all()
        assert len(heads_of(found)) == len(sentence)
    a, b = leaf("A"), leaf("B")
    grammar = read_grammar([pair("X", a, b, head=1)])
    assert add_heads(torch.tensor([[0, 1, 2, 0], [0, 0, 0, -1], [1, 1, 1, -1]]), grammar)[:, 4].tolist() == [2, 1, 2]
    with pytest.raises(ValueError, match=r"^rows: the grammar has no rule X -> A A"):
        add_heads(torch.tensor([[0, 1, 2, 0], [0, 0, 0, -1], [1, 1, 0, -1]]), grammar)


@pytest.mark.parametrize(
    ("trees", "options", "what"),
    [
        ([], {}, "trees: there are none"),
        ([Constituent("X", (leaf("A"),))], {}, "trees: 'X' is not of two children"),
        ([pair("A", leaf("A"), leaf("B"))], {}, "trees: 'A' is a phrase and a tag"),
        ([leaf("A")], {"min_count": 0}, "min_count: 0 is below 1"),
        ([leaf("A")], {"smoothing": -1}, "smoothing: -1 is not"),
    ],
)
def test_wrong_trees(trees, options, what):
    with pytest.raises(ValueError, match=f"^{what}"):
        read_grammar(trees, **options)


def test_unknown_words():
    nouns = [f"{a}{b}tion" for a in "bcdfg" for b in "aeiou"]
    verbs = [f"{a}{b}ify" for a in "bcdfg" for b in "aeiou"]
    given = [(["the", noun, verb], ["DET", "NOUN", "VERB"]) for noun, verb in zip(nouns, verbs, strict=True)]
    given += [(["the", "1984"], ["DET", "NUM"]), (["the", "1985"], ["DET", "NUM"])]
    emissions = Emissions.count(given, dtype=torch.float64)
    assert emissions.tags == ("DET", "NOUN", "NUM", "VERB")
    best = [emissions.tags[t] for t in emissions.score(["The", "zution", "zuify", "1986", "the", "uify"]).argmax(1)]
    assert best == ["DET", "NOUN", "VERB", "NUM", "DET", "VERB"]
    # A capital at the start is set aside; elsewhere it makes an unknown word.
    assert emissions.items(["The", "The"]).tolist()[0] == emissions.items(["the"]).tolist()[0]
    assert emissions.items(["The", "The"])[1] >= len(emissions.words)
    odd = ["", "-", "…", "Ab-c", "ABC", "aBC", "a1", "12"]
    assert bool(emissions.score(odd).isfinite().all())
    with pytest.raises(ValueError, match=r"^tags: 'DET' is not among them"):
        Emissions.count(given, tags=["NOUN", "NUM", "VERB"])
    with pytest.raises(ValueError, match=r"^sentences: there are no words"):
        Emissions.count([])


def test_probabilities_of_words_and_trigrams(models, sentences):
    emissions = models.emissions
    sums = emissions.scores.exp().sum(0)
    torch.testing.assert_close(sums, torch.ones_like(sums), **CLOSE)
    assert emissions.tags == models.grammar.symbols[: models.grammar.tags]
    scores = emissions.score(sentences[0].words)
    assert scores.shape == (len(sentences[0]), len(emissions.tags)) and bool(scores.isfinite().all())
    T = len(models.trigrams.tags)
    wanted = torch.ones(T + 1, T + 1, dtype=torch.float64)
    wanted[:T, T] = 0  # nothing follows the end
    torch.testing.assert_close(models.trigrams.scores.exp().sum(-1), wanted, **CLOSE)
    assert models.trigrams.scores[T, T, T] == -math.inf


def test_trigrams_by_hand():
    """Sequences of one tag: of each length k the probability is that of going on, k - 1 times, and ending."""
    trigrams = Trigrams.count([["A", "A"], ["A"]], dtype=torch.float64)
    P = trigrams.scores.exp()
    chains = [P[1, 1, 0] * P[1, 0, 1]] + [P[1, 1, 0] * P[1, 0, 0] * P[0, 0, 0] ** k * P[0, 0, 1] for k in range(200)]
    assert float(sum(chains)) == pytest.approx(1, abs=1e-9)
    assert float(P[1, 1, 0]) == 1


def test_chains_of_the_library(models):
    """log P of tags and words, by hand and by TrigramChains; the sum over all tags; a ragged batch; gradients."""
    words = [["a", "b", "c", "d"], ["e"], ["f", "g"]]
    keep = 3  # tags
    tags = models.trigrams.tags[:keep]
    some = Trigrams.count([["X", "Y", "X"], ["Y"], ["Z", "Z", "Y", "X"]], dtype=torch.float64)
    lengths = torch.tensor([len(one) for one in words])
    unary = torch.full((3, 4, keep), math.nan, dtype=torch.float64)
    for b, sentence in enumerate(words):
        unary[b, : len(sentence)] = models.emissions.score(sentence)[:, :keep]
    unary.requires_grad_()
    padded, longer = some.pad(unary, lengths)
    chains = gp.TrigramChains(padded, some.scores, longer)

    def by_hand(b, sequence):
        edge = keep
        row = [edge, edge, *sequence, edge]
        score = sum(float(some.scores[x, y, z]) for x, y, z in zip(row, row[1:], row[2:], strict=False))
        return score + sum(float(unary[b, i, t].detach()) for i, t in enumerate(sequence))

    best = some.strip(chains.argmax, lengths)
    assert best.shape == (3, 4)
    for b, sentence in enumerate(words):
        n = len(sentence)
        all_scores = {s: by_hand(b, s) for s in itertools.product(range(keep), repeat=n)}
        total = torch.tensor(list(all_scores.values()), dtype=torch.float64).logsumexp(0)
        torch.testing.assert_close(chains.log_partition[b].double(), total, rtol=1e-9, atol=1e-9)
        found = tuple(best[b, :n].tolist())
        assert all_scores[found] == pytest.approx(max(all_scores.values()), abs=1e-9)
        assert best[b, n:].tolist() == [-1] * (4 - n)
    (gradient,) = torch.autograd.grad(chains.log_partition.sum(), unary)
    assert float(gradient.sum()) == pytest.approx(float(lengths.sum()))
    assert len(tags) == keep


def test_arcs_and_distances_sum_to_one(models):
    """Over all tags and words of a modifier, for heads that are common, rare, unknown and the root; over distances."""
    bilexical, one = models.bilexical, torch.tensor(1.0).double()
    T, V = len(bilexical.emissions.tags), bilexical.emissions.scores.shape[0]
    tag, item = torch.arange(T)[:, None].expand(T, V), torch.arange(V).expand(T, V)
    for head_tag, head_item, side in [(0, 0, 0), (0, V - 1, 1), (3, 5, 1), (T - 1, 7, 0), (T, V, 1), (T, V, 0)]:
        fixed = [torch.full((T, V), number) for number in (head_tag, head_item, side)]
        total = bilexical.log_probability(torch.stack([*fixed, tag, item])).exp().sum()
        torch.testing.assert_close(total, one, **CLOSE)
    sizes = torch.tensor([1, 1, 1, 2, 4, 10])
    for numbers in itertools.product(range(T), range(2), range(T)):  # head, side, tag
        table = torch.stack([torch.full((6,), number) for number in numbers] + [torch.arange(6)])
        torch.testing.assert_close((bilexical.log_distance(table).exp() * sizes).sum(), one, **CLOSE)


def test_arcs_by_hand():
    """Two sentences "dogs bark" and a "dogs sleep": the arc's probability written out."""
    given = [(["dogs", "bark"], ["N", "V"], [2, 0]), (["dogs", "sleep"], ["N", "V"], [2, 0])]
    emissions = Emissions.count([(words, tags) for words, tags, _ in given], dtype=torch.float64)
    bilexical = Bilexical.count(given, emissions, strength=2.0)
    arcs = bilexical.score(["dogs", "bark"], ["N", "V"], numbers=False, distances=False)
    assert arcs.shape == (3, 3)
    tag = (2 + 2 * 0.5) / (2 + 2)  # of two modifiers on the left, two are nouns
    tag = (2 + 2 * tag) / (2 + 2)  # the same for verbs
    tag = (1 + 2 * tag) / (1 + 2)  # bark has one
    word = math.exp(float(emissions.score(["dogs"])[0, 0]))
    word = (2 + 2 * word) / (2 + 2)
    word = (1 + 2 * word) / (1 + 2)
    assert float(arcs[2, 1]) == pytest.approx(math.log(tag * word))
    assert torch.equal(arcs.isneginf(), torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool))
    more = bilexical.score(["dogs", "bark"], ["N", "V"], distances=False)
    rate = (1 + 2 * (2.5 / 2.5)) / (1 + 2)
    assert float(more[2, 1] - arcs[2, 1]) == pytest.approx(math.log(rate), abs=1e-12)
    assert torch.equal(bilexical.score(["dogs", "bark"]), bilexical.score(["dogs", "bark"], ["N", "V"]))
    with pytest.raises(ValueError, match=r"^tags: 1 for 2 words"):
        bilexical.score(["dogs", "bark"], ["N"])
    with pytest.raises(ValueError, match=r"^tags: 'X' was never seen"):
        bilexical.score(["dogs", "bark"], ["N", "X"])


def test_models_are_of_use(models):
    """On sentences of the same language: most tags and most heads, which guessing does not give."""
    tags = heads = words = 0
    for sentence in artificial_treebank(40, seed=4):
        n = len(sentence)
        padded, lengths = models.trigrams.pad(models.emissions.score(sentence.words)[None], torch.tensor([n]))
        chains = gp.TrigramChains(padded, models.trigrams.scores, lengths)
        best = models.trigrams.strip(chains.argmax, torch.tensor([n]))
        names = [models.trigrams.tags[t] for t in best[0].tolist()]
        tags += sum(map(str.__eq__, names, sentence.upos))
        arcs = models.bilexical.score(sentence.words, sentence.upos)[None]
        found = gp.ProjectiveTrees(arcs).argmax[0, 1:].tolist()
        heads += sum(map(int.__eq__, found, sentence.heads))
        words += n
    assert tags / words > 0.8
    assert heads / words > 0.5


def test_saved(models, tmp_path, sentences):
    models.save(tmp_path / "new" / "counted")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"counted.json", "counted.safetensors"}
    again = CountedModels.load(tmp_path / "new" / "counted")
    for name in ("parents", "lefts", "rights", "heads", "scores", "roots"):
        assert torch.equal(getattr(again.grammar, name), getattr(models.grammar, name))
    assert again.grammar.symbols == models.grammar.symbols
    assert again.grammar.tags == models.grammar.tags
    assert torch.equal(again.trigrams.scores, models.trigrams.scores)
    for sentence in sentences[:5]:
        words = [*sentence.words, "Unheard-of"]
        assert torch.equal(again.emissions.score(words), models.emissions.score(words))
        assert torch.equal(again.bilexical.score(words), models.bilexical.score(words))


def test_not_whole(models, tmp_path):
    path, names, weights = (tmp_path / name for name in ("counted", "counted.json", "counted.safetensors"))

    def refused(what):
        with pytest.raises(ValueError, match=what):
            CountedModels.load(path)

    refused(r"counted\.json: there is no such file")
    models.save(path)
    whole = json.loads(names.read_text())
    names.write_text(json.dumps({**whole, "format": 0}))
    refused(r"counted\.json: of format 0, and 1 is wanted")
    names.write_text(json.dumps({"format": 1, "symbols": []}))
    refused(r"counted\.json: words is missing; count anew")
    models.save(path)
    weights.write_bytes(b"nothing")
    refused(r"counted\.safetensors: not safetensors")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"symbols": None}, ".json: symbols is None; wanted a list of strings; count anew"),
        ({"words": [None]}, ".json: words[0] is None; wanted a string; count anew"),
        ({"classes": 3}, ".json: classes is 3; wanted a list of strings; count anew"),
        ({"tags": True}, ".json: tags is True; wanted 1 to the "),
        ({"tags": 10**6}, ".json: tags is 1000000; wanted 1 to the "),
        ({"tags": 1}, ".safetensors: 'emissions' has the shape ["),
        ({"words": []}, ".safetensors: 'emissions' has the shape ["),
        ({"strength": "x"}, ".json: strength is 'x'; wanted a number; count anew"),
    ],
)
def test_names_of_strangers(models, tmp_path, changes, message):
    models.save(tmp_path / "counted")
    names = json.loads((tmp_path / "counted.json").read_text())
    (tmp_path / "counted.json").write_text(json.dumps({**names, **changes}))
    assert refusal(CountedModels.load, tmp_path / "counted").startswith(f"{tmp_path / 'counted'}{message}")


def test_options(sentences):
    skipped = read_models(sentences, nonprojective="skip", min_count=2, relations=True)
    assert skipped.grammar.scores.dtype == torch.float32
    assert any(symbol.endswith(":nsubj") for symbol in skipped.grammar.symbols)
    by_xpos = read_models([Sentence.from_words(["a", "b"], ["X", "X"], xpos=["P", "Q"], heads=[2, 0])], tags="xpos")
    assert by_xpos.grammar.symbols == ("P", "Q", "Q*")
