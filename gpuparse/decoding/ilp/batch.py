"""Trees of a batch under constraints: which sentences need a program, and what came of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpuparse.decoding.exact import first_order
from gpuparse.decoding.ilp.check import as_constraints, violates
from gpuparse.decoding.ilp.constrained import Constrained
from gpuparse.decoding.ilp.constraints.base import Constraint, Words
from gpuparse.decoding.ilp.constraints.crossing import Projective
from gpuparse.decoding.ilp.search import best_constrained
from gpuparse.decoding.ilp.second_order import Doubles, Ints, PairScores, ScoreTriples, upper_bound
from gpuparse.decoding.parse import Parse
from gpuparse.decoding.parts import Parts, TakenParts
from gpuparse.decoding.proofs import ProofLeaf
from gpuparse.decoding.scores import Scores
from gpuparse.system.quote import quoted
from gpuparse.system.transfer import to_device, to_host

COUNTS = ("solved", "infeasible", "variables", "rows", "branched")


def under_constraints(
    scores: Scores,
    *,
    projective: bool,
    single_root: bool,
    proof: bool = False,
    constraints: Iterable[Constraint] = (),
    words: Sequence[Words] | None = None,
    heads: int = 5,
    labels: int = 3,
    grow: bool = True,
    time_limit: float = math.inf,
    start: Parse | None = None,
) -> Parse:
    """The best labelled tree that satisfies constraints; waits for the device, and solves on the CPU.

    Sentences whose best tree without them satisfies them are done with that. Where none does (``stats["infeasible"]``),
    or none was found in time, the answer is the best tree without them and is not certified. ``score`` is less what
    soft constraints cost, ``stats["penalty"]``.

    With ``start``, the answer of any method without constraints, no best trees are looked for but its own are taken.
    """
    asked = as_constraints(constraints)
    if words is not None and not isinstance(words, Sequence):
        raise ValueError(f"words must be a list, what constraints see of each sentence, got {quoted(words)}")
    if words is None or not all(isinstance(w, Words) and w.labels for w in words):
        _check_names(asked, scores)
    if words is None:
        words = no_words(scores)
    _check_words(words, scores)
    if start is None:
        first = easy_trees(scores, projective=projective, single_root=single_root)
    else:
        first = _as_start(start, scores)
    return solve_batch(
        scores,
        first,
        words,
        asked,
        projective=projective,
        time_limit=time_limit,
        final=start is not None,
        **{"single_root": single_root, "heads": heads, "labels": labels, "grow": grow, "proof": proof},
    )


def no_words(scores: Scores) -> list[Words]:
    """Words of which nothing is known."""
    return [Words(("",) * (n + 1), ("",) * (n + 1)) for n in scores.lengths.tolist()]


def easy_trees(scores: Scores, *, projective: bool, single_root: bool) -> Parse:
    """The best trees of ``upper_bound_scores``, whose scores bound those of all trees."""
    easy = upper_bound_scores(scores)
    return first_order(easy, projective=projective, single_root=single_root, with_parts=scores.second_order)


def upper_bound_scores(scores: Scores) -> Scores:
    """First-order scores under which no tree scores less than under all parts."""
    arcs = scores.arcs
    for parts in (scores.grandparents, scores.siblings):
        arcs = arcs if parts is None else arcs.detach().double() + upper_bound(parts)
    return Scores(arcs, scores.lengths, labels=scores.labels, validate_args=scores.validate_args)


def solve_batch(
    scores: Scores,
    first: Parse,
    words: Sequence[Words],
    constraints: Sequence[Constraint],
    *,
    projective: bool = False,
    time_limit: float = math.inf,
    final: bool = False,
    **how: Any,
) -> Parse:
    """The best trees under constraints; ``first`` are the certified ones of ``easy_trees``, without any. ``how``: as
    for ``best_constrained``.

    ``final``: they are those of the scores themselves, proven best or not, and stay where they satisfy the constraints.
    Where nothing satisfies the constraints, or nothing was found in time, the best tree without them stays, without a
    certificate; where there is no tree at all, heads and labels of -1. Waits for the device, and solves on the CPU.
    """
    always: list[Constraint] = [Projective()] if projective else []
    families = [parts for parts in (scores.grandparents, scores.siblings) if parts is not None]
    broken = violates([*constraints, *always], words, first.heads, first.labels)
    todo = (first.heads[:, 1] >= 0) & broken if final else first.certified & (broken | bool(families))
    best = _Best(first, todo)
    asked = _Asked(scores, families, best.todo)
    for b in best.todo:
        nodes = slice(len(words[b].forms))
        table, sizes, second = asked.sentence(b, nodes)
        named = np.zeros_like(best.heads) if best.labels is None else best.labels
        solve = partial(
            best_constrained,
            table,
            words[b],
            seconds=time_limit,
            start=(best.heads[b, nodes].tolist(), named[b, nodes].tolist()),
            sizes=sizes,
            **how,
        )
        answer = tree = solve(constraints=[*constraints, *always], parts=second)
        if answer.heads is None and second and not final:  # then the best tree without constraints
            tree = solve(constraints=always, parts=second) if constraints else answer
            if tree.heads is None and tree.certified:
                best.without_tree(b, answer)
                if scores.validates:
                    parts = " and ".join(scores.second_order)
                    raise ValueError(f"{parts} of sentence {b}: every tree has a forbidden part; allow more of them")
                continue
        best.enter(b, nodes, answer, tree)
    return best.parse(scores, first)


class _Asked:
    """The scores of the sentences that need a program, on the host: from another device they come at once, all pairs
    scored."""

    def __init__(self, scores: Scores, families: Sequence[Parts], todo: Sequence[int]) -> None:
        self._families, self._place = families, {b: place for place, b in enumerate(todo)}
        self._far = scores.arcs.device.type != "cpu"
        if not todo:
            return
        (rows,) = to_device([np.array(todo, dtype=np.int64)], scores.arcs.device)
        most = [upper_bound(parts)[rows] for parts in families]
        labels = [] if scores.labels is None else [scores.labels[rows]]
        with torch.no_grad():
            dense = [TakenParts(parts, rows).dense() for parts in families] if self._far else []
        found = to_host(upper_bound_scores(scores).arcs[rows], scores.arcs[rows], *labels, *most, *dense)
        self._easy, self._arcs, *rest = found
        self._labels = rest.pop(0) if labels else None
        self._most, self._dense = rest[: len(most)], rest[len(most) :]

    @np.errstate(over="ignore", invalid="ignore")  # sizes that are not finite prove nothing
    def sentence(self, b: int, nodes: slice) -> tuple[Doubles, Doubles, list[PairScores]]:
        """Scores of its labelled arcs as if pairs were the best that they can be, how large the numbers are of which
        they are sums, both [N, N, L], and its pairs."""
        k = self._place[b]
        own = k, nodes, nodes
        table = self._easy[own].astype(np.float64)[..., None]
        sizes = np.abs(self._arcs[own].astype(np.float64))[..., None]
        for m in self._most:
            sizes = sizes + np.abs(m[own])[..., None]
        if self._labels is not None:
            table, sizes = table + self._labels[own], sizes + np.abs(self._labels[own].astype(np.float64))
        pairs = enumerate(zip(self._families, self._most, strict=True))
        return table, sizes, [PairScores(parts.kind, self._score(i, b), m[own]) for i, (parts, m) in pairs]

    def _score(self, family: int, b: int) -> ScoreTriples:
        if self._far:
            dense = self._dense[family][self._place[b]]
            return lambda i, j, k: dense[i, j, k].astype(np.float64)
        parts = self._families[family]

        def score(i: Ints, j: Ints, k: Ints) -> Doubles:
            found = parts.score(*map(torch.from_numpy, (np.full_like(i, b), i, j, k)))
            return found.detach().double().numpy()

        return score


class _Best:
    """What is known of the sentences of a batch, on the host: of those that are solved what came of it, of the others
    the first."""

    def __init__(self, first: Parse, todo: Tensor) -> None:
        labels = [] if first.labels is None else [first.labels]
        given = todo, first.heads, first.bound, first.iterations, first.certified, *labels
        solve, *known = (x.copy() for x in to_host(*given))
        self.heads, self.bound, self.iterations, self.certified, *named = known
        self.labels = named[0] if named else None
        self.todo: list[int] = np.nonzero(solve)[0].tolist()
        self.certified &= ~solve
        self.counts = {name: np.zeros(len(solve), dtype=np.int64) for name in COUNTS}
        self.penalty = np.zeros_like(self.bound)
        self.remarks = {b: text for b, text in first.remarks.items() if not solve[b]}
        leaves = {} if first.proof is None else first.proof.leaves
        self.leaves: dict[int, tuple[ProofLeaf, ...]] = {b: own for b, own in leaves.items() if not solve[b]}

    def enter(self, b: int, nodes: slice, answer: Constrained, tree: Constrained) -> None:
        """What was found for a sentence: its answer under constraints, and the tree that it gets."""
        self.iterations[b], self.certified[b] = answer.iterations, answer.certified and answer.heads is not None
        impossible = answer.certified and answer.heads is None
        self.bound[b] = math.inf if impossible else min(float(self.bound[b]), answer.bound)
        counts = (1, int(impossible), answer.variables, answer.rows, answer.branched)
        for name, count in zip(COUNTS, counts, strict=True):
            self.counts[name][b] = count
        self.penalty[b] = answer.penalty
        if (remark := answer.remark) is not None:
            self.remarks[b] = remark
        if answer.leaves:
            self.leaves[b] = answer.leaves
        if tree.heads is not None and tree.labels is not None:
            self.heads[b, nodes] = tree.heads
            if self.labels is not None:
                self.labels[b, nodes] = tree.labels

    def without_tree(self, b: int, answer: Constrained) -> None:
        """A sentence for which there is no tree, under constraints or not."""
        self.heads[b], self.bound[b], self.iterations[b] = -1, math.inf, answer.iterations
        if self.labels is not None:
            self.labels[b] = -1

    def parse(self, scores: Scores, first: Parse) -> Parse:
        """All of it."""
        labels = [] if self.labels is None else [self.labels]
        given = [self.heads, self.bound, self.iterations, self.certified, self.penalty, *self.counts.values(), *labels]
        heads, bound, iterations, certified, penalty, *rest = to_device(given, scores.arcs.device)
        return Parse.of(
            scores,
            heads,
            rest[len(COUNTS)] if labels else None,
            bound=bound,
            certified=certified,
            iterations=iterations,
            penalty=penalty,
            stats=first.stats | dict(zip(COUNTS, rest, strict=False)) | {"penalty": penalty},
            remarks=self.remarks,
            leaves=self.leaves,
        )


def _check_names(constraints: Sequence[Constraint], scores: Scores) -> None:
    """Constraints on labels need words that say what labels there are."""
    for place, constraint in enumerate(constraints):
        while hasattr(constraint, "constraint"):
            constraint = constraint.constraint
        if any(getattr(constraint, name, None) for name in ("labels", "label")):
            if scores.labels is None:
                raise ValueError(f"constraints[{place}] names labels, but scores have none; pass labels=... to Scores")
            raise ValueError(
                f"constraints[{place}] names labels, but words do not say what labels there are; "
                "pass words=[lp.Words.of(forms, tags, names of labels), ...]"
            )


def _check_words(words: Sequence[Words], scores: Scores) -> None:
    for b, given in enumerate(words):
        if not isinstance(given, Words):
            raise ValueError(f"words of sentence {b} must be lp.Words, got {type(given).__name__}; use lp.Words.of")
    if scores.labels is None and any(w.labels for w in words):
        raise ValueError("words have names of labels, but scores have no labels; pass labels=... to Scores")
    if len(words) != scores.arcs.shape[0]:
        raise ValueError(f"words: {len(words)} for {scores.arcs.shape[0]} sentences")
    for b, (given, n) in enumerate(zip(words, scores.lengths.tolist(), strict=True)):
        if len(given.forms) != n + 1 or len(given.tags) != n + 1:
            raise ValueError(f"words of sentence {b}: {len(given.forms) - 1}, and its length is {n}")
        L = 0 if scores.labels is None else scores.labels.shape[-1]
        if any(not 0 <= number < L for number in given.labels.values()):
            raise ValueError(f"words of sentence {b}: a label's number is not in 0..{L - 1}")


def _as_start(start: Parse, scores: Scores) -> Parse:
    """``start`` if it fits the scores, with labels if they have any."""
    if start.heads.shape != scores.arcs.shape[:2]:
        want, got = list(scores.arcs.shape[:2]), list(start.heads.shape)
        raise ValueError(f"start must have heads of shape {want}, got {got}; give a parse of the same scores")
    if scores.labels is None or start.labels is not None:
        return start
    return replace(start, labels=scores.best_labels(start.heads))
