"""Universal Dependencies' coordinations, headed by their conjunctions: what rules on conjunctions are written for.

In UD the first conjunct is the head, the others are its ``conj`` children, and a conjunction (``cc``) hangs on the
conjunct after it. Here, as in the Alpino treebank that Riedel and Clarke (2006) parsed, the last conjunction is the
head: it takes the first conjunct's head and label, all conjuncts are its children, labelled ``conj``, and so is, with
its own label, punctuation between them. Coordinations without a conjunction stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuparse.data.sentence import Sentence, check_tree

CONJUNCT, CONJUNCTION, PUNCTUATION = "conj", "cc", "punct"


def relation(label: str) -> str:
    """A label without its subtype."""
    return label.partition(":")[0]


def conjunction_headed(heads: Sequence[int], labels: Sequence[str]) -> tuple[list[int], list[str]]:
    """The heads and labels of words 1, 2, ... with conjunctions as heads.

    Outer coordinations come before those inside their conjuncts. A child of a conjunct on the other side of the
    conjunction would cross it, and hangs on the conjunction too: a full stop, a modifier of all that is coordinated.
    """
    head, label = [0, *heads], ["", *labels]
    made: set[int] = set()  # conjunctions that are heads now
    for first in _outside_in(head):
        conjuncts = [m for m in range(1, len(head)) if head[m] == first and relation(label[m]) == CONJUNCT]
        here = [m for m in range(first + 1, len(head)) if label[m] == CONJUNCTION and m < head[m] in conjuncts]
        if not here or first in made:
            continue
        conjunction = here[-1]
        made.add(conjunction)
        head[conjunction], label[conjunction] = head[first], label[first]
        for m in (first, *conjuncts):
            head[m], label[m] = conjunction, CONJUNCT
        for m in range(1, len(head)):
            above = head[m]
            if above != first and above not in conjuncts:
                continue
            across = min(above, m) < conjunction < max(above, m)
            before = relation(label[m]) == PUNCTUATION and m < above and above != first
            if across or before:
                head[m] = conjunction
    return head[1:], label[1:]


def _outside_in(heads: Sequence[int]) -> list[int]:
    """The words, each after its head."""
    children: dict[int, list[int]] = {}
    for word, head in enumerate(heads[1:], 1):
        children.setdefault(head, []).append(word)
    order = [0]
    for node in order:
        order += children.get(node, [])
    return order[1:]


def converted(sentences: Iterable[Sentence]) -> Iterator[Sentence]:
    """Sentences with their trees converted; each is checked to be a tree again."""
    for sentence in sentences:
        heads, labels = conjunction_headed(sentence.heads, sentence.deprels)
        result = sentence.with_parse(heads, labels)
        check_tree(result)
        yield result
