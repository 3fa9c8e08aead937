"""Calls of the library's functions: random instances against enumeration, and arguments that are nonsense.

Right is what ``exact.Truth`` says, within the rounding of the numbers that the library promises; anything else must be
a ValueError of one line. Instances of moderate scores that have a structure may not be refused at all.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import Any

import torch
from exact import Part, Truth, arcs_of, chains, derivations, padded, pairs_of, rows_to_parts, trees
from mutate import refusal
from nonsense import call_with_nonsense
from torch import Tensor
from torch.distributions import kl_divergence

import gpuparse as gp

NAME = "api"
COUNT = 200_000

DTYPES = (torch.float64, torch.float64, torch.float32, torch.float32, torch.bfloat16, torch.float16)
SCALES = (1.0, 1.0, 1.0, 30.0, 1e3, 1e5, 1e8, 1e12, 1e16, 1e30, 1e100, 1e300, 1e-8, 1e-300)
OFFSETS = (0.0, 0.0, 0.0, 1e4, -1e4, 1e9, -1e9, 1e16, -1e16, 1e30, 1e200, -1e300)
MASKS = (-math.inf, -math.inf, -1e4, -1e9, -1e16, -1e30, -1e300, None)  # None: the least of the dtype
# Sums of scores near -2^32 are known to 1e-6, a little more for sums of several; float32 has 6e-8 of any result.
ROUGH = 2e-5
MODERATE = 1e6


def one(rng: random.Random, directory: Path) -> str:
    """One case; what came of it."""
    torch.manual_seed(rng.getrandbits(32))
    if rng.random() < 0.35:
        return call_with_nonsense(rng)
    return rng.choice(FAMILIES)(rng)


def numbers(rng: random.Random, shape: Sequence[int], dtype: torch.dtype, groups: Sequence[int] = ()) -> Tensor:
    """Scores of some size, with offsets for all or for each place of the dimensions ``groups``, and masks."""
    scale, second = rng.choice(SCALES), rng.choice(SCALES)
    g = torch.Generator().manual_seed(rng.getrandbits(32))
    x = torch.randn(list(shape), generator=g, dtype=torch.float64) * scale
    if rng.random() < 0.15:
        x = torch.where(torch.rand(x.shape, generator=g) < 0.3, x / scale * second, x)
    if groups and rng.random() < 0.4:
        each = [shape[i] if i in groups else 1 for i in range(len(shape))]
        x = x + torch.randn(each, generator=g, dtype=torch.float64).sign() * rng.choice(OFFSETS)
    elif rng.random() < 0.3:
        x = x + rng.choice(OFFSETS)
    share = rng.choice((0.0, 0.0, 0.1, 0.3, 0.7))
    mask = rng.choice(MASKS)
    low = float(torch.finfo(dtype).min) if mask is None else mask
    x = torch.where(torch.rand(x.shape, generator=g) < share, low, x)
    most = torch.finfo(dtype).max  # what is beyond the dtype is its last number
    return torch.where(x.isneginf(), x, x.clamp(-most, most)).to(dtype)


def lengths_up_to(rng: random.Random, B: int, n: int) -> list[int]:
    return [rng.randint(1, n) for _ in range(B)]


@dataclass
class Sentence:
    """What is known of one sentence: its structures, its scores, and how to read an answer."""

    structures: Sequence[Sequence[Part]]
    scores: dict[str, Tensor]
    parts_of: Callable[[Tensor], Sequence[Part]]
    truth: Truth = field(init=False)

    def __post_init__(self) -> None:
        self.truth = Truth(self.structures, self.scores)

    @property
    def exists(self) -> bool:
        return bool(self.truth.scores)


def may_refuse(sentences: Sequence[Sentence], none_is_an_error: bool) -> bool:
    """Whether some sentence has nothing to answer with, or numbers that are not moderate."""
    none = none_is_an_error and any(not s.exists for s in sentences)
    return none or any(is_large(x) for s in sentences for x in s.scores.values())


def is_large(x: Tensor) -> bool:
    return bool((x.detach().isfinite() & (x.detach().abs() > MODERATE)).any())


def check_distribution(
    rng: random.Random,
    make: Callable[[], Any],
    sentences: Sequence[Sentence],
    marginals: dict[str, str],
    given: Sequence[Tensor],
    *,
    none_is_an_error: bool = True,
    other: tuple[Callable[[], Any], Sequence[Sentence]] | None = None,
) -> str:
    """Everything that a distribution says, against the truth. ``marginals``: attributes by names of scores; ``other``:
    one for the KL divergence."""
    gradient = rng.random() < 0.3
    if gradient:
        for x in given:
            x.requires_grad_()
    try:
        p = make()
    except ValueError as error:
        assert may_refuse(sentences, none_is_an_error), f"refused: {error}"
        return refusal(error)
    assert all(s.exists for s in sentences) or not none_is_an_error, "a sentence without any structure was taken"
    log_z = p.log_partition
    assert log_z.dtype == (torch.float64 if given[0].dtype == torch.float64 else torch.float32), "dtype of results"
    if gradient:
        log_z.sum().backward() if all(s.exists for s in sentences) else None
        assert all(x.grad is None or (x.grad.dtype == x.dtype and x.grad.isfinite().all()) for x in given), "gradients"
    for b, s in enumerate(sentences):
        if not s.exists:
            assert float(log_z[b].detach()) == -math.inf, f"log_partition[{b}] of nothing is {float(log_z[b])}"
            continue
        near(log_z[b], s.truth.log_z, f"log_partition[{b}]", size=sum_of_sizes(s))
    for name, attribute in marginals.items():
        found = getattr(p, attribute).detach()
        for b, s in enumerate(sentences):
            want = padded(s.truth.marginals(name), found[b]) if s.exists else torch.zeros(found[b].shape)
            worst = float((found[b].double() - want).abs().max()) if want.numel() else 0.0
            assert worst <= ROUGH * max(1, len(s.scores)), f"{attribute}[{b}] is off by {worst}"
    check_answers(rng, p, sentences)
    entropy = p.entropy().detach()
    for b, s in enumerate(sentences):
        if s.exists:
            near(entropy[b], s.truth.entropy, f"entropy[{b}]")
    if other is not None:
        check_kl(p, sentences, *other)
    return "ok"


def check_kl(p: Any, sentences: Sequence[Sentence], make: Callable[[], Any], others: Sequence[Sentence]) -> None:
    try:
        q = make()
    except ValueError as error:
        assert may_refuse(others, True), f"refused: {error}"
        refusal(error)
        return
    found = kl_divergence(p, q).detach()
    for b, (s, t) in enumerate(zip(sentences, others, strict=True)):
        log_q = dict(zip(t.truth.structures, t.truth.relative, strict=True))
        if any(parts not in log_q for parts in s.truth.structures):
            assert float(found[b]) == math.inf, f"KL[{b}] is {float(found[b])}, not inf"
            continue
        rows = list(zip(s.truth.structures, s.truth.relative, s.truth.probabilities, strict=True))
        shift = math.log(t.truth.total) - math.log(s.truth.total)
        want = math.fsum(p * (x - log_q[parts] + shift) for parts, x, p in rows if p > 0)
        far = max(abs(log_q[parts]) for parts, _, _ in rows)  # a probability may be off by 2^-50
        if abs(want) + far < 1e288:  # from there on all are alike
            near(found[b], want, f"KL[{b}]", size=min(far, 1e300) * 1e-14)


def check_answers(rng: random.Random, p: Any, sentences: Sequence[Sentence]) -> None:
    """argmax, max, topk, samples and their log-probabilities."""
    best, score = p.argmax, p.max.detach()
    drawn = p.sample((rng.choice((0, 1, 3)),))
    log_prob = p.log_prob(best).detach()
    for b, s in enumerate(sentences):
        if not s.exists:
            assert bool((best[b] == -1).all()), f"argmax[{b}] of nothing"
            continue
        parts = s.parts_of(best[b])
        below = s.truth.below_best(parts)
        assert below >= -ROUGH, f"argmax[{b}] scores {below} less than the best"
        near(score[b], s.truth.log_z - math.log(s.truth.total), f"max[{b}]", size=sum_of_sizes(s))
        near(log_prob[b], s.truth.log_prob(parts), f"log_prob[{b}]")
        for draw in drawn[:, b]:
            assert s.truth.log_prob(s.parts_of(draw)) > -800, f"sample[{b}] has no probability"
    if not hasattr(p, "topk"):
        return
    k = rng.randint(1, 6)
    try:
        found, _ = p.topk(k)
    except ValueError as error:
        assert may_refuse(sentences, True), f"topk refused: {error}"
        refusal(error)
        return
    for b, s in enumerate(sentences):
        ranks = sorted(s.truth.relative, reverse=True)[:k]
        seen = set()
        for r in range(k):
            if r >= len(ranks):
                assert bool((found[r, b] == -1).all()), f"topk: rank {r} of sentence {b} does not exist"
                continue
            parts = tuple(s.parts_of(found[r, b]))
            assert parts not in seen, f"topk: rank {r} of sentence {b} came before"
            seen.add(parts)
            below = s.truth.below_best(parts)
            if ranks[r] > -1e288:  # from there on all are alike
                near(below, ranks[r], f"topk: rank {r} of sentence {b}", relative=1e-12)


def sum_of_sizes(s: Sentence) -> float:
    """What sums of the scores of a structure may be rounded by."""
    return s.truth.largest * 2e-15 * max(len(parts) for parts in s.structures)


def near(found: Tensor | float, want: float, what: str, *, relative: float = 2e-7, size: float = 0.0) -> None:
    value = float(found.detach()) if isinstance(found, Tensor) else found
    allowed = ROUGH + relative * abs(want) + size
    if isinstance(found, Tensor) and abs(want) >= torch.finfo(found.dtype).max:  # where doubles end
        return
    assert abs(value - want) <= allowed or value == want, f"{what} is {value}, not {want}"


def dependency(rng: random.Random) -> str:
    projective, single_root = rng.random() < 0.5, rng.random() < 0.6
    B, n, dtype = rng.choice((0, 1, 1, 1, 2)), rng.randint(1, 4), rng.choice(DTYPES)
    arcs, lengths = (
        numbers(rng, (B, n + 1, n + 1), dtype, rng.choice(((0, 2), (1,), (0, 1), ()))),
        lengths_up_to(rng, B, n),
    )
    if rng.random() < 0.3:
        unread(arcs, lengths)
    make = gp.ProjectiveTrees if projective else gp.NonProjectiveTrees

    def known(arcs: Tensor) -> tuple[Callable[[], Any], list[Sentence]]:
        sentences = [
            Sentence(
                [arcs_of(heads) for heads in trees(m, single_root, projective)],
                {"arcs": arcs[b]},
                lambda heads, m=m: arcs_of(tuple(heads[1 : m + 1].tolist())),
            )
            for b, m in enumerate(lengths)
        ]
        return lambda: make(arcs, lengths, single_root=single_root), sentences

    other = known(numbers(rng, arcs.shape, dtype, (0, 2))) if rng.random() < 0.2 else None
    return check_distribution(rng, *known(arcs), {"arcs": "marginals"}, [arcs], other=other)


def unread(arcs: Tensor, lengths: list[int]) -> None:
    """NaN where nothing is read."""
    arcs[:, :, 0] = math.nan
    for b, m in enumerate(lengths):
        arcs[b, m + 1 :] = arcs[b, :, m + 1 :] = math.nan


def second_order(rng: random.Random) -> str:
    B, n, dtype, single_root = rng.choice((0, 1, 1, 1, 1, 2)), rng.randint(1, 3), rng.choice(DTYPES), rng.random() < 0.6
    N, lengths = n + 1, lengths_up_to(rng, B, n)
    given = {"arcs": numbers(rng, (B, N, N), dtype, (0, 2))}
    for name in ("siblings", "grandparents"):
        if rng.random() < 0.6:
            given[name] = numbers(rng, (B, N, N, N), dtype, rng.choice(((0, 3), ())))
    kinds = ("siblings" in given, "grandparents" in given)
    sentences = [
        Sentence(
            [pairs_of(heads, *kinds) for heads in trees(m, single_root, True)],
            {name: x[b] for name, x in given.items()},
            lambda heads, m=m: pairs_of(tuple(heads[1 : m + 1].tolist()), *kinds),
        )
        for b, m in enumerate(lengths)
    ]
    names = {"arcs": "marginals", "siblings": "sibling_marginals", "grandparents": "grandparent_marginals"}
    make = partial(gp.SecondOrderTrees, lengths=lengths, single_root=single_root, **given)
    return check_distribution(rng, make, sentences, {name: names[name] for name in given}, list(given.values()))


def place_of(tags: Tensor, T: int) -> int:
    """The place of a chain among all of its length."""
    return reduce(lambda place, t: place * T + t, tags.tolist(), 0)


def tag_chain(rng: random.Random) -> str:
    B, n, T, dtype = rng.choice((0, 1, 1, 1, 2)), rng.randint(1, 4), rng.randint(1, 3), rng.choice(DTYPES)
    size, own = rng.choice((2, 2, 3)), rng.random() < 0.4
    own = own and size == 2
    unary, lengths = numbers(rng, (B, n, T), dtype, (0, 1)), lengths_up_to(rng, B, n)
    rows = numbers(rng, (B, n - 1, T, T) if own else [T] * size, dtype, (0, 1) if own else ())
    name = "transitions" if size == 2 else "trigrams"

    make = gp.TagChains if size == 2 else gp.TrigramChains

    def known(unary: Tensor) -> tuple[Callable[[], Any], list[Sentence]]:
        sentences = [
            Sentence(
                chains(m, T, size, own),
                {"unary": unary[b], name: rows[b] if own else rows},
                lambda tags, m=m: chains(m, T, size, own)[place_of(tags[:m], T)],
            )
            for b, m in enumerate(lengths)
        ]
        return lambda: make(unary, rows, lengths), sentences

    other = known(numbers(rng, unary.shape, dtype, (0, 1))) if rng.random() < 0.2 else None
    return check_distribution(rng, *known(unary), {"unary": "marginals"}, [unary, rows], other=other)


def grammar(rng: random.Random, dtype: torch.dtype, heads: bool) -> gp.Grammar:
    """A small one, every rule once."""
    T, S = rng.randint(1, 2), rng.randint(2, 4)
    S = max(S, T + 1)
    most = [(a, b, c, d) for a in range(T, S) for b in range(S) for c in range(S) for d in ((0, 1) if heads else (0,))]
    rules = rng.sample(most, min(len(most), rng.randint(1, 6)))
    columns = [torch.tensor(list(x), dtype=torch.int64) for x in zip(*rules, strict=True)]
    scores, roots = numbers(rng, (len(rules),), dtype), numbers(rng, (S,), dtype)
    return gp.Grammar(tuple(f"s{i}" for i in range(S)), T, *columns, scores, roots)


def phrase(rng: random.Random) -> str:
    B, n, dtype = rng.choice((0, 1, 1, 1, 1, 2)), rng.randint(1, 3), rng.choice(DTYPES)
    with_heads, with_spans = rng.random() < 0.4, rng.random() < 0.4
    try:
        g = grammar(rng, dtype, with_heads)
    except ValueError as error:
        assert "+inf" in str(error), str(error)
        return refusal(error)
    lengths, S = lengths_up_to(rng, B, n), len(g.symbols)
    tags = numbers(rng, (B, n, g.tags), dtype, (0, 1))
    given = {"tags": tags}
    if with_heads:
        given["arcs"] = numbers(rng, (B, n + 1, n + 1), dtype, (0, 2))
    elif with_spans:
        given["spans"] = numbers(rng, (B, n, n, S), dtype)
    sentences = []
    for b, m in enumerate(lengths):
        all_of = derivations(g, m, spans="spans" in given, heads=with_heads)
        scores = {name: x[b] for name, x in given.items()} | {"rules": g.scores, "roots": g.roots}
        read = lambda rows: rows_to_parts(rows, g, "spans" in given)  # noqa: E731
        sentences.append(
            Sentence([tuple(sorted(x)) for x in all_of], scores, lambda rows, read=read: sorted(read(rows)))
        )
    names = {"tags": "tag_marginals", "rules": "rule_marginals", "roots": "root_marginals"}
    names |= {"arcs": "arc_marginals"} if with_heads else {"spans": "span_marginals"} if with_spans else {}
    make = gp.LexicalizedTrees if with_heads else gp.ConstituencyTrees
    tensors = list(given.values())
    return check_distribution(
        rng, lambda: make(g, lengths=lengths, **given), sentences, names, tensors, none_is_an_error=False
    )


def decoding(rng: random.Random) -> str:
    method = rng.choice(("mst", "eisner", "auto"))
    projective, single_root = method == "eisner" or rng.random() < 0.3, rng.random() < 0.6
    projective = projective and method != "mst"
    B, n, dtype, L = rng.choice((0, 1, 2, 3)), rng.randint(1, 4), rng.choice(DTYPES), rng.randint(0, 3)
    arcs, lengths = numbers(rng, (B, n + 1, n + 1), dtype, (0, 2)), lengths_up_to(rng, B, n)
    labels = numbers(rng, (B, n + 1, n + 1, L), dtype, (0, 2)) if L else None
    scores = [{"arcs": arcs[b]} | ({} if labels is None else {"labels": labels[b].amax(-1)}) for b in range(B)]
    names = ("arcs",) if labels is None else ("arcs", "labels")

    def parts_of(heads: tuple[int, ...]) -> Sequence[Part]:
        return [(name, h, m) for m, h in enumerate(heads, 1) for name in names]

    truths = [
        Truth([parts_of(heads) for heads in trees(m, single_root, projective)], scores[b])
        for b, m in enumerate(lengths)
    ]
    use_mst = labels is None and method == "mst" and rng.random() < 0.5
    try:
        if use_mst:
            heads, score = gp.mst(arcs, lengths, single_root=single_root), None
        else:
            parse = gp.decode(
                gp.Scores(arcs, lengths, labels=labels), method, projective=projective, single_root=single_root
            )
            heads, score = parse.heads, parse.score
            assert bool(parse.certified.all()), "not certified"
    except ValueError as error:
        none = any(not truth.scores for truth in truths)
        assert none or any(is_large(x) for x in (arcs, labels) if x is not None), f"refused: {error}"
        return refusal(error)
    for b, (m, truth) in enumerate(zip(lengths, truths, strict=True)):
        assert truth.scores, f"sentence {b} has no tree"
        found = tuple(heads[b, 1 : m + 1].tolist())
        assert found in trees(m, single_root, projective), f"heads[{b}] are not a tree: {found}"
        below = truth.below_best(parts_of(found))
        size = max(truth.size(parts_of(found)), truth.size_of_best)  # as far as doubles tell these two apart
        assert below >= -max(ROUGH, size * 2e-14), f"heads[{b}] score {below} less than the best"
        if score is not None:
            near(score[b], truth.log_z - math.log(truth.total), f"score[{b}]", size=truth.largest * 2e-14)
    return "ok"


def best_chain(rng: random.Random) -> str:
    B, n, T, dtype, own = rng.choice((0, 1, 2)), rng.randint(1, 4), rng.randint(1, 3), rng.choice(DTYPES), False
    unary, lengths = numbers(rng, (B, n, T), dtype, (0, 1)), lengths_up_to(rng, B, n)
    rows = numbers(rng, (T, T), dtype)
    method = rng.choice(("auto", "dense", "column_generation"))
    truths = [Truth(chains(m, T, 2, own), {"unary": unary[b], "transitions": rows}) for b, m in enumerate(lengths)]
    try:
        found = gp.viterbi(unary, rows, lengths, method=method)
    except ValueError as error:
        assert any(not truth.scores for truth in truths) or is_large(unary) or is_large(rows), f"refused: {error}"
        return refusal(error)
    for b, (m, truth) in enumerate(zip(lengths, truths, strict=True)):
        assert truth.scores, f"sentence {b} has no chain"
        below = truth.below_best(chains(m, T, 2, own)[place_of(found.tags[b, :m], T)])
        assert below >= -ROUGH, f"tags[{b}] score {below} less than the best"
    return "ok"


FAMILIES: tuple[Callable[[random.Random], str], ...] = (
    *(dependency, dependency, dependency, second_order, second_order, tag_chain, tag_chain),
    *(phrase, phrase, decoding, decoding, best_chain),
)
