"""Every family of distributions: how to make one from scores, and all structures of a short sentence with their parts.

What a distribution says is compared with sums over that list (``Enumerated``). A new family is added to ``FAMILIES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.ops.backend import choose
from gpuparse.structures.masks import grandparent_mask, grandsibling_mask, sibling_mask
from tests.distributions.numeric import F64, INF, NAN, NEG_INF, generator
from tests.oracle import all_chains, all_trees, never_read

Parts = dict[str, list[tuple[int, ...]]]
DIMENSIONS = {"arcs": 3, "siblings": 4, "grandparents": 4, "unary": 3, "transitions": 4, "trigrams": 4}
DIMENSIONS |= {"grandsiblings": 5, "tags": 3, "rules": 2, "roots": 2, "spans": 4}
"""Of scores that each sentence has its own of; others have fewer."""


def leaves_of(scores: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.clone().requires_grad_() for name, x in scores.items()}


@contextmanager
def plainly() -> Iterator[None]:
    """Without kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "_prepared", lambda *_: (None, "GPUPARSE_BACKEND=torch"))
        yield


# ------------------------------------------------------------------------------------- all structures, and their parts


def trees_of(n: int, *, single_root: bool, projective: bool) -> list[tuple[Any, Parts]]:
    """Heads, arcs (h, m), siblings (h, s, m), grandparents (g, h, m) and grandsiblings (g, h, s, m)."""
    found = []
    for heads in all_trees(n, single_root=single_root, projective=projective).tolist():
        parts: Parts = {"arcs": [], "siblings": [], "grandparents": [], "grandsiblings": []}
        for m in range(1, n + 1):
            h = heads[m]
            inner = range(h + 1, m) if h < m else range(h - 1, m, -1)  # outward from the head
            before = [s for s in inner if s >= 1 and heads[s] == h]
            parts["arcs"].append((h, m))
            parts["siblings"].append((h, before[-1] if before else h, m))
            if h > 0:
                parts["grandparents"].append((heads[h], h, m))
                parts["grandsiblings"].append((heads[h], *parts["siblings"][-1]))
        found.append((heads, parts))
    return found


def chains_of(n: int, *, tags: int, places: bool) -> list[tuple[Any, Parts]]:
    found = []
    for chain in all_chains(n, tags).tolist():
        pairs = [((i,) if places else ()) + tuple(chain[i : i + 2]) for i in range(n - 1)]
        triples = [tuple(chain[i : i + 3]) for i in range(n - 2)]
        found.append((chain, {"unary": list(enumerate(chain)), "transitions": pairs, "trigrams": triples}))
    return found


def phrases_of(n: int, *, grammar: gp.Grammar, heads: bool) -> list[tuple[Any, Parts]]:
    """Trees of a grammar, put together from the bottom up; rows with head words if they have such."""
    rules = list(
        zip(*(x.tolist() for x in (grammar.parents, grammar.lefts, grammar.rights, grammar.heads)), strict=True)
    )
    over: dict[tuple[int, int], list[tuple[int, int, list[tuple[int, ...]], Parts]]] = {}
    for i in range(n):
        leaf = (i + 1,) if heads else ()
        over[i, i] = [(t, i + 1, [(i, i, t, -1, *leaf)], {"tags": [(i, t)]}) for t in range(grammar.tags)]
    for i, j in ((i, i + width) for width in range(1, n) for i in range(n - width)):
        over[i, j] = here = []
        for k in range(i, j):
            for left in over[i, k]:
                for right in over[k + 1, j]:
                    for r, (a, b, c, side) in enumerate(rules):
                        if (left[0], right[0]) == (b, c):
                            h, m = (right[1], left[1]) if side else (left[1], right[1])
                            parts = {
                                x: left[3].get(x, []) + right[3].get(x, []) for x in ("tags", "rules", "arcs", "spans")
                            }
                            parts["rules"] = [*parts["rules"], (r,)]
                            parts["arcs"] = [*parts["arcs"], (h, m)]
                            parts["spans"] = [*parts["spans"], (i, j, a)]
                            row = (i, j, a, k, *((h,) if heads else ()))
                            here.append((a, h, [row, *left[2], *right[2]], parts))
    return [
        (rows, {**parts, "roots": [(a,)], "arcs": [*parts.get("arcs", []), (0, h)]})
        for a, h, rows, parts in over[0, n - 1]
    ]


# ------------------------------------------------------------------------------------------------------------ families


@dataclass(frozen=True)
class Facts:
    """What conditions are about: arcs, tags, or symbols over spans.

    `of` lists those of a structure, as places in `forbidden` [*shape]; `required` has no dimension `axis`."""

    shape: Callable[[int], tuple[int, ...]]
    of: Callable[[Any, Parts], Sequence[tuple[int, ...]]]
    axis: int


ARCS = Facts(lambda n: (n + 1, n + 1), lambda _, parts: parts["arcs"], 0)


@dataclass(frozen=True)
class Family:
    """Shapes are those of `batch` sentences of `words` words; `read` says which scores of a name are read."""

    make: Callable[..., Any]
    shapes: Callable[[int, int], dict[str, tuple[int, ...]]]
    listed: Callable[[int], list[tuple[Any, Parts]]]
    read: dict[str, Callable[[Tensor, Tensor], Tensor]]
    facts: Facts
    words: int = 4
    """The longest sentences whose structures are listed."""
    allowed: Callable[[int, int], Tensor] | None = None
    """Which of the structures of n words a condition on sentence b allows [C], by b and n; None: there is none."""
    known: dict[int, tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]] = field(default_factory=dict, repr=False)
    known_facts: dict[int, Tensor] = field(default_factory=dict, repr=False)

    def has(self, n: int) -> Tensor:
        """Which facts are true of each structure of n words [C, *shape]."""
        if n not in self.known_facts:
            listed = self.listed(n)
            found = torch.zeros(len(listed), *self.facts.shape(n), dtype=torch.bool)
            for row, (structure, parts) in zip(found, listed, strict=True):
                for fact in self.facts.of(structure, parts):
                    row[tuple(fact)] = True
            self.known_facts[n] = found
        return self.known_facts[n]

    def all(self, n: int) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Structures [C, ...] of n words; of each name the parts of each [C, K, dims], and those it has [C, K]."""
        if n not in self.known:
            listed = self.listed(n)
            parts, used = {}, {}
            for name, shape in self.shapes(1, n).items():
                rows = [p.get(name, []) for _, p in listed]
                most, dims = max(map(len, rows)), len(shape) - is_own(name, shape)
                filled = [row + [(0,) * dims] * (most - len(row)) for row in rows]
                parts[name] = torch.tensor(filled, dtype=torch.int64).reshape(len(rows), most, dims)
                used[name] = torch.arange(most) < torch.tensor([len(row) for row in rows])[:, None]
            self.known[n] = torch.tensor([x for x, _ in listed]), parts, used
        return self.known[n]

    def scores(
        self,
        seed: int,
        *,
        batch: int = 3,
        words: int | None = None,
        forbidden: float = 0.3,
        magnitude: float = 1.0,
        dtype: torch.dtype = F64,
        poison: bool = True,
        keep: bool = True,
    ) -> tuple[dict[str, Tensor], Tensor]:
        """A ragged batch; some scores are -inf, but if `keep` those of one structure of each sentence stay, where they
        are listed. What is never read is NaN, or else 0."""
        words, g = words or self.words, generator(seed)
        lengths = torch.randint(1, words + 1, (batch,), generator=g)
        lengths[0] = words
        shapes = self.shapes(batch, words)
        found = {name: magnitude * torch.randn(s, generator=g, dtype=F64) for name, s in shapes.items()}
        barred = {name: torch.rand(s, generator=g) < forbidden for name, s in shapes.items()}
        for b, n in enumerate(lengths.tolist()):
            if keep and n <= self.words:
                structures, parts, used = self.all(n)
                chosen = int(torch.randint(len(structures), (), generator=g))
                for name, index in parts.items():
                    own = barred[name][b] if is_own(name, shapes[name]) else barred[name]
                    own[tuple(index[chosen][used[name][chosen]].unbind(-1))] = False
        for name, x in found.items():
            x = x.masked_fill(barred[name], NEG_INF)
            if name in self.read:
                x = torch.where(self.read[name](lengths, x), x, NAN if poison else 0.0)
            found[name] = x.to(dtype)
        return found, lengths

    def random(self, seed: int, **options: Any) -> Any:
        return self.make(*self.scores(seed, **options))


def is_own(name: str, shape: Sequence[int]) -> bool:
    """Whether each sentence has such scores of its own."""
    return len(shape) == DIMENSIONS[name]


class Enumerated:
    """What follows about sentence b of a distribution from the list of its structures; in float64."""

    def __init__(self, family: Family, scores: dict[str, Tensor], lengths: Tensor, b: int) -> None:
        n, rows = int(lengths[b]), family.all(int(lengths.max()))[0].shape[1]
        self.b, (self.structures, self.parts, self.used) = b, family.all(n)
        self.sizes = {name: self._own(name, x).shape for name, x in scores.items()}
        self.scores = self.sums(scores)
        if family.allowed is not None:
            self.scores = self.scores.masked_fill(~family.allowed(b, n), NEG_INF)
        self.log_partition = self.scores.logsumexp(0)
        self.exists = bool(self.scores.max() > NEG_INF)
        self.probs = (self.scores - self.log_partition).exp() if self.exists else torch.zeros_like(self.scores)
        self.marginals = self.expected(self.probs)
        self.entropy = -torch.special.xlogy(self.probs, self.probs).sum()
        pad = torch.full((len(self.structures), rows - self.structures.shape[1], *self.structures.shape[2:]), -1)
        self.padded = torch.cat([self.structures, pad], 1)

    def _own(self, name: str, x: Tensor) -> Tensor:
        return x[self.b] if is_own(name, x.shape) else x

    def sums(self, scores: dict[str, Tensor]) -> Tensor:
        """Of each structure, of scores or of anything like them."""
        total = torch.zeros(len(self.structures), dtype=F64)
        for name, index in self.parts.items():
            each = self._own(name, scores[name]).detach().double()[tuple(index.unbind(-1))]
            total = total + torch.where(self.used[name], each, 0.0).sum(1)
        return total

    def expected(self, weights: Tensor) -> dict[str, Tensor]:
        """How often each part comes, if each structure comes so often."""
        found = {}
        for name, index in self.parts.items():
            each = torch.where(self.used[name], weights[:, None], 0.0)
            x = torch.zeros(self.sizes[name], dtype=F64)
            found[name] = x.index_put_(tuple(index.unbind(-1)), each, accumulate=True)
        return found

    def derivative(self, directions: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Of the marginals, along up to two directions: central moments."""
        weights = self.probs
        for direction in directions:
            along = self.sums(direction)
            weights = weights * (along - (self.probs * along).sum())
        if not directions:
            return self.marginals
        return {name: x - weights.sum() * self.marginals[name] for name, x in self.expected(weights).items()}

    def where(self, structures: Tensor) -> Tensor:
        """Places in the list of structures [..., *event], each of which must be in it."""
        same = (structures.flatten(-self.padded.dim() + 1)[..., None, :] == self.padded.flatten(1)).all(-1)
        assert bool((same.sum(-1) == 1).all())
        return same.long().argmax(-1)

    def kl(self, other: Enumerated) -> Tensor:
        """KL(self || other), inf where the other forbids what this allows."""
        gap = (self.scores - self.log_partition) - (other.scores - other.log_partition)
        each = torch.where(other.scores.isneginf(), INF, self.probs * gap)
        return torch.where(self.scores.isneginf(), 0.0, each).sum()


def enumerate_all(family: Family, scores: dict[str, Tensor], lengths: Tensor) -> list[Enumerated]:
    return [Enumerated(family, scores, lengths, b) for b in range(len(lengths))]


def summed(scores: dict[str, Tensor], each: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """What was found for each sentence, in the shape of the scores, which sentences may share."""
    found = {name: torch.stack([x[name] for x in each]) for name in scores}
    return {name: x if is_own(name, scores[name].shape) else x.sum(0) for name, x in found.items()}


def marginals_of(p: Any) -> dict[str, Tensor]:
    """Expected numbers by the names of the scores."""
    given = [name for name in p.parts if getattr(p, name) is not None]
    own = {name: f"{name.removesuffix('s')}_marginals" for name in given}  # else, of arcs and of tags, the marginals
    return {name: getattr(p, own[name] if hasattr(type(p), own[name]) else "marginals") for name in given}


def everything(p: Any) -> dict[str, Tensor]:
    """All that is not random."""
    best = p.argmax
    found = {"log_partition": p.log_partition, "argmax": best, "max": p.max, "entropy": p.entropy()}
    found |= {"log_prob": p.log_prob(best), "score": p.score(best), **marginals_of(p)}
    if hasattr(p, "topk"):
        found["topk"], found["topk scores"] = p.topk(3)
    return found


def _arcs(lengths: Tensor, x: Tensor) -> Tensor:
    return ~never_read(lengths, x.shape[1])


def _words(lengths: Tensor, x: Tensor) -> Tensor:
    return (torch.arange(x.shape[1]) < lengths[:, None]).view(*x.shape[:2], *[1] * (x.dim() - 2))


def _trees(kind: Any, single_root: bool, projective: bool, *pairs: str) -> Family:
    def make(scores: dict[str, Tensor], lengths: Any = None, **options: Any) -> Any:
        more = {name: x for name, x in scores.items() if name != "arcs"}
        return kind(scores["arcs"], lengths, single_root=single_root, **more, **options)

    def shapes(batch: int, words: int) -> dict[str, tuple[int, ...]]:
        N = words + 1
        return {"arcs": (batch, N, N), **{name: (batch, *[N] * (DIMENSIONS[name] - 1)) for name in pairs}}

    masks = {"siblings": sibling_mask, "grandparents": grandparent_mask, "grandsiblings": grandsibling_mask}
    read = {"arcs": _arcs, **{name: (lambda k, x, mask=masks[name]: mask(k, x.shape[1])) for name in pairs}}
    return Family(make, shapes, lambda n: trees_of(n, single_root=single_root, projective=projective), read, ARCS)


def _chains(kind: Any, tags: int, *, own: bool = False, words: int = 4) -> Family:
    name, size = ("trigrams", 3) if kind is gp.TrigramChains else ("transitions", 2)

    def make(scores: dict[str, Tensor], lengths: Any = None, **options: Any) -> Any:
        return kind(scores["unary"], scores[name], lengths, **options)

    def shapes(batch: int, words: int) -> dict[str, tuple[int, ...]]:
        return {"unary": (batch, words, tags), name: (batch, words - 1, tags, tags) if own else (tags,) * size}

    read = {"unary": _words} | ({name: lambda k, x: _words(k - 1, x)} if own else {})
    facts = Facts(lambda n: (n, tags), lambda _, parts: parts["unary"], 1)
    return Family(make, shapes, lambda n: chains_of(n, tags=tags, places=own), read, facts, words)


@cache
def some_grammar(seed: int, *, symbols: int = 4, tags: int = 2, rules: int = 8, heads: bool = False) -> gp.Grammar:
    """Random rules, each once, among them some that make trees of any length."""
    g = generator(seed)
    drawn = {(tags, 0, 0, 0), (tags, 0, tags, 0), (tags, tags, 1, 0)}
    while len(drawn) < rules:
        a, side = int(torch.randint(tags, symbols, (), generator=g)), int(torch.randint(2, (), generator=g))
        rule = (a, *torch.randint(symbols, (2,), generator=g).tolist())
        drawn.add((*rule, side if heads else 0))
    parents, lefts, rights, sides = torch.tensor(sorted(drawn)).T.contiguous()
    values = torch.randn(rules, generator=g, dtype=F64), torch.randn(symbols, generator=g, dtype=F64)
    return gp.Grammar(tuple(f"x{s}" for s in range(symbols)), tags, parents, lefts, rights, sides, *values)


def phrases(kind: Any, grammar: gp.Grammar, *names: str, own_rules: bool = False, words: int = 4) -> Family:
    """The grammar's roots are among the scores, so that they are masked and differentiated, too."""
    T, R, S = grammar.tags, len(grammar.parents), len(grammar.symbols)

    def make(scores: dict[str, Tensor], lengths: Any = None, **options: Any) -> Any:
        more = {name: x for name, x in scores.items() if name not in ("tags", "roots")}
        here = scores["roots"].device == grammar.scores.device  # else a copy, which torch.func would take for its own
        there = grammar if here else grammar.to(scores["roots"].device)
        given = there.scores if scores["roots"].dtype == F64 else there.scores.float()
        own = replace(there, scores=given, roots=scores["roots"])
        return kind(own, scores["tags"], lengths=lengths, **more, **options)

    def shapes(batch: int, words: int) -> dict[str, tuple[int, ...]]:
        N = words + 1
        every = {"tags": (batch, words, T), "arcs": (batch, N, N), "spans": (batch, words, words, S)}
        every |= {"rules": (batch, R) if own_rules else (R,), "roots": (S,)}
        return {name: every[name] for name in ("tags", *names, "roots")}

    def spans(lengths: Tensor, x: Tensor) -> Tensor:
        i = torch.arange(x.shape[1])
        inside = (i[:, None] < i) & (i < lengths[:, None, None])
        return inside[..., None] & (torch.arange(S) >= T)

    read = {"tags": _words, "arcs": _arcs, "spans": spans}
    heads = "arcs" in names
    facts = ARCS if heads else Facts(lambda n: (n, n, S), lambda rows, _: [row[:3] for row in rows], 2)
    return Family(make, shapes, lambda n: phrases_of(n, grammar=grammar, heads=heads), read, facts, words)


FAMILIES: dict[str, Family] = {
    "projective": _trees(gp.ProjectiveTrees, True, True),
    "projective, many roots": _trees(gp.ProjectiveTrees, False, True),
    "any trees": _trees(gp.NonProjectiveTrees, True, False),
    "any trees, many roots": _trees(gp.NonProjectiveTrees, False, False),
    "no pairs": _trees(gp.SecondOrderTrees, True, True),
    "siblings": _trees(gp.SecondOrderTrees, True, True, "siblings"),
    "siblings, many roots": _trees(gp.SecondOrderTrees, False, True, "siblings"),
    "grandparents": _trees(gp.SecondOrderTrees, True, True, "grandparents"),
    "grandparents, many roots": _trees(gp.SecondOrderTrees, False, True, "grandparents"),
    "siblings and grandparents": _trees(gp.SecondOrderTrees, True, True, "siblings", "grandparents"),
    "grandsiblings": _trees(gp.SecondOrderTrees, True, True, "siblings", "grandparents", "grandsiblings"),
    "grandsiblings, many roots": _trees(gp.SecondOrderTrees, False, True, "grandsiblings"),
    "tags": _chains(gp.TagChains, 3),
    "tags, own transitions": _chains(gp.TagChains, 3, own=True),
    "trigrams": _chains(gp.TrigramChains, 2),
    "phrases": phrases(gp.ConstituencyTrees, some_grammar(0), "rules", own_rules=True),
    "phrases, spans": phrases(gp.ConstituencyTrees, some_grammar(1), "rules", "spans", own_rules=True),
    "lexicalised": phrases(gp.LexicalizedTrees, some_grammar(2, rules=12, heads=True), "arcs", "rules"),
    "lexicalised, own rules": phrases(
        gp.LexicalizedTrees, some_grammar(3, heads=True), "arcs", "rules", own_rules=True
    ),
}

MANY_SYMBOLS = some_grammar(5, symbols=19, tags=9, rules=150)
MANY_HEADED = some_grammar(7, symbols=10, tags=4, rules=80, heads=True)
LARGER: dict[str, Family] = {
    **{f"{tags} tags": _chains(gp.TagChains, tags, words=0) for tags in (1, 7, 8, 9, 17)},
    **{f"{tags} tags, own transitions": _chains(gp.TagChains, tags, own=True, words=0) for tags in (1, 9)},
    **{f"trigrams of {tags} tags": _chains(gp.TrigramChains, tags, words=0) for tags in (1, 8, 9)},
    "many phrases": phrases(gp.ConstituencyTrees, MANY_SYMBOLS, "rules", "spans", own_rules=True, words=0),
    "many lexicalised": phrases(gp.LexicalizedTrees, MANY_HEADED, "arcs", "rules", words=0),
}
"""More tags and symbols, about the width of a SIMD register; nothing is listed."""
