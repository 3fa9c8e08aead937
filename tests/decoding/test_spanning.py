"""The best tree of each sentence against plain torch and another library; ``test_every_family`` has enumeration."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.ops import plain
from gpuparse.structures.masks import word_mask
from tests.oracle import is_tree, random_instance

NEG_INF = -math.inf
F64 = torch.float64
roots = pytest.mark.parametrize("single_root", [True, False], ids=["single", "multi"])


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def total(arcs: Tensor, heads: Tensor) -> Tensor:
    """Scores [B] of trees [B, N]: -1 is no arc."""
    picked = arcs.double().gather(1, heads.clamp(min=0)[:, None]).squeeze(1)
    return torch.where(heads >= 0, picked, 0.0).sum(1)


def check_trees(heads: Tensor, lengths: Tensor, single_root: bool) -> None:
    assert heads.dtype == torch.int64
    word = word_mask(lengths, heads.shape[1])
    assert torch.equal(heads >= 0, word)
    assert bool((heads <= lengths[:, None]).all())
    assert bool(is_tree(heads).all())
    if single_root:
        assert bool(((heads == 0).sum(1) == 1).all())


def check_plain(arcs: Tensor, lengths: Tensor, single_root: bool) -> None:
    """As good as plain torch's tree."""
    heads = gp.mst(arcs, lengths, single_root=single_root)
    check_trees(heads, lengths, single_root)
    want = total(arcs, plain.mst.mst(arcs, lengths, single_root))
    torch.testing.assert_close(total(arcs, heads), want, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------------------ larger ones


def chain_of_contractions(n: int) -> Tensor:
    """Each word prefers the one before; word 1 takes the last of what is contracted so far: n - 1 cycles."""
    arcs = torch.full((n + 1, n + 1), NEG_INF, dtype=F64)
    for m in range(2, n + 1):
        arcs[m - 1, m] = 100.0
        arcs[m, 1] = 50.0 - m
    arcs[0, n] = -5.0
    arcs[0, 1] = -1000.0
    return arcs


def nested_pairs(n: int, seed: int) -> Tensor:
    """Blocks of 2, 4, 8 ... words like each other the better the smaller they are: cycles within cycles."""
    g = generator(seed)
    arcs = torch.rand(n + 1, n + 1, generator=g, dtype=F64)
    word = torch.arange(n + 1)
    for level in range(1, n.bit_length() + 1):
        same = ((word - 1) >> level)[:, None] == ((word - 1) >> level)
        arcs = arcs + 10.0 * same
    arcs[0] = torch.rand(n + 1, generator=g, dtype=F64) - 100.0
    return arcs


def rings(n: int, seed: int) -> Tensor:
    """One great cycle, which only costly arcs enter, over rings of three."""
    arcs = torch.randn(n + 1, n + 1, generator=generator(seed), dtype=F64)
    for m in range(1, n + 1):
        arcs[m % n + 1, m] += 30.0
        arcs[(m - 1) // 3 * 3 + m % 3 + 1 if (m - 1) // 3 * 3 + m % 3 + 1 <= n else m, m] += 60.0
    arcs[0] -= 1000.0
    return arcs


@roots
@pytest.mark.parametrize("words", [10, 25, 60])
@pytest.mark.parametrize("scores", ["random", "masked", "peaked", "ties", "chain", "nested", "rings", "one way"])
def test_against_plain(scores: str, words: int, single_root: bool) -> None:
    g = generator(words)
    arcs = torch.randn(4, words + 1, words + 1, generator=g, dtype=F64)
    lengths = torch.tensor([words, words - 1, words // 2, words])
    if scores == "masked":
        arcs, lengths = random_instance(words, words=words, forbidden=0.85)
    elif scores == "peaked":
        arcs = arcs * 1e3
    elif scores == "ties":
        arcs = arcs.round()
    elif scores == "chain":
        arcs = chain_of_contractions(words)[None].repeat(4, 1, 1)
        lengths = torch.full((4,), words)
        for b, order in enumerate(torch.rand(3, words, generator=g).argsort(1) + 1, start=1):
            arcs[b, 1:] = arcs[b, order]  # the same by other names
            arcs[b, :, 1:] = arcs[b, :, order]
    elif scores == "nested":
        arcs = torch.stack([nested_pairs(words, seed) for seed in range(4)])
    elif scores == "rings":
        arcs = torch.stack([rings(words, seed) for seed in range(4)])
    elif scores == "one way":  # the only tree is the chain, against all preferences
        arcs = arcs.triu(1) + torch.full_like(arcs, NEG_INF).tril(0)
        arcs = arcs.masked_fill((torch.arange(words + 1)[:, None] < torch.arange(words + 1) - 1), NEG_INF)
    check_plain(arcs, lengths, single_root)


@roots
def test_chain_of_contractions(single_root: bool) -> None:
    """The root's arc to the last word is better, and leaves one way to word 1."""
    for n in (2, 3, 12, 33, 100):
        heads = gp.mst(chain_of_contractions(n)[None], single_root=single_root)
        assert heads[0].tolist() == [-1, n, *range(1, n - 1), 0]


@pytest.mark.slow
@roots
@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_words(seed: int, single_root: bool) -> None:
    """A tree, and with several words under the root as good as ufal.chu_liu_edmonds finds it."""
    arcs = torch.randn(1, 1001, 1001, generator=generator(seed), dtype=F64)
    if seed == 1:
        arcs = arcs.round()
    if seed == 2:
        arcs[0] = nested_pairs(1000, seed)
    heads = gp.mst(arcs, single_root=single_root)
    check_trees(heads, torch.tensor([1000]), single_root)
    best = float(total(arcs, gp.mst(arcs, single_root=False)))
    assert float(total(arcs, heads)) <= best + 1e-9
    ufal = pytest.importorskip("ufal.chu_liu_edmonds")
    _, theirs = ufal.chu_liu_edmonds(arcs[0].mT.contiguous().numpy())
    assert math.isclose(best, theirs, rel_tol=1e-12)


def test_single_root_costs_what_it_must() -> None:
    """Every word best under the root: one stays there, the others take their next best."""
    arcs = torch.zeros(1, 5, 5, dtype=F64)
    arcs[0, 0, 1:] = torch.tensor([10.0, 12.0, 11.0, 10.5])
    arcs[0, 2, 1] = 1.0
    assert gp.mst(arcs, single_root=False)[0].tolist() == [-1, 0, 0, 0, 0]
    heads = gp.mst(arcs)
    assert heads[0, 2] == 0
    assert float(total(arcs, heads)) == 13.0
    with pytest.raises(TypeError):
        gp.mst(arcs, None, False)  # type: ignore[misc]


# ---------------------------------------------------------------------------------- the same tree, every time


@roots
def test_ties_are_deterministic(single_root: bool) -> None:
    """Equal trees: the same one again, alone, in a batch, with padding, in float32 and with more threads."""
    arcs, lengths = random_instance(3, batch=12, words=14, forbidden=0.2)
    arcs = arcs.round()
    heads = gp.mst(arcs, lengths, single_root=single_root)
    assert torch.equal(gp.mst(arcs, lengths, single_root=single_root), heads)
    assert torch.equal(gp.mst(arcs.float(), lengths, single_root=single_root), heads)
    assert torch.equal(gp.NonProjectiveTrees(arcs, lengths, single_root=single_root).argmax, heads)
    threads = torch.get_num_threads()
    for number in (1, 2):
        torch.set_num_threads(number)
        assert torch.equal(gp.mst(arcs, lengths, single_root=single_root), heads)
    torch.set_num_threads(threads)
    for b, n in enumerate(lengths.tolist()):
        alone = gp.mst(arcs[b : b + 1, : n + 1, : n + 1], single_root=single_root)
        assert torch.equal(alone[0], heads[b, : n + 1])
        assert bool((heads[b, n + 1 :] == -1).all())


@roots
def test_any_strides_and_gradients(single_root: bool) -> None:
    """Views as good as copies; scores that require a gradient; nothing is written to."""
    arcs, lengths = random_instance(4, batch=5, words=9)
    before = arcs.clone()
    want = gp.mst(arcs, lengths, single_root=single_root)
    assert torch.equal(arcs.nan_to_num(7.0), before.nan_to_num(7.0))
    assert torch.equal(gp.mst(arcs.mT.contiguous().mT, lengths, single_root=single_root), want)
    heads = gp.mst(arcs.requires_grad_() * 1.0, lengths.tolist(), single_root=single_root)
    assert torch.equal(heads, want)
    assert not heads.requires_grad
    with torch.inference_mode():
        assert torch.equal(gp.mst(arcs.detach(), lengths, single_root=single_root), want)


@roots
def test_smallest(single_root: bool) -> None:
    assert gp.mst(torch.empty(0, 4, 4), single_root=single_root).shape == (0, 4)
    assert gp.mst(torch.empty(0, 4, 4), [], single_root=single_root).shape == (0, 4)
    one = gp.mst(torch.full((2, 2, 2), -3.0), single_root=single_root)
    assert one.tolist() == [[-1, 0], [-1, 0]]
    short = gp.mst(torch.full((2, 4, 4), 1.0), [1, 1], single_root=single_root)
    assert short.tolist() == [[-1, 0, -1, -1]] * 2
