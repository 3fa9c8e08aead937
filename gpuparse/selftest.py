"""Every kernel against the plain torch path, on every device there is (``gpuparse info --selftest``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gpuparse import plain
from gpuparse.backend import backend_for
from gpuparse.ops import (
    EISNER,
    MATRIX_TREE,
    Structure,
    automata,
    chains,
    check_flags,
    cky,
    pricing,
    second_order,
    viterbi,
)
from gpuparse.ops import lexical as lexical_ops
from gpuparse.ops.viterbi import best_chain
from gpuparse.plain import cky as plain_cky
from gpuparse.plain import lexical as plain_lexical
from gpuparse.plain import second_order as plain_second_order
from gpuparse.tags import chain_scores, is_position, trigram_scores
from gpuparse.trees import is_tree, tree_scores

NEG_INF = float("-inf")
Compare = Callable[[Structure, Tensor, Tensor, bool], float]


@dataclass(frozen=True)
class Check:
    """One kernel on one device: the greatest difference found, and the one that rounding explains."""

    kernel: str
    device: str
    dtype: str
    max_difference: float
    tolerance: float
    ok: bool
    note: str = ""


def run(devices: Sequence[str | torch.device] | None = None) -> list[Check]:
    """Compare all kernels with the plain torch path. Waits for the devices."""
    if devices is None:
        devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    return [check for device in devices for check in _on(torch.device(device))]


def _on(device: torch.device) -> Iterator[Check]:
    if backend_for(device) is None:
        yield Check("all", str(device), "-", 0.0, 0.0, False, "no kernels here, only the plain torch path")
        return
    for dtype in (torch.float32, torch.float64):
        for name, differ, tolerance in _comparisons(device, dtype):
            note = ""
            try:
                difference = differ()
            except Exception as error:  # a kernel that cannot even run is what this is here to find
                difference, note = float("inf"), f"{type(error).__name__}: {error}".splitlines()[0]
            yield Check(
                name,
                str(device),
                str(dtype).removeprefix("torch."),
                difference,
                tolerance,
                difference <= tolerance,
                note,
            )


def _comparisons(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], float], float]]:
    arcs, lengths = _sentences(device, dtype)
    exact, rounded = 1e-9, 1e-9 if dtype == torch.float64 else 1e-5
    for s in (EISNER, MATRIX_TREE):
        best, topk = ("eisner_argmax", "eisner_topk") if s is EISNER else ("mst", "mst_topk")
        comparisons: list[tuple[str, Compare, float]] = [
            (f"{s.name} (log Z)", _log_partition, rounded),
            (f"{s.name} (marginals)", _marginals, rounded),
            (f"{s.name} (derivative)", _hvp, 10 * rounded),
            (f"{s.name} (second derivative)", _third, 10 * rounded),
            (best, _best, exact),
            (topk, _topk, exact),
            (f"{s.name}_sample", _sample, 0.04),  # frequencies among 4000 draws: five standard deviations
        ]
        for name, compare, tolerance in comparisons:
            yield name, partial(_both_roots, compare, s, arcs, lengths), tolerance
    for family in ("siblings", "grandsiblings"):
        scores = _with_pairs(arcs, family)
        for order, what in enumerate(("marginals", "derivative", "second derivative")):
            differ_sums = partial(_second_order_sums, scores, lengths, order)
            yield f"{family} ({what})", differ_sums, rounded if order == 0 else 10 * rounded
        yield f"{family}_argmax", partial(_second_order_best, scores, lengths), exact
        yield f"{family}_sample", partial(_second_order_sample, scores, lengths), 0.04
    constituents, grammar = _with_grammar(arcs)
    for order, what in enumerate(("marginals", "derivative", "second derivative")):
        differ_cky = partial(_cky_sums, constituents, grammar, lengths, order)
        yield f"cky ({what})", differ_cky, rounded if order == 0 else 10 * rounded
    yield "cky_argmax", partial(_cky_best, constituents, grammar, lengths), 0.0
    yield "cky_sample", partial(_cky_sample, constituents, grammar, lengths), 0.04
    yield from _lexical_comparisons(arcs, lengths, exact, rounded)
    yield "check", partial(_flags, arcs, lengths), 0.0
    for kind, scorer in _scorers(device, dtype, *arcs.shape[:2]).items():
        yield f"pricing ({kind})", partial(_pricing, scorer, lengths), 0.0
    for family in ("siblings", "grandparents", "grandsiblings"):
        yield f"automata ({family})", partial(_automata, arcs, lengths, family), 0.0
    of_chains: list[tuple[str, Callable[[Chains], float], float]] = [
        ("chain (log Z)", partial(_chain_sums, order=0, weighted=False), rounded),
        ("chain (marginals)", partial(_chain_sums, order=0, weighted=True), rounded),
        ("chain (slope)", partial(_chain_sums, order=1, weighted=False), 10 * rounded),
        ("chain (derivative)", partial(_chain_sums, order=1, weighted=True), 10 * rounded),
        ("chain (second slope)", partial(_chain_sums, order=2, weighted=False), 10 * rounded),
        ("chain (second derivative)", partial(_chain_sums, order=2, weighted=True), 10 * rounded),
        ("viterbi", partial(_chain_best, decode=lambda batch: best_chain(*batch)), exact),
        ("chain_topk", _chain_topk, exact),
        ("chain_sample", _chain_sample, 0.04),
    ]
    batches = _chains(device, dtype)
    for chain_name, differ, tolerance in of_chains:
        yield chain_name, partial(_greatest, differ, batches), tolerance
    for chain_name, decode in _DECODERS.items():
        differ = partial(_chain_best, decode=decode)
        yield chain_name, partial(_greatest, differ, [batch for batch in batches if not batch[3]]), exact


def _sentences(device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Ragged, with forbidden arcs and scores of very different size; each has a chain as a tree at least."""
    generator = torch.Generator().manual_seed(0)
    B, N = 6, 9
    arcs = torch.randn(B, N, N, generator=generator, dtype=torch.float64)
    arcs[torch.rand(B, N, N, generator=generator) < 0.25] = NEG_INF
    arcs[1] *= 30.0
    arcs[2] *= 700.0
    chain = torch.arange(N - 1)
    arcs[:, chain, chain + 1] = torch.randn(B, N - 1, generator=generator, dtype=torch.float64)
    lengths = torch.tensor([8, 8, 7, 5, 2, 1])
    return arcs.to(device=device, dtype=dtype), lengths.to(device)


def _scorers(device: torch.device, dtype: torch.dtype, B: int, N: int) -> dict[str, pricing.Scorer]:
    generator = torch.Generator().manual_seed(3)

    def some(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device=device, dtype=dtype)

    index = torch.randint(0, 50, (5, 3, B, N), generator=generator).to(device)
    relations = torch.randint(0, 20, (5, 3, pricing.CODES), generator=generator).to(device)
    return {
        "dense": pricing.Scorer.dense(some(B, N, N, N)),
        "trilinear": pricing.Scorer.trilinear(*(some(B, N, 11) for _ in range(3))),
        "templates": pricing.Scorer.templates(some(250), index, relations),
    }


def _pricing(scorer: pricing.Scorer, lengths: Tensor) -> float:
    """What is found, and what is known afterwards; duals such that about a tenth of the triples are."""
    B, N = len(lengths), (scorer.values if scorer.index is None else scorer.index[0]).shape[1]
    generator = torch.Generator().manual_seed(4)
    device = lengths.device
    ceiling = torch.randn(B, N, N, generator=generator, dtype=torch.float64).to(device) + 1
    floor, kappa = ceiling - 0.5, ceiling.abs() / 4
    b, g, p, c = (x.flatten() for x in torch.meshgrid(*map(torch.arange, (B, N, N, N)), indexing="ij"))
    scores = scorer.score(*(x.to(device) for x in (b, g, p, c))).double().view(B, N, N, N)
    over_g, over_c = scores.amax(1), scores.amax(3)
    duals: dict[str, Any] = {"ceiling": ceiling, "floor": floor, "kappa": kappa, "over_g": over_g, "over_c": over_c}
    known = [torch.full_like(scores, torch.nan) for _ in range(2)]
    found = pricing.price(scorer, lengths, **duals, known=known[0], tolerance=1e-9, room=N**3)
    by_hand = plain.pricing.price(scorer.score, lengths, **duals, known=known[1], tolerance=1e-9, room=N**3)
    expected = pricing.Priced(*by_hand)
    results = []
    for priced, scored in ((found, known[0]), (expected, known[1])):
        listed = torch.arange(N**3, device=device) < priced.count[:, None]
        some = priced.triples[listed], priced.score[listed]
        results.append((*some, priced.count, priced.worst, scored.nan_to_num(99.0)))
    if results[0][0].shape != results[1][0].shape:
        return float("inf")
    return max((_difference(one, other) for one, other in zip(*results, strict=True) if one.numel()), default=0.0)


def _automata(arcs: Tensor, lengths: Tensor, family: str) -> float:
    generator = torch.Generator().manual_seed(5)
    B, N = arcs.shape[:2]
    pairs = [torch.randn(B, N, N, N, generator=generator, dtype=torch.float64).to(arcs) for _ in range(2)]
    siblings, grandparents = (
        x if family in (name, "grandsiblings") else None
        for name, x in zip(("siblings", "grandparents"), pairs, strict=True)
    )
    worst = 0.0
    for root in (True, False):
        found = automata.automata(arcs, arcs / 2, siblings, grandparents, lengths, single_root=root)
        expected = plain.automata.automata(arcs, arcs / 2, siblings, grandparents, lengths, root)
        worst = max(worst, *(_difference(one, other) for one, other in zip(found, expected, strict=True)))
    return worst


def _both_roots(compare: Compare, s: Structure, arcs: Tensor, lengths: Tensor) -> float:
    return max(compare(s, arcs, lengths, root) for root in (True, False))


def _difference(found: Tensor, expected: Tensor) -> float:
    """Greatest difference, relative where the expected value is above 1; inf where only one is infinite or NaN."""
    found, expected = found.double(), expected.double()
    apart = (found - expected).abs() / expected.abs().clamp(min=1.0)
    apart = torch.where(found == expected, 0.0, apart)  # equal infinities
    return float(torch.where(apart.isnan(), torch.inf, apart).max())


def _log_partition(s: Structure, arcs: Tensor, lengths: Tensor, root: bool) -> float:
    return _difference(s.log_partition(arcs, lengths, root), s.plain_log_partition(arcs, lengths, root))


def _marginals(s: Structure, arcs: Tensor, lengths: Tensor, root: bool) -> float:
    expected = plain.generic.marginals(s.plain_log_partition, arcs, lengths, root)
    return _difference(s.marginals(arcs, lengths, root)[1], expected)


def _direction(arcs: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(arcs.shape, generator=generator, dtype=torch.float64).to(arcs)


def _hvp(s: Structure, arcs: Tensor, lengths: Tensor, root: bool) -> float:
    u, x = _direction(arcs, 1), arcs.detach().requires_grad_()
    (found,) = torch.autograd.grad((s.marginals(x, lengths, root)[1] * u).sum(), x)
    return _difference(found, plain.generic.hvp(s.plain_log_partition, arcs, lengths, root, u))


def _third(s: Structure, arcs: Tensor, lengths: Tensor, root: bool) -> float:
    u, v, x = _direction(arcs, 1), _direction(arcs, 2), arcs.detach().requires_grad_()
    (first,) = torch.autograd.grad((s.marginals(x, lengths, root)[1] * u).sum(), x, create_graph=True)
    (found,) = torch.autograd.grad((first * v).sum(), x)
    return _difference(found, plain.generic.third(s.plain_log_partition, arcs, lengths, root, u, v))


def _best(s: Structure, arcs: Tensor, lengths: Tensor, root: bool) -> float:
    found, expected = s.argmax(arcs, lengths, root), s.plain_argmax(arcs, lengths, root)
    wide = arcs.double()
    if not bool(is_tree(found, lengths, projective=s is EISNER, single_root=root).all()):
        return float("inf")
    return _difference(tree_scores(wide, found, lengths), tree_scores(wide, expected, lengths))


def _topk(s: Structure, arcs: Tensor, lengths: Tensor, root: bool) -> float:
    found, expected = s.topk(arcs, lengths, root, 4), plain.generic.topk(s.plain_argmax, arcs, lengths, root, 4)
    missing = (expected < 0).all(-1)
    if not torch.equal(missing, (found < 0).all(-1)):
        return float("inf")
    wide = arcs.double()
    scores = [torch.where(missing, 0.0, tree_scores(wide, heads, lengths)) for heads in (found, expected)]
    return _difference(*scores)


def _sample(s: Structure, arcs: Tensor, lengths: Tensor, root: bool) -> float:
    """Frequencies of the arcs among many samples against the marginals."""
    num = 4000
    with torch.random.fork_rng(devices=[arcs.device] if arcs.is_cuda else []):
        torch.manual_seed(0)
        heads = s.sample(arcs, lengths, root, num)
    if not bool(is_tree(heads, lengths, projective=s is EISNER, single_root=root).all()):
        return float("inf")
    N = arcs.shape[1]
    counts = torch.zeros_like(arcs, dtype=torch.float64)
    for head in range(N):
        counts[:, head] = (heads == head).sum(0).double() / num
    expected = plain.generic.marginals(s.plain_log_partition, arcs, lengths, root)
    return _difference(counts, expected)


def _with_pairs(arcs: Tensor, family: str) -> plain_second_order.Scores:
    """Scores of siblings, and for "grandsiblings" of grandparents, some forbidden but those of a chain."""
    generator = torch.Generator().manual_seed(3)
    B, N = arcs.shape[:2]
    siblings, grandparents = (torch.randn(B, N, N, N, generator=generator, dtype=torch.float64) for _ in range(2))
    word = torch.arange(N - 1)
    for x in (siblings, grandparents):
        barred = torch.rand(x.shape, generator=generator) < 0.1
        barred[:, word, word, word + 1] = False
        barred[:, word[:-1], word[1:], word[1:] + 1] = False
        x[barred] = NEG_INF
        x[2] *= 100.0
    return arcs, siblings.to(arcs), grandparents.to(arcs) if family == "grandsiblings" else None


def _second_order_sums(scores: plain_second_order.Scores, lengths: Tensor, order: int) -> float:
    along = [tuple(None if x is None else _direction(x, 5 * k + i) for i, x in enumerate(scores)) for k in range(order)]
    worst = 0.0
    for root in (True, False):
        expected = plain_second_order.derivative(scores, lengths, root, along)  # type: ignore[arg-type]
        if order == 0:
            log_z, *found = second_order.marginals(scores, lengths, root)
            worst = max(worst, _difference(log_z, plain_second_order.log_partition(scores, lengths, root)))
        else:
            op = torch.ops.gpuparse.second_order_hvp if order == 1 else torch.ops.gpuparse.second_order_third
            found = list(op(*scores, lengths, root, *(x for bundle in along for x in bundle)))
        some = [x for x, y in zip(found, scores, strict=True) if x is not None and y is not None]
        worst = max(worst, *(_difference(a, b) for a, b in zip(some, expected, strict=True)))
    return worst


def _second_order_best(scores: plain_second_order.Scores, lengths: Tensor) -> float:
    worst = 0.0
    for root in (True, False):
        found = second_order.argmax(scores, lengths, root)
        if not bool(is_tree(found, lengths, projective=True, single_root=root).all()):
            return float("inf")
        expected = plain_second_order.argmax(scores, lengths, root)
        both = (plain_second_order.tree_scores(scores, heads, lengths) for heads in (found, expected))
        worst = max(worst, _difference(*both))
    return worst


def _second_order_sample(scores: plain_second_order.Scores, lengths: Tensor) -> float:
    num, arcs = 4000, scores[0]
    with torch.random.fork_rng(devices=[arcs.device] if arcs.is_cuda else []):
        torch.manual_seed(0)
        heads = second_order.sample(scores, lengths, True, num)
    if not bool(is_tree(heads, lengths, projective=True, single_root=True).all()):
        return float("inf")
    node = torch.arange(arcs.shape[1], device=arcs.device)
    counts = (heads[:, :, None, :] == node[:, None]).double().mean(0)
    return _difference(counts, plain_second_order.derivative(scores, lengths, True)[0])


def _with_grammar(arcs: Tensor) -> tuple[plain_cky.Scores, Tensor]:
    """A grammar of nine symbols, four of them tags, that has trees of any length; scores of sentences and spans."""
    generator = torch.Generator().manual_seed(6)
    B, n, S, T = arcs.shape[0], arcs.shape[1] - 1, 9, 4
    every = torch.cartesian_prod(torch.arange(T, S), torch.arange(S), torch.arange(S))
    chosen = every[torch.randperm(len(every), generator=generator)[:80]]
    chosen = torch.cat([chosen, torch.tensor([[T, 0, 0], [T, 0, T]])]).unique(dim=0).T
    R = chosen.shape[1]
    shapes = ((B, n, T), (B, R), (B, S), (B, n, n, S))
    tags, rules, roots, spans = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    barred = torch.rand(B, R, generator=generator) < 0.1
    barred[:, (chosen[0] == T) & (chosen[1] == 0)] = False
    rules[barred] = NEG_INF
    for x in (tags, rules, spans):
        x[2] *= 300.0
    scores = tags.to(arcs), rules.to(arcs), roots.to(arcs), spans.to(arcs)
    return scores, plain_cky.index_rules(chosen, S).to(arcs.device)


def _cky_sums(scores: plain_cky.Scores, grammar: Tensor, lengths: Tensor, order: int) -> float:
    along = [[None if x is None else _direction(x, 5 * k + i) for i, x in enumerate(scores)] for k in range(order)]
    expected = plain_cky.derivative(scores, grammar, lengths, along)
    if order == 0:
        log_z, *found = cky.marginals(scores, grammar, lengths)
        worst = _difference(log_z, plain_cky.log_partition(scores, grammar, lengths))
        worst = max(worst, _difference(cky.log_partition(scores, grammar, lengths), log_z))
    else:
        op = torch.ops.gpuparse.cky_hvp if order == 1 else torch.ops.gpuparse.cky_third
        found, worst = list(op(*scores, grammar, lengths, *(x for bundle in along for x in bundle))), 0.0
    return max(worst, *(_difference(a, b) for a, b in zip(found, expected, strict=True) if a is not None))


def _cky_best(scores: plain_cky.Scores, grammar: Tensor, lengths: Tensor) -> float:
    found, expected = (argmax(scores, grammar, lengths) for argmax in (cky.argmax, plain_cky.argmax))
    return _difference(found, expected)


def _cky_sample(scores: plain_cky.Scores, grammar: Tensor, lengths: Tensor) -> float:
    """Frequencies of spans among many samples against the marginals."""
    num, tags = 4000, scores[0]
    with torch.random.fork_rng(devices=[tags.device] if tags.is_cuda else []):
        torch.manual_seed(0)
        trees = cky.sample(scores, grammar, lengths, num)
    n, S = tags.shape[1], scores[2].shape[1]
    i, j, symbol, split = trees.unbind(-1)
    place = torch.where(split >= 0, (i * n + j) * S + symbol, n * n * S).movedim(1, 0).flatten(1)
    ones = torch.ones_like(place, dtype=torch.float64)
    counts = ones.new_zeros(len(lengths), n * n * S + 1).scatter_add(1, place, ones / num)[:, :-1]
    return _difference(counts, plain_cky.derivative(scores, grammar, lengths)[3].flatten(1))


def _flags(arcs: Tensor, lengths: Tensor) -> float:
    wrong = arcs.clone()
    wrong[0, 1, 2], wrong[3, 0, 1], wrong[2, 0, 1] = float("nan"), float("inf"), -(2.0**20)
    outside = lengths.clone()
    outside[4] = 0
    return _difference(check_flags(wrong, outside), plain.check.flags(wrong, outside))


Chains = tuple[Tensor, Tensor, Tensor, bool]
"""Scores of words and of tags in a row, lengths, and whether those are three."""


def _chains(device: torch.device, dtype: torch.dtype) -> list[Chains]:
    """Ragged, with forbidden tags and scores of very different size; tag 0 may go everywhere."""
    generator = torch.Generator().manual_seed(0)
    B, n, T = 6, 7, 5
    lengths = torch.tensor([7, 7, 6, 4, 2, 1])
    batches: list[Chains] = []
    for shape, trigrams in (((1, 1, T, T), False), ((B, n - 1, T, T), False), ((1, 1, T * T, T), True)):
        unary, pairs = (torch.randn(s, generator=generator, dtype=torch.float64) for s in ((B, n, T), shape))
        for scores in (unary, pairs):
            forbidden = torch.rand(scores.shape, generator=generator) < 0.25
            forbidden[..., 0] = False
            scores[forbidden] = NEG_INF
        unary[1] *= 30.0
        unary[2] *= 700.0
        unary, pairs = (x.to(device=device, dtype=dtype) for x in (unary, pairs))
        batches.append((unary, pairs, lengths.to(device), trigrams))
    return batches


def _greatest(differ: Callable[[Chains], float], batches: list[Chains]) -> float:
    return max(map(differ, batches))


def _chain_sums(batch: Chains, *, order: int, weighted: bool) -> float:
    unary, pairs, lengths, trigrams = batch
    along = [(_direction(unary, seed), _direction(pairs, 10 + seed)) for seed in range(order)]
    if not weighted:
        return _difference(chains.value(*batch, along), plain.chain.value(*batch, along))
    weight = torch.linspace(0.5, 2.0, len(lengths), dtype=torch.float64, device=unary.device)
    given = [weight, *(x for direction in along for x in direction)]
    found = chains.GRADIENTS[order](unary, pairs, lengths, *given, trigrams, True, True)
    expected = plain.chain.gradient(*batch, weight, along)
    return max(_difference(a, b) for a, b in zip(found, expected, strict=True))


def _scores_of_chains(batch: Chains, tags: Tensor) -> Tensor:
    unary, pairs, lengths, trigrams = batch
    wide = unary.double(), pairs.double()
    if trigrams:
        return trigram_scores(wide[0], wide[1][0, 0].unflatten(0, (unary.shape[2], -1)), tags, lengths)
    return chain_scores(*wide, tags, lengths)


def _are_chains(batch: Chains, tags: Tensor) -> bool:
    unary, _, lengths, _ = batch
    word = is_position(lengths, unary.shape[1])
    return bool(((tags >= 0) == word).all()) and bool((tags < unary.shape[2]).all())


_DECODERS: dict[str, Callable[[Chains], viterbi.Best]] = {
    "viterbi_forward": lambda batch: viterbi.forward_columns(batch[0], viterbi.Table(batch[1]), batch[2]),
    "viterbi_averaged": lambda batch: viterbi.averaged_columns(batch[0], viterbi.Table(batch[1]), batch[2], 1),
    "viterbi_beam": lambda batch: viterbi.beam_search(batch[0], viterbi.Table(batch[1]), batch[2], 99)[0],
}


def _chain_best(batch: Chains, *, decode: Callable[[Chains], viterbi.Best]) -> float:
    found, expected = decode(batch).tags, plain.chain.argmax(*batch)
    if not _are_chains(batch, found):
        return float("inf")
    return _difference(_scores_of_chains(batch, found), _scores_of_chains(batch, expected))


def _chain_topk(batch: Chains) -> float:
    found, expected = chains.topk(*batch, 4), plain.chain.topk(*batch, 4)
    missing = (expected < 0).all(-1)
    if not torch.equal(missing, (found < 0).all(-1)):
        return float("inf")
    scores = [torch.where(missing, 0.0, _scores_of_chains(batch, tags)) for tags in (found, expected)]
    return _difference(*scores)


def _chain_sample(batch: Chains) -> float:
    """Frequencies of the tags among many samples against the marginals."""
    unary, _, lengths, _ = batch
    num = 4000
    with torch.random.fork_rng(devices=[unary.device] if unary.is_cuda else []):
        torch.manual_seed(0)
        tags = chains.sample(*batch, num)
    if not _are_chains(batch, tags):
        return float("inf")
    seen = (tags[..., None] == torch.arange(unary.shape[2], device=tags.device)).double().mean(0)
    weight = torch.ones_like(lengths, dtype=torch.float64)
    return _difference(seen, plain.chain.gradient(*batch, weight)[0])


def _lexical_comparisons(
    arcs: Tensor, lengths: Tensor, exact: float, rounded: float
) -> Iterator[tuple[str, Callable[[], float], float]]:
    """A grammar of 3 tags, 7 symbols and 60 rules; some tags and rules are forbidden."""
    generator = torch.Generator().manual_seed(5)
    T, S, R = 3, 7, 60
    codes = torch.randperm((S - T) * S * S * 2, generator=generator)[:R]
    rest = codes // (S - T)
    parts = torch.stack([T + codes % (S - T), rest % S, rest // S % S, rest // S // S]).to(arcs.device)
    rules = plain_lexical.Rules.of(parts[0], parts[1], parts[2], parts[3], S)
    shapes = ((arcs.shape[0], arcs.shape[1] - 1, T), (1, R), (S,))
    tags, by_rule, roots = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    tags[:, ::2, 1] = NEG_INF
    by_rule[:, ::9] = NEG_INF
    scores = (tags.to(arcs), arcs, by_rule.to(arcs), roots.to(arcs))
    yield "lexical (log Z)", partial(_lexical_log_partition, scores, rules, lengths), rounded
    yield "lexical (marginals)", partial(_lexical_marginals, scores, rules, lengths), rounded
    yield "lexical_argmax", partial(_lexical_best, scores, rules, lengths), exact
    yield "lexical_sample", partial(_lexical_sample, scores, rules, lengths), 0.04


def _lexical_log_partition(scores: plain_lexical.Scores, rules: plain_lexical.Rules, lengths: Tensor) -> float:
    expected = plain_lexical.log_partition(scores, rules, lengths)
    return _difference(lexical_ops.log_partition(scores, rules, lengths), expected)


def _lexical_marginals(scores: plain_lexical.Scores, rules: plain_lexical.Rules, lengths: Tensor) -> float:
    found, expected = lexical_ops.marginals(scores, rules, lengths)[1], plain_lexical.derivative(scores, rules, lengths)
    return max(_difference(x, y) for x, y in zip(found, expected, strict=True))


def _lexical_best(scores: plain_lexical.Scores, rules: plain_lexical.Rules, lengths: Tensor) -> float:
    trees = lexical_ops.argmax(scores, rules, lengths), plain_lexical.argmax(scores, rules, lengths)
    found, expected = (plain_lexical.tree_scores(scores, rules, x, lengths) for x in trees)
    return _difference(found, expected)


def _lexical_sample(scores: plain_lexical.Scores, rules: plain_lexical.Rules, lengths: Tensor) -> float:
    """Frequencies of the arcs among many samples against the marginals."""
    num, arcs = 4000, scores[1]
    with torch.random.fork_rng(devices=[arcs.device] if arcs.is_cuda else []):
        torch.manual_seed(0)
        heads = plain_lexical.heads_of(lexical_ops.sample(scores, rules, lengths, num))
    node = torch.arange(arcs.shape[1], device=arcs.device)
    counts = (heads[:, :, None, :] == node[:, None]).double().mean(0)
    return _difference(counts, plain_lexical.derivative(scores, rules, lengths)[1])
