"""Arguments of every distribution: none too many, none too few, of any number type, and nonsense."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gpuparse import (
    ConstituencyTrees,
    Grammar,
    NonProjectiveTrees,
    ProjectiveTrees,
    Scores,
    SecondOrderTrees,
    TagChains,
    TrigramChains,
    bp,
    decode,
    mst,
    viterbi,
)
from gpuparse.decoding.parts import DenseParts
from gpuparse.decoding.viterbi import Transitions
from tests.refusals import refusal


def grammar(dtype: torch.dtype = torch.float32) -> Grammar:
    rules = [torch.tensor(x) for x in ([1, 1], [0, 1], [0, 0], [0, 1])]
    return Grammar(("N", "S"), 1, rules[0], rules[1], rules[2], rules[3], torch.zeros(2, dtype=dtype), roots(dtype))


def roots(dtype: torch.dtype) -> Tensor:
    return torch.tensor([0.5, 0.25], dtype=dtype)


def some(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


def test_half_precision_elsewhere() -> None:
    arcs, labels, pairs = some(2, 4, 4), some(2, 4, 4, 3), some(2, 4, 4, 4)
    for dtype in (torch.float16, torch.bfloat16):
        a, x, g = (y.detach().to(dtype).requires_grad_() for y in (arcs, labels, pairs))
        assert torch.equal(mst(a), mst(a.float()))
        found = decode(Scores(a, labels=x, grandparents=g), "eisner", projective=True)
        want = decode(Scores(a.float(), labels=x.float(), grandparents=g.float()), "eisner", projective=True)
        assert torch.equal(found.heads, want.heads) and torch.equal(found.score, want.score)
        found.score.sum().backward()
        assert a.grad is not None and x.grad is not None and a.grad.dtype == x.grad.dtype == dtype
        unary, rows = some(2, 3, 4).detach().to(dtype), some(4, 4).detach().to(dtype)
        assert torch.equal(viterbi(unary, rows).tags, viterbi(unary.float(), Transitions(rows)).tags)
        assert grammar(dtype).scores.dtype == torch.float32
        bp.BeliefPropagation([bp.Tree(), bp.Link(a), bp.Grand(g)]).run()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made = torch.nn.functional.linear(arcs, arcs[0])  # as a scorer makes them
        assert ProjectiveTrees(made).log_partition.dtype == torch.float32


NOT_LENGTHS: list[Any] = [
    torch.tensor([3, 3], dtype=torch.uint64),
    torch.tensor([3, 3], dtype=torch.uint16),
    torch.tensor([True, True]),
    torch.tensor([3.0, 3.0]),
    torch.tensor([3, 3]).to_sparse(),
    torch.zeros(2, dtype=torch.int64, device="meta"),
    np.array([3, 3], dtype=np.uint64),
    [3.0, 3.0],
    ["a", "b"],
    [2**70, 1],
    {"a": 1},
    3,
    [3],
    [3, 4],
    [0, 3],
]
NOT_SCORES: list[Any] = [
    torch.zeros(2, 4, 4).to_sparse(),
    torch.zeros(2, 4, 4).to_sparse_csr(),
    torch.zeros(2, 4, 4, device="meta"),
    torch.zeros(2, 4, 4, dtype=torch.complex64),
    torch.zeros(2, 4, 4, dtype=torch.int64),
    np.zeros((2, 4, 4)),
    [[[0.0, 0.0], [0.0, 0.0]]],
    None,
]
TAKERS: dict[str, Callable[..., Any]] = {
    "NonProjectiveTrees": NonProjectiveTrees,
    "ProjectiveTrees": ProjectiveTrees,
    "SecondOrderTrees": SecondOrderTrees,
    "mst": mst,
    "Scores": Scores,
    "TagChains": lambda x, n=None: TagChains(x, torch.zeros(4, 4), n),
    "TrigramChains": lambda x, n=None: TrigramChains(x, torch.zeros(4, 4, 4), n),
    "viterbi": lambda x, n=None: viterbi(x, torch.zeros(4, 4), n),
    "siblings": lambda x, n=None: DenseParts(x, n, kind="siblings"),
    "Link": lambda x, n=None: bp.BeliefPropagation([bp.Tree(), bp.Link(x)]).run(n),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", TAKERS)
def test_scores_and_lengths(name: str) -> None:
    for scores in NOT_SCORES:
        text = refusal(TAKERS[name], scores)
        assert text.split()[0] in ("arcs", "unary", "siblings", "scores"), text
    size = {"TagChains": (2, 3, 4), "TrigramChains": (2, 3, 4), "viterbi": (2, 3, 4)}.get(name, (2, 4, 4))
    good = torch.zeros(2, 4, 4, 4) if name == "siblings" else torch.zeros(size)
    for lengths in NOT_LENGTHS:
        assert refusal(TAKERS[name], good, lengths).startswith("lengths")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nested_scores() -> None:
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.zeros(3, 4), torch.zeros(2, 4)], layout=layout)
        assert refusal(mst, nested).startswith("arcs must be a dense tensor, got a nested one")


def test_methods_and_flags() -> None:
    scores = Scores(torch.zeros(2, 4, 4))
    for method in (["mst"], None, 3, {"mst"}):
        assert refusal(decode, scores, method).startswith("method must be the name of one")
    for flag in ("yes", None, 2, torch.ones(2), 0.5):
        assert refusal(decode, scores, single_root=flag).startswith("single_root must be")
        assert refusal(decode, scores, projective=flag).startswith("projective must be")
        assert refusal(mst, scores.arcs, single_root=flag).startswith("single_root must be")
        assert refusal(ProjectiveTrees, scores.arcs, single_root=flag).startswith("single_root")
    assert torch.equal(mst(scores.arcs, single_root=np.bool_(True)), mst(scores.arcs, single_root=1))  # type: ignore[arg-type]


def test_grammars() -> None:
    good = grammar()
    values = {name: getattr(good, name) for name in good.__dataclass_fields__}
    for name in values:
        for wrong in (None, "N", [0, 1], torch.zeros(2, 2), torch.zeros(2, dtype=torch.uint64), 7.5):
            text = refusal(Grammar, **{**values, name: wrong})
            assert text.startswith((name, "parents", "roots")), text
    assert refusal(ConstituencyTrees, None, torch.zeros(1, 2, 1)).startswith("grammar must be")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["eisner", "bp"])
@pytest.mark.parametrize("kind", ["siblings", "grandparents"])
def test_every_tree_has_a_forbidden_pair(method: str, kind: str) -> None:
    arcs = torch.zeros(2, 3, 3)
    pairs = torch.zeros(2, 3, 3, 3)
    pairs[1] = -math.inf
    parts: dict[str, Any] = {kind: pairs}
    projective = method == "eisner"
    text = refusal(decode, Scores(arcs, **parts), method, projective=projective)
    assert "sentence 1" in text and kind in text
    assert refusal(SecondOrderTrees, arcs, **parts).startswith(f"arcs with their best {kind} of sentence 1")
