"""Random messages; all families of factors at once, of random scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import gpuparse as gp
from gpuparse import bp
from gpuparse.decoding.bp.belief_propagation import Beliefs
from tests.oracle import NEG_INF

LENGTHS = torch.tensor([4, 2, 1, 3])


def random(g: torch.Generator, *shape: int, minus: float = 0.0, plus: float = 0.0, size: float = 2.0) -> Tensor:
    """Normal numbers with some infinities among them."""
    x = torch.randn(*shape, generator=g, dtype=torch.float64) * size
    kind = torch.rand(*shape, generator=g)
    return torch.where(kind < minus, NEG_INF, torch.where(kind > 1 - plus, torch.inf, x))


def shapes(B: int, N: int, T: int = 2) -> list[tuple[int, ...]]:
    """Of the scores of all families."""
    links = (B, N, N)
    return [links, *[(*links, N)] * 3, links, links, (B, N - 1, T), (*links, T, T), (T, T, T), (B, 1)]


def make(x: list[Tensor], tree: bp.Factors | None = None) -> list[bp.Factors]:
    """All families, of their scores."""
    pair = bp.Pair(torch.tensor([[[0, 1, 1, 2]]]).expand(len(x[9]), 1, 4), x[9])
    of_links = [bp.Link(x[0]), bp.Grand(x[1]), bp.Sib(x[2]), bp.ChildSequence(x[3], x[4]), bp.NoCross(x[5])]
    of_tags = [bp.Tag(x[6]), bp.TagLink(x[7]), bp.Trigram(x[8])]
    return [*of_links, *of_tags, pair, bp.NotTwo(), bp.NoTwoCycle(), bp.ExactlyOne(), bp.AtMostOne(), tree or bp.Tree()]


def run(scores: list[Tensor], lengths: Tensor = LENGTHS, tree: bp.Factors | None = None, **settings: Any) -> Any:
    """By all but the constraints that say over and over what TREE says, and keep beliefs from settling."""
    restless = bp.NoCross | bp.NotTwo | bp.ExactlyOne | bp.AtMostOne
    families = [family for family in make(scores, tree) if not isinstance(family, restless)]
    return gp.BeliefPropagation(families, **settings).run(lengths)


def assert_same(found: Beliefs, expected: Beliefs, log_z: float = 1e-9) -> None:
    """Beliefs of variables and of factors, and log Z."""
    torch.testing.assert_close(found.log_partition, expected.log_partition, atol=log_z, rtol=0)
    for one, other in zip((found.links, found.tags), (expected.links, expected.tags), strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)
    for one, other in zip(found.factors, expected.factors, strict=True):
        torch.testing.assert_close(one, other, atol=1e-9, rtol=0)
