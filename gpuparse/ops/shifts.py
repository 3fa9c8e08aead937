"""Large scores: what all structures of a sentence share is taken off them before anything is added up.

A probability depends on differences between trees alone. Every tree has one head for each word, every chain one tag,
and so on: the greatest score of such a group can be taken off the whole group, exactly, and be added to log Z
afterwards. No score is then above 0, and a sum of them that is near 0 has lost no digits, however large they were. If
even the best structure is far below 0, it is made of scores that are far below others which no structure can have
together with the rest; what tells it from its rivals is lost in the rounding of such sums, and it is refused.

All this is done where some score is ``LARGE`` and values may be looked at; smaller ones need none of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from gpuparse.ops import Family
from gpuparse.structures.masks import arc_mask, is_position

LARGE = 2.0**20
"""A sum of a hundred smaller ones has its digits to 1e-8. (Kernels know this number, too: check.cu.)"""
FARTHEST = 2.0**960
"""What is further below 0 is the same as this: so far below anything else that it has no probability."""
LOST = 2.0**32
"""Of a sum below minus this, doubles have no digits after 1e-6: its exponential is not known any better."""
ONE_ROOT = -1.5 * LARGE
"""Trees above this have one word under the root, where each costs ``LARGE``."""

NEG_INF = -torch.inf


def is_large(scores: Tensor | None, limits: tuple[float, float] | None = None) -> bool:
    """Whether some number is large; -inf is not, NaN is. Waits for the device. ``limits``: its span, if known."""
    if scores is None or not scores.numel():
        return False
    low, high = limits or span(scores)
    if low > -LARGE and high < LARGE:
        return False
    if low > NEG_INF or not high < LARGE:
        return True
    x = scores.detach()
    return bool(((x <= -LARGE) & (x > NEG_INF)).any())


def span(scores: Tensor) -> tuple[float, float]:
    """The least and the greatest, both NaN if one number is; 0 and 0 of none. Waits for the device."""
    if not scores.numel():
        return 0.0, 0.0
    low, high = torch.aminmax(scores.detach())
    return float(low), float(high)


def bounded(scores: Float[Tensor, "*dims"], read: Bool[Tensor, "*dims"] | None = None) -> Float64[Tensor, "*dims"]:
    """In float64 and no further below 0 than sums can hold; -inf stays, and is put where scores are not ``read``."""
    x = scores.double()
    x = torch.where(x.detach().isneginf(), NEG_INF, x.clamp(min=-FARTHEST))
    return x if read is None else torch.where(read, x, NEG_INF)


def less_greatest(x: Float64[Tensor, "*dims"], *dims: int) -> tuple[Float64[Tensor, "*dims"], Float64[Tensor, "*dims"]]:
    """Scores less the greatest of each group, the ``dims`` of which are given; and these (0 where all are -inf)."""
    if not x.numel():
        return x, x.detach().sum(dims, keepdim=True)
    top = x.detach().amax(dims, keepdim=True)
    top = torch.where(top.isneginf(), 0.0, top)
    return x - top, top


def arcs_less_greatest(
    arcs: Float64[Tensor, "B N N"], single_root: bool
) -> tuple[Float64[Tensor, "B N N"], Float64[Tensor, "B K"]]:
    """Scores of arcs less what all trees share, and that, to be added up. What is not read is -inf.

    Every word has one head; and with a single root there is one arc from it, whose scores need not be near the others.
    """
    if not single_root:
        y, top = less_greatest(arcs, 1)
        return y, top[:, 0]
    root, words = arcs.detach()[:, :1], arcs.detach()[:, 1:]
    top = words.amax(1, keepdim=True)
    top = torch.where(top.isneginf(), root, top)  # a word that only the root can have
    top = torch.where(top.isneginf(), 0.0, top)
    under, rest = _difference(root, top)
    best = under.amax(2, keepdim=True)
    more = torch.where(under == best, rest, NEG_INF).amax(2, keepdim=True)
    best, more = (torch.where(x.isneginf(), 0.0, x) for x in (best, more))
    first = (under - best) + (rest - more)
    if arcs.requires_grad and torch.is_grad_enabled():
        alive = torch.where(root.isneginf(), 0.0, arcs[:, :1])
        first = first + (alive - alive.detach())  # 0, with the derivative
    return torch.cat([first, arcs[:, 1:] - top], 1), torch.cat([top[:, 0], more[:, 0], best[:, 0]], 1)


def arcs_less_shared(
    arcs: Float[Tensor, "B N N"], lengths: Int[Tensor, " B"], family: Family, single_root: bool
) -> tuple[Float64[Tensor, "B N N"], Float64[Tensor, "B K"], Float64[Tensor, " B"] | None]:
    """The same of arcs as they were given, for trees of a family; -inf where they are not read.

    If any number of words may hang on the root, but each costs a lot, one does: where trees with one are proven to be
    all that matters, that one's cost is shared, too, and the last tensor says what each more costs beside its score.
    """
    given = bounded(arcs, arc_mask(lengths, arcs.shape[1]))
    found, shared = arcs_less_greatest(given, single_root)
    if single_root or bool((found.detach()[:, 0].amax(1) >= -2 * LARGE).all()):
        return found, shared, None
    one, of_one = arcs_less_greatest(given, True)
    one = torch.cat([one[:, :1] - LARGE, one[:, 1:]], 1)  # two weigh exp(-LARGE) times what one does
    enough = (family.log_partition((that_matter(one),), lengths, False) > ONE_ROOT) & (of_one[:, -1] < -2 * LARGE)
    of_one[:, -1] += LARGE
    shared = torch.nn.functional.pad(shared, (0, 2))
    each = torch.where(enough, of_one[:, -1], 0.0)
    return torch.where(enough[:, None, None], one, found), torch.where(enough[:, None], of_one, shared), each


def that_matter(arcs: Float64[Tensor, "B N N"]) -> Float64[Tensor, "B N N"]:
    """Arcs less what trees share, those forbidden that no tree of any probability has, if there are trees to be
    answered with: ratios of their weights would need more digits than doubles have."""
    return torch.where(arcs < -2 * LOST, NEG_INF, arcs)


def _difference(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """x - y, rounded, and what rounding took away (Knuth's two-sum); 0 for -inf."""
    d = x - y
    back = d - x
    rest = (x - (d - back)) - (y + back)
    return d, torch.where(d.isneginf(), 0.0, rest)


def read_of_chains(
    unary: Float[Tensor, "B n T"], rows: Float[Tensor, "*shape"], lengths: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "B n T"], Float[Tensor, "*shape"]]:
    """Scores of chains, 0 where they are not read; ``rows``, of tags in a row, for all places or [B, n - 1, T, T]."""
    n = unary.shape[1]
    if _of_each_place(unary, rows):
        rows = torch.where(is_position(lengths - 1, n - 1)[:, :, None, None], rows, 0.0)
    return torch.where(is_position(lengths, n)[:, :, None], unary, 0.0), rows


def chains_less_shared(
    unary: Float[Tensor, "B n T"], rows: Float[Tensor, "*shape"], lengths: Int[Tensor, " B"], trigrams: bool
) -> tuple[Float64[Tensor, "B n T"], Float64[Tensor, "*shape"], Float64[Tensor, "B K"]]:
    """The same in float64, less what all chains share, and that, to be added up."""
    n, own = unary.shape[1], _of_each_place(unary, rows)
    unary, rows = read_of_chains(unary, rows, lengths)
    unary, shared = less_greatest(bounded(unary), 2)
    places = max(0, n - 2 if trigrams else n - 1)
    rows, top = less_greatest(bounded(rows), *((2, 3) if own else range(rows.dim())))
    more = top[:, :, 0, 0] if own else repeated(top.reshape(1, 1), lengths - (n - places), places)
    return unary, rows, torch.cat([shared[:, :, 0], more], 1)


def _of_each_place(unary: Tensor, rows: Tensor) -> bool:
    return rows.dim() == 4 and rows.shape[:2] == (unary.shape[0], unary.shape[1] - 1)


def repeated(top: Float64[Tensor, "b 1"], times: Int[Tensor, " B"], most: int) -> Float64[Tensor, "B most"]:
    """A number as often as each sentence has it, at most ``most`` times; 0 from there on."""
    place = torch.arange(max(0, most), device=times.device)
    return torch.where(place < times[:, None], top, 0.0)


def add_up(shared: Float64[Tensor, "B K"]) -> Float64[Tensor, " B"]:
    """Sums without loss of digits; waits for the device."""
    return torch.tensor([math.fsum(row) for row in shared.tolist()], dtype=torch.float64, device=shared.device)


def check_sums(
    log_z: Float64[Tensor, " B"],
    shared: Float64[Tensor, "B K"],
    scores: Mapping[str, Tensor | None],
    dtype: torch.dtype,
    what: str,
) -> None:
    """Raise ValueError where a sentence cannot be answered.

    Args:
        log_z: log of the sum over its structures, or the score of the best, of scores less what they share; -inf where
            it has none, which is no matter here.
        shared: what they share.
        scores: by the names of the arguments: [B, ...], or without a batch; 0 where they are not read.
        dtype: what the result will be in.
        what: structures, in the plural.
    """
    if not len(log_z):
        return
    for name, x in scores.items():
        if x is not None and x.numel() and span(x)[1] > FARTHEST:
            place = [int(i) for i in torch.unravel_index(x.detach().argmax(), x.shape)]
            raise ValueError(f"{name}{place} is {float(x[tuple(place)].detach())}; scores must be below {FARTHEST:.0e}")
    lost = (log_z > NEG_INF) & ((log_z < -LOST) | (shared <= -FARTHEST).any(1))
    if bool(lost.any()):
        b = int(lost.nonzero()[0])
        raise ValueError(
            f"{_largest(scores, b, len(log_z))} of sentence {b} are too far apart: its {what} cannot be told apart "
            f"in sums of about {float(log_z[b]):.0e}; forbid by -inf, or bring the scores nearer to each other"
        )
    beyond = (log_z + add_up(shared)).abs() > torch.finfo(dtype).max
    beyond = beyond & log_z.isfinite()
    if bool(beyond.any()):
        b = int(beyond.nonzero()[0])
        name = str(dtype).removeprefix("torch.")
        raise ValueError(f"{_largest(scores, b, len(log_z))} of sentence {b} add up to more than a {name} can hold")


def best_tree(
    scores: Mapping[str, Float[Tensor, "B N N"]], lengths: Int[Tensor, " B"], family: Family, single_root: bool
) -> Int[Tensor, "B N"]:
    """Heads of a best tree under the sum of scores of arcs, by the names of the arguments, that may be large; -1 where
    there is none. Best as far as doubles tell."""
    return family.argmax((sum_less_greatest(scores, lengths, single_root),), lengths, single_root)


def sum_less_greatest(
    scores: Mapping[str, Float[Tensor, "B N N"]], lengths: Int[Tensor, " B"], single_root: bool
) -> Float64[Tensor, "B N N"]:
    """The sum of scores of arcs, each less what all trees share; -inf where they are not read."""
    read = arc_mask(lengths, next(iter(scores.values())).shape[1])
    each = [arcs_less_greatest(torch.where(read, x.double(), NEG_INF), single_root)[0] for x in scores.values()]
    return torch.stack(each).sum(0)


def _largest(scores: Mapping[str, Tensor | None], b: int, B: int) -> str:
    """The argument that has the largest number of a sentence, or of all if it has no batch."""

    def size(x: Tensor) -> float:
        x = (x[b] if x.dim() > 1 and x.shape[0] == B else x).detach()
        return float(torch.where(x.isfinite(), x.abs(), 0.0).amax()) if x.numel() else 0.0

    return max(((size(x), name) for name, x in scores.items() if x is not None), key=lambda found: found[0])[1]
