"""Belief propagation for parsers: from scores to beliefs, trees and losses."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from gpuparse.decoding.bp.belief_propagation import BeliefPropagation, Beliefs, Variables
from gpuparse.decoding.bp.grand import Grand
from gpuparse.decoding.bp.graph import Factors
from gpuparse.decoding.bp.local import Link
from gpuparse.decoding.bp.siblings import ChildSequence
from gpuparse.decoding.bp.tree import ProjectiveTree, Tree
from gpuparse.decoding.scores import Scores
from gpuparse.distributions.common import expected
from gpuparse.ops import EISNER, MATRIX_TREE

COUNTED = 0.5
"""How much of GRAND's entropy counts beside TREE, where heads are variables: chosen by the search error of a parser of
Hungarian, projective trees. Scores of pairs that were learned have much in common; of random ones all should count."""


def factors_of(
    scores: Scores,
    *,
    projective: bool = False,
    single_root: bool = True,
    variables: Variables = "links",
    counted: float = COUNTED,
) -> list[Factors]:
    """TREE or PTREE, LINK, and for the parts that there are GRAND and CHILDSEQ. Labels are left out. Where heads are
    variables, the tree comes last: so that beliefs are those of trees, if one family sends after the other."""
    scores.check_pairs("belief propagation")
    tree = (ProjectiveTree if projective else Tree)(single_root=single_root)
    factors: list[Factors] = [Link(scores.arcs)]
    if scores.grandparents is not None:
        factors.append(Grand(scores.grandparents, counted=counted))
    if scores.siblings is not None:
        factors.append(ChildSequence(scores.siblings))
    return [*factors, tree] if variables == "heads" else [tree, *factors]


def _propagation(
    scores: Scores,
    *,
    projective: bool,
    single_root: bool,
    variables: Variables = "links",
    counted: float = COUNTED,
    **options: Any,
) -> BeliefPropagation:
    trees = {"projective": projective, "single_root": single_root}
    factors = factors_of(scores, **trees, variables=variables, counted=counted)
    return BeliefPropagation(factors, variables=variables, **options)


def beliefs_of(scores: Scores, *, projective: bool = False, single_root: bool = True, **options: Any) -> Beliefs:
    """Beliefs about the links of a batch; ``options`` are those of ``BeliefPropagation``, and ``counted`` of GRAND."""
    return _propagation(scores, projective=projective, single_root=single_root, **options).run(scores.lengths)


def best_trees(
    beliefs: Beliefs, scores: Scores, *, projective: bool = False, single_root: bool = True
) -> Int[Tensor, "B N"]:
    """Minimum Bayes risk (section 6): the trees with the most links that are believed in, none of them forbidden."""
    links = beliefs.links.detach().masked_fill(scores.arcs.detach() == -torch.inf, -torch.inf)
    return (EISNER if projective else MATRIX_TREE).argmax((links,), scores.lengths, single_root)


def expected_score(beliefs: Beliefs, scores: Scores) -> Float64[Tensor, " B"]:
    """The expected score of a tree, by what the factors of ``beliefs_of`` with heads as variables believe."""
    parts = [x for x in (scores.grandparents, scores.siblings) if x is not None]
    given = [scores.arcs, *(x.dense() for x in parts)]
    return torch.stack([expected(own, x) for own, x in zip(beliefs.factors, given, strict=False)]).sum(0)


def log_partition(
    scores: Scores, *, projective: bool = False, single_root: bool = True, **options: Any
) -> Float64[Tensor, " B"]:
    """The Bethe estimate of log Z; its gradient is what the factors believe of their parts."""
    propagation = _propagation(scores, projective=projective, single_root=single_root, **options)
    return propagation.log_partition(scores.lengths)


def squared_loss(
    scores: Scores, heads: Int[Tensor, "B N"], *, projective: bool = False, single_root: bool = True, **options: Any
) -> Float64[Tensor, " B"]:
    """Sum over the links of (belief - truth)², differentiable through the iterations that were made."""
    found = beliefs_of(scores, projective=projective, single_root=single_root, **options)
    right = torch.zeros_like(found.links)
    right.scatter_(1, heads.clamp(min=0)[:, None], 1.0)
    word = (heads >= 0)[:, None]
    return (torch.where(word, found.links - right, 0.0) ** 2).flatten(1).sum(1)
