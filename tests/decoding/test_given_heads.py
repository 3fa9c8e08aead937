"""Every decoder under heads that are given, against all trees that keep them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from tests.oracle import all_trees

FIRST = ("mst", "ilp", "auto")
PAIRS = ("dd", "ppc", "lp", "ilp", "auto")
EXACT = {"dd": {"exact": True}, "ppc": {"exact": True}, "auto": {"exact": True}}
WAYS = [
    *((method, False, ()) for method in FIRST),
    *((method, True, ()) for method in ("eisner", "ilp", "auto")),
    *((method, False, ("grandparents", "siblings")) for method in PAIRS),
    *((method, True, ("grandparents", "siblings")) for method in ("eisner", "ppc", "auto")),
]
SENTENCES = 8


def given(generator: torch.Generator, lengths: list[int], projective: bool) -> Tensor:
    """Arcs that may be [B, N, N]: of every sentence those of some tree, and of others about half the heads are given,
    or a few forbidden."""
    allowed = torch.ones(len(lengths), 6, 6, dtype=torch.bool)
    for own, n in zip(allowed, lengths, strict=True):
        trees = all_trees(n, single_root=True, projective=projective)
        tree = trees[int(torch.randint(len(trees), (), generator=generator))]
        for word in range(1, n + 1):
            chance = float(torch.rand((), generator=generator))
            if chance < 0.4:
                own[:, word] = False
            elif chance < 0.7:
                own[int(torch.randint(n + 1, (), generator=generator)), word] = False
            own[int(tree[word]), word] = True
    return allowed


def check(method: str, projective: bool, kinds: tuple[str, ...], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 6, (SENTENCES,), generator=generator).tolist()
    allowed = given(generator, lengths, projective)
    mask = -torch.inf if seed % 3 else -1e9
    arcs = torch.randn(SENTENCES, 6, 6, generator=generator, dtype=torch.float64).masked_fill(~allowed, mask)
    pairs = {kind: torch.randn(SENTENCES, 6, 6, 6, generator=generator, dtype=torch.float64) for kind in kinds}
    scores = gp.Scores(arcs, lengths, **pairs)
    parse = gp.decode(scores, method, projective=projective, **EXACT.get(method if kinds else "", {}))
    for b, n in enumerate(lengths):
        trees = all_trees(n, single_root=True, projective=projective)
        keeps = allowed[b, trees[:, 1:], torch.arange(1, n + 1)].all(1)
        padded = torch.nn.functional.pad(trees[keeps], (0, 5 - n), value=-1)
        best = scores.take(torch.tensor([b])).total(padded[:, None])[:, 0].max()
        own = parse.heads[b, 1 : n + 1]
        assert bool(allowed[b, own, torch.arange(1, n + 1)].all()), (method, seed, b)
        assert bool(parse.certified[b]) or method == "lp", (method, seed, b)
        if bool(parse.certified[b]):
            torch.testing.assert_close(parse.score[b], best, atol=1e-7, rtol=0)
        assert float(parse.bound[b]) >= float(best) - 1e-7


@pytest.mark.parametrize(("method", "projective", "kinds"), WAYS)
def test_the_best_tree_that_keeps_what_is_given(method: str, projective: bool, kinds: tuple[str, ...]) -> None:
    for seed in range(3):
        check(method, projective, kinds, seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("method", "projective", "kinds"), WAYS)
def test_ten_thousand(method: str, projective: bool, kinds: tuple[str, ...]) -> None:
    """With those of all ways more than ten thousand sentences."""
    for seed in range(10_000 // (SENTENCES * len(WAYS)) + 1):
        check(method, projective, kinds, 1000 + seed)
