"""Random sentences, trees and constraints of every kind."""

from __future__ import annotations

import random

from gpuparse import lp

TAGS = ("NOUN", "VERB", "CCONJ", "PUNCT")
FORMS = {"NOUN": ("cat",), "VERB": ("runs", "and"), "CCONJ": ("and", "And", "both"), "PUNCT": (",", ".")}
LABELS = {"nsubj": 0, "obj": 1, "conj": 2, "nsubj:pass": 3}


def sentence(rng: random.Random, n: int) -> lp.Words:
    tags = [rng.choice(TAGS) for _ in range(n)]
    return lp.Words(("", *(rng.choice(FORMS[tag]) for tag in tags)), ("", *tags), LABELS, rng.choice(["a", "b", None]))


def tree(rng: random.Random, n: int) -> tuple[list[int], list[int]]:
    """Heads and labels of a random tree: each word under one that came before it in a random order."""
    order = rng.sample(range(1, n + 1), n)
    heads = [-1] * (n + 1)
    for place, word in enumerate(order):
        heads[word] = rng.choice([0, *order[:place]])
    return heads, [-1, *(rng.randrange(len(LABELS)) for _ in range(n))]


def constraints(rng: random.Random, n: int) -> list[lp.Constraint]:
    """One of every kind, for sentences of at least n words."""

    def some(names: tuple[str, ...]) -> frozenset[str]:
        return frozenset(rng.sample(names, rng.randint(1, 2)))

    def maybe(names: tuple[str, ...]) -> frozenset[str] | None:
        return some(names) if rng.random() < 0.6 else None

    labels = ("nsubj", "obj", "conj", "nsubj*", "vocative", "x*")
    first, least = rng.randint(1, n), rng.randint(0, 1)
    arc = (rng.randint(0, n), first, rng.choice([None, "obj", "nsubj*"]))
    made: list[lp.Constraint] = [
        lp.Unique(some(labels)),
        lp.Children(least, least + rng.randint(0, 2), maybe(labels), maybe(TAGS), maybe((*TAGS, ""))),
        lp.Children(at_least=least, labels=maybe(labels), heads=some(TAGS)),
        lp.Leaf(some(labels), maybe(labels) or frozenset()),
        lp.LabelUnder(rng.choice(labels), some((*TAGS, ""))),
        lp.Projective(maybe(labels), maybe(TAGS) or frozenset()),
        lp.Coordination(
            symmetric=frozenset({"and"}),
            asymmetric=frozenset({"both"}) if rng.random() < 0.5 else frozenset(),
            others=frozenset({"both"}),
            commas=frozenset({","}) if rng.random() < 0.5 else frozenset(),
            classes=(frozenset({"NOUN"}), frozenset({"VERB", "PUNCT"}))[: rng.randint(0, 1) * 2],
            tags=maybe(TAGS),
            labels=maybe(labels),
            always=rng.random() < 0.3,
        ),
        lp.Arcs(required=(arc,)) if arc[0] != arc[1] else lp.Arcs(),
        lp.Arcs(forbidden=(arc,)) if arc[0] != arc[1] else lp.Arcs(),
        lp.Span(first, rng.randint(first, n)),
    ]
    made.append(lp.Soft(rng.choice(made), rng.choice([0.3, 2.0])))
    made.append(lp.Only(rng.choice(made), frozenset({"a"})))
    return made
