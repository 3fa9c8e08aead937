"""Arguments of every distribution: none too many, none too few, of any number type, and nonsense."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import kl_divergence

from gpuparse import (
    ConstituencyTrees,
    Grammar,
    LexicalizedTrees,
    NonProjectiveTrees,
    ProjectiveTrees,
    Scores,
    SecondOrderTrees,
    TagChains,
    Transitions,
    TrigramChains,
    bp,
    decode,
    mst,
    viterbi,
)
from gpuparse.parts import DenseParts


def grammar(dtype: torch.dtype = torch.float32) -> Grammar:
    rules = [torch.tensor(x) for x in ([1, 1], [0, 1], [0, 0], [0, 1])]
    return Grammar(("N", "S"), 1, rules[0], rules[1], rules[2], rules[3], torch.zeros(2, dtype=dtype), roots(dtype))


def roots(dtype: torch.dtype) -> Tensor:
    return torch.tensor([0.5, 0.25], dtype=dtype)


def some(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype).requires_grad_()


Make = Callable[[int, int, torch.dtype], tuple[Any, list[Tensor]]]


def _with(family: Any, *given: Tensor, **named: Tensor) -> tuple[Any, list[Tensor]]:
    return family(*given, **named), [x for x in (*given, *named.values()) if isinstance(x, Tensor)]


EVERY: dict[str, Make] = {
    "NonProjectiveTrees": lambda B, n, d: _with(NonProjectiveTrees, some(B, n + 1, n + 1, dtype=d)),
    "ProjectiveTrees": lambda B, n, d: _with(ProjectiveTrees, some(B, n + 1, n + 1, dtype=d)),
    "SecondOrderTrees": lambda B, n, d: _with(
        SecondOrderTrees,
        some(B, n + 1, n + 1, dtype=d),
        siblings=some(B, n + 1, n + 1, n + 1, dtype=d),
        grandparents=some(B, n + 1, n + 1, n + 1, dtype=d),
    ),
    "TagChains": lambda B, n, d: _with(TagChains, some(B, n, 2, dtype=d), some(2, 2, dtype=d)),
    "TagChains, one tag": lambda B, n, d: _with(TagChains, some(B, n, 1, dtype=d), some(B, n - 1, 1, 1, dtype=d)),
    "TrigramChains": lambda B, n, d: _with(TrigramChains, some(B, n, 2, dtype=d), some(2, 2, 2, dtype=d)),
    "TrigramChains, one tag": lambda B, n, d: _with(TrigramChains, some(B, n, 1, dtype=d), some(1, 1, 1, dtype=d)),
    "ConstituencyTrees": lambda B, n, d: _with(
        ConstituencyTrees, grammar(d), some(B, n, 1, dtype=d), rules=some(2, dtype=d), spans=some(B, n, n, 2, dtype=d)
    ),
    "LexicalizedTrees": lambda B, n, d: _with(
        LexicalizedTrees, grammar(d), some(B, n, 1, dtype=d), some(B, n + 1, n + 1, dtype=d)
    ),
}
PROPERTIES = (
    "log_partition",
    "marginals",
    "sibling_marginals",
    "grandparent_marginals",
    "transition_marginals",
    "trigram_marginals",
    "tag_marginals",
    "rule_marginals",
    "root_marginals",
    "span_marginals",
    "arc_marginals",
    "max",
)


@pytest.mark.parametrize("words", [1, 3])
@pytest.mark.parametrize("kind", EVERY)
def test_no_sentence(kind: str, words: int) -> None:
    """B = 0: everything is there, and has no sentences."""
    p, given = EVERY[kind](0, words, torch.float64)
    for name in PROPERTIES:
        if hasattr(type(p), name):
            assert getattr(p, name).shape[0] == 0, name
    assert p.argmax.shape[0] == p.mode.shape[0] == p.entropy().shape[0] == 0
    assert p.sample((2,)).shape[:2] == (2, 0) and p.sample().shape[0] == 0
    assert p.log_prob(p.argmax).shape == (0,) and p.log_prob(p.sample((2,))).shape == (2, 0)
    assert p.expand((0,)).batch_shape == (0,)
    if hasattr(p, "topk"):
        assert p.topk(3)[1].shape == (3, 0)
    if not kind.startswith("Lexicalized"):
        assert kl_divergence(p, EVERY[kind](0, words, torch.float64)[0]).shape == (0,)
    q, given = EVERY[kind](0, words, torch.float64)
    (q.log_partition.sum() + q.entropy().sum() + q.max.sum() + q.log_prob(q.argmax).sum()).backward()
    assert all(x.grad is None or not bool(x.grad.any()) for x in given)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", EVERY)
def test_half_precision(kind: str, dtype: torch.dtype) -> None:
    """Computed in float32, gradients in the dtype given."""
    p, given = EVERY[kind](2, 3, dtype)
    q, wide = EVERY[kind](2, 3, torch.float32)
    for x, y in zip(given, wide, strict=True):
        y.data.copy_(x.data)
    assert p.log_partition.dtype == p.entropy().dtype == p.max.dtype == torch.float32
    if not kind.startswith(("Const", "Lex")):
        assert p.marginals.dtype == torch.float32
        assert torch.allclose(p.log_partition, q.log_partition, rtol=1e-6)
    p.log_partition.sum().backward()
    for x in given:
        assert x.grad is None or (x.grad.dtype == dtype and bool(x.grad.isfinite().all()))
    assert any(x.grad is not None and bool((x.grad != 0).any()) for x in given)


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


NOT_SHAPES = [3, (-1,), "ab", (1.5,), (True,), [[1]], None, torch.tensor([2]), (2**64,)]


@pytest.mark.parametrize("kind", EVERY)
def test_shapes_of_samples(kind: str) -> None:
    p, _ = EVERY[kind](2, 3, torch.float64)
    for shape in NOT_SHAPES:
        with pytest.raises(ValueError, match=r"^sample_shape must be a tuple of whole numbers"):
            p.sample(shape)
        with pytest.raises(ValueError, match=r"^batch_shape must be"):
            p.expand(shape)
    with pytest.raises(ValueError, match=r"^sample_shape must be of 2147483647 draws at most"):
        p.sample((2**20, 2**20))
    assert p.sample((0,)).shape[:2] == (0, 2) and p.sample((0, 3)).shape[:3] == (0, 3, 2)
    assert p.sample(torch.Size([2])).shape[:2] == p.sample([2]).shape[:2] == (2, 2)


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


def one_line(call: Callable[[], Any]) -> str:
    with pytest.raises(ValueError) as caught:
        call()
    text = str(caught.value)
    assert len(text.splitlines()) == 1 and len(text) < 400
    return text


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", TAKERS)
def test_scores_and_lengths(name: str) -> None:
    for scores in NOT_SCORES:
        text = one_line(lambda scores=scores: TAKERS[name](scores))
        assert text.split()[0] in ("arcs", "unary", "siblings", "scores"), text
    size = {"TagChains": (2, 3, 4), "TrigramChains": (2, 3, 4), "viterbi": (2, 3, 4)}.get(name, (2, 4, 4))
    good = torch.zeros(2, 4, 4, 4) if name == "siblings" else torch.zeros(size)
    for lengths in NOT_LENGTHS:
        assert one_line(lambda lengths=lengths: TAKERS[name](good, lengths)).startswith("lengths")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_nested_scores() -> None:
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.zeros(3, 4), torch.zeros(2, 4)], layout=layout)
        assert one_line(lambda nested=nested: mst(nested)).startswith("arcs must be a dense tensor, got a nested one")


def test_methods_and_flags() -> None:
    scores = Scores(torch.zeros(2, 4, 4))
    for method in (["mst"], None, 3, {"mst"}):
        assert one_line(lambda method=method: decode(scores, method)).startswith("method must be the name of one")
    for flag in ("yes", None, 2, torch.ones(2), 0.5):
        assert one_line(lambda flag=flag: decode(scores, single_root=flag)).startswith("single_root must be")
        assert one_line(lambda flag=flag: decode(scores, projective=flag)).startswith("projective must be")
        assert one_line(lambda flag=flag: mst(scores.arcs, single_root=flag)).startswith("single_root must be")
        assert one_line(lambda flag=flag: ProjectiveTrees(scores.arcs, single_root=flag)).startswith("single_root")
    assert torch.equal(mst(scores.arcs, single_root=np.bool_(True)), mst(scores.arcs, single_root=1))  # type: ignore[arg-type]


def test_whole_numbers() -> None:
    p, _ = EVERY["ProjectiveTrees"](2, 3, torch.float64)
    chains, _ = EVERY["TagChains"](2, 3, torch.float64)
    phrases, _ = EVERY["ConstituencyTrees"](2, 3, torch.float64)
    for wrong in (p.argmax.to(torch.uint64), p.argmax.float(), p.argmax.tolist(), p.argmax.to_sparse(), None):
        assert one_line(lambda wrong=wrong: p.log_prob(wrong)).startswith("heads must be")
        assert one_line(lambda wrong=wrong: chains.log_prob(wrong)).startswith("tags must be")
        assert one_line(lambda wrong=wrong: phrases.log_prob(wrong)).startswith("trees must be")
    for k in (0, 65, 1.5, True, None, torch.ones(2), 2**70):
        assert one_line(lambda k=k: p.topk(k)).startswith("k must be a whole number from 1 to 64")


def test_grammars() -> None:
    good = grammar()
    values = {name: getattr(good, name) for name in good.__dataclass_fields__}
    for name in values:
        for wrong in (None, "N", [0, 1], torch.zeros(2, 2), torch.zeros(2, dtype=torch.uint64), 7.5):
            text = one_line(lambda name=name, wrong=wrong: Grammar(**{**values, name: wrong}))
            assert text.startswith((name, "parents", "roots")), text
    assert one_line(lambda: ConstituencyTrees(None, torch.zeros(1, 2, 1))).startswith("grammar must be")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["eisner", "bp"])
@pytest.mark.parametrize("kind", ["siblings", "grandparents"])
def test_every_tree_has_a_forbidden_pair(method: str, kind: str) -> None:
    arcs = torch.zeros(2, 3, 3)
    pairs = torch.zeros(2, 3, 3, 3)
    pairs[1] = -math.inf
    parts: dict[str, Any] = {kind: pairs}
    projective = method == "eisner"
    text = one_line(lambda: decode(Scores(arcs, **parts), method, projective=projective))
    assert "sentence 1" in text and kind in text
    assert one_line(lambda: SecondOrderTrees(arcs, **parts)).startswith(f"arcs with their best {kind} of sentence 1")
