"""The parser: what it takes and gives, what is kept in a model's directory, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpuparse.config import Config
from gpuparse.data import ConlluError, Sentence, check_tree
from gpuparse.data.batches import batches_by_length
from gpuparse.data.prediction import Prediction
from gpuparse.data.vocab import Vocabulary
from gpuparse.distributions import NonProjectiveTrees, ProjectiveTrees
from gpuparse.models.parser import Parser, Wanted
from gpuparse.system import room
from tests.models.parser.small import TINY, bare, columns, make
from tests.oracle import Enumeration, has_crossing
from tests.refusals import refusal


def crossing(heads):
    return bool(has_crossing(torch.tensor([[-1, *heads]]))[0])


def test_trees_with_labels(parser, treebank, vocabulary):
    parsed = parser.parse(treebank)
    assert len(parsed) == len(treebank)
    for before, after in zip(treebank, parsed, strict=True):
        check_tree(after)
        assert set(after.deprels) <= set(vocabulary.labels.names)
        assert after.with_parse(before.heads, before.deprels).text == before.text  # all else is as it was
    assert len({label for one in parsed for label in one.deprels}) > 3  # not one answer to everything
    assert len({tuple(one.heads) for one in parsed}) > len(treebank) / 2
    without = parser.parse([bare(one) for one in treebank])  # heads that were there do not matter
    assert [columns(one) for one in without] == [columns(one) for one in parsed]


def test_ways_to_give_sentences(parser, treebank):
    some = treebank[:8]
    words, pairs = [one.words for one in some], [list(zip(one.words, one.upos, strict=True)) for one in some]
    expected = [one.text for one in parser.parse([Sentence.from_words(one.words) for one in some])]
    for given in (words, map(tuple, words), (iter(one) for one in words), tuple(words)):
        assert [one.text for one in parser.parse(given)] == expected
    tagged = [one.text for one in parser.parse([Sentence.from_words(one.words, one.upos) for one in some])]
    for given in (pairs, [[list(pair) for pair in one] for one in pairs]):
        assert [one.text for one in parser.parse(given)] == tagged
    untagged = parser.parse(words)
    assert [columns(one) for one in untagged] != [columns(one) for one in parser.parse(pairs)]  # tags are looked at
    kinds = (words[0], pairs[1], some[2])
    apart = [columns(parser.parse([given])[0]) for given in kinds]
    assert [columns(one) for one in parser.parse(kinds)] == apart
    assert parser.parse([]) == [] == parser.predict([]) and parser.parse(iter([])) == []


def test_conllu_is_kept_to_the_byte(parser):
    text = (
        "# sent_id = x\n# text = du chien\n1-2\tdu\t_\t_\t_\t_\t_\t_\t_\tA=1\r\n1\tde\tde\tADP\tP\t_\t2\tcase\t_\tB=2\n"
        "2\tle\t_\tDET\t_\t_\t_\t_\t_\t_\n2.1\tØ\t_\t_\t_\t_\t_\t_\t_\t_\n3\tchien\t_\tNOUN\t_\tG=M\t_\t_\t3:x\tC\n\n\n"
    )
    (after,) = parser.parse([Sentence(text, "f.conllu", 7)], confidence=True)
    check_tree(after)
    assert (after.source, after.line) == ("f.conllu", 7)
    strip = [(i, line.split("\t")) for i, line in enumerate(after.text.split("\n"))]
    for i, fields in strip:
        given = text.split("\n")[i].split("\t")
        if len(fields) == 10 and fields[0].isdigit():
            assert fields[:6] == given[:6] and fields[8] == given[8]
            assert fields[9].startswith("Confidence=" if given[9] == "_" else given[9] + "|Confidence=")
        else:
            assert fields == given


@pytest.mark.parametrize("confidence", [False, True])
def test_sentences_without_words(parser, treebank, confidence):
    comments = Sentence("# only a comment\n\n")
    given = [[], treebank[0], comments, treebank[1], Sentence.from_words([])]
    parsed = parser.parse(given, confidence=confidence)
    assert [len(one) for one in parsed] == [0, len(treebank[0]), 0, len(treebank[1]), 0]
    assert parsed[2].text == comments.text
    expected = parser.parse([treebank[0], treebank[1]], confidence=confidence)
    assert [parsed[1].text, parsed[3].text] == [one.text for one in expected]
    empty = [Sentence.from_words([]), comments]
    one, two = parser.predict(empty, confidence=confidence)
    assert one == two == Prediction([], [], [] if confidence else None)
    one.heads.append(1)  # nobody else's
    assert two.heads == []


ODD = [
    "\U0001f600",
    "👩‍👩‍👧",
    "日本語",
    "\u0301",
    "a b",
    "\u2028",
    "\u00a0",
    "\x00",
    "x" * 5000,
    "#",
    "<root>",
    "1-2",
    "_",
]


def test_one_word_and_odd_ones(parser, vocabulary):
    (parsed,) = parser.parse([["word"]], confidence=True)
    assert parsed.heads == [0] and parsed.misc == ["Confidence=1.0000"]
    assert vocabulary.root_labels[vocabulary.labels.names.index(parsed.deprels[0])][0]
    (parsed,) = parser.parse([ODD], confidence=True)
    assert parsed.words == ODD
    (tagged,) = parser.parse([[(word, "☃") for word in ODD]])
    assert tagged.upos == ["☃"] * len(ODD)
    check_tree(parsed)
    check_tree(tagged)


def test_order_is_kept_over_batches(parser, treebank):
    """Whatever the batches: each sentence its own parse, at its place."""
    given = [treebank[index] for index in torch.randperm(40, generator=torch.Generator().manual_seed(1)).tolist()]
    given.insert(3, Sentence.from_words([]))
    given.append(Sentence.from_words(["a"] * 150))
    alone = [parser.parse([one])[0] for one in given]
    for batch_words in (1, 60, 300, 100_000):
        parsed = parser.parse(given, batch_words=batch_words)
        assert [one.words for one in parsed] == [one.words for one in given]
        assert [columns(one) for one in parsed] == [columns(one) for one in alone]
    assert len({len(one) for one in given}) > 10


def test_time_is_counted_and_dropout_is_off(vocabulary, treebank):
    parser = make(vocabulary)
    parser.scorer.train()
    assert set(parser.predict([]).seconds.values()) == {0.0}
    first, second = parser.predict(treebank), parser.predict(treebank)
    assert set(first.seconds) == {"batch", "encode", "decode", "labels"} == set(second.seconds)
    assert all(spent > 0 for found in (first, second) for spent in found.seconds.values())
    assert list(first) == list(second)


def test_labels_of_the_root_are_the_roots(parser, treebank, vocabulary, monkeypatch):
    may = dict(zip(vocabulary.labels.names, vocabulary.root_labels, strict=True))

    def wrong():
        return [
            (label, head)
            for one in parser.parse(treebank)
            for label, head in zip(one.deprels, one.heads, strict=True)
            if not may[label][0 if head == 0 else 1]
        ]

    assert wrong() == []
    monkeypatch.setattr(vocabulary, "root_labels", [(True, True)] * len(may))
    assert wrong()  # it is not the scores' doing


def test_labels_are_the_best_of_those_allowed(vocabulary, treebank):
    """All weights zero but one bias a label: its number, so that the last label that is allowed wins."""
    parser = Parser.new(Config(scorer=TINY), vocabulary)
    with torch.no_grad():
        parser.scorer.labels.weight[:, -1, -1] = torch.arange(len(vocabulary.labels.names), dtype=torch.float32)
    root, other = (
        [label for label, may in zip(vocabulary.labels.names, vocabulary.root_labels, strict=True) if may[which]][-1]
        for which in (0, 1)
    )
    assert root != other
    for one in parser.parse(treebank[:5]):
        assert one.deprels == [root if head == 0 else other for head in one.heads]
    # No label was seen but the root's: words that are not under it get that.
    single = [Sentence.from_words(["a"], heads=[0], deprels=["root"])] * 2
    (parsed,) = make(Vocabulary.build(single)).parse([["a", "b", "a"]])
    assert parsed.deprels == ["root"] * 3


def test_projective_trees_and_roots(vocabulary, treebank):
    parser = make(vocabulary)
    assert any(crossing(one.heads) for one in parser.predict(treebank))
    with torch.no_grad():
        parser.scorer.arcs.head.linear.bias.mul_(0.1)  # of the order of the rest
    for projective in (False, True):
        one = parser.predict(treebank, projective=projective)
        several = parser.predict(treebank, projective=projective, single_root=False)
        assert any(found.heads.count(0) > 1 for found in several)
        for sentence, single, many in zip(treebank, one, several, strict=True):
            check_tree(sentence.with_parse(single.heads))
            check_tree(sentence.with_parse(many.heads), single_root=False)
            assert not projective or not (crossing(single.heads) or crossing(many.heads))


def test_as_in_training_by_default(vocabulary, treebank):
    default = make(vocabulary)
    for training in ({"projective": True}, {"single_root": False}, {"projective": True, "single_root": False}):
        trained = make(vocabulary, **training)
        assert trained.predict(treebank) == default.predict(treebank, **training)
        plain = trained.predict(treebank, projective=False, single_root=True)
        assert plain == default.predict(treebank) != trained.predict(treebank)


def test_methods(parser, treebank):
    auto = parser.predict(treebank)
    assert parser.predict(treebank, method="mst") == auto == parser.predict(treebank, method="auto")
    eisner = parser.predict(treebank, method="eisner")
    assert eisner == parser.predict(treebank, projective=True)
    assert eisner == parser.predict(treebank, method="eisner", projective=True) != auto


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "magic"}, "method must be one of auto, mst, eisner"),
        ({"method": "mst", "projective": True}, 'method "mst" finds non-projective trees; for projective=True use'),
        ({"batch_words": 0}, "batch budget: 0 words; wanted 1 or more"),
    ],
)
def test_wrong_options(parser, treebank, options, message):
    for call in (parser.parse, parser.predict):
        assert message in refusal(call, treebank[:2], **options)
    with pytest.raises(TypeError, match="tempo"):
        parser.parse(treebank[:1], tempo=1)


@pytest.mark.parametrize("single_root", [True, False])
@pytest.mark.parametrize("projective", [True, False])
def test_confidence_is_the_marginal(parser, treebank, vocabulary, projective, single_root):
    """By adding up all trees where there are few enough."""
    kind = {"projective": projective, "single_root": single_root}
    words = [one.words[start : start + n] for one in treebank[:6] for start, n in ((0, 2), (1, 4), (2, 5))]
    given = [Sentence.from_words(one) for one in words]
    found = parser.predict(given, confidence=True, **kind)
    shares = []
    for sentence, prediction in zip(given, found, strict=True):
        batch = parser._batch([sentence])
        with torch.no_grad():
            arcs = parser.scorer(batch).scores.arcs[0]
        trees = Enumeration(arcs, **kind)
        expected = [float(trees.marginals[head, m]) for m, head in enumerate(prediction.heads, 1)]
        assert prediction.confidence == pytest.approx(expected, abs=1e-5)  # float32 scores
        assert trees.index(torch.tensor([-1, *prediction.heads])) == int(trees.scores.argmax())
        shares += expected
    assert min(shares) < 0.5 < 0.8 < max(shares)


@pytest.mark.parametrize("projective", [True, False])
def test_confidence_of_long_sentences(parser, treebank, projective):
    found, plain = (parser.predict(treebank, confidence=sure, projective=projective) for sure in (True, False))
    assert all(one.confidence is None for one in plain)
    assert [replace(one, confidence=None) for one in found] == list(plain)
    distribution = ProjectiveTrees if projective else NonProjectiveTrees
    for indices in batches_by_length([len(sentence) for sentence in treebank], 4000):
        batch = parser._batch([treebank[index] for index in indices])
        with torch.no_grad():
            marginals = distribution(parser.scorer(batch).scores.arcs, batch.lengths).marginals
        for row, index in enumerate(indices):
            prediction = found[index]
            assert len(prediction.confidence) == len(treebank[index])
            assert all(0 <= share <= 1 for share in prediction.confidence)
            words = range(1, len(treebank[index]) + 1)
            assert prediction.confidence == pytest.approx(marginals[row, prediction.heads, words].tolist(), abs=1e-6)


def test_confidence_is_added_to_misc(parser, treebank):
    parsed = parser.parse(treebank[:6], confidence=True)
    for before, after, prediction in zip(treebank, parsed, parser.predict(treebank[:6], confidence=True), strict=False):
        values = [f"Confidence={share:.4f}" for share in prediction.confidence]
        expected = [value if old == "_" else f"{old}|{value}" for old, value in zip(before.misc, values, strict=True)]
        assert after.misc == expected
        assert after.with_parse(before.heads, before.deprels).misc != before.misc
    again = parser.parse(parsed, confidence=True)  # replaced, not added a second time
    assert [one.text for one in again] == [one.text for one in parsed]
    assert any("SpaceAfter=No|Confidence=" in value for value in parsed[0].misc)
    assert parser.parse(treebank[:1])[0].misc == treebank[0].misc


NEITHER = "sentences: sentence {} is neither words nor (word, tag) pairs"


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        *((given, "sentences: sentence 0 is a string; wanted a list of words") for given in ("a string", ["a", "b"])),
        ([["a"], "b c"], "sentences: sentence 1 is a string; wanted a list of words"),
        *((given, NEITHER.format(0)) for given in ([["a", ("b", "X")]], [[("a", "X", "Y")]], [[("a", None)]])),
        *((given, NEITHER.format(0)) for given in ([[b"a"]], [None])),
        *((given, NEITHER.format(1)) for given in ([["a"], ["b", 3]], [["a"], 5])),
        ([["a"], ["b", ""]], "sentences: sentence 1: words: '' of word 2 is empty or has a tab or a line end"),
        ([["a\tb"]], r"sentences: sentence 0: words: 'a\tb' of word 1 is empty or has a tab or a line end"),
        ([[("a", "X\n")]], r"sentences: sentence 0: upos: 'X\n' of word 1 is empty or has a tab or a line end"),
        (Sentence.from_words(["a"]), "sentences: one sentence; wanted a list of them"),
        ([["a"], Sentence("# c\n1\ta\n\n", "f.conllu", 4)], "f.conllu:5: 2 columns where CoNLL-U has 10"),
        ([["a"], ["\ud800"]], "not UTF-8"),
    ],
)
def test_what_is_no_sentence(parser, sentences, message):
    for call in (parser.parse, parser.predict) if message.startswith("f.") else (parser.parse,):
        given = [each for each in sentences if isinstance(each, Sentence)] if call == parser.predict else sentences
        assert message in refusal(call, given)


def failing(monkeypatch, parser, error, when):
    """Let some batches of a parser fail; the sizes of all that are tried."""
    sizes, work = [], parser._predict

    def predict(batch, *rest):
        sizes.append(len(batch.lengths))
        if when(batch):
            raise error
        return work(batch, *rest)

    monkeypatch.setattr(parser, "_predict", predict)
    return sizes


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory: you tried"),
    ],
    ids=["python", "gpu", "cpu"],
)
def test_a_batch_that_does_not_fit_is_halved(parser, treebank, monkeypatch, error):
    expected = parser.predict(treebank)
    sizes = failing(monkeypatch, parser, error, lambda batch: len(batch.lengths) > 2)
    assert [found.heads for found in parser.predict(treebank)] == [found.heads for found in expected]
    assert max(sizes) > 4 and {size for size in sizes if size <= 2} <= {1, 2}


def test_a_sentence_that_never_fits(parser, treebank, monkeypatch):
    longest, expected = max(map(len, treebank)), parser.parse(treebank)
    failing(monkeypatch, parser, MemoryError, lambda batch: int(batch.lengths.max()) == longest)
    with pytest.raises(ConlluError, match=f"a sentence of {longest} words needs about .*, which could not"):
        parser.predict(treebank)
    with pytest.warns(UserWarning, match="left unparsed") as warned:
        found = parser.parse(treebank)
    assert len(warned) == sum(len(sentence) == longest for sentence in treebank)
    for before, wanted, after in zip(treebank, expected, found, strict=True):
        assert after.text == (before if len(before) == longest else wanted).text


def test_what_is_tried(parser, treebank, monkeypatch):
    least = Wanted()
    plain = parser._need(1000, "auto", False, least, False)
    assert 16e6 < plain < 200e6  # arcs alone take 4e6
    sure, several = Wanted(confidence=True), Wanted(nbest=5)
    for more in (("auto", True, least, False), ("auto", False, sure, False), ("auto", False, least, True)):
        assert parser._need(1000, *more) > plain
    assert parser._need(1000, "auto", False, several, False) > plain
    tried = failing(monkeypatch, parser, RuntimeError("something else"), lambda batch: True)
    with pytest.raises(RuntimeError, match="something else"):  # which is not taken for memory
        parser.predict(treebank)
    assert len(tried) == 1
    monkeypatch.setattr(room, "available", lambda device: 50_000_000)
    with pytest.raises(ConlluError, match=r"3,000 words needs about \d+ MB of memory and 50 MB are free; split it"):
        parser.predict([Sentence.from_words(["word"] * 3000)])
    assert len(tried) == 1
