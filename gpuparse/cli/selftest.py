"""Every kernel against the plain torch path, on every device there is (``gpuparse info --selftest``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpuparse import bp, distributions, ops
from gpuparse.decoding.dual.parsing import second_order as second_order_problem
from gpuparse.decoding.dual.steps import Decreasing, Halving, Polyak, Step
from gpuparse.decoding.parts import legal_triples
from gpuparse.decoding.scores import Scores
from gpuparse.distributions.base import LOG_Z, StructuredDistribution
from gpuparse.ops import (
    EISNER,
    MATRIX_TREE,
    Family,
    automata,
    check_flags,
    cky,
    lexical,
    multipliers,
    priced,
    pricing,
    second_order,
    viterbi,
)
from gpuparse.ops.backend import backend_for
from gpuparse.ops.library import plain_torch
from gpuparse.structures.grammars import Grammar
from gpuparse.structures.masks import arc_mask
from gpuparse.system.stopwatch import Stopwatch

NEG_INF = float("-inf")
ORDERS = ("marginals", "derivative", "second derivative")
REPEATS = 5  # of what is timed
DRAWS, FREQUENT = 4000, 0.04  # frequencies among so many draws are off by that: five standard deviations
PROBABLE = ("arcs", "siblings", "grandparents", "tags", "spans", "unary")  # a structure has these once or not at all

Results = Sequence[Tensor | None]


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
    seconds: float | None = None
    """Median of a call, where times were wanted; on a GPU by its own clock."""
    plain_seconds: float | None = None
    """The same of plain torch there."""


class KernelComparison(NamedTuple):
    """``run`` is called with the kernels, and it or ``expected`` without them."""

    kernel: str
    tolerance: float
    run: Callable[[], Results]
    expected: Callable[[], Results] | None = None


def run(devices: Sequence[str | torch.device] | None = None, *, times: bool | None = None) -> list[Check]:
    """Compare all kernels with the plain torch path. Waits for the devices.

    Args:
        times: also time both, on small batches; by default if one of the devices is a GPU.
    """
    if devices is None:
        devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    found = [torch.device(device) for device in devices]
    times = any(device.type == "cuda" for device in found) if times is None else times
    return [check for device in found for check in _on(device, times)]


def _seconds(call: Callable[[], Results], device: torch.device) -> float:
    """Median of a call that was made before."""
    clocks = []
    for _ in range(REPEATS):
        clock = Stopwatch(device)
        call()
        clocks.append(clock.stop())
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return median(map(float, clocks))


def _on(device: torch.device, times: bool) -> Iterator[Check]:
    if backend_for(device) is None:
        yield Check("all", str(device), "-", 0.0, 0.0, False, "no kernels here, only the plain torch path")
        return
    for dtype in (torch.float32, torch.float64):
        for name, tolerance, found, expected in _comparisons(torch.empty(0, device=device, dtype=dtype)):
            note, plain, seconds = "", expected or found, dict[str, float]()
            try:
                results = found()
                with plain_torch():
                    difference = _difference(results, plain())
                if times:
                    seconds["seconds"] = _seconds(found, device)
                    with plain_torch():
                        seconds["plain_seconds"] = _seconds(plain, device)
            except Exception as error:  # a kernel that cannot even run is what this is here to find
                difference, note = float("inf"), f"{type(error).__name__}: {error}".splitlines()[0]
            kind = str(dtype).removeprefix("torch.")
            yield Check(name, str(device), kind, difference, tolerance, difference <= tolerance, note, **seconds)


@torch.no_grad()
def _difference(found: Results, expected: Results) -> float:
    """Greatest difference, relative where the expected value is above 1; inf where only one is infinite or NaN."""
    worst = 0.0
    for x, y in zip(found, expected, strict=True):
        if x is None or y is None or x.shape != y.shape:
            worst = worst if x is y else float("inf")
        elif x.numel():
            apart = (x.double() - y.double()).abs() / y.double().abs().clamp(min=1.0)
            apart = torch.where(x == y, 0.0, apart)  # equal infinities
            worst = max(worst, float(torch.where(apart.isnan(), torch.inf, apart).max()))
    return worst


def _comparisons(like: Tensor) -> Iterator[KernelComparison]:
    """``like``: of the device and dtype wanted."""
    rounded = 1e-9 if like.dtype == torch.float64 else 1e-5
    arcs, lengths = _sentences(like)
    for family, batches in _families(arcs, lengths):
        kernels = family._kernels([getattr(batches[0], name) for name in batches[0].parts])
        names = str(kernels.sums), str(kernels.argmax), str(kernels.sample), kernels.topk
        yield from _of_family(batches, rounded, *names, family.orders)
    wrong, outside = arcs.clone(), lengths.clone()
    wrong[0, 1, 2], wrong[3, 0, 1], wrong[2, 0, 1], outside[4] = float("nan"), float("inf"), -(2.0**20), 0
    yield KernelComparison("check", 0.0, lambda: [check_flags(wrong, outside)])
    yield from _of_pricing(arcs, lengths)
    yield from _of_priced(arcs, lengths, rounded)
    pairs = _randoms(5, like)(2, *arcs.shape, arcs.shape[1])
    for name, given in {"siblings": (0,), "grandparents": (1,), "grandsiblings": (0, 1)}.items():
        scores = arcs, arcs / 2, *(pairs[k] if k in given else None for k in range(2)), lengths
        yield KernelComparison(f"automata ({name})", 0.0, partial(_stars, *scores))
        yield KernelComparison(f"readings ({name})", 1e-9, partial(_readings, *scores))
    for step in (Polyak(), Halving(), Decreasing()):
        yield KernelComparison(f"multipliers ({type(step).__name__})", 1e-9, partial(_steps, step, *scores))
    families: dict[str, list[bp.Factors]] = {"bp_settle": [], "bp_grand": [bp.Grand(pairs[1])]}
    families["bp_children"] = [bp.ChildSequence(pairs[0])]
    for tree in (bp.Tree(), bp.ProjectiveTree()):
        yield KernelComparison(f"bp_tree ({type(tree).__name__})", 1e-10, partial(_beliefs, [tree], arcs, lengths, 1))
    for name, more in families.items():
        yield KernelComparison(name, 1e-10, partial(_beliefs, [bp.Tree(), *more], arcs, lengths, 3))
    yield KernelComparison("bp_grand_odds", 1e-10, partial(_odds, arcs, pairs[1], lengths))
    as_links = partial(_beliefs_of_heads, [bp.Tree(), bp.ChildSequence(pairs[0])], arcs, lengths)
    yield KernelComparison("bp_heads", 1e-10, as_links)
    for tree in (bp.Tree(), bp.ProjectiveTree()):
        of_heads = partial(_beliefs_of_heads, [tree, bp.Grand(pairs[1])], arcs, lengths)
        yield KernelComparison(f"bp_grand_heads ({type(tree).__name__})", 1e-10, of_heads)
    chains = list(_chains(like))
    yield from _of_family(chains, rounded, "chain", "viterbi", "chain_sample", "chain_topk", 2)
    columns: dict[str, Callable[..., viterbi.Best]] = {
        "viterbi_forward": viterbi.forward_columns,
        "viterbi_averaged": lambda unary, table, lengths: viterbi.averaged_columns(unary, table, lengths, 1),
        "viterbi_beam": lambda unary, table, lengths: viterbi.beam_search(unary, table, lengths, 99)[0],
    }
    for name, decode in columns.items():
        yield KernelComparison(name, 1e-9, partial(_best_of_columns, decode, chains[:2]))


def _best_of_columns(decode: Callable[..., viterbi.Best], batches: Sequence[Any]) -> Results:
    return [d._score(decode(d.unary, viterbi.TransitionTable(d._pairs), d.lengths).tags, False) for d in batches]


def _stars(*given: Any) -> Results:
    return [x for root in (True, False) for x in automata.automata(*given, single_root=root)]


def _beliefs(factors: Sequence[bp.Factors], arcs: Tensor, lengths: Tensor, iterations: int) -> Results:
    """What belief propagation comes to after so many iterations, its estimate of log Z, and the gradient of that."""
    leaf = arcs.detach().requires_grad_()
    found = bp.BeliefPropagation([*factors, bp.Link(leaf)], iterations=iterations, damping=0.3).run(lengths)
    return [found.links, found.log_partition, *torch.autograd.grad(found.log_partition.sum(), leaf)]


def _beliefs_of_heads(factors: Sequence[bp.Factors], arcs: Tensor, lengths: Tensor) -> Results:
    """The same with heads as variables, without a gradient."""
    families = [*factors, bp.Link(arcs)]
    with torch.no_grad():
        found = bp.BeliefPropagation(families, variables="heads", iterations=3, damping=0.3).run(lengths)
    return [found.links, found.log_partition, found.residuals]


def _odds(arcs: Tensor, pairs: Tensor, lengths: Tensor) -> Results:
    """Messages about pairs, as odds, after two iterations."""
    scores = pairs.double().masked_fill(~legal_triples("grandparents", lengths, arcs.shape[1]), 0.0)
    there = arc_mask(lengths, arcs.shape[1])
    totals = ops.bp.as_totals(arcs.double().masked_fill(~there, -torch.inf))
    upper, lower = torch.ones_like(scores), torch.ones_like(scores)
    part = ops.bp.grand_odds(totals, upper, lower, scores, lengths)
    return [ops.bp.grand_odds(totals + part, upper, lower, scores, lengths), upper, lower]


def _readings(*given: Any) -> Results:
    """What trees and stars say of arcs, and what they score."""
    arcs, up, siblings, grandparents, lengths = given
    pairs = siblings, grandparents
    heads = MATRIX_TREE.argmax((arcs,), lengths, True)
    stars = automata.automata(arcs, up, *pairs, lengths)
    return multipliers.readings(up.double(), arcs.double(), *pairs, lengths, heads, stars)


def _steps(step: Step, *given: Any) -> Results:
    """What is known after some steps of dual decomposition."""
    arcs, _, siblings, grandparents, lengths = given
    scores = Scores(arcs, lengths, siblings=siblings, grandparents=grandparents, validate_args=False)
    found = second_order_problem(scores, step=step, iterations=3).run()
    penalties = [x for of_oracle in found.penalties for x in of_oracle.values()]
    traces = [x.nan_to_num(0.0) for x in (found.duals, found.sizes)]  # NaN once a sentence is done
    return [found.score, found.bound, found.certified, *traces, *penalties]


def _randoms(seed: int, like: Tensor) -> Callable[..., Tensor]:
    """Draws tensors of given shapes, the same on all devices."""
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).to(like)


def _again(d: StructuredDistribution, *, wide: bool = False) -> tuple[StructuredDistribution, list[Any]]:
    """The same, of which nothing is known yet, and its scores, now leaves of a graph; ``wide``: in float64."""
    scores = [getattr(d, name) for name in d.parts]
    leaves = [None if x is None else (x.double() if wide else x).detach().requires_grad_() for x in scores]
    return d._like(leaves), leaves


def _sums(order: int, d: StructuredDistribution) -> Results:
    """log Z (-1), or the gradient of its weighted sum by weights and scores, or derivatives of it along directions."""
    again, leaves = _again(d)
    found: list[Any] = [again._expectations(LOG_Z)[LOG_Z]]
    weight = torch.linspace(0.5, 2.0, len(d.lengths), dtype=torch.float64, device=d.lengths.device).requires_grad_()
    along: list[Any] = [weight]
    some = [weight, *(x for x in leaves if x is not None)]
    for k in range(order + 1):
        total = torch.stack([(x * u).sum().double() for x, u in zip(found, along, strict=True)]).sum()
        found = list(torch.autograd.grad(total, some, create_graph=True))
        along = [_randoms(10 * k + i, x)(*x.shape).sigmoid() for i, x in enumerate(some)]
    return found


def _frequencies(d: StructuredDistribution) -> Results:
    """How many draws are structures, and how often each part is in one: the gradient of their mean score."""
    again, leaves = _again(d, wide=True)
    with torch.random.fork_rng(devices=[d.lengths.device] if d.lengths.is_cuda else []):
        torch.manual_seed(0)
        score = again._score(_again(d)[0]._draw(DRAWS), False)
    some = [x for name, x in zip(d.parts, leaves, strict=True) if x is not None and name in PROBABLE]
    return [score.isfinite().double().mean(), *torch.autograd.grad(score.mean(0).sum(), some)]


def _probabilities(d: StructuredDistribution) -> Results:
    again = _again(d)[0]
    some = [name for name in d.parts if getattr(d, name) is not None and name in PROBABLE]
    return [torch.ones(()), *(again._sums(name) for name in some)]


def _of_family(
    batches: Sequence[Any], rounded: float, sums: str, argmax: str, sample: str, topk: str | None, orders: int
) -> Iterator[KernelComparison]:
    """The kernels that every family of structures has; its sums are derived along so many directions."""

    def each(run: Callable[..., Results]) -> Callable[[], Results]:
        return lambda: [x for d in batches for x in run(d)]

    yield KernelComparison(f"{sums} (log Z)", rounded, each(partial(_sums, -1)))
    for order, what in enumerate(ORDERS[: orders + 1]):
        yield KernelComparison(f"{sums} ({what})", 10 * rounded if order else rounded, each(partial(_sums, order)))
    yield KernelComparison(argmax, 1e-9, each(lambda d: [d._score(_again(d)[0]._best(), False)]))
    if topk is not None:
        yield KernelComparison(topk, 1e-9, each(lambda d: [d._score(d.topk(4)[0], False)]))
    yield KernelComparison(sample, FREQUENT, each(_frequencies), each(_probabilities))


def _sentences(like: Tensor) -> tuple[Tensor, Tensor]:
    """Ragged, with forbidden arcs and scores of very different size; each has a chain as a tree at least."""
    some, B, N = _randoms(0, like), 6, 9
    arcs, chain = some(B, N, N), torch.arange(N - 1)
    arcs[some(B, N, N) < -0.7] = NEG_INF
    arcs[1] *= 30.0
    arcs[2] *= 700.0
    arcs[:, chain, chain + 1] = some(B, N - 1)
    return arcs, torch.tensor([8, 8, 7, 5, 2, 1], device=like.device)


def _families(arcs: Tensor, lengths: Tensor) -> Iterator[tuple[Family, list[StructuredDistribution]]]:
    """Every family that has kernels, with sentences."""
    given: dict[str, Any] = {"lengths": lengths, "validate_args": False}

    def trees(kind: Any, **pairs: Tensor) -> list[StructuredDistribution]:
        return [kind(arcs, single_root=root, **given, **pairs) for root in (True, False)]

    yield EISNER, trees(distributions.ProjectiveTrees)
    yield MATRIX_TREE, trees(distributions.NonProjectiveTrees)
    some, (B, N) = _randoms(3, arcs), arcs.shape[:2]
    word = torch.arange(N - 1)
    pairs = {"siblings": some(B, N, N, N), "grandparents": some(B, N, N, N)}
    for x in pairs.values():  # some are forbidden, but those of a chain
        barred = some(*x.shape) < -1.3
        barred[:, word, word, word + 1] = False
        barred[:, word[:-1], word[1:], word[1:] + 1] = False
        x[barred] = NEG_INF
        x[2] *= 100.0
    yield second_order.SECOND_ORDER, trees(distributions.SecondOrderTrees, siblings=pairs["siblings"])
    yield second_order.SECOND_ORDER, trees(distributions.SecondOrderTrees, **pairs)
    yield second_order.THIRD_ORDER, trees(distributions.SecondOrderTrees, **pairs, grandsiblings=some(B, N, N, N, N))
    grammar = _grammar(arcs)
    n, S, R = N - 1, len(grammar.symbols), len(grammar.scores)
    tags, rules, spans = some(B, n, grammar.tags), some(B, R), some(B, n, n, S)
    tags[:, ::2, 1] = NEG_INF
    rules[(some(B, R) < -1.3) & ~_needed(grammar)] = NEG_INF
    for x in (tags, rules, spans):
        x[2] *= 300.0
    yield cky.CKY, [distributions.ConstituencyTrees(grammar, tags, rules=rules, spans=spans, **given)]
    yield lexical.LEXICAL, [distributions.LexicalizedTrees(grammar, tags, arcs, **given)]


def _grammar(like: Tensor) -> Grammar:
    """Nine symbols, four of them tags, some eighty rules, some of them forbidden; it has trees of any length."""
    generator, S, T = torch.Generator().manual_seed(6), 9, 4
    every = torch.cartesian_prod(torch.arange(T, S), torch.arange(S), torch.arange(S))
    chosen = every[torch.randperm(len(every), generator=generator)[:80]]
    rules = torch.cat([chosen, torch.tensor([[T, 0, 0], [T, 0, T]])]).unique(dim=0).to(like.device)
    some, (R, _) = _randoms(7, like), rules.shape
    parents, lefts, rights = rules.T
    sides = (some(R) > 0).long()
    grammar = Grammar(tuple(map(str, range(S))), T, parents, lefts, rights, sides, some(R), some(S))
    grammar.scores[(some(R) < -1.3) & ~_needed(grammar)] = NEG_INF
    return grammar


def _needed(grammar: Grammar) -> Tensor:
    return (grammar.parents == grammar.tags) & (grammar.lefts == 0)


def _of_pricing(arcs: Tensor, lengths: Tensor) -> Iterator[KernelComparison]:
    """What is found, and what is known afterwards; duals such that about a tenth of the triples are."""
    some, (B, N) = _randoms(3, arcs), arcs.shape[:2]
    generator = torch.Generator().manual_seed(4)
    shapes = {(5, 3, B, N): 50, (5, 3, pricing.CODES): 20}
    index, relations = (torch.randint(0, k, x, generator=generator).to(lengths) for x, k in shapes.items())
    ceiling = some(B, N, N).double() + 1

    def price(scorer: pricing.Scorer, siblings: bool) -> Results:
        every = torch.cartesian_prod(*(torch.arange(k, device=arcs.device) for k in (B, N, N, N)))
        scores = scorer.score(*every.T).double().view(B, N, N, N)
        known = torch.full_like(scores, torch.nan)
        duals: dict[str, Any] = {"ceiling": ceiling, "floor": ceiling - 0.5, "kappa": ceiling.abs() / 4}
        over_c = scores.amax(3)
        duals |= {"over_g": scores.amax(1), "over_c": over_c.mT.contiguous() if siblings else over_c}
        how: dict[str, Any] = {"tolerance": 1e-9, "room": N**3, "siblings": siblings}
        found = pricing.price(scorer, lengths, **duals, known=known, **how)
        listed = torch.arange(N**3, device=arcs.device) < found.count[:, None]
        return [found.triples[listed], found.score[listed], found.count, found.worst, known.nan_to_num(99.0)]

    for scorer in (
        pricing.Scorer.dense(some(B, N, N, N)),
        pricing.Scorer.trilinear(*some(3, B, N, 11)),
        pricing.Scorer.templates(some(250), index, relations),
    ):
        yield KernelComparison(f"pricing ({scorer.kind})", 0.0, partial(price, scorer, False))
        if scorer.kind != "templates":
            siblings = replace(scorer, siblings=True)
            yield KernelComparison(f"pricing (siblings, {scorer.kind})", 0.0, partial(price, siblings, True))


def _of_priced(arcs: Tensor, lengths: Tensor, rounded: float) -> Iterator[KernelComparison]:
    """The scores of trees, for of equal ones any may be found."""
    some, (B, N) = _randoms(6, arcs), arcs.shape[:2]
    generator = torch.Generator().manual_seed(6)
    first, second = some(3, B, N, 11) / 2, some(3, B, N, 11) / 2
    shapes = {(5, 3, B, N): 50, (5, 3, B, N + 1): 50, (5, 3, pricing.CODES): 20}
    index, longer, relations = (torch.randint(0, k, x, generator=generator).to(lengths) for x, k in shapes.items())
    weights = some(250)
    scorers = {
        "dense": (pricing.Scorer.dense(some(B, N, N, N), siblings=True), pricing.Scorer.dense(some(B, N, N, N))),
        "trilinear": (pricing.Scorer.trilinear(*first, siblings=True), pricing.Scorer.trilinear(*second)),
        "templates": (
            pricing.Scorer.templates(weights, longer, relations, siblings=True),
            pricing.Scorer.templates(weights, index, relations),
        ),
    }
    every = torch.cartesian_prod(*(torch.arange(k, device=arcs.device) for k in (B, N, N, N))).T
    sentence, i, j, k = every

    def trees(siblings: pricing.Scorer, grandparents: pricing.Scorer) -> Results:
        beside = siblings.score(sentence, j, i, k).view(B, N, N, N)
        above = grandparents.score(sentence, i, j, k).view(B, N, N, N)
        scores = Scores(arcs, lengths, siblings=beside, grandparents=above)
        pairs = [
            priced.Pairs(scorer, parts.bound(axis).double())
            for scorer, parts, axis in ((siblings, scores.siblings, 1), (grandparents, scores.grandparents, 0))
            if parts is not None
        ]
        found = priced.argmax(arcs.double(), lengths, pairs[0], pairs[1], single_root=True)
        return [scores.total(found.heads)]

    for kind, both in scorers.items():
        yield KernelComparison(f"grandsiblings_priced ({kind})", rounded, partial(trees, *both))


def _chains(like: Tensor) -> Iterator[distributions.ChainDistribution]:
    """Ragged, with forbidden tags and scores of very different size; tag 0 may go everywhere."""
    some, B, n, T = _randoms(0, like), 6, 7, 5
    lengths = torch.tensor([7, 7, 6, 4, 2, 1], device=like.device)
    pairs: Any = distributions.TagChains
    for kind, shape in ((pairs, (T, T)), (pairs, (B, n - 1, T, T)), (distributions.TrigramChains, (T, T, T))):
        unary, rows = some(B, n, T), some(*shape)
        for scores in (unary, rows):
            forbidden = some(*scores.shape) < -0.7
            forbidden[..., 0] = False
            scores[forbidden] = NEG_INF
        unary[1] *= 30.0
        unary[2] *= 700.0
        yield kind(unary, rows, lengths, validate_args=False)
