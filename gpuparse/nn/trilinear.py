"""Low-rank trilinear scores of pairs of arcs: s(i, j, k) = sum over r of first[i, r] second[j, r] third[k, r]."""

from __future__ import annotations

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from gpuparse.decoding.parts import Kind, Parts, as_axis, as_kind, legal_pairs
from gpuparse.nn.dropout import SentenceDropout
from gpuparse.ops.pricing import Scorer
from gpuparse.structures.masks import word_mask
from gpuparse.structures.trees import Lengths, as_lengths, can_validate

EPSILON = torch.finfo(torch.float64).eps
TINY = torch.finfo(torch.float64).tiny
FACTORS = ("first", "second", "third")
AT_ONCE = 2**20  # numbers that bounds are computed from side by side


class TrilinearParts(Parts):
    """Grandparents (g, p, c) or siblings (h, s, m) scored by the product of three vectors, where someone asks.

    Args:
        first, second, third: what each node is as the first, second or third of a triple [B, N, R]; finite, float32 or
            float64. Rows past a sentence's end are not read.
        lengths: words of each sentence [B]; None if all are full.
        kind: "grandparents" or "siblings".
        validate_args: as of ``Scores``.

    Scores are computed in float64 and rounded once, so that a list of triples and all of them at once agree to the last
    bit or two, whatever precision matrix products of float32 are set to.
    """

    def __init__(
        self,
        first: Tensor,
        second: Tensor,
        third: Tensor,
        lengths: Lengths = None,
        *,
        kind: Kind,
        validate_args: bool | None = None,
    ) -> None:
        self.factors: tuple[Tensor, Tensor, Tensor] = (first, second, third)
        for name, factor in zip(FACTORS, self.factors, strict=True):
            if not isinstance(factor, Tensor):
                raise ValueError(f"{name} must be a tensor, got {type(factor).__name__}")
            if factor.dtype not in (torch.float32, torch.float64):
                found = str(factor.dtype).removeprefix("torch.")
                raise ValueError(f"{name} must be float32 or float64, got {found}; convert it")
            if factor.dim() != 3 or factor.shape[1] < 2:
                raise ValueError(f"{name} must have shape [B, N, R] with N = words + 1 >= 2, got {list(factor.shape)}")
            if (factor.shape, factor.dtype, factor.device) != (first.shape, first.dtype, first.device):
                raise ValueError(
                    f"{name} must have the shape, dtype and device of first, {_describe(first)}, "
                    f"got {_describe(factor)}"
                )
        super().__init__(kind, as_lengths(lengths, first, validate_args), first.shape[1], first.dtype, first.device)
        if can_validate(first, validate_args):
            self._check()

    def _check(self) -> None:
        node = torch.arange(self.nodes, device=self.device) <= self.lengths[:, None]
        for name, factor in zip(FACTORS, self.factors, strict=True):
            wrong = (node[:, :, None] & ~factor.detach().isfinite()).nonzero()
            if len(wrong):
                b, i, r = wrong[0].tolist()
                raise ValueError(
                    f"{name}[{b}, {i}, {r}] is {float(factor[b, i, r].detach())} (sentence {b}, node {i}); "
                    f"what {self.kind} are computed from must be finite"
                )

    def bound(self, axis: int) -> Float[Tensor, "B N N"]:
        # Over the words node by node would be cubic. Instead each r by itself takes the least or greatest value that
        # any word has there that may be in such a triple, by the sign of the rest. The root, often unlike the words,
        # and a head in place of its first child's sibling are taken exactly.
        given = [which for which in range(3) if which != as_axis(axis)]
        with torch.no_grad():
            node = torch.arange(self.nodes, device=self.device)
            inside = (node <= self.lengths[:, None])[:, :, None]
            factors = [torch.where(inside, factor.detach().double(), 0.0) for factor in self.factors]
            word = word_mask(self.lengths, self.nodes)[:, :, None]
            low = torch.where(word, factors[axis], torch.inf)
            high = torch.where(word, factors[axis], -torch.inf)
            x, y = (factors[which] for which in given)
            if self.kind == "siblings" and axis == 1:
                value = torch.maximum(_greatest_between(x, y, low, high), _exact(x, factors[1], y))
            else:
                value = _greatest(x, y, low.amin(1), high.amax(1))
                if axis == 0:
                    value = torch.maximum(value, _exact(x, factors[0][:, :1], y))
            size = torch.stack([factor.abs().amax((1, 2)) for factor in factors]).sum(0)  # for what underflows
            value = value + (factors[0].shape[-1] * TINY * (4 + size))[:, None, None]
            value = torch.where(value.isnan(), torch.inf, value)  # sums of both infinities
            pairs = legal_pairs(self.kind, axis, self.lengths, self.nodes)
            return torch.where(pairs, value, -torch.inf).to(self.dtype)

    def scorer(self) -> Scorer | None:
        first, second, third = self.factors
        if self.kind == "siblings":
            return Scorer.trilinear(second, first, third, siblings=True)
        return Scorer.trilinear(first, second, third)

    def to(self, device: torch.device | str) -> TrilinearParts:
        first, second, third = (factor.to(device) for factor in self.factors)
        return TrilinearParts(first, second, third, self.lengths.to(device), kind=self.kind, validate_args=False)

    def _score(self, sentence: Tensor, i: Tensor, j: Tensor, k: Tensor) -> Float[Tensor, " T"]:
        first, second, third = (
            factor.reshape(-1, factor.shape[-1]).index_select(0, sentence * self.nodes + which).double()
            for factor, which in zip(self.factors, (i, j, k), strict=True)
        )
        return (first * second * third).sum(-1).to(self.dtype)

    def _dense(self) -> Float[Tensor, "B N N N"]:
        inside = (torch.arange(self.nodes, device=self.device) <= self.lengths[:, None])[:, :, None]
        # a NaN past the end would come back in the gradients of all
        first, second, third = (torch.where(inside, factor.double(), 0.0) for factor in self.factors)
        pairs = first[:, :, None] * second[:, None]
        return (pairs.flatten(1, 2) @ third.mT).unflatten(1, (self.nodes, self.nodes)).to(self.dtype)


def _exact(x: Float[Tensor, "B N R"], z: Float[Tensor, "B M R"], y: Float[Tensor, "B N R"]) -> Float[Tensor, "B N N"]:
    """At least the sum over r of x[i, r] y[j, r] z[i, r], or z[0, r] if there is but one (M = 1)."""
    return (x * z) @ y.mT + _rounding(x, y, z)


def _greatest(
    x: Float[Tensor, "B N R"], y: Float[Tensor, "B N R"], low: Float[Tensor, "B R"], high: Float[Tensor, "B R"]
) -> Float[Tensor, "B N N"]:
    """At least the sum over r of x[i, r] y[j, r] z[r] for every z between low and high, as computed in float64.

    A product x y that is positive takes the high z, a negative one the low: two matrix products, by the sign of y.
    """
    low, high = low[:, None], high[:, None]
    up, down = x.clamp(min=0), x.clamp(max=0)
    left = torch.cat((up * high + down * low, up * low + down * high), -1)
    right = torch.cat((y.clamp(min=0), y.clamp(max=0)), -1)
    return left @ right.mT + _rounding(x, y, torch.maximum(low.abs(), high.abs()))


def _greatest_between(
    x: Float[Tensor, "B N R"], y: Float[Tensor, "B N R"], low: Float[Tensor, "B N R"], high: Float[Tensor, "B N R"]
) -> Float[Tensor, "B N N"]:
    """The same for every z between the least low and the greatest high of nodes that lie between i and j; -inf where
    there are none, or none with a low below its high."""
    B, N, R = x.shape
    node, some = torch.arange(N, device=x.device), max(1, AT_ONCE // max(1, B * N * R))
    ranges = _Ranges(torch.cat((low, -high), -1))
    value = []
    for i in node.split(some):
        found = ranges.least(i[:, None], node)
        least, greatest = found[..., :R], -found[..., R:]
        product = x[:, i, None] * y[:, None]
        own = torch.maximum(product * least, product * greatest).sum(-1)
        value.append(torch.where((least <= greatest).all(-1), own, -torch.inf))
    size = torch.where(low <= high, torch.maximum(low.abs(), high.abs()), 0.0).amax(1, keepdim=True)
    return torch.cat(value, 1) + _rounding(x, y, size)


class _Ranges:
    """The least of any range of nodes, from the least of those whose width is a power of two."""

    def __init__(self, values: Float[Tensor, "B N R"]) -> None:
        levels, width = [values], 1
        while 2 * width <= values.shape[1] - 2:
            last = levels[-1]
            levels.append(torch.minimum(last, torch.cat((last[:, width:], last[:, -width:]), 1)))
            width *= 2
        self.levels, self.nodes = torch.cat(levels, 1), values.shape[1]

    def least(self, i: Int[Tensor, "*k"], j: Int[Tensor, "*k"]) -> Float[Tensor, "B *k R"]:
        """Of the nodes between i and j, neither included; of one that is no word where there are none."""
        first, width = torch.minimum(i, j) + 1, (i - j).abs() - 1
        level = torch.frexp(width.clamp(min=1).double()).exponent - 1
        last = first + width.clamp(min=1) - 2**level
        one, other = (level * self.nodes + at.clamp(max=self.nodes - 1) for at in (first, last))
        found = torch.minimum(self.levels[:, one], self.levels[:, other])
        return torch.where((width > 0)[..., None], found, torch.inf)


def _rounding(
    x: Float[Tensor, "B N R"], y: Float[Tensor, "B N R"], z: Float[Tensor, "B 1 R"]
) -> Float[Tensor, "B N N"]:
    """What rounding can lose on either side of such a sum, there and where a score is computed: a few R epsilon of the
    sum of the absolute values, which is no more than R times the product of the greatest."""
    rank = x.shape[-1]
    if rank == 0:
        return x.new_zeros(x.shape[0], x.shape[1], y.shape[1])
    most = (x * z).abs().amax(-1)[:, :, None] * y.abs().amax(-1)[:, None]
    return (8 * (rank + 4) * rank * EPSILON) * most


def _describe(factor: Tensor) -> str:
    return f"{list(factor.shape)} {str(factor.dtype).removeprefix('torch.')} on {factor.device}"


class Trilinear(nn.Module):
    """Trilinear parts from the states of an encoder: for each place in a triple an MLP of one hidden layer.

    Args:
        in_features: D, width of the states.
        rank: R, number of products that a score is the sum of.
        dropout: of the hidden layers, one mask a sentence shared by its words.
        hidden: width of the hidden layers; None: the rank.
        kind: "grandparents" or "siblings".

    All scores are 0 before training, so that a model begins as one of the first order.
    """

    def __init__(
        self,
        in_features: int,
        rank: int,
        dropout: float = 0.33,
        *,
        hidden: int | None = None,
        kind: Kind = "grandparents",
    ) -> None:
        super().__init__()
        sizes = {"in_features": in_features, "rank": rank, "hidden": rank if hidden is None else hidden}
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be in 0..1, below 1, got {dropout}")
        self.kind: Kind = as_kind(kind)
        self.dropout = SentenceDropout(dropout)
        self.hidden = nn.ModuleList(nn.Linear(in_features, sizes["hidden"]) for _ in FACTORS)
        self.out = nn.ModuleList(nn.Linear(sizes["hidden"], rank) for _ in FACTORS)
        self.activation = nn.LeakyReLU(0.1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weights as before training."""
        for which, (hidden, out) in enumerate(zip(self.hidden, self.out, strict=True)):
            hidden, out = cast(nn.Linear, hidden), cast(nn.Linear, out)
            nn.init.orthogonal_(hidden.weight)
            nn.init.zeros_(hidden.bias)
            nn.init.zeros_(out.bias)
            if which < 2:
                nn.init.orthogonal_(out.weight)
            else:  # one zero of three: its gradient is not zero, and the others' follow
                nn.init.zeros_(out.weight)

    def forward(
        self, states: Float[Tensor, "B N D"], lengths: Lengths = None, *, validate_args: bool | None = None
    ) -> TrilinearParts:
        """The parts of a batch; in float32 where autocast makes the MLPs compute in less."""
        factors = []
        for hidden, out in zip(self.hidden, self.out, strict=True):
            x = out(self.dropout(self.activation(hidden(states))))
            factors.append(x if x.dtype in (torch.float32, torch.float64) else x.float())
        first, second, third = factors
        return TrilinearParts(first, second, third, lengths, kind=self.kind, validate_args=validate_args)
