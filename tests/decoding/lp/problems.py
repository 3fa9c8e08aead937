"""Small sentences under a few constraints."""

from __future__ import annotations

import random

from gpuparse.lp import (
    Arcs,
    Children,
    Constraint,
    Coordination,
    LabelUnder,
    Projective,
    Span,
    Unique,
    Words,
)

TAGS = ("NOUN", "VERB", "CCONJ", "PUNCT")


FORMS = {"NOUN": "cat", "VERB": "runs", "CCONJ": "and", "PUNCT": ","}


LABELS = {"nsubj": 0, "obj": 1, "conj": 2}


def sentence(tags: list[str]) -> Words:
    return Words(("", *(FORMS[tag] for tag in tags)), ("", *tags), LABELS)


def random_constraints(rng: random.Random, n: int) -> list[Constraint]:
    labels = frozenset(rng.sample(sorted(LABELS), rng.randint(1, 2)))
    arc = (rng.randint(0, n), rng.randint(1, n), rng.choice([None, "obj"]))
    first = rng.randint(1, n)
    span = Span(first, rng.randint(first, n))
    choices: list[Constraint] = [
        Unique(labels),
        Projective(),
        Projective(labels),
        Children(at_most=1, heads=frozenset({"NOUN"})),
        Children(at_least=1, at_most=2, heads=frozenset({"VERB"}), labels=labels),
        Children(at_most=0, heads=frozenset({"PUNCT"})),
        Children(at_most=1, tags=frozenset({"PUNCT"})),
        Coordination(symmetric=frozenset({"and"}), commas=frozenset({","})),
        Coordination(asymmetric=frozenset({"and"})),
        Coordination(symmetric=frozenset({"and"}), classes=(frozenset({"NOUN"}), frozenset({"VERB"}))),
        LabelUnder("nsubj", frozenset({"VERB", ""})),
        Arcs(required=(arc,)) if arc[0] != arc[1] else Arcs(),
        Arcs(forbidden=(arc,)) if arc[0] != arc[1] else Arcs(),
        span,
    ]
    return rng.sample(choices, rng.randint(0, 3))
