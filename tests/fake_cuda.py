"""All torch code on fake `cuda` tensors: no device mix and no hidden wait, forward and backward. Run by test_fake_cuda.

In a process that the fixture ``simulate`` starts: a CPU-only torch has fake cuda tensors but no device guard for them,
which indexing asks for. The nodes of autograd's graph are called one by one, so that a wait is seen where it happens.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.distributions import kl_divergence

import gpuparse as gp
import gpuparse.dual
from gpuparse.distributions import TagChains, TrigramChains
from gpuparse.lp import violates
from gpuparse.ops import plain
from gpuparse.ops.automata import automata
from tests.decoding.lp.some import constraints, sentence

FORMS = ((torch.float32, True), (torch.float64, False))  # of what is given, and whether sentences have lengths


def call(node: Any, grads: dict[int, Tensor]) -> tuple[tuple[Tensor | None, ...], list[Any]]:
    """A node's gradients and the nodes that they go to."""
    given = [grads.get(i) for i in range(max(grads) + 1)]
    if callable(node):
        results = node(*given)
        return results if isinstance(results, tuple) else (results,), list(node.next_functions)
    name = node.name()
    if "second_order" in name:  # log Z and three kinds of marginals, or a derivative of these
        given = [*given, None, None, None][: 4 if "marginals" in name else 3]
    elif "third_order" in name:  # log Z and four kinds of marginals
        given = [*given, *[None] * 4][:5]
    elif "cky" in name:  # log Z and four kinds of marginals, or a derivative of these
        given = [*given, *[None] * 4][: 5 if "marginals" in name else 4]
    elif "marginals" in name or "gradient" in name:  # two outputs: log Z and the marginals, or of two inputs
        given = [*given, None][:2]
    results = [g for g, needed in zip(node.apply(*given), node.needs_input_grad, strict=True) if needed]
    return tuple(results), [f for f in node.next_functions if f[0] is not None]


def gradient(output: Tensor, leaf: Tensor) -> Tensor:
    """d output.sum() / d leaf, differentiable again."""
    pending: dict[Any, dict[int, Tensor]] = defaultdict(dict)
    assert output.grad_fn is not None
    pending[output.grad_fn][output.output_nr] = torch.ones_like(output)
    found: list[Tensor] = []
    while pending:
        node = max(pending, key=lambda n: n._sequence_nr())  # those made last come first; leaves at the end
        grads = pending.pop(node)
        if hasattr(node, "variable"):
            found += [g for g in grads.values() if node.variable is leaf]
            if node.variable is leaf and not pending:
                break
            continue
        results, targets = call(node, grads)
        for (following, index), grad in zip(targets, results, strict=False):
            if following is not None and grad is not None:
                grad = grad.sum_to_size(
                    following._input_metadata[index].shape
                )  # what was broadcast, as the engine does
                known = pending[following].get(index)
                pending[following][index] = grad if known is None else known + grad
    return sum(found[1:], found[0])


def expect(tensor: Tensor, *shape: int) -> Tensor:
    assert isinstance(tensor, FakeTensor), tensor
    assert tensor.device.type == "cuda", tensor
    assert tuple(tensor.shape) == shape, (tensor.shape, shape)
    return tensor


def try_derivatives(p: Any, q: Any, marginals: Tensor, leaf: Tensor) -> None:
    """Everything that has a gradient; that of log Z three times, of the marginals and of the entropy twice."""
    (B,) = p.batch_shape

    def derivative(x: Tensor, times: int = 1) -> None:
        for _ in range(times):
            x = expect(gradient(x, leaf), *leaf.shape)

    derivative(expect(p.log_partition, B), 3)
    for quantity in (marginals, expect(p.entropy(), B)):
        derivative(quantity, 2)
    for quantity in (expect(kl_divergence(p, q), B), expect(p.max, B)):
        derivative(quantity)


def try_structures(p: Any, leaf: Tensor, *shape: int) -> None:
    """The best, the k best where they are known, and samples, of such a shape; their scores have gradients."""
    (B,) = p.batch_shape
    expect(p.log_prob(expect(p.argmax, B, *shape)), B)
    samples = expect(p.sample((4, 2)), 4, 2, B, *shape)
    expect(gradient(expect(p.log_prob(samples), 4, 2, B), leaf), *leaf.shape)
    if hasattr(p, "topk"):
        best, scores = p.topk(5)
        expect(best, 5, B, *shape), expect(gradient(expect(scores, 5, B), leaf), *leaf.shape)


def try_distributions() -> int:
    B, N, checks = 3, 7, 0
    kinds = itertools.product((gp.ProjectiveTrees, gp.NonProjectiveTrees), (True, False), FORMS)
    for kind, single_root, (dtype, ragged) in kinds:
        arcs = torch.empty(B, N, N, device="cuda", dtype=dtype, requires_grad=True)
        lengths = torch.empty(B, dtype=torch.int64, device="cuda") if ragged else None
        p, q = (kind(arcs, lengths, single_root=single_root) for _ in range(2))
        try_derivatives(p, q, expect(p.marginals, B, N, N), arcs)
        try_structures(p, arcs, N)
        expect(gp.mst(arcs, lengths, single_root=single_root), B, N)
        with torch.no_grad():
            p = kind(arcs, lengths, single_root=single_root)
            expect(p.log_partition, B), expect(p.marginals, B, N, N), expect(p.entropy(), B)
        checks += 1
    return checks


def try_second_order() -> int:
    B, N, checks = 3, 5, 0
    kinds = (("siblings",), ("grandparents",), ("siblings", "grandparents"), ("siblings", "grandsiblings"))
    for names, single_root in itertools.product(kinds, (True, False)):
        arcs = torch.empty(B, N, N, device="cuda", requires_grad=True)
        lengths = torch.empty(B, dtype=torch.int64, device="cuda")
        dims = {name: 5 if name == "grandsiblings" else 4 for name in names}
        pairs = {name: torch.empty(B, *[N] * (d - 1), device="cuda", requires_grad=True) for name, d in dims.items()}
        p, q = (gp.SecondOrderTrees(arcs, lengths, single_root=single_root, **pairs) for _ in "pq")
        for leaf in (arcs, *pairs.values()):
            try_derivatives(p, q, expect(p.marginals, B, N, N), leaf)
        expect(p.sibling_marginals, B, N, N, N), expect(p.grandparent_marginals, B, N, N, N)
        expect(p.grandsibling_marginals, B, N, N, N, N)
        try_structures(p, arcs, N)
        checks += 1
    return checks


def try_chains() -> int:
    B, n, T, checks = 3, 5, 4, 0
    kinds = itertools.product(((TagChains, (T, T)), (TagChains, (B, n - 1, T, T)), (TrigramChains, (T, T, T))), FORMS)
    for (kind, shape), (dtype, ragged) in kinds:
        unary, rows = (torch.empty(s, device="cuda", dtype=dtype, requires_grad=True) for s in ((B, n, T), shape))
        lengths = torch.empty(B, dtype=torch.int64, device="cuda") if ragged else None
        p, q = (kind(unary, rows, lengths) for _ in range(2))
        for leaf in (unary, rows):
            try_derivatives(p, q, expect(p.marginals, B, n, T), leaf)
            try_structures(p, leaf, n)
        if kind is TagChains:
            expect(gradient(expect(p.transition_marginals, B, n - 1, T, T), rows), *shape)
        else:
            expect(gradient(expect(p.trigram_marginals, B, n - 2, T, T, T), rows), *shape)
        with torch.no_grad():
            p = kind(unary, rows, lengths)
            expect(p.log_partition, B), expect(p.entropy(), B)
        checks += 1
    return checks


def try_constituents() -> int:
    B, n, T, S, R, checks = 3, 4, 2, 5, 6, 0
    for dtype, spanned in itertools.product((torch.float32, torch.float64), (True, False)):
        grammar = object.__new__(gp.Grammar)  # without the checks, which look at values
        symbols = {name: torch.empty(R, dtype=torch.int64, device="cuda") for name in ("parents", "lefts", "rights")}
        scores = {name: torch.empty(k, device="cuda") for name, k in (("scores", R), ("roots", S))}
        grammar.__dict__.update(symbols=tuple("abcde"), tags=T, **symbols, **scores)
        lengths = torch.empty(B, dtype=torch.int64, device="cuda")
        shapes = [(B, n, T), (R,), *([(B, n, n, S)] if spanned else [])]
        leaves = [torch.empty(shape, device="cuda", dtype=dtype, requires_grad=True) for shape in shapes]
        spans = leaves[2] if spanned else None
        p, q = (gp.ConstituencyTrees(grammar, leaves[0], lengths, rules=leaves[1], spans=spans) for _ in "pq")
        for leaf in leaves:
            try_derivatives(p, q, expect(p.tag_marginals, B, n, T), leaf)
        expect(p.rule_marginals, B, R), expect(p.span_marginals, B, n, n, S), expect(p.root_marginals, B, S)
        try_structures(p, leaves[0], 2 * n - 1, 4)
        checks += 1
    return checks


def try_viterbi() -> int:
    B, n, T, checks = 3, 5, 20, 0
    ways: tuple[dict[str, Any], ...] = (
        {"method": "auto"},
        {"method": "dense"},
        {"method": "column_generation"},
        {"method": "column_generation", "pricing": "averaged"},
        {"method": "beam", "beam": 3},
    )
    for options, shape in itertools.product(ways, ((T, T), (B, n - 1, T, T))):
        unary, transitions = (torch.empty(s, device="cuda", requires_grad=True) for s in ((B, n, T), shape))
        lengths = torch.empty(B, dtype=torch.int64, device="cuda")
        found = gp.viterbi(unary, transitions, lengths, **options)
        expect(found.tags, B, n), expect(found.bound, B), expect(found.certified, B), expect(found.iterations, B)
        expect(gradient(expect(found.score, B), transitions), *shape)
        for counted in found.stats.values():
            expect(counted, B)
        checks += 1
    return checks


def try_automata() -> int:
    B, N = 2, 5
    square, cube = (torch.empty(B, *[N] * k, device="cuda") for k in (2, 3))
    lengths = torch.empty(B, dtype=torch.int64, device="cuda")
    for up, siblings, grandparents, root in itertools.product(
        (None, square), (None, cube), (None, cube), (True, False)
    ):
        given = square, up, siblings, grandparents, lengths
        for found in (automata(*given, single_root=root), plain.automata.automata(*given, root)):
            for x, dims in zip(found, ((B, N, N), (B, N), (B, N)), strict=True):
                expect(x, *dims)
    return 1


def try_dual_decomposition() -> int:
    """No look at who is done, and so no wait, for as many iterations as there are between two."""
    B, N = 3, 5
    arcs, cube = torch.empty(B, N, N, device="cuda"), torch.empty(B, N, N, N, device="cuda")
    lengths = torch.empty(B, dtype=torch.int64, device="cuda")
    for pairs in ({"siblings": cube}, {"grandparents": cube}, {"siblings": cube, "grandparents": cube}):
        scores = gp.Scores(arcs, lengths, **pairs)
        for step in (None, gp.dual.Halving()):
            found = gp.dual.second_order(scores, step=step, iterations=4).run()
            expect(found.structures["heads"], B, N), expect(found.certified, B), expect(found.duals, 4, B)
    return 1


def try_plain_path() -> int:
    B, N = 2, 4
    arcs = torch.empty(B, N, N, device="cuda", requires_grad=True)
    lengths = torch.empty(B, dtype=torch.int64, device="cuda")

    def gradients(output: Tensor, leaves: Tensor | Sequence[Tensor], **_: Any) -> tuple[Tensor, ...]:
        return tuple(gradient(output, leaf) for leaf in ([leaves] if isinstance(leaves, Tensor) else leaves))

    torch.autograd.grad = gradients  # type: ignore[assignment]
    for root in (True, False):
        for log_partition in (plain.eisner.log_partition, plain.matrix_tree.log_partition):
            expect(gradient(expect(log_partition(arcs, lengths, root), B), arcs), B, N, N)
            expect(plain.generic.marginals(log_partition, arcs.detach(), lengths, root), B, N, N)
            expect(plain.generic.sample(log_partition, arcs.detach(), lengths, root, 2), 2, B, N)
        for argmax in (plain.eisner.argmax, plain.mst.mst):
            expect(argmax(arcs.detach(), lengths, root), B, N)
            expect(plain.generic.topk(argmax, arcs.detach(), lengths, root, 2), 2, B, N)
    for trigrams in (False, True):
        n, T = 4, 3
        unary = torch.empty(B, n, T, device="cuda", requires_grad=True)
        pairs = torch.empty(1, 1, T**2 if trigrams else T, T, device="cuda")
        scores = unary.detach(), pairs, lengths, trigrams
        expect(gradient(expect(plain.chain.value(unary, pairs, lengths, trigrams), B), unary), B, n, T)
        expect(plain.chain.argmax(*scores), B, n)
        expect(plain.chain.topk(*scores, 3), 3, B, n)
        expect(plain.chain.sample(*scores, 2), 2, B, n)
        expect(plain.chain.leaves(scores[:2], scores[:2], lengths, trigrams), B)
        expect(plain.chain.is_bad(*scores), B)
        expect(
            plain.chain.score(*scores[:2], torch.empty(B, n, dtype=torch.int64, device="cuda"), lengths, trigrams), B
        )
    grammar = plain.cky.index_rules(torch.empty(3, 6, dtype=torch.int64, device="cuda"), 5)
    some = torch.empty(B, 6, device="cuda"), torch.empty(B, 5, device="cuda"), torch.empty(B, 4, 4, 5, device="cuda")
    expect(gradient(expect(plain.cky.log_partition((unary, *some), grammar, lengths), B), unary), B, 4, 3)
    expect(plain.cky.argmax((unary.detach(), *some), grammar, lengths), B, 7, 4)
    expect(plain.cky.sample((unary.detach(), *some), grammar, lengths, 2), 2, B, 7, 4)
    tags, bound = plain.beam.search(unary.detach(), pairs[:, :, :3], lengths, 2)
    expect(tags, B, 4), expect(bound, B)
    return 4


def try_constraints() -> int:
    rng, n = random.Random(0), 4
    words = [sentence(rng, n) for _ in range(3)]
    heads, labels = (torch.empty(3, n + 1, dtype=torch.int64, device="cuda") for _ in range(2))
    for constraint in constraints(rng, n):
        expect(violates([constraint], words, heads, labels), 3)
    return 1


if __name__ == "__main__":
    with FakeTensorMode():
        trees = (
            try_distributions() + try_second_order() + try_automata() + try_constituents() + try_dual_decomposition()
        )
        print(f"{trees + try_chains() + try_viterbi() + try_plain_path() + try_constraints()} ok")
