"""Lazily scored pairs in dual decomposition: bounds first, exact scores of what stars and trees come to use.

U, the least of the bounds that two nodes of a triple give, is not below any score. So the Lagrangian with U in place of
the scores is not below that with them, and bounds all trees, however much of U is exact. What the best stars have that
is not exact is scored and written into U, and stars are looked for again: of one that is exact none is better. This is
pricing (Riedel, Smith and McCallum 2012, sections 4.3 and 7) with head automata in place of a linear program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from gpuparse.decoding.impossible import without_arcs
from gpuparse.decoding.parts import Parts, TakenParts, legal_triples
from gpuparse.ops.automata import Stars
from gpuparse.structures.masks import previous_sibling, word_mask

Codes = Int64[Tensor, " T"]
Cube = Float64[Tensor, "B N N N"]
Rows = Int64[Tensor, " K"]


class Triples(NamedTuple):
    """A list of triples (i, j, k) and their sentences."""

    sentence: Codes
    i: Codes
    j: Codes
    k: Codes


Convert = Callable[[Triples, Float64[Tensor, " T"]], Float64[Tensor, " T"]]


class PricedParts(Parts):
    """A family of which some scores are known, and of all others upper bounds.

    Args:
        source: says exact scores.
        hoped: no score is above it [B, N, N, N]; exact where it equals ``known``. Changed where triples are scored.
        known: exact scores, -inf where they are not known. Changed likewise.
        convert: makes of the source's scores those of this family, which may be in other units.

    ``score`` scores what is not known yet, once; it waits for the device. ``counted`` [B] says how many that were of
    each sentence.
    """

    def __init__(self, source: Parts, hoped: Cube, known: Cube, convert: Convert | None = None) -> None:
        super().__init__(source.kind, source.lengths, source.nodes, torch.float64, source.device)
        self.source, self.convert = source, convert
        self.hoped, self.known = hoped, known
        self.counted = torch.zeros(len(hoped), dtype=torch.int64, device=source.device)

    @classmethod
    @torch.no_grad()
    def of(cls, parts: Parts, never: Bool[Tensor, "B N N"]) -> PricedParts:
        """Of a lazily scored family, of which nothing is known but that some arcs are in no tree. Waits for the device,
        once."""
        most = [parts.bound(axis).double() for axis in range(3)]
        hoped = torch.minimum(most[2][..., None], most[1][:, :, None])
        torch.minimum(hoped, most[0][:, None], out=hoped)
        hoped.masked_fill_(without_arcs(parts.kind, never), -torch.inf)
        read = legal_triples(parts.kind, parts.lengths, parts.nodes)
        made = cls(parts, hoped.masked_fill_(~read, 0.0), torch.where(read, -torch.inf, 0.0).double())
        made.price(hoped.view(-1).isposinf().nonzero()[:, 0])  # of which nothing is known at all
        return made

    def bound(self, axis: int) -> Float64[Tensor, "B N N"]:
        read = legal_triples(self.kind, self.lengths, self.nodes)
        return torch.where(read, self.hoped, -torch.inf).amax(axis + 1)

    def take(self, rows: Rows) -> PricedParts:
        """Those of some of the sentences, any of which may be there more than once; what is scored of them is known
        here as well."""
        source = TakenParts(self, rows)
        own = self.source
        if self.convert is None and isinstance(own, TakenParts) and isinstance(own.whole, PricedParts):
            source = TakenParts(own.whole, own.rows[rows])
        return PricedParts(source, self.hoped[rows], self.known[rows])

    def to(self, device: torch.device | str) -> PricedParts:
        return PricedParts(self.source.to(device), self.hoped.to(device), self.known.to(device), self.convert)

    @torch.no_grad()
    def price(self, codes: Codes) -> Codes:
        """Score triples, given by their places in ``hoped``, that are not exact yet; which these were. Waits for the
        device."""
        hoped, known = self.hoped.view(-1), self.known.view(-1)
        codes = codes[hoped[codes] != known[codes]]
        if len(codes):
            codes = codes.unique()
            triples = self.triples(codes)
            values = self.source.score(*triples).detach().double()
            if self.convert is not None:
                values = self.convert(triples, values)
            hoped[codes] = known[codes] = values
            self.counted += torch.bincount(triples.sentence, minlength=len(self.counted))
        return codes

    def triples(self, codes: Codes) -> Triples:
        """What lies at these places."""
        N = self.nodes
        return Triples(codes // N**3, codes // N**2 % N, codes // N % N, codes % N)

    def _score(self, sentence: Tensor, i: Tensor, j: Tensor, k: Tensor) -> Float64[Tensor, " T"]:
        codes = ((sentence * self.nodes + i) * self.nodes + j) * self.nodes + k
        self.price(codes)
        return self.known.view(-1)[codes]

    def _dense(self) -> Cube:
        self.price(torch.arange(self.hoped.numel(), device=self.device))
        return self.known

    def of_stars(self, stars: Stars) -> Codes:
        """Where the triples of stars of these sentences are, one batch of them after the other."""
        N = self.nodes
        first, p, c = stars.children.nonzero(as_tuple=True)
        if self.kind == "grandparents":
            places = torch.where(p > 0, (stars.heads[first, p] * N + p) * N + c, 0)
        else:
            places = (p * N + _before(first * N + p, p, c)) * N + c
        return first % len(self.lengths) * N**3 + places

    def of_trees(self, heads: Int64[Tensor, "S N"]) -> Codes:
        """Where those of trees are; heads of -1 have none."""
        N, B = self.nodes, len(self.lengths)
        node, there = torch.arange(N, device=self.device), heads >= 0
        head = torch.where(there, heads, 0)
        if self.kind == "grandparents":
            places = torch.where(head > 0, (head.gather(1, head) * N + head) * N + node, 0)
        else:
            word = word_mask(self.lengths, N).repeat(len(heads) // B, 1) & there
            places = torch.where(word, (head * N + previous_sibling(head, word)) * N + node, 0)
        return (torch.arange(len(heads), device=self.device) % B * N**3)[:, None].add(places).view(-1)


def _before(star: Codes, p: Codes, c: Codes) -> Codes:
    """The children before children c of nodes p, going outward, or p itself; lists of stars one after the other, each
    from left to right."""
    right = (c > p)[1:] & (c > p)[:-1] & (star[1:] == star[:-1])
    left = (c < p)[1:] & (c < p)[:-1] & (star[1:] == star[:-1])
    found = p.clone()
    found[1:] = torch.where(right, c[:-1], found[1:])
    found[:-1] = torch.where(left, c[1:], found[:-1])
    return found


Pairs = Float64[Tensor, "B N N N"] | PricedParts | None


def hoped(pairs: Pairs) -> Cube | None:
    """What stars are looked for by: scores, or bounds where they are not known."""
    return pairs.hoped if isinstance(pairs, PricedParts) else pairs


def known(pairs: Pairs) -> Cube | None:
    """What trees are scored by: -inf where a score is not known."""
    return pairs.known if isinstance(pairs, PricedParts) else pairs


class Used:
    """What stars and trees have used since somebody priced it."""

    def __init__(self, *pairs: Pairs) -> None:
        self.families = [x for x in pairs if isinstance(x, PricedParts)]
        self.stars: list[Stars] = []
        self.trees: list[Int64[Tensor, "B N"]] = []

    def price(self) -> tuple[Codes, Codes] | None:
        """Score what was used: the nodes whose stars may now be others, and their sentences; None if there are none.
        Waits for the device."""
        changed = []
        for family in self.families:
            codes = []
            if self.stars:
                codes.append(family.of_stars(Stars(*(torch.cat(x) for x in zip(*self.stars, strict=True)))))
            if self.trees:
                codes.append(family.of_trees(torch.cat(self.trees)))
            new = family.price(torch.cat(codes)) if codes else None
            if new is not None and len(new):
                triples = family.triples(new)
                changed.append((triples.sentence, triples.j if family.kind == "grandparents" else triples.i))
        self.stars.clear()
        self.trees.clear()
        if not changed:
            return None
        sentence, node = (torch.cat(x) for x in zip(*changed, strict=True))
        return sentence, node


def price_stars(find: Callable[[], Stars], pairs: Sequence[Pairs]) -> Stars:
    """The best stars, all of whose parts are exact, as found by ``find`` with what is known by then."""
    used = Used(*pairs)
    while True:
        found = find()
        used.stars.append(found)
        if used.price() is None:
            return found
