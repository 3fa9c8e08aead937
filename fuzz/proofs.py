"""Proofs that were tampered with: as soon as what is claimed is false, the checker has to refuse it.

A sentence of up to five words is decoded with a proof. Then scores, answer or proof are changed at random, several
times over, and the claim is compared with all trees (sums are exact).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from certificates import MOST, WAYS, Form, family_of, instance, parts_of, total, trees
from mutate import refusal

import gpuparse as gp
from gpuparse.decoding.proofs import NAMES, Proof, ProofLeaf

NAME = "proofs"
COUNT = 10_000

METHODS = ("mst", "eisner", "ppc", "lp", "dd", "auto", "ilp", "bp")  # those with proofs
ROUNDING = 2.0**-40  # of the sizes of parts: what is off by no more may be taken for rounding by the checker
CHANGES = 12  # of one answer; one if its leaves are so many that each takes seconds to check:
MANY = 500
ODD = (math.nan, math.inf, -math.inf, 0.0, -1.0, 1e-9, 1.0, 1e3, 1e300, -1e300, 1.7e308, -1.7e308)


@dataclass
class Case:
    """An answer with its proof, and what it was asked of."""

    scores: gp.Scores
    tensors: dict[str, torch.Tensor]
    parse: gp.Parse
    trees: dict[str, bool]
    where: str


def case(rng: random.Random) -> Case | None:
    """A sentence that was decoded; None if it has no tree, or no sums in doubles."""
    method, options, kinds, _ = rng.choice([way for way in WAYS if way[0] in METHODS])
    options, family = family_of(rng, method, options)
    n = rng.choice((1, 2, 3, 3, 4, 4, 5))
    tensors = instance(rng, n, rng.choice(kinds), Form.draw(rng))
    scores = gp.Scores(**tensors)  # type: ignore[arg-type]
    best, _, size = _best(tensors, family)
    if best == -math.inf or size > MOST * 1e-6:  # proofs have room to price what is forbidden
        return None
    if method == "bp" and len(tensors) > 1 and any(bool((x < -1e30).any()) for x in tensors.values()):
        return None  # trees with forbidden pairs are left to "ilp"
    found = gp.decode(scores, method, **family, **options, proof=True)
    return Case(scores, tensors, found, family, f"{method} {options}, {sorted(tensors)}, n = {n}, {family}")


def _best(tensors: dict[str, torch.Tensor], family: dict[str, bool]) -> tuple[float, tuple[int, ...], float]:
    """The best score of all trees, its tree, and the sizes of its parts."""
    tables = {name: x[0].double().tolist() for name, x in tensors.items()}
    every = (
        (total(parts := parts_of(t, tables)), t, sum(map(abs, parts)))
        for t in trees(len(tables["arcs"]) - 1, family["single_root"], family["projective"])
    )
    return max(every, key=lambda x: x[0])


def one(rng: random.Random, directory: Path) -> str:
    """One answer, changed again and again."""
    given = case(rng)
    if given is None:
        return "no tree"
    if not bool(given.parse.certified[0]):
        return "not certified"
    where = given.where
    try:
        gp.verify(given.scores, given.parse, **given.trees)
    except ValueError as error:
        raise AssertionError(f"{where}: its own proof is refused: {error}") from error
    refused = False
    for _ in range(CHANGES if len(_leaves(given).get(0, ())) < MANY else 1):
        changed, how = given, []
        for _ in range(rng.choice((1, 1, 2, 3))):
            change = rng.choice(KINDS)
            how.append(change.__name__)
            changed = change(rng, changed)
        told = _verify(changed)
        refused |= bool(told)
        false = _is_false(changed)
        assert told or not false, f"{where}: after {', '.join(how)} it is accepted, but {false}"
    return "refused" if refused else "still true"


def _verify(changed: Case) -> str:
    """A word for its refusal, or nothing."""
    try:
        gp.verify(changed.scores, changed.parse, **changed.trees)
    except ValueError as error:
        return refusal(error)
    return ""


def _is_false(changed: Case) -> str:
    """What of the claim is false; nothing if it is true, as far as rounding tells."""
    best, _, size = _best(changed.tensors, changed.trees)
    size += sum(float(x.double().clamp(min=0).max()) for x in changed.tensors.values()) * changed.parse.heads.shape[1]
    tables = {name: x[0].double().tolist() for name, x in changed.tensors.items()}
    parse = changed.parse
    heads, score, bound = tuple(parse.heads[0].tolist()), float(parse.score[0]), float(parse.bound[0])
    if heads not in trees(len(heads) - 1, changed.trees["single_root"], changed.trees["projective"]):
        return f"{heads} is not a tree"
    if parse.labels is not None:  # its own, be they the best or not
        of_arcs = {m: tables["labels"][h][m][int(parse.labels[0, m])] for m, h in _arcs(heads)}
        tables["labels"] = [[[of_arcs.get(m, 0.0)] for m in range(len(heads))] for _ in heads]
    own = parts_of(heads, tables)
    slack = ROUNDING * max(size, sum(map(abs, own)))
    if total(own) < best - slack and bool(parse.certified[0]):
        return f"its tree scores {total(own)!r}, and the best {best!r}"
    if not (score == total(own) or abs(score - total(own)) <= slack):
        return f"its tree scores {total(own)!r}, not {score!r}"
    if not bound >= best - ROUNDING * size and 0 in _leaves(changed):
        return f"the best tree scores {best!r}, and its bound is {bound!r}"
    return ""


def _leaves(given: Case) -> dict[int, tuple[ProofLeaf, ...]]:
    assert given.parse.proof is not None
    return dict(given.parse.proof.leaves)


def _other_tree(rng: random.Random, given: Case) -> Case:
    """Another tree, most often with its own score."""
    n = given.parse.heads.shape[1] - 1
    heads = rng.choice(trees(n, given.trees["single_root"], given.trees["projective"]))
    tables = {name: x[0].double().tolist() for name, x in given.tensors.items()}
    score = torch.tensor([total(parts_of(heads, tables))], dtype=torch.float64)
    parse = replace(given.parse, heads=torch.tensor([heads]))
    if parse.labels is not None:
        best = [max(range(len(row)), key=row.__getitem__) for row in (tables["labels"][h][m] for m, h in _arcs(heads))]
        parse = replace(parse, labels=torch.tensor([[-1, *best]]))
    if rng.random() < 0.8:
        parse = replace(parse, score=score)
    if rng.random() < 0.8:
        parse = replace(parse, bound=score)
    return replace(given, parse=parse)


def _arcs(heads: tuple[int, ...]) -> list[tuple[int, int]]:
    return list(enumerate(heads))[1:]


def _other_score(rng: random.Random, given: Case) -> Case:
    """A score of a part, by so much that another tree may be best; the answer's own score follows, mostly."""
    name = rng.choice(sorted(given.tensors))
    x = given.tensors[name].clone()
    index = (0, *(rng.randrange(k) for k in x.shape[1:]))
    size = max((abs(v) for v in given.tensors["arcs"].flatten().tolist() if 0 < abs(v) < 1e200), default=1.0)
    x[index] = x[index] + rng.choice((1.0, 1e-3, 1e-9, 10.0, -1.0, -math.inf)) * size
    tensors = {**given.tensors, name: x}
    if bool(x.isnan().any() | (x == math.inf).any()):
        return given
    scores = gp.Scores(**tensors)  # type: ignore[arg-type]
    parse = given.parse
    if rng.random() < 0.8:
        score = scores.total(parse.heads, parse.labels)
        parse = replace(parse, score=score, bound=score)
    return replace(given, scores=scores, tensors=tensors, parse=parse)


def _other_bound(rng: random.Random, given: Case) -> Case:
    """A bound, with or without a certificate."""
    bound = given.parse.bound - rng.choice((*ODD, *(float(x) * given.parse.bound.abs() for x in (1e-6, 0.1, 2.0))))
    return replace(given, parse=replace(given.parse, bound=bound, certified=torch.tensor([rng.random() < 0.5])))


def _without_leaf(rng: random.Random, given: Case) -> Case:
    leaves = _leaves(given)
    if 0 not in leaves or rng.random() < 0.1:
        return replace(given, parse=replace(given.parse, proof=Proof({})))
    dropped = rng.randrange(max(1, len(leaves[0])))
    return _with_leaves(given, tuple(leaf for k, leaf in enumerate(leaves[0]) if k != dropped))


def _with_leaves(given: Case, leaves: tuple[ProofLeaf, ...]) -> Case:
    return replace(given, parse=replace(given.parse, proof=Proof({0: leaves})))


def _other_leaf(rng: random.Random, given: Case) -> Case:
    """An array of a leaf: some values, its length, its kind, or that of another leaf."""
    leaves = _leaves(given).get(0, ())
    if not leaves:
        return given
    k, name = rng.randrange(len(leaves)), rng.choice(NAMES)
    x = getattr(leaves[k], name)
    if not isinstance(x, np.ndarray):
        return given
    return _with_leaves(given, (*leaves[:k], replace(leaves[k], **{name: _changed(rng, x)}), *leaves[k + 1 :]))


def _changed(rng: random.Random, x: Any) -> Any:
    x = x.copy()
    way = rng.random()
    if way < 0.6 and x.size:
        for _ in range(rng.choice((1, 1, 2, x.size))):
            at = tuple(rng.randrange(k) for k in x.shape)
            odd = x.dtype.kind in "fc"
            x[at] = rng.choice(ODD) if odd else (not x[at]) if x.dtype == bool else rng.randrange(-2, 7)
        return x
    if way < 0.7:
        with np.errstate(all="ignore"):
            return np.real(x).astype(rng.choice((np.int64, np.float64, np.bool_, np.complex128)))
    if way < 0.8:
        return x[..., :-1] if x.ndim else x[None]
    return np.concatenate([x, x[:1]]) if x.ndim else x


def _another_set(rng: random.Random, given: Case) -> Case:
    """A leaf with one more set of words, at some price."""
    leaves = _leaves(given).get(0, ())
    if not leaves:
        return given
    k = rng.randrange(len(leaves))
    nodes = given.parse.heads.shape[1] - rng.choice((0, 0, 1))
    row = np.array([[rng.random() < 0.4 for _ in range(nodes)]], dtype=bool)
    sets, prices = row, np.array([rng.choice(ODD)])
    old = leaves[k].sets
    if isinstance(old, np.ndarray) and old.ndim == 2 and old.shape[1:] == row.shape[1:]:
        sets, prices = np.concatenate([old, row]), np.append(leaves[k].set_prices, prices)
    return _with_leaves(given, (*leaves[:k], replace(leaves[k], sets=sets, set_prices=prices), *leaves[k + 1 :]))


KINDS: tuple[Callable[[random.Random, Case], Case], ...] = (
    *(_other_tree, _other_tree, _other_score, _other_score, _other_bound, _without_leaf),
    *(_other_leaf, _other_leaf, _another_set),
)
