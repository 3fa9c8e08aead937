"""Dual decomposition (Rush, Sontag, Collins and Jaakkola 2010, sections 4 and 6): oracles that must agree.

Each oracle o finds the best of its own structures y, by their scores f_o(y), and says of some named indicators whether
they hold in it. The best structure of the whole maximises the sum of the f_o such that all oracles that share an
indicator agree on it. With penalties u_o on its indicators, those of all oracles that share one adding up to 0,

    L(u) = sum over o of max over y_o of f_o(y_o) + u_o · y_o                                           (the Lagrangian)

is not below the best score, whatever u is. The subgradient goes down on it: u_o loses what oracle o has more than the
average of those that share. Where all agree their structure is best (case 1 of section 6.2), and likewise if some
structure's score reaches L(u).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from gpuparse.decoding.dual.agreement import Agreement, Oracle, Primal, Rounding, Shared, Together
from gpuparse.decoding.dual.multipliers import Multipliers
from gpuparse.decoding.dual.steps import Polyak, Step, check_step
from gpuparse.ops.plain.multipliers import is_best

Which = Literal["best", "last", "average"]
CLOSE = 1e-9  # a score this near the bound, by their size, is best


class DualDecomposition:
    """Oracles that must agree.

    Args:
        oracles: two or more, over the same batch.
        agree: the names of the indicators on which those that have them must agree; by default all that two have.
        primal: makes structures of the whole problem of what the oracles found, and says their scores; it is told the
            numbers of the sentences (those that are done are not asked again). By default structures are known only
            where all agree.
        step: how far to go (``gpuparse.decoding.dual.steps``).
        iterations: at most.
        output: where nothing is proven: the best structure so far, that of the last iteration, or the best one for the
            average of all iterations' indicators (section 6.2, case 2); the last two need a ``primal``.
        tolerance: a score this near the bound, by their size, is best.
        rounding: what scores of sentences may be off, and bounds beside them: then no more than that is allowed.
        keep: keep the penalties of the least L(u), from which the bound follows.
        together: the same oracles and ``primal``, asked at once; by default one after the other.

    Raises ValueError where oracles share no indicator, or one of several shapes, and at options that are none.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import dual
        >>> lengths = torch.tensor([3])
        >>> one = dual.TreeOracle(torch.eye(4).roll(1, 1)[None].double(), lengths)  # 0 -> 1, 1 -> 2, 2 -> 3
        >>> two = dual.TreeOracle(torch.zeros(1, 4, 4).double(), lengths, projective=True)
        >>> found = gp.DualDecomposition([one, two]).run()
        >>> found.structures["heads"], found.score, found.certified
        (tensor([[-1,  0,  1,  2]]), tensor([3.], dtype=torch.float64), tensor([True]))
    """

    def __init__(
        self,
        oracles: Sequence[Oracle],
        *,
        agree: Sequence[str] | None = None,
        primal: Primal | None = None,
        step: Step | None = None,
        iterations: int = 500,
        output: Which = "best",
        tolerance: float = CLOSE,
        rounding: Rounding | None = None,
        keep: bool = False,
        together: Together | None = None,
    ) -> None:
        if not isinstance(oracles, Sequence) or len(oracles) < 2:
            count = len(oracles) if isinstance(oracles, Sequence) else type(oracles).__name__
            raise ValueError(f"oracles must be two or more, got {count}")
        for place, oracle in enumerate(oracles):
            if not all(hasattr(oracle, name) for name in ("device", "shapes", "best", "take")):
                raise ValueError(
                    f"oracles[{place}] must have device, shapes, best and take, got {type(oracle).__name__}"
                )
        if isinstance(agree, str):
            raise ValueError(f"agree must be a list of names, got {agree!r}; write [{agree!r}]")
        if primal is not None and not callable(primal):
            raise ValueError(f"primal must be a function, got {type(primal).__name__}")
        check_step(step)
        if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
            raise ValueError(f"iterations must be a whole number from 1 on, got {iterations!r}")
        if not isinstance(tolerance, (int, float)) or not 0 <= tolerance < 1:
            raise ValueError(f"tolerance must be a number in [0, 1), got {tolerance!r}")
        if output not in ("best", "last", "average"):
            raise ValueError(f"output must be best, last or average, got {output!r}")
        self.oracles = tuple(oracles)
        self.sharing = _sharing(self.oracles, agree)
        shapes = {name: tuple(self.oracles[those[0]].shapes[name]) for name, those in self.sharing.items()}
        self.shared = Shared(self.sharing, shapes, len(self.oracles))
        self.primal = primal
        self.step = step or Polyak()
        self.iterations = iterations
        self.output = output
        self.tolerance = tolerance
        self.rounding = rounding
        self.keep = keep
        self.together = together

    def is_best(self, score: Tensor, bound: Tensor, size: Tensor, rows: Int64[Tensor, " K"]) -> Bool[Tensor, " K"]:
        """Whether scores of sentences are proven best by bounds, where so much was added up."""
        some = None if self.rounding is None else self.rounding.take(rows)
        given = (score, None, None) if some is None else (some.numbers, some.total, some.moved)
        return is_best(score, bound, size, torch.full_like(score, self.tolerance), *given)

    @torch.no_grad()
    def run(
        self,
        penalties: Sequence[Mapping[str, Tensor]] | None = None,
        enough: Float64[Tensor, " B"] | None = None,
        stop_at: Float64[Tensor, " B"] | None = None,
        seconds: Float64[Tensor, " B"] | None = None,
    ) -> Agreement:
        """Go down on the dual until all is proven, or for ``iterations``.

        Args:
            penalties: where to begin, of each oracle by name; what they do not add up to 0 by is taken off.
            enough: scores that are known elsewhere; a sentence whose bound is not above its own is done.
            stop_at: a sentence whose score is above that is done.
            seconds: time for each sentence; those that are asked together share what it takes. It is looked at after
                every iteration on a CPU, elsewhere after some.
        """
        B = next(iter(self.shared.shapes.values()))[0]
        for name, given in (("enough", enough), ("stop_at", stop_at), ("seconds", seconds)):
            if given is not None and given.shape != (B,):
                raise ValueError(f"{name} must have shape {[B]}, got {list(given.shape)}")
        return Multipliers(self, penalties, enough, stop_at, seconds).run()


def _sharing(oracles: Sequence[Oracle], agree: Sequence[str] | None) -> dict[str, list[int]]:
    """Which oracles have the indicators that must agree."""
    names = dict.fromkeys(name for oracle in oracles for name in oracle.shapes)
    sharing = {name: [o for o, oracle in enumerate(oracles) if name in oracle.shapes] for name in names}
    for name in agree or ():
        if len(sharing.get(name, ())) < 2:
            raise ValueError(f"agree: {name!r} is an indicator of fewer than two oracles; there are {', '.join(names)}")
    wanted = [name for name, those in sharing.items() if len(those) > 1] if agree is None else list(agree)
    if not wanted:
        raise ValueError("oracles must share an indicator, or they have nothing to agree on")
    for name in wanted:
        shapes = {tuple(oracles[o].shapes[name]) for o in sharing[name]}
        if len(shapes) > 1:
            raise ValueError(f"indicator {name!r} must have one shape, got {' and '.join(map(str, sorted(shapes)))}")
    return {name: sharing[name] for name in wanted}
