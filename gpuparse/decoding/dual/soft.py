"""Soft oracles: marginals at a temperature in place of maxima, so that the dual is smooth.

    L_t(u) = sum over o of t log Z_o((f_o + u_o) / t)

goes to L(u) as t goes to 0, and is above it by t times the entropies of the oracles at most. Its gradient by u_o is
what oracle o believes of the indicators. Steps are accelerated (Nesterov), and everything is differentiable, through
all iterations: L_t less the score of the right structure is a loss that trains a scorer end to end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float64
from torch import Tensor

from gpuparse.decoding.dual.oracles import SecondOrderOracle, TreeOracle
from gpuparse.decoding.dual.parsing import scaled
from gpuparse.decoding.scores import Scores
from gpuparse.ops import EISNER, MATRIX_TREE


class SoftOracle(Protocol):
    """log Z and marginals of a batch, differentiable."""

    def beliefs_of(
        self, penalties: Mapping[str, Tensor], temperature: float
    ) -> tuple[Float64[Tensor, " B"], dict[str, Tensor]]:
        """temperature * log Z of what is scored with penalties, and the probability of each indicator."""


@dataclass(frozen=True)
class SoftTrees(TreeOracle):
    """First-order trees by matrix-tree, or projective ones by inside and outside; their scores may have a gradient."""

    def beliefs_of(self, penalties: Mapping[str, Tensor], temperature: float) -> tuple[Tensor, dict[str, Tensor]]:
        scores = self.arcs + penalties["arcs"] if "arcs" in penalties else self.arcs
        family = EISNER if self.projective else MATRIX_TREE
        log_z, marginals = family.marginals((scores / temperature,), self.lengths, self.single_root)
        return temperature * log_z, {"arcs": marginals}


@dataclass(frozen=True)
class SoftSecondOrder(SecondOrderOracle):
    """Projective trees with siblings, grandparents, or both; their scores may have a gradient."""

    def beliefs_of(self, penalties: Mapping[str, Tensor], temperature: float) -> tuple[Tensor, dict[str, Tensor]]:
        scores = self.arcs + penalties["arcs"] if "arcs" in penalties else self.arcs
        pairs = (None if x is None else x / temperature for x in (self.siblings, self.grandparents))
        trees = self.trees(scores / temperature, *pairs)
        return temperature * trees.log_partition.double(), {"arcs": trees.marginals}


class Softly(NamedTuple):
    """What soft dual decomposition came to.

    Attributes:
        value: L_t(u) [B], not below the best score plus nothing: an upper bound on t log of the sum over structures
            that all oracles have.
        marginals: by name, of each oracle that shares it [oracles, B, ..].
        penalties: of each oracle by name.
        values: L_t by iteration [K, B].
    """

    value: Float64[Tensor, " B"]
    marginals: dict[str, Tensor]
    penalties: dict[str, Tensor]
    values: Float64[Tensor, "K B"]


class SoftDualDecomposition:
    """Gradient descent on the smooth dual.

    Args:
        oracles: two or more; all indicators that two of them have must agree.
        temperature: t; ``final``: the temperature of the last iteration, to which it falls geometrically.
        iterations: of them, each with a step of ``rate`` times the temperature.
        accelerated: whether steps have Nesterov's momentum.

    Example:
        >>> import torch
        >>> from gpuparse import dual
        >>> from gpuparse.decoding.dual.soft import SoftTrees
        >>> arcs, lengths = torch.zeros(1, 4, 4).double(), torch.tensor([3])
        >>> both = [SoftTrees(arcs, lengths), SoftTrees(arcs, lengths, projective=True)]
        >>> found = dual.SoftDualDecomposition(both, iterations=30).run()
        >>> bool(found.values[-1] <= found.values[0])
        True
    """

    def __init__(
        self,
        oracles: Sequence[SoftOracle],
        *,
        temperature: float = 1.0,
        final: float | None = None,
        iterations: int = 10,
        rate: float = 1.0,
        accelerated: bool = True,
    ) -> None:
        if len(oracles) < 2:
            raise ValueError(f"oracles must be two or more, got {len(oracles)}")
        for name, x in (
            ("temperature", temperature),
            ("final", temperature if final is None else final),
            ("rate", rate),
        ):
            if not isinstance(x, (int, float)) or not 0 < x < math.inf:
                raise ValueError(f"{name} must be above 0, got {x!r}")
        if not isinstance(iterations, int) or iterations < 1:
            raise ValueError(f"iterations must be a whole number from 1 on, got {iterations!r}")
        self.oracles = tuple(oracles)
        self.temperature, self.final = temperature, temperature if final is None else final
        self.iterations, self.rate, self.accelerated = iterations, rate, accelerated

    def run(self) -> Softly:
        """All iterations, with a graph for autograd if the scores have one."""
        u: list[dict[str, Tensor]] = [{} for _ in self.oracles]
        before = u
        values = []
        for k in range(self.iterations):
            share = k / max(1, self.iterations - 1)
            t = self.temperature * (self.final / self.temperature) ** share
            momentum = k / (k + 3) if self.accelerated else 0.0
            ahead = [
                {name: x + momentum * (x - old[name]) for name, x in of_oracle.items()} if old else of_oracle
                for of_oracle, old in zip(u, before, strict=True)
            ]
            found = [oracle.beliefs_of(of_oracle, t) for oracle, of_oracle in zip(self.oracles, ahead, strict=True)]
            values.append(torch.stack([value for value, _ in found]).sum(0))
            marginals = self._by_name([m for _, m in found])
            if all(len(x) < 2 for x in marginals.values()):
                raise ValueError("oracles must share an indicator, or they have nothing to agree on")
            if k == self.iterations - 1:
                break
            before, u = (
                u,
                [
                    {
                        name: ahead[o].get(name, 0.0) - self.rate * t * (x - marginals[name].mean(0))
                        for name, x in own.items()
                        if len(marginals[name]) > 1
                    }
                    for o, (_, own) in enumerate(found)
                ],
            )
        named = self._by_name(ahead)
        return Softly(values[-1], marginals, named, torch.stack(values))

    def _by_name(self, of_oracles: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        names = dict.fromkeys(name for of_oracle in of_oracles for name in of_oracle)
        return {name: torch.stack([x[name] for x in of_oracles if name in x]) for name in names}


def softly(
    scores: Scores,
    *,
    single_root: bool = True,
    temperature: float = 1.0,
    final: float | None = None,
    iterations: int = 10,
    share: float = 0.5,
) -> Softly:
    """Trees of first order by matrix-tree, and projective ones of second order by inside and outside, made to agree.

    Args:
        scores: of arcs and, if there are any, siblings and grandparents; they may have a gradient.
        share: of the arcs' scores that the projective trees have at first.
        single_root: one word hangs on the root (default), or any number.
        temperature, final, iterations: as of ``SoftDualDecomposition``.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import dual
        >>> arcs = torch.zeros(1, 4, 4, requires_grad=True)
        >>> dual.softly(gp.Scores(arcs), iterations=3).value.sum().backward()
        >>> arcs.grad.shape
        torch.Size([1, 4, 4])
    """
    if not isinstance(share, (int, float)) or not 0 <= share <= 1:
        raise ValueError(f"share must be a number from 0 to 1, got {share!r}")
    arcs, lengths = scores.check_pairs("softly").fold_labels().arcs.double(), scores.lengths
    pairs = {kind: x.double() for kind, x in scores.tensors().items()}
    rest = SoftTrees(scaled(arcs, 1 - share), lengths, single_root=single_root)
    if pairs:
        other: SoftOracle = SoftSecondOrder(scaled(arcs, share), lengths, **pairs, single_root=single_root)
    else:
        other = SoftTrees(scaled(arcs, share), lengths, projective=True, single_root=single_root)
    return SoftDualDecomposition([rest, other], temperature=temperature, final=final, iterations=iterations).run()
