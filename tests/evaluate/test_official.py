"""The official metrics against the official program."""

from __future__ import annotations

import io
import sys
import unicodedata
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from udtools import udeval

from gpuparse.data.conllu import read_conllu
from gpuparse.data.prediction import Prediction
from gpuparse.evaluate import OFFICIAL, attachment_scores, evaluate
from gpuparse.evaluate.alignment import SPACES, UNIVERSAL_FEATURES
from gpuparse.evaluate.metrics import CONTENT_LABELS, FUNCTION_LABELS
from tests.evaluate.documents import changed, made_up, parse, text_of
from tests.treebanks import treebank


def officially(gold, system):
    read = (udeval.load_conllu(io.StringIO(text), "file", {}) for text in (gold, system))
    return {name: score for name, score in udeval.evaluate(*read).items() if name in OFFICIAL}


def assert_official(gold, system):
    """Every number of every metric is the official one."""
    found = evaluate(io.StringIO(gold), io.StringIO(system)).metrics
    for name, score in officially(gold, system).items():
        ours = found[name]
        assert (ours.correct, ours.gold, ours.system) == (score.correct, score.gold_total, score.system_total), name
        assert (ours.precision, ours.recall, ours.f1) == (score.precision, score.recall, score.f1), name
        assert (ours.aligned, ours.aligned_accuracy) == (score.aligned_total, score.aligned_accuracy), name
    return found


def test_the_names_are_those_of_the_shared_task():
    text = text_of(made_up(Random(0), 2))
    assert tuple(officially(text, text)) == OFFICIAL
    assert tuple(evaluate(io.StringIO(text), io.StringIO(text)).metrics) == (*OFFICIAL, "Root", "UEM", "LEM")
    assert (CONTENT_LABELS, FUNCTION_LABELS) == (udeval.CONTENT_DEPRELS, udeval.FUNCTIONAL_DEPRELS)
    assert UNIVERSAL_FEATURES == udeval.UNIVERSAL_FEATURES
    characters = map(chr, range(sys.maxunicode + 1))
    assert set(SPACES) == {character for character in characters if unicodedata.category(character) == "Zs"}


@pytest.mark.slow
@settings(max_examples=100, deadline=None, phases=(Phase.reuse, Phase.generate))  # they are small as they are
@given(st.randoms(use_true_random=False), st.integers(1, 6), st.sampled_from([0.0, 0.1, 0.4]), st.booleans())
def test_documents_made_up(random, sentences, rate, cut):
    gold = changed(made_up(random, sentences), random, 0.3)
    assert_official(text_of(gold, random), text_of(changed(gold, random, rate, cut=cut), random))


def test_many_documents():
    """The same at random, and all of it happens: everything between nothing and all is right."""
    between = dict.fromkeys(OFFICIAL, 0)
    for seed in range(150):
        random = Random(seed)
        gold = changed(made_up(random, random.randint(1, 12)), random, 0.3)
        found = assert_official(text_of(gold, random), text_of(changed(gold, random, 0.15), random))
        for name in OFFICIAL:
            between[name] += 0 < found[name].f1 < 1
    assert min(between.values()) > 50, between


@pytest.mark.parametrize(
    ("gold", "system", "aligned"),
    [
        (["abcd"], ["a", "b", "c", "d"], 0),
        (["abc", "d"], ["a", "b", "c", "d"], 1),
        (["a", "bc b c", "d"], ["a", "b", "cd"], 2),  # a token of two words against words that stick out
        (["abcd a b c d"], ["ab a b", "cd c d"], 4),
        (["abc a BX c", "def d EX f"], ["ab a b", "cd c d", "ef e f"], 4),
        (["ab a b", "cd bc d"], ["a", "bc", "d"], 2),
        (["ab", "cd b d"], ["a", "b", "c", "d"], 2),  # b stands before the token, and is aligned nevertheless
        (["Ab A B"], ["ab a b"], 2),
        (["10 000"], ["10", "000"], 0),
        (["10 000"], ["10\u202f000"], 1),
    ],
)
def test_words_in_tokens(gold, system, aligned):
    """Each string is a token, with its words where it has several."""

    def text(tokens):
        lines, n = [], 0
        for token in tokens:
            form, *words = [token] if token[0] == "1" else token.split(" ")
            if words:
                lines.append("\t".join([f"{n + 1}-{n + len(words)}", form, *"________"]))
            for word in words or [form]:
                n += 1
                lines.append("\t".join([str(n), word, *"____", str(min(n - 1, 1)), "dep", "_", "_"]))
        return "\n".join([*lines, "", ""])

    expected = text(gold), text(system)
    if gold == ["Ab A B"]:
        with pytest.raises(ValueError, match="texts differ"):
            evaluate(*map(io.StringIO, expected))
        return
    assert assert_official(*expected)["Words"].correct == aligned


@pytest.mark.slow
@pytest.mark.parametrize("name", ["da_ddt-ud-dev", "it_isdt-ud-dev"])
def test_treebanks(name):
    text = "\n\n".join([*treebank(name).read_text(encoding="utf-8").split("\n\n")[:250], ""])
    assert all(score.f1 == 1 for score in assert_official(text, text).values())
    document = parse(text)
    assert_official(text, text_of(changed(document, Random(1), 0.1)))
    same_words = text_of(changed(document, Random(2), 0.1, cut=False))
    official = assert_official(text, same_words)
    quick = attachment_scores(read_conllu(io.StringIO(text)), read_conllu(io.StringIO(same_words)))
    assert quick == (official["UAS"].f1, official["LAS"].f1)


def test_attachment_scores_are_the_official_ones():
    random = Random(3)
    gold = changed(made_up(random, 40), random, 0.3)
    gold, system = text_of(gold), text_of(changed(gold, random, 0.3, cut=False))
    official = officially(gold, system)
    expected = (official["UAS"].f1, official["LAS"].f1)
    assert 0 < expected[1] < expected[0] < 1
    parses = list(read_conllu(io.StringIO(system)))
    for predictions in (
        parses,
        [(found.heads, found.deprels) for found in parses],
        [Prediction(found.heads, found.deprels, [0.5] * len(found)) for found in parses],
    ):
        assert attachment_scores(read_conllu(io.StringIO(gold)), predictions) == expected


def test_attachment_scores_of_nothing_and_of_wrong_numbers():
    [sentence] = read_conllu(io.StringIO("1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n\n"))
    assert attachment_scores([], []) == (0.0, 0.0)
    with pytest.raises(ValueError, match="0 parses for 1 sentences"):
        attachment_scores([sentence], [])
    with pytest.raises(ValueError, match="2 heads and 1 labels for the 1 words of sentence 0"):
        attachment_scores([sentence], [([0, 1], ["root"])])
