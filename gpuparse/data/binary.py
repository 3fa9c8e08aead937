"""Trees in Chomsky normal form, and back.

Unary chains become one symbol, ``S+VP``; over a word that is its tag, ``NP+NN``. Phrases of more than two are cut
around their head child: what stands right of it is attached first, from the inside outwards, then what stands left of
it. All but the outermost step are named ``@NP``, with the labels attached last if they are remembered: ``@NP|PP``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from gpuparse.data.brackets import Constituent

Rules: TypeAlias = Mapping[str, Sequence[tuple[str, frozenset[str]]]]

CHAIN = "+"
PART = "@"

# Collins (1999), appendix A: from which end, and what to look for, one after the other.
_TABLE = """
ADJP left NNS QP NN $ ADVP JJ VBN VBG ADJP JJR NP JJS DT FW RBR RBS SBAR RB
ADVP right RB RBR RBS FW ADVP TO CD JJR JJ IN NP JJS NN
CONJP right CC RB IN
FRAG right
INTJ left
LST right LS :
NAC left NN NNS NNP NNPS NP NAC EX $ CD QP PRP VBG JJ JJS JJR ADJP FW
PP right IN TO VBG VBN RP FW
PRN left
PRT right RP
QP left $ IN NNS NN JJ RB DT CD NCD QP JJR JJS
RRC right VP NP ADVP ADJP PP
S left TO IN VP S SBAR ADJP UCP NP
SBAR left WHNP WHPP WHADVP WHADJP IN DT S SQ SINV SBAR FRAG
SBARQ left SQ S SINV SBARQ FRAG
SINV left VBZ VBD VBP VB MD VP S SINV ADJP NP
SQ left VBZ VBD VBP VB MD VP SQ
UCP right
VP left TO VBD VBN MD VBZ VB VBG VBP VP ADJP NN NNS NP
WHADJP left CC WRB JJ ADJP
WHADVP right CC WRB
WHNP left WDT WP WP$ WHADJP WHPP WHNP
WHPP right IN TO FW
"""
_NOUNS = (
    ("right", frozenset({"NN", "NNP", "NNPS", "NNS", "NX", "POS", "JJR"})),
    ("left", frozenset({"NP"})),
    ("right", frozenset({"$", "ADJP", "PRN"})),
    ("right", frozenset({"CD"})),
    ("right", frozenset({"JJ", "JJS", "RB", "QP"})),
    ("right", frozenset[str]()),
)
_PUNCTUATION = frozenset({",", ".", ":", "``", "''", "-LRB-", "-RRB-", "PUNCT"})


def _rules(table: str) -> dict[str, tuple[tuple[str, frozenset[str]], ...]]:
    lines = [line.split() for line in table.split("\n") if line]
    return {
        label: (*((side, frozenset({one})) for one in wanted), (side, frozenset[str]()))
        for label, side, *wanted in lines
    }


HEAD_RULES: Rules = {**_rules(_TABLE), "NP": _NOUNS, "NX": _NOUNS}
"""Of each label of the Penn Treebank's phrases: sets of labels to look for, in order, from the left or the right end.
An empty set is any label but punctuation."""


def head_child(
    label: str,
    children: Sequence[str],
    *,
    rules: Rules = HEAD_RULES,
    default: Literal["left", "right"] = "right",
) -> int:
    """The index of a phrase's head among its children's labels. Where no rule finds one, it is the first from the
    ``default`` end that is not punctuation."""
    any_label: frozenset[str] = frozenset()
    for side, wanted in (*rules.get(label, ()), (default, any_label)):
        places = range(len(children)) if side == "left" else range(len(children) - 1, -1, -1)
        for place in places:
            if children[place] in wanted if wanted else children[place] not in _PUNCTUATION:
                return place
    return 0 if default == "left" else len(children) - 1


def binarise(
    tree: Constituent,
    *,
    markov: int = 0,
    rules: Rules = HEAD_RULES,
    default: Literal["left", "right"] = "right",
) -> Constituent:
    """A tree in Chomsky normal form, each phrase with its head child.

    Args:
        markov: how many of the labels attached last the names of parts of phrases have.
        rules: as ``HEAD_RULES``; a phrase that knows its head keeps it.
        default: see ``head_child``.

    Labels may not begin with ``@`` or have a ``+`` inside (``ValueError``).
    """
    if markov < 0:
        raise ValueError(f"markov: {markov} is below 0")

    def make(node: Constituent, some: Sequence[Constituent]) -> Constituent:
        if node.label.startswith(PART) or CHAIN in node.label:
            raise ValueError(
                f"label: {node.label!r} begins with @ or has a +, which mark what binarise makes; rename it"
            )
        if not some:
            return node
        if len(some) == 1:
            return replace(some[0], label=f"{node.label}{CHAIN}{some[0].label}")
        labels = [child.label for child in node.children]
        head = node.head if node.head is not None else head_child(node.label, labels, rules=rules, default=default)
        order = [*range(head + 1, len(some)), *range(head - 1, -1, -1)]
        inner, last = some[head], order[-1]
        attached: list[str] = []
        for place in order:
            attached.append(labels[place])
            seen = attached[-markov:] if markov else []
            label = node.label if place == last else "|".join([f"{PART}{node.label}", *seen])
            pair = (inner, some[place]) if place > head else (some[place], inner)
            inner = Constituent(label, pair, head=0 if place > head else 1)
        return inner

    return tree.fold(make)


def unbinarise(tree: Constituent) -> Constituent:
    """The tree that ``binarise`` was given."""

    def make(node: Constituent, some: Sequence[list[Constituent]]) -> list[Constituent]:
        """The node as a list of one, or its children if it is a part of a phrase."""
        children = tuple(child for part in some for child in part)
        if is_part(node.label):
            return list(children)
        *above, label = split_chain(node.label)
        made = Constituent(label, children, node.word)
        for one in reversed(above):
            made = Constituent(one, (made,))
        return [made]

    made = tree.fold(make)
    if len(made) != 1:
        raise ValueError(f"tree: the root {tree.label!r} is a part of a phrase; a whole tree is wanted")
    return made[0]


def is_part(label: str) -> bool:
    """Whether a symbol names a part of a phrase, ``@NP``."""
    return label.startswith(PART)


def split_chain(label: str) -> list[str]:
    """The labels of a chain, ``S`` and ``VP`` of ``S+VP``."""
    return label.split(CHAIN)
