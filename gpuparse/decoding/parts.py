"""Scores of pairs of arcs: families of triples of nodes, scored all at once or only where someone asks.

Two kinds. Grandparents (g, p, c) are the arcs g -> p and p -> c. Siblings (h, s, m) are the arcs h -> s and h -> m with
s the previous child of h on m's side, going outward; s = h if m is the first. What is no such triple is never read.

A family says an upper bound on the scores of all triples that share two nodes, and the exact scores of a list of them;
inference that prunes by the bounds scores few of them. A dense tensor fits the same interface.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gpuparse.ops.pricing import Scorer
from gpuparse.ops.shifts import is_large
from gpuparse.structures.trees import Lengths, as_lengths, as_scores, can_validate, short

Kind = Literal["grandparents", "siblings"]
KINDS: tuple[Kind, ...] = ("grandparents", "siblings")
NODES: dict[str, tuple[str, ...]] = {
    "grandparents": ("grandparent", "parent", "child"),
    "siblings": ("head", "sibling", "modifier"),
    "grandsiblings": ("grandparent", "head", "sibling", "modifier"),
}


class Parts(ABC):
    """A family of triples (i, j, k) of nodes of each sentence: (g, p, c) or (h, s, m), as ``kind`` says.

    Attributes:
        kind: "grandparents" or "siblings".
        lengths: words of each sentence [B].
        nodes: N, the most nodes of a sentence.
        dtype, device: of the scores.
        large: whether some scores were seen to be large (``gpuparse.ops.shifts``).
        scored: how many triples have been scored so far, in lists and all at once (padding included, as nothing is
            looked at). Set it to 0 to begin anew.
    """

    def __init__(
        self, kind: Kind, lengths: Int[Tensor, " B"], nodes: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.kind: Kind = as_kind(kind)
        self.lengths = lengths
        self.nodes = nodes
        self.dtype = dtype
        self.device = device
        self.large = False
        self.scored = 0

    @property
    def lazy(self) -> bool:
        """Whether scores are computed where someone asks."""
        return True

    @abstractmethod
    def bound(self, axis: int) -> Float[Tensor, "B N N"]:
        """Upper bounds over node ``axis`` (0, 1 or 2) of the triple, given the other two; without a gradient.

        ``bound(0)[b, j, k]`` is not below any exact score (i, j, k), ``bound(1)[b, i, k]`` and ``bound(2)[b, i, j]``
        likewise: in floating point, rounding included. -inf where the two nodes are in no triple. No triple counts as
        scored for it.
        """

    def score(
        self, sentence: Int[Tensor, " T"], i: Int[Tensor, " T"], j: Int[Tensor, " T"], k: Int[Tensor, " T"]
    ) -> Float[Tensor, " T"]:
        """Exact scores of a list of triples; they carry a gradient. Nodes must be in 0..N-1; what is said of a triple
        that is never read means nothing."""
        self.scored += i.numel()
        return self._score(sentence, i, j, k)

    def dense(self) -> Float[Tensor, "B N N N"]:
        """The scores of all triples; they carry a gradient. Entries that are never read mean nothing."""
        self.scored += self.lengths.shape[0] * self.nodes**3
        return self._dense()

    def scorer(self) -> Scorer | None:
        """What scores them inside kernels; None: they are scored by ``score`` alone."""
        return None

    @abstractmethod
    def to(self, device: torch.device | str) -> Parts:
        """The same on another device, its count from 0."""

    @abstractmethod
    def _score(self, sentence: Tensor, i: Tensor, j: Tensor, k: Tensor) -> Float[Tensor, " T"]:
        """What ``score`` returns."""

    @abstractmethod
    def _dense(self) -> Float[Tensor, "B N N N"]:
        """What ``dense`` returns."""

    def __repr__(self) -> str:
        B, N = self.lengths.shape[0], self.nodes
        return f"{type(self).__name__}({self.kind}, sentences: {B}, words: {N - 1}, scored: {self.scored})"


class DenseParts(Parts):
    """Parts whose scores are all there: a tensor [B, N, N, N]; -inf forbids a part.

    Args:
        values: scores [B, N, N, N] of triples.
        lengths: words of each sentence [B]; None if all are full.
        kind: "grandparents" or "siblings".
        validate_args: raise ValueError at a NaN or +inf; by default on a CPU.

    Example:
        >>> import torch
        >>> from gpuparse.decoding.parts import DenseParts
        >>> parts = DenseParts(torch.arange(64.0).view(1, 4, 4, 4), kind="grandparents")
        >>> parts.bound(0)[0, 1, 2]  # of all g -> 1 -> 2: that of g = 3
        tensor(54.)
        >>> one = torch.tensor([1])
        >>> parts.score(0 * one, 3 * one, one, 2 * one), parts.scored
        (tensor([54.]), 1)
    """

    def __init__(
        self, values: Tensor, lengths: Lengths = None, *, kind: Kind, validate_args: bool | None = None
    ) -> None:
        name = as_kind(kind)
        if not isinstance(values, Tensor):
            raise ValueError(f"{name} must be a tensor or lazily scored parts, got {type(values).__name__}")
        values = as_scores(values, name)
        if values.dim() != 4 or len(set(values.shape[1:])) != 1 or values.shape[1] < 2:
            raise ValueError(f"{name} must have shape [B, N, N, N] with N = words + 1 >= 2, got {list(values.shape)}")
        counts = as_lengths(lengths, values, validate_args)
        super().__init__(kind, counts, values.shape[1], values.dtype, values.device)
        self.values: Float[Tensor, "B N N N"] = values
        if can_validate(values, validate_args):
            self.large = _check_values(values.detach(), counts, kind)

    @property
    def lazy(self) -> bool:
        return False

    def bound(self, axis: int) -> Float[Tensor, "B N N"]:
        read = legal_triples(self.kind, self.lengths, self.nodes)
        return torch.where(read, self.values.detach(), -torch.inf).amax(as_axis(axis) + 1)

    def scorer(self) -> Scorer | None:
        return Scorer.dense(self.values, siblings=self.kind == "siblings")

    def to(self, device: torch.device | str) -> DenseParts:
        made = copy.copy(self)
        made.values, made.lengths, made.scored = self.values.to(device), self.lengths.to(device), 0
        made.device = made.values.device
        return made

    def _score(self, sentence: Tensor, i: Tensor, j: Tensor, k: Tensor) -> Float[Tensor, " T"]:
        N = self.nodes
        return self.values.reshape(-1).gather(0, ((sentence * N + i) * N + j) * N + k)

    def _dense(self) -> Float[Tensor, "B N N N"]:
        return self.values


class TakenParts(Parts):
    """Those of some of the sentences; what is scored counts for the whole, too."""

    def __init__(self, whole: Parts, rows: Int[Tensor, " K"]) -> None:
        super().__init__(whole.kind, whole.lengths[rows], whole.nodes, whole.dtype, whole.device)
        self.whole, self.rows = whole, rows

    @property
    def lazy(self) -> bool:
        return self.whole.lazy

    def bound(self, axis: int) -> Float[Tensor, "B N N"]:
        return self.whole.bound(axis)[self.rows]

    def scorer(self) -> Scorer | None:
        scorer = self.whole.scorer()
        return None if scorer is None else scorer.take(self.rows)

    def to(self, device: torch.device | str) -> TakenParts:
        return TakenParts(self.whole.to(device), self.rows.to(device))

    def _score(self, sentence: Tensor, i: Tensor, j: Tensor, k: Tensor) -> Float[Tensor, " T"]:
        return self.whole.score(self.rows[sentence], i, j, k)

    def _dense(self) -> Float[Tensor, "B N N N"]:
        return self.whole.dense()[self.rows]


def as_kind(kind: Kind) -> Kind:
    """``kind`` if it is one."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {short(kind)}")
    return kind


def as_axis(axis: int) -> int:
    """``axis`` if it is the place of a node in a triple."""
    if not isinstance(axis, int) or axis not in (0, 1, 2):
        raise ValueError(f"axis must be 0, 1 or 2 (the node that the bound is over), got {short(axis)}")
    return axis


def as_parts(
    parts: Tensor | Parts | None, kind: Kind, like: Float[Tensor, "B N N"], lengths: Tensor, validate_args: bool | None
) -> Parts | None:
    """A tensor or a family of parts as a family that fits the arcs ``like`` and their lengths."""
    if parts is None:
        return None
    B, N = like.shape[:2]
    if not isinstance(parts, Parts):
        if isinstance(parts, Tensor) and parts.dim() == 4 and parts.shape != (B, N, N, N):
            raise ValueError(f"{kind} must have shape {[B, N, N, N]} to fit arcs, got {list(parts.shape)}")
        if isinstance(parts, Tensor) and parts.device != like.device:
            raise ValueError(f"{kind} must be on {like.device} like arcs, got {parts.device}")
        return DenseParts(parts, lengths, kind=kind, validate_args=validate_args)
    if parts.kind != kind:
        raise ValueError(f"{kind} must be parts of kind {kind!r}, got {parts.kind!r}")
    if (parts.lengths.shape[0], parts.nodes) != (B, N):
        raise ValueError(
            f"{kind} must be of {B} sentences and {N - 1} words to fit arcs, "
            f"got {parts.lengths.shape[0]} and {parts.nodes - 1}"
        )
    if parts.device != like.device:
        raise ValueError(f"{kind} must be on {like.device} like arcs, got {parts.device}")
    if can_validate(lengths, validate_args) and not torch.equal(parts.lengths, lengths):
        b = int((parts.lengths != lengths).nonzero()[0])
        raise ValueError(
            f"{kind} of sentence {b} have {int(parts.lengths[b])} words, but lengths[{b}] is {int(lengths[b])}"
        )
    return parts


def is_legal(kind: Kind, i: Tensor, j: Tensor, k: Tensor, length: Tensor) -> Bool[Tensor, "*shape"]:
    """Whether triples are ever read, given the words of their sentences; anything that broadcasts."""
    inside = (i <= length) & (j <= length) & (k <= length)
    # apart from it what is the same for all sentences, which is small
    if kind == "grandparents":
        return inside & ((i >= 0) & (j >= 1) & (k >= 1) & (i != j) & (j != k) & (i != k))
    between = (j == i) | ((i < j) & (j < k)) | ((k < j) & (j < i))  # so j is no less than i or k
    return inside & ((i >= 0) & (k >= 1) & (i != k) & between)


def legal_triples(kind: Kind, lengths: Int[Tensor, " B"], nodes: int) -> Bool[Tensor, "B N N N"]:
    """Which triples of each sentence are ever read."""
    node = torch.arange(nodes, device=lengths.device)
    triple = node[:, None, None], node[:, None], node
    if not can_validate(lengths, None):
        return is_legal(kind, *triple, lengths[:, None, None, None])
    # those of the longest sentence, and nothing past the ends of others
    found = is_legal(kind, *triple, node[-1]).repeat(len(lengths), 1, 1, 1)
    for b, n in enumerate(lengths.tolist()):
        if n < nodes - 1:
            each = found[b]
            for past in (each[n + 1 :], each[: n + 1, n + 1 :], each[: n + 1, : n + 1, n + 1 :]):
                past.zero_()
    return found


def legal_quadruples(lengths: Int[Tensor, " B"], nodes: int) -> Bool[Tensor, "B N N N N"]:
    """Which grandsiblings (g, h, s, m) of each sentence are ever read, whether its trees may cross or not: those whose
    (h, s, m) are siblings and (g, h, m) grandparents, g not being s."""
    node = torch.arange(nodes, device=lengths.device)
    beside, above = legal_triples("siblings", lengths, nodes), legal_triples("grandparents", lengths, nodes)
    return beside[:, None] & above[:, :, :, None] & (node[:, None, None, None] != node[:, None])


def most_of_each_arc(grandsiblings: Float[Tensor, "B N N N N"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B N N"]:
    """The most that the grandsibling of each arc can add, without a gradient; 0 under the root."""
    read = legal_quadruples(lengths, grandsiblings.shape[1])
    most = torch.where(read, grandsiblings.detach(), -torch.inf).amax((1, 3))
    most[:, 0] = 0.0
    return most


def count_triples(kind: Kind, lengths: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """How many triples of each sentence are ever read."""
    n = lengths
    return n * (n - 1) ** 2 if kind == "grandparents" else n * (n + 1) * (2 * n + 1) // 6


def legal_pairs(kind: Kind, axis: int, lengths: Int[Tensor, " B"], nodes: int) -> Bool[Tensor, "B N N"]:
    """Which two nodes are in some triple together, the one at ``axis`` left out: the places where a bound is finite."""
    node = torch.arange(nodes, device=lengths.device)
    x, y, n = node[:, None], node, lengths[:, None, None]
    inside = (x <= n) & (y <= n)
    if as_axis(axis) < 2:  # the last of the two is the child
        pairs = inside & (y >= 1) & (x != y)
        if kind == "siblings":
            return pairs
        return pairs & (x >= 1) if axis == 0 else pairs & _word_left(x, n)
    if kind == "grandparents":
        return inside & (y >= 1) & (x != y) & _word_left(x, n)
    first, right, left = (x == y) & ((x == 0) | (n >= 2)), (x < y) & (y < n), (y >= 2) & (y < x)
    return inside & (first | right | left)


def _word_left(x: Tensor, n: Tensor) -> Tensor:
    """Whether there is a word beside node x and one more word."""
    return n >= torch.where(x >= 1, 3, 2)


def as_grandsiblings(
    values: Tensor | None, arcs: Float[Tensor, "B N N"], lengths: Tensor, validate_args: bool | None
) -> tuple[Float[Tensor, "B N N N N"] | None, bool]:
    """Scores of grandsiblings if they fit the arcs, and whether some were seen to be large."""
    if values is None:
        return None, False
    if not isinstance(values, Tensor):
        raise ValueError(f"grandsiblings must be a tensor, got {type(values).__name__}")
    values, (B, N) = as_scores(values, "grandsiblings"), arcs.shape[:2]
    if values.shape != (B, N, N, N, N):
        raise ValueError(f"grandsiblings must have shape {[B, N, N, N, N]} to fit arcs, got {list(values.shape)}")
    if values.device != arcs.device:
        raise ValueError(f"grandsiblings must be on {arcs.device} like arcs, got {values.device}")
    if not can_validate(values, validate_args):
        return values, False
    return values, _check_values(values.detach(), lengths, "grandsiblings")


def _check_values(values: Float[Tensor, " B *nodes"], lengths: Tensor, kind: str) -> bool:
    """Raise ValueError at a NaN or +inf among the scores that are read; return whether some are large."""
    if not is_large(values):  # NaN and +inf are
        return False
    N = values.shape[1]
    read = legal_quadruples(lengths, N) if kind == "grandsiblings" else legal_triples(as_kind(kind), lengths, N)  # type: ignore[arg-type]
    wrong = (read & (values.isnan() | values.isposinf())).nonzero()
    if len(wrong):
        place = wrong[0].tolist()
        b, *triple = place
        where = ", ".join(f"{name} {node}" for name, node in zip(NODES[kind], triple, strict=True))
        raise ValueError(
            f"{kind}{place} is {float(values[tuple(place)])} (sentence {b}, {where}); "
            "scores must be finite, or -inf for a forbidden part"
        )
    return is_large(torch.where(read, values, 0.0))
