"""Checks proofs: no solver, nothing of the methods that made them, and every number rounded to the safe side.

A leaf bounds the trees of a branch. For any penalties y(h, m), prices of rows, and prices of sets, no such tree scores
more than

    the best star v(p, g) of every node p below g: its children, each less y, with the pairs that they are in
  + the best head g of every word p: the arc with its label, plus y(g, p) and v(p, g), less what it pays for rows
  + what the rows have at their prices; every set of words is entered once at least, and the root left once.

Rows of pairs (``ppc/cuts.py`` says why trees keep to them) and of constraints are recognised by their form.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from gpuparse.decoding import certificates
from gpuparse.decoding.impossible import without_impossible
from gpuparse.decoding.proofs import TRIANGLE, Proof, ProofLeaf, check_cover
from gpuparse.decoding.rows_paid import asked_for, pay_rows, penalties, row_key
from gpuparse.decoding.scores import Scores
from gpuparse.decoding.single import MOST, Doubles, Single, best_projective, crosses, is_tree, plus, total, total_up, up
from gpuparse.structures.trees import as_flag
from gpuparse.system.quote import shown


def verify(
    scores: Scores,
    parse: Any,
    *,
    projective: bool = False,
    single_root: bool = True,
    constraints: Iterable[Any] = (),
    words: Sequence[Any] | None = None,
) -> Float64[Tensor, " B"]:
    """Check what a parse says of trees, scores, bounds and certificates, by its proof; waits for the device.

    ``parse`` is what ``decode(..., proof=True)`` returned, all else as it was given to ``decode``. Returns the bounds
    that were proven [B], +inf of sentences without a proof, none of which is certified. Raises a ``ValueError`` that
    says of which sentence what does not follow.

    >>> import torch, gpuparse as gp
    >>> scores = gp.Scores(torch.zeros(1, 3, 3), grandparents=torch.ones(1, 3, 3, 3))
    >>> gp.verify(scores, gp.decode(scores, "ppc", proof=True)).round(decimals=6)  # 1 -> 2 hangs from the root
    tensor([1.], dtype=torch.float64)
    """
    if not isinstance(scores, Scores) or not isinstance(getattr(parse, "proof", None), Proof):
        raise ValueError("wanted Scores and a parse with a proof; decode with proof=True")
    scores.check_pairs("verify")
    projective, single_root = as_flag(projective, "projective"), as_flag(single_root, "single_root")
    if parse.heads.shape != scores.arcs.shape[:2]:
        raise ValueError(f"parse has heads {list(parse.heads.shape)}, scores are of {list(scores.arcs.shape[:2])}")
    found, constraints, scores = [], asked_for(constraints, words, len(scores.arcs)), scores.dense()
    asked: dict[str, Any] = {"projective": projective, "single_root": single_root, "every_tree": not constraints}
    near = without_impossible(scores, **asked, known=parse.heads.long().clamp(-1, scores.arcs.shape[1] - 1))
    for b in range(len(scores.arcs)):
        try:
            sentence, possible = Single.of(scores, b, single_root), Single.of(near, b, single_root)
            with np.errstate(over="ignore", invalid="ignore"):  # what is not finite proves nothing
                found.append(_verify(sentence, possible, parse, b, projective, constraints, words and words[b]))
        except (ValueError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"proof of sentence {b}: {shown(str(error))}") from error
    return torch.tensor(found, dtype=torch.float64)


def _verify(sentence: Single, near: Single, parse: Any, b: int, projective: bool, asked: Any, words: Any) -> float:
    N, certified, heads = len(sentence.arcs), bool(parse.certified[b]), [int(x) for x in parse.heads[b].tolist()]
    score, bound = float(parse.score[b]), float(parse.bound[b])
    if certified or heads[1] >= 0:
        own = None if parse.labels is None else [int(x) for x in parse.labels[b].tolist()]
        if heads[0] != -1 or any(x != -1 for x in heads[N:]) or not is_tree(heads[:N], sentence.single_root):
            raise ValueError("its heads are not a tree")
        if projective and crosses(heads[:N]):
            raise ValueError("its arcs cross")
        parts = sentence.parts(heads[:N], own)
        broken = [row for c in asked for row in c.violated(words, heads[:N], own or [-1] * N)]
        if certified and any(row.is_hard for row in broken):
            raise ValueError(f"it violates a constraint: {next(row.why for row in broken if row.is_hard)}")
        costs = penalties(broken, heads[:N], own or [-1] * N)
        exact = total([*parts, *(-x for x in costs)])
        off = certificates.rounding(len(parts), sum(map(abs, parts)) + sum(costs))
        if not (score == exact or abs(score - exact) <= off < math.inf):
            raise ValueError(f"its tree scores {exact!r}, not {score!r}")
    leaves = parse.proof.leaves.get(b)
    if leaves is None and not certified:
        return math.inf
    if certified and bound != score:
        raise ValueError(f"it is certified, and its bound is {bound!r}, not its score {score!r}")
    allowed = near.rounding(bound)
    if leaves is None:
        proven = best_projective(sentence) if projective else math.inf
    else:
        check_cover([leaf.path.tolist() for leaf in leaves])
        known = {row_key(row, sentence.labels.shape): row for c in asked for row in c.all_rows(words)}
        bounds = [leaf_bound(sentence, leaf, known, projective) for leaf in leaves]
        proven = math.nan if any(map(math.isnan, bounds)) else max(bounds)
    if not proven <= (bound + allowed if math.isfinite(allowed) else bound):
        hint = "" if leaves or projective else " (of the best projective tree: say projective=True)"
        raise ValueError(f"what follows is that no tree scores more than {proven!r}, not {bound!r}{hint}")
    return proven


def leaf_bound(sentence: Single, leaf: ProofLeaf, known: Mapping[Any, Any], projective: bool) -> float:
    """What no tree of a leaf scores more than."""
    leaf.check(len(sentence.arcs), sentence.labels.shape[2])
    return tree_bound(*tree_part(sentence, leaf, known, projective), leaf)


def tree_bound(arcs: Doubles, terms: list[float], leaf: ProofLeaf) -> float:
    """The best head of every word, with what sets of words bring, and the rest."""
    for inside in leaf.sets[leaf.set_prices == math.inf]:
        if arcs[np.ix_(~inside, inside)].max(initial=-math.inf) > -math.inf:
            raise ValueError("a set of words has no such price")
        return -math.inf
    if not len(leaf.sets):
        return total_up([*terms, *arcs[:, 1:].max(0).tolist()])
    unit = 2.0**-64 if leaf.set_prices.sum() > 2.0**900 else 1.0  # in which no sum leaves the range of doubles
    entered = (~leaf.sets).T.astype(np.float64) @ (leaf.sets * (unit * leaf.set_prices[:, None]))
    arcs = up(unit * arcs + up(entered * (1.0 + (len(leaf.sets) + 1) * 2.0**-51))) / unit
    terms += (-leaf.set_prices).tolist()
    return total_up([*terms, *arcs[:, 1:].max(0).tolist()])


def tree_part(
    sentence: Single, leaf: ProofLeaf, known: Mapping[Any, Any], projective: bool
) -> tuple[Doubles, list[float]]:
    """The arcs of which every word has one, with all that they bring and pay [N, N], and what comes besides."""
    table = plus(sentence.arcs[:, :, None], sentence.labels)
    grandparents, terms, y = cast(Any, sentence.grandparents), [], leaf.penalties
    for h, m, label, has in leaf.path.tolist():
        own = table[h, m, :].copy() if label < 0 else table[h, m, label].copy()
        if has:
            table[:, m, :] = -np.inf
        table[h, m, slice(None) if label < 0 else label] = own if has else -np.inf
    if len(leaf.cuts):
        if grandparents is None:
            raise ValueError("a cut is of pairs that there are not")
        grandparents = grandparents.copy()
    for (kind, p, q, c), inside, price in zip(leaf.cuts.tolist(), leaf.cut_sets, leaf.cut_prices.tolist(), strict=True):
        if len({p, q, c}) < 3 or (kind == TRIANGLE and (p == 0 or inside[p])):
            raise ValueError("a cut is of no known kind")
        less, more = ([(p, q, c)], [(c, p, 1.0), (q, p, 1.0)])
        if kind == TRIANGLE:
            members = np.nonzero(inside)[0].tolist()
            less += [(g, p, x) for g in members for x in (c, q)]
            more = [(p, q, -1.0), *((g, p, -1.0) for g in members)]
        for triple in less:
            grandparents[triple] = plus(grandparents[triple], -price)
        for h, m, sign in more:
            table[h, m] = plus(table[h, m], -sign * price)
        terms.append(0.0 if kind == TRIANGLE else price)
    pay_rows(table, terms, leaf, known, projective)
    arcs = table.max(2)
    stars = _stars(sentence, arcs, grandparents, y)  # [p, g]
    arcs = plus(arcs, y, 0.0 if grandparents is None else stars.T)
    terms += [float(stars[0, 0])] if grandparents is not None else stars[:, 0].tolist()
    if sentence.single_root:
        arcs[0] = plus(arcs[0], -float(leaf.root))
        terms.append(float(leaf.root))
    arcs[:, 0], arcs[np.arange(len(y)), np.arange(len(y))] = -np.inf, -np.inf
    return arcs, terms


def _stars(sentence: Single, arcs: Doubles, grandparents: Doubles | None, y: Doubles) -> Doubles:
    """The best children of each node p, less their penalties, if it hangs from g [p, g]; or [p, 1]."""
    N, siblings = len(y), cast(Any, sentence.siblings)
    child = -y[None] if grandparents is None else grandparents - y  # [g, p, c]
    if grandparents is not None and y.max() > 2.0**960:  # less is lost in the largest of doubles
        child = np.where(grandparents == -np.inf, -np.inf, np.maximum(child, -MOST))
    child[:, 0] = -y[0]
    child[:, arcs == -np.inf] = -np.inf
    must = np.isfinite(arcs) & (np.isfinite(arcs).sum(0) == 1)  # the only head of a word has it as a child
    found = np.zeros((N, len(child)))
    if siblings is None:
        found = size = np.maximum(child, 0.0)[..., 1:].sum(2)
        if must.any():
            less = np.where(must, np.minimum(child, 0.0), 0.0)[..., 1:]
            lost = np.where((less == -np.inf).any(2), -np.inf, np.maximum(less.sum(2), -MOST))
            size = np.minimum(size - np.where(less == -np.inf, 0.0, less).sum(2), MOST)
            found = plus(found, lost)
        found = up(found + size * ((N + 1) * 2.0**-51)).T.copy()
    for p, side in itertools.product(range(0 if siblings is None else N), (1, -1)):
        best, top = np.full((len(child), N), -np.inf), np.zeros(len(child))
        best[:, p] = 0.0
        for m in range(p + 1, N) if side == 1 else range(p - 1, 0, -1):
            best[:, m] = plus(best, plus(siblings[p, :, m], up(child[:, p, m, None]))).max(1)
            top = best[:, m] if must[p, m] else np.maximum(top, best[:, m])
            best[:, np.arange(N) != m] = -np.inf if must[p, m] else best[:, np.arange(N) != m]
        found[p] = plus(found[p], top)
    if sentence.single_root:
        found[0] = plus(child[:, 0], 0.0 if siblings is None else siblings[0, 0]).max()
    return found
