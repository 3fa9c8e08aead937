"""Trees to draw, and drawings read back."""

from __future__ import annotations

import random
from xml.etree import ElementTree

from hypothesis import strategies as st

from gpuparse.data.conllu import Sentence


@st.composite
def trees(draw: st.DrawFn, most: int = 9) -> list[int]:
    """Heads of any tree, projective or not, with any number of words under the root."""
    n = draw(st.integers(0, most))
    order = draw(st.permutations(range(1, n + 1)))
    heads = [-1] * (n + 1)
    for i, word in enumerate(order):
        heads[word] = draw(st.sampled_from([0, *order[:i]]))
    return heads


def is_projective(heads: list[int]) -> bool:
    spans = [(min(h, m), max(h, m)) for m, h in enumerate(heads) if m]
    return not any(a < c < b < d for a, b in spans for c, d in spans)


SVG = "{http://www.w3.org/2000/svg}"


def groups(root: ElementTree.Element, kind: str) -> list[ElementTree.Element]:
    return [g for g in root.iter(f"{SVG}g") if kind in g.get("class", "").split()]


def arcs(root: ElementTree.Element, kind: str = "a") -> list[tuple[int, int]]:
    """(modifier, head) of the arcs of a kind, sorted: a all, x wrong, g missed, l wrong label, s other subtype."""
    return sorted((int(g.get("data-m", "")), int(g.get("data-h", ""))) for g in groups(root, kind))


def texts(element: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in element.iter(f"{SVG}text")]


WORDS = ["We", "saw", "the", "man"]

GOLD = Sentence.from_words(
    WORDS,
    ["PRON", "VERB", "DET", "NOUN"],
    lemmas=["we", "see", "the", "man"],
    heads=[2, 0, 4, 2],
    deprels=["nsubj", "root", "det", "obj"],
    comments=["# sent_id = a-1", "# text = We saw the man"],
)

WRONG = GOLD.with_parse([2, 0, 2, 2], ["nsubj", "root", "det", "iobj"], {"Confidence": ["0.9", "1", "0.25", "0.5"]})


def random_sentence(source: random.Random, number: int) -> Sentence:
    count = source.randint(1, 12)
    order = list(range(1, count + 1))
    source.shuffle(order)
    heads = [0] * count
    for i, word in enumerate(order[1:], 1):
        heads[word - 1] = source.choice(order[:i])
    labels = ["root" if head == 0 else source.choice(["obj", "nsubj", "obl:tmod", "obl"]) for head in heads]
    words = ["".join(source.choices("abcdefgé", k=source.randint(1, 9))) for _ in range(count)]
    return Sentence.from_words(words, ["X"] * count, heads=heads, deprels=labels, comments=[f"# sent_id = {number}"])


def changed(sentence: Sentence, source: random.Random) -> Sentence:
    """Some other tree, some other labels."""
    other = random_sentence(source, 0)
    while len(other) != len(sentence):
        other = random_sentence(source, 0)
    labels = [b if source.random() < 0.4 else a for a, b in zip(sentence.deprels, other.deprels, strict=True)]
    labels = ["root" if head == 0 else label for head, label in zip(other.heads, labels, strict=True)]
    return sentence.with_parse(other.heads, labels)


def corpus(size: int, seed: int = 1) -> tuple[list[Sentence], list[Sentence]]:
    source = random.Random(seed)
    gold = [random_sentence(source, i) for i in range(size)]
    return gold, [changed(sentence, source) if source.random() < 0.5 else sentence for sentence in gold]
