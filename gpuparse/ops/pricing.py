"""Grandparents (g, p, c) or siblings with positive reduced cost, of a batch of linear programs at once, as an operator.

This is the pricing of Riedel, Smith & McCallum 2012, section 4.3. With the duals of OneGP and NoGP,

    r(g, p, c) = s(g, p, c) - lambda_OneGP(p, c) - lambda_NoGP(g, p)                                             (8)

and wanted are all triples where it is positive (10). Those of which a bound (11) is not are never scored (9). An arc
that needs less than its whole slack can pay with the rest for the triples whose upper arc it is: this spare slack is
ours.

Siblings have the same form. With g for the sibling and p for the head, the rows are the sum over g of z^sib(g, p, c) =
z(p, c), the sum over c of z^sib(g, p, c) <= z(p, g) and, where g = p stands for no sibling, <= 1 on each side.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import torch
from jaxtyping import Float, Float64, Int, Int32, Int64
from torch import Tensor

from gpuparse.ops import plain
from gpuparse.ops.backend import Backend, Kernel, Long
from gpuparse.ops.launch import NUMBERS, check_like, kernels_for, launch
from gpuparse.ops.library import define, takes_kernels
from gpuparse.ops.plain.pricing import Cube, Score, Square

if TYPE_CHECKING:
    from typing_extensions import NotRequired, Unpack

SUMS, AT_ONCE, CODES = 8, 16, 14  # of pricing.cuh
KINDS = {"dense": 0, "trilinear": 1, "templates": 2}
LISTED = 3

Listed = Float64[Tensor, "B room"]
Counts = Int64[Tensor, " B"]
Outputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


DUALS = ("ceiling", "floor", "kappa", "over_g", "over_c")


class PricingInputs(TypedDict):
    """What ``price`` is asked."""

    ceiling: Square
    floor: Square
    kappa: Square
    over_g: Square
    over_c: Square
    known: Cube
    tolerance: float
    room: int
    siblings: NotRequired[bool]


@dataclass(frozen=True)
class Scorer:
    """How kernels score pairs: made by ``dense``, ``trilinear`` or ``templates``, without a gradient.

    Grandparents are scored as (g, p, c), siblings as (s, h, m): first comes the node of which several are asked for.

    Attributes:
        rank: R, or the number of templates.
        siblings: whether it scores these.
    """

    kind: Literal["dense", "trilinear", "templates"]
    values: Tensor
    second: Tensor | None = None
    third: Tensor | None = None
    index: Tensor | None = None
    relations: Tensor | None = None
    rank: int = 0
    siblings: bool = False

    @classmethod
    def dense(cls, values: Float[Tensor, "B N N N"], *, siblings: bool = False) -> Scorer:
        """All scores, float32 or float64, of (g, p, c) or (h, s, m)."""
        return cls("dense", values.detach().contiguous(), siblings=siblings)

    @classmethod
    def trilinear(
        cls,
        first: Float[Tensor, "B N R"],
        second: Float[Tensor, "B N R"],
        third: Float[Tensor, "B N R"],
        *,
        siblings: bool = False,
    ) -> Scorer:
        """The sum over r of first[g, r] (second[p, r] third[c, r]), in float64, rounded once to their dtype.

        Eight sums, of r = 0, 8, .. and of r = 1, 9, .. and so on, are added at last: the same to the last bit wherever
        it is done.
        """
        rank = first.shape[-1]
        more = (0, -rank % SUMS)
        padded = [torch.nn.functional.pad(x.detach(), more) if more[1] else x.detach() for x in (first, second, third)]
        one, two, three = (x.contiguous() for x in padded)
        return cls("trilinear", one, two, three, rank=rank + more[1], siblings=siblings)

    @classmethod
    def templates(
        cls,
        weights: Float[Tensor, " R"],
        index: Int[Tensor, "T 3 B N"],
        relations: Int[Tensor, "T 3 14"],
        *,
        siblings: bool = False,
    ) -> Scorer:
        """The sum over the templates, in their order and in the dtype of the weights, of weights[row] with

            row = index[t, 0, b, g] + index[t, 1, b, p] + index[t, 2, b, c]
                + relations[t, 0, code(g, p)] + relations[t, 1, code(g, c)] + relations[t, 2, code(p, c)]

        where code(i, j) = 7 (i < j) + the bin of their distance: 1, 2, 3, 4, 5, up to 10, more. Of siblings the index
        has one place more, which s = h stands for, and between these no relation is added.
        """
        rank = index.shape[0]
        more = (0, -rank % AT_ONCE)
        rows, lie = (
            torch.nn.functional.pad(x.int().movedim(0, -1), more).contiguous()  # templates side by side
            for x in (index, relations)
        )
        return cls("templates", weights.detach().contiguous(), index=rows, relations=lie, rank=rank, siblings=siblings)

    def take(self, rows: Int64[Tensor, " K"]) -> Scorer:
        """That of some of the sentences."""
        if self.kind == "templates":
            assert self.index is not None
            return replace(self, index=self.index[:, rows].contiguous())
        second, third = (None if x is None else x[rows] for x in (self.second, self.third))
        return replace(self, values=self.values[rows], second=second, third=third)

    def score(
        self, sentence: Int64[Tensor, " K"], g: Int64[Tensor, " K"], p: Int64[Tensor, " K"], c: Int64[Tensor, " K"]
    ) -> Float[Tensor, " K"]:
        """Scores of a list of triples, in plain torch; of siblings as (s, h, m)."""
        if self.kind == "dense":
            return self.values[sentence, p, g, c] if self.siblings else self.values[sentence, g, p, c]
        if self.kind == "trilinear":
            assert self.second is not None and self.third is not None
            nodes = ((self.values, g), (self.second, p), (self.third, c))
            first, second, third = (x[sentence, node].double() for x, node in nodes)
            products = (
                (first * (second * third)).unflatten(-1, (-1, SUMS)) if self.rank else first.new_zeros(len(g), 1, SUMS)
            )
            total = torch.zeros_like(products[:, 0])
            for some in products.unbind(1):
                total = total + some
            while total.shape[-1] > 1:
                one, other = total.chunk(2, -1)
                total = one + other
            return total[:, 0].to(self.values.dtype)
        assert self.index is not None and self.relations is not None
        seen = torch.where(g == p, self.index.shape[2] - 1, g) if self.siblings else g
        terms = [self.index[role, sentence, node] for role, node in enumerate((seen, p, c))]
        terms += [self.relations[pair, code(*nodes)] for pair, nodes in enumerate(((g, p), (g, c), (p, c)))]
        if self.siblings:
            terms[3] = torch.where((g == p)[:, None], 0, terms[3])
        rows = torch.stack(terms).sum(0)
        score = self.values.new_zeros(len(g))
        for row in rows[:, : self.rank].unbind(1):
            score = score + self.values[row]
        return score


def code(i: Tensor, j: Tensor) -> Tensor:
    """How nodes i lie to nodes j, 0..13 (see ``Scorer.templates``)."""
    far = (i - j).abs()
    return (i < j) * (CODES // 2) + torch.where(far <= 5, (far - 1).clamp(min=0), torch.where(far <= 10, 5, 6))


@dataclass(frozen=True)
class Priced:
    """Triples that were found, with their score and reduced cost, in the order (p, c, g); what is after them means
    nothing.

    ``count`` is how many there are, the first ``room`` of which are listed. ``worst`` is the greatest reduced cost of
    those with each child, 0 if there are none. ``looked``: triples of arcs that their bound did not settle. ``scored``:
    triples that were scored now.
    """

    triples: Int32[Tensor, "B room 3"]
    score: Listed
    r: Listed
    worst: Float64[Tensor, "B N"]
    count: Counts
    looked: Counts
    scored: Counts


def launch_pricing(kind: int, rank: int, *given: Any, backend: Backend | None = None) -> Outputs:
    """Run pricing.cu."""
    *tensors, lengths, duals, known, tolerance, room, siblings = given
    B, N = known.shape[:2]
    backend = backend or kernels_for(known)
    outputs, values = _like_priced(kind, rank, *given), tensors[0]
    columns = -(-rank // AT_ONCE) * AT_ONCE
    wide = -(-N // 8) * 8
    ints = 2 * N * N + 2 * N + 8 + columns
    doubles = 6 * N * wide + (N + 1) * rank + -(-ints // 2) + (2 * N + 1) * N * wide // 8  # the last are bytes
    (bits,) = struct.unpack("<q", struct.pack("<d", tolerance))
    launch(
        backend,
        Kernel("pricing", NUMBERS[torch.float64 if values is None else values.dtype], kind),
        [lengths.contiguous(), *tensors, *[x.contiguous() for x in duals], known, *outputs],
        sentences=B,
        nodes=N * N,
        work=N**3,
        doubles=doubles,
        tail=[Long(doubles), Long(bits), int(siblings), rank, room, B, N],
    )
    return outputs


def _like_priced(*args: object) -> Outputs:
    known, _, room = args[9:12]
    assert isinstance(known, Tensor) and isinstance(room, int)
    B, N = known.shape[:2]
    count, looked, scored = [known.new_empty(B, dtype=torch.int64) for _ in range(3)]
    triples = known.new_empty((B, room, 3), dtype=torch.int32)
    return triples, known.new_empty(B, room), known.new_empty(B, room), known.new_empty(B, N), count, looked, scored


_price_op = define(
    "pricing(int kind, int rank, Tensor? values, Tensor? second, Tensor? third, Tensor? index, Tensor? relations, "
    "Tensor lengths, Tensor[] duals, Tensor(a!) known, float tolerance, int room, bool siblings) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    launch_pricing,
    _like_priced,
)


def price(scorer: Scorer, lengths: Counts, *, backend: Backend | None = None, **asked: Unpack[PricingInputs]) -> Priced:
    """Triples whose reduced cost is above the tolerance and cannot be paid for by the spare slack of the arc (g, p).

    Args:
        scorer: what scores them (``Parts.scorer``).
        lengths: words of each sentence; 0: there is nothing to do for it.
        ceiling: the most that the dual of OneGP(p, c) may be, finite, or +inf where the arc may not be: nothing of it
            is priced. For arcs from the root their slack, which may be negative.
        floor: what that dual is in the solver's solution; -inf where the arc is no column.
        kappa: the dual of NoGP(g, p), not negative.
        over_g, over_c: not below any score (g, p, c) over g, at [p, c], and over c, at [g, p]: ``Parts.bound(0)`` and
            ``Parts.bound(2)``, in float64.
        known: the scores that are known, at [p, c, g], none above its bounds, NaN where they are not; those that are
            scored are written into it.
        tolerance: reduced costs up to it, 0 or more, count as not positive.
        room: triples of a sentence that are listed at most.
        siblings: price siblings: g is the sibling, p the head, and g = p where c is the first child on its side. Then
            kappa is the dual of an arc's row of next siblings at [p, g], that of no sibling at [p, p] for the right
            side and at [p, 0] for the left; over_g is ``Parts.bound(1)``, and over_c, at [p, g], ``Parts.bound(2)``.
        backend: None: that of the device.

    Arcs (p, c) with over_g <= ceiling are settled: they need at most max(over_g, floor) of their ceiling, and have the
    rest to spare as an arc (g, p). Of the others, triples are candidates where r, with the bound min(over_c, over_g)
    for a score that is not known, is above the tolerance, unless those of (g, p) together, or the greatest of a
    sibling's, are not above what its arc has to spare. Candidates are scored, and the same is asked once more.
    """
    _check(lengths, asked)
    _check_scorer(scorer, asked["known"], asked.get("siblings", False))
    if backend is None and not takes_kernels(scorer.values, "pricing"):
        return Priced(*plain.pricing.price(scorer.score, lengths, **asked))
    tensors = scorer.values, scorer.second, scorer.third, scorer.index, scorer.relations
    return _run((KINDS[scorer.kind], scorer.rank, *tensors), lengths, asked, backend)


def _run(scorer: Sequence[Any], lengths: Tensor, asked: Mapping[str, Any], backend: Backend | None) -> Priced:
    known = asked["known"]
    rest = known, asked["tolerance"], asked["room"], asked.get("siblings", False)
    args = [*scorer, lengths, [asked[name] for name in DUALS], *rest]
    return Priced(*(_price_op(*args) if backend is None else launch_pricing(*args, backend=backend)))


def price_listed(
    score: Score, lengths: Counts, *, backend: Backend | None = None, **asked: Unpack[PricingInputs]
) -> Priced:
    """The same for scores that no kernel knows: ``score`` (``Parts.score``) is called once, with all that is to be
    scored. Waits for the device."""
    _check(lengths, asked)
    known, room = asked["known"], asked["room"]
    if backend is None and not takes_kernels(known, "pricing"):
        return Priced(*plain.pricing.price(score, lengths, **asked))

    def listed(room: int) -> Priced:
        return _run((LISTED, 0, *[None] * 5), lengths, {**asked, "room": room}, backend)

    found = listed(room)
    most = int(found.count.max()) if len(lengths) else 0
    if most > room:
        found = listed(most)
    there = torch.arange(found.triples.shape[1], device=known.device) < found.count[:, None]
    sentence, place = (there & found.score.isnan()).nonzero().T
    scored = torch.bincount(sentence, minlength=len(lengths))
    if len(sentence):
        g, p, c = found.triples[sentence, place].long().T
        with torch.no_grad():
            known[sentence, p, c, g] = score(sentence, g, p, c).double()
    again = listed(room)  # all candidates are known now: what is one still is what was wanted
    return replace(again, scored=scored)


def _check(lengths: Tensor, asked: Mapping[str, Any]) -> None:
    """Raise ValueError where shapes, dtypes, devices or numbers do not fit."""
    known, tolerance, room = asked["known"], asked["tolerance"], asked["room"]
    shape, device = known.shape, known.device
    if len(shape) != 4 or not shape[1] == shape[2] == shape[3] >= 2:
        raise ValueError(f"known must have shape [B, N, N, N] with N = words + 1 >= 2, got {list(shape)}")
    if not known.is_contiguous():
        raise ValueError("known must be contiguous, as scores are written into it; make it so before the first call")
    square = shape[:3]
    for name in DUALS:
        check_like(name, asked[name], torch.float64, square, device)
    check_like("known", known, torch.float64, shape, device)
    check_like("lengths", lengths, torch.int64, shape[:1], device)
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be 0 or more, got {tolerance}")
    if room < 0:
        raise ValueError(f"room must be 0 or more, got {room}")


def _check_scorer(scorer: Scorer, known: Tensor, siblings: bool) -> None:
    if scorer.siblings != siblings:
        raise ValueError(f"scorer must be of {'siblings' if siblings else 'grandparents'}, as is asked for")
    if siblings and scorer.kind == "templates":
        raise ValueError("scorer must be dense or trilinear for siblings, got templates; use price_listed")
    like = known.shape[:2]
    of = scorer.values.shape[:2] if scorer.index is None else scorer.index.shape[1:3]
    if of != like:
        raise ValueError(
            f"scorer must be of {like[0]} sentences and {like[1]} nodes like known, got {of[0]} and {of[1]}"
        )
    if scorer.values.device != known.device:
        raise ValueError(f"scorer must be on {known.device} like known, got {scorer.values.device}")
    if scorer.values.dtype not in NUMBERS:
        found = str(scorer.values.dtype).removeprefix("torch.")
        raise ValueError(f"scorer must be of float32 or float64, got {found}; convert what it is made of")
