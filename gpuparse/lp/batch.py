"""Trees of a batch under constraints: which sentences need a program, and what came of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from gpuparse.lp.check import violates
from gpuparse.lp.constrained import Constrained
from gpuparse.lp.constraints import Constraint, Projective, Words
from gpuparse.lp.ilp import best_constrained
from gpuparse.lp.second_order import SecondOrder, hopeful
from gpuparse.proofs import Leaf
from gpuparse.scores import Scores

COUNTS = ("solved", "infeasible", "variables", "rows", "branched")


@dataclass(frozen=True, eq=False)
class Solved:
    """Trees of a batch; ``stats`` by name, each [B], the counts of ``Constrained`` and ``penalty`` among them.

    ``remarks``: which constraints cannot hold together, by the sentence's index. ``leaves``: of proofs, likewise.
    """

    heads: Int[Tensor, "B N"]
    labels: Int[Tensor, "B N"] | None
    bound: Float64[Tensor, " B"]
    certified: Bool[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    stats: dict[str, Tensor]
    remarks: dict[int, str] = field(default_factory=dict)
    leaves: dict[int, tuple[Leaf, ...]] = field(default_factory=dict)


def hopeful_scores(scores: Scores) -> Scores:
    """First-order scores under which no tree scores less than under all parts."""
    arcs = scores.arcs
    for parts in (scores.grandparents, scores.siblings):
        arcs = arcs if parts is None else arcs.detach().double() + hopeful(parts)
    return Scores(arcs, scores.lengths, labels=scores.labels, validate_args=scores.validate_args)


def solve_batch(
    scores: Scores,
    first: Solved,
    words: Sequence[Words],
    constraints: Sequence[Constraint],
    *,
    projective: bool = False,
    single_root: bool = True,
    heads: int = 5,
    labels: int = 3,
    grow: bool = True,
    seconds: float = math.inf,
    proof: bool = False,
) -> Solved:
    """The best trees under constraints; ``first`` are the best ones of ``hopeful_scores`` without any.

    Where nothing satisfies the constraints, or nothing was found in time, the best tree without them stays, without a
    certificate; where there is no tree at all, heads and labels of -1. Waits for the device, and solves on the CPU.
    """
    always: list[Constraint] = [Projective()] if projective else []
    easy = hopeful_scores(scores)
    families = [parts for parts in (scores.grandparents, scores.siblings) if parts is not None]
    most = [hopeful(parts).cpu().numpy() for parts in families]
    todo = first.certified & (violates([*constraints, *always], words, first.heads, first.labels) | bool(families))
    best = Solved(
        first.heads.clone(),
        None if first.labels is None else first.labels.clone(),
        first.bound.clone(),
        first.certified & ~todo,
        first.iterations.clone(),
        {name: torch.zeros_like(scores.lengths) for name in COUNTS} | {"penalty": torch.zeros_like(first.bound)},
    )
    for b in todo.nonzero()[:, 0].tolist():
        nodes = slice(int(scores.lengths[b]) + 1)
        table = easy.arcs[b, nodes, nodes].detach().double().cpu()[..., None]
        sizes = scores.arcs[b, nodes, nodes].detach().double().cpu()[..., None].abs()
        for m in most:
            sizes = sizes + torch.from_numpy(m[b, nodes, nodes])[..., None].abs()
        if scores.labels is not None:
            table = table + scores.labels[b, nodes, nodes].detach().double().cpu()
            sizes = sizes + scores.labels[b, nodes, nodes].detach().double().cpu().abs()
        named = torch.zeros_like(first.heads) if first.labels is None else first.labels
        start = (first.heads[b, nodes].tolist(), named[b, nodes].tolist())
        second = [SecondOrder(parts, b, m[b, nodes, nodes]) for parts, m in zip(families, most, strict=True)]
        solve = partial(
            best_constrained,
            table.numpy(),
            words[b],
            single_root=single_root,
            heads=heads,
            labels=labels,
            grow=grow,
            seconds=seconds,
            start=start,
            sizes=sizes.numpy(),
            proof=proof,
        )
        answer = tree = solve(constraints=[*constraints, *always], parts=second)
        if answer.heads is None and second:  # then the best tree without constraints
            tree = solve(constraints=always, parts=second) if constraints else answer
            if tree.heads is None and tree.certified:
                best.heads[b], best.bound[b], best.iterations[b] = -1, math.inf, answer.iterations
                if best.labels is not None:
                    best.labels[b] = -1
                if scores.looks:
                    parts = " and ".join(scores.second_order)
                    raise ValueError(f"{parts} of sentence {b}: every tree has a forbidden part; allow more of them")
                continue
        _enter(best, b, nodes, answer, tree)
    return best


def _enter(best: Solved, b: int, nodes: slice, answer: Constrained, tree: Constrained) -> None:
    """What was found for a sentence: its answer under constraints, and the tree that it gets."""
    best.iterations[b], best.certified[b] = answer.iterations, answer.certified and answer.heads is not None
    impossible = answer.certified and answer.heads is None
    best.bound[b] = math.inf if impossible else min(float(best.bound[b]), answer.bound)
    counts = (1, int(impossible), answer.variables, answer.rows, answer.branched)
    for name, count in zip(COUNTS, counts, strict=True):
        best.stats[name][b] = count
    best.stats["penalty"][b] = answer.penalty
    if impossible:
        best.remarks[b] = f"infeasible: {'; '.join(answer.conflict)}"
    if answer.leaves:
        best.leaves[b] = answer.leaves
    if tree.heads is not None and tree.labels is not None:
        best.heads[b, nodes] = torch.tensor(tree.heads, device=best.heads.device)
        if best.labels is not None:
            best.labels[b, nodes] = torch.tensor(tree.labels, device=best.heads.device)
