"""Files of constraints: refused in one line, or constraints that can be asked of sentences and of trees."""

from __future__ import annotations

import random
from dataclasses import fields
from pathlib import Path
from typing import Any

from conllu import tree
from mutate import field, mutated, piece, refusal

from gpuparse.decoding.ilp.files import KINDS, constraints_of, unknown_labels
from gpuparse.lp import Constraint, Words
from gpuparse.system.defaults import READY

NAME = "constraints"
COUNT = 80_000

_LABELS = ["nsubj", "obj", "conj", "cc", "det", "root"]
_VALUES = [
    *("0", "1", "2", "-1", "999999999", "1000000000", "9" * 400, "1.5", "nan", "inf", "true", "false", '""', '"x"'),
    *("[]", '["nsubj"]', '["nsubj*"]', '["*"]', '["a*b"]', '["NOUN"]', '[["NOUN"], ["VERB"]]', '["2 -> 1"]', "[1]"),
    *('["* -> 2 det"]', '["0 -> 1", "3 -> 2 nsubj*"]', '["1 -> 1"]', '["1 -> 0"]', '["9 -> 8"]', "{}", "1979-05-27"),
    *('["s1"]', '["' + "x" * 3000 + '"]', "[" * 500, '"' + "y" * 3000 + '"', '["\\u001b[31m"]', '["\\n"]', "[[]]"),
    "[[1]]",
]
_WORDS = [
    *(b"[[constraint]]\n", b"kind = ", b"weight = ", b"sentences = ", b"=", b"\n", b"[", b"]", b'"', b"*", b"->"),
    *(value.encode() for value in _VALUES),
    *(f'"{kind}"'.encode() for kind in KINDS),
]
_READY = [path.read_bytes() for path in sorted(READY.glob("*.toml"))]


def _table(rng: random.Random) -> str:
    kind = rng.choice(list(KINDS))
    names = [each.name for each in fields(KINDS[kind])]
    lines = ["[[constraint]]", f'kind = "{kind}"']
    for name in names:
        if rng.random() < 0.6:
            lines.append(f"{name} = {_value(rng, name)}")
    for name in ("weight", "sentences", "exactly", "nosuch"):
        if rng.random() < 0.08:
            lines.append(f"{name} = {rng.choice(_VALUES)}")
    return "\n".join(lines)


def _value(rng: random.Random, name: str) -> str:
    """Mostly one that fits."""
    if rng.random() < 0.2:
        return rng.choice(_VALUES)
    some = str(rng.sample(_LABELS, rng.randint(1, 2))).replace("'", '"')
    tags = str(rng.sample(["NOUN", "VERB", "CCONJ", ""], rng.randint(1, 2))).replace("'", '"')
    arcs = rng.choice(['["2 -> 1"]', '["* -> 2 det"]', '["0 -> 1 root", "1 -> 2"]', '["7 -> 6"]'])
    fitting: dict[str, str] = {
        **dict.fromkeys(("required", "forbidden"), arcs),
        **dict.fromkeys(("at_least", "at_most", "first", "last"), str(rng.randint(0, 4))),
        **dict.fromkeys(("tags", "heads", "except_tags", "forms", "separators", "asymmetric"), tags),
        **dict.fromkeys(("classes",), f"[{tags}, {tags}]"),
        **dict.fromkeys(("label", "parent"), '"nsubj"'),
    }
    return fitting.get(name, some)


def _case(rng: random.Random) -> bytes:
    made = "\n\n".join(_table(rng) for _ in range(rng.randint(1, 3))).encode()
    data = rng.choice(_READY) if rng.random() < 0.2 else made
    return mutated(rng, data, _WORDS) if rng.random() < 0.6 else data


def one(rng: random.Random, directory: Path) -> str:
    try:
        constraints = constraints_of(_case(rng), Path("case.toml"))
    except ValueError as error:
        return refusal(error)
    unknown_labels(constraints, _LABELS)
    count = rng.randint(1, 5)
    forms = [field(rng) if rng.random() < 0.1 else rng.choice(["and", "cats", ",", piece(rng)]) for _ in range(count)]
    tags = [rng.choice(["NOUN", "VERB", "CCONJ", "PUNCT", ""]) for _ in range(count)]
    words = Words.of(forms, tags, _LABELS, rng.choice([None, "s1"]))
    heads = [-1, *tree(rng, count)]
    labels = [-1, *(rng.randrange(len(_LABELS)) for _ in range(count))]
    asked = sum(_ask(constraint, words, heads, labels) for constraint in constraints[:20])
    return "asked" if asked else "ok"


def _ask(constraint: Constraint, words: Words, heads: list[int], labels: list[int]) -> bool:
    """Ask a constraint of a sentence and a tree: what is violated is a row that the tree breaks."""
    try:
        constraint.check(words)
    except ValueError as error:
        refusal(error)
        return False
    broken = list(constraint.violated(words, heads, labels))
    assert all(row.is_violated(heads, labels) for row in broken), "a row that holds is said to be broken"
    rows: list[Any] = [row for row in constraint.rows(words) if row.is_violated(heads, labels)]
    assert bool(rows) == bool(broken), f"{len(rows)} rows broken, {len(broken)} found"
    return True
