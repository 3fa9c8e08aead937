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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from gpuparse.decoding import certificates
from gpuparse.decoding.dual.steps import Polyak, Step, check_step

Structures = dict[str, Tensor]  # tensors of a batch by name, [B, ..] each
Penalties = dict[str, Tensor]
Trace = Float64[Tensor, "K B"]
Which = Literal["best", "last", "average"]
CLOSE = 1e-9  # a score this near the bound, by their size, is best
FAR = 1e6  # what an average counts for against scores
LEAVE = 0.1  # share of the batch that is done before it is made smaller


@dataclass(frozen=True)
class Found:
    """What an oracle found.

    Attributes:
        value: of its best structure, penalties included [B]; -inf where it has none.
        indicators: by name, 1 where they hold [B, ..]; float64. Probabilities, if the oracle is soft.
        structures: the structures themselves.

    Example:
        >>> import torch
        >>> from gpuparse import dual
        >>> found = dual.TreeOracle(torch.zeros(1, 3, 3).double(), torch.tensor([2])).best({})
        >>> found.value, found.indicators["arcs"].shape, found.structures["heads"].shape
        (tensor([0.], dtype=torch.float64), torch.Size([1, 3, 3]), torch.Size([1, 3]))
    """

    value: Float64[Tensor, " B"]
    indicators: Mapping[str, Tensor]
    structures: Structures = field(default_factory=dict)


class Oracle(Protocol):
    """Finds best structures of a batch of sentences under penalties on indicators."""

    @property
    def device(self) -> torch.device:
        """Where its scores are."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The names of the indicators, and their shapes [B, ..]."""

    def best(self, penalties: Mapping[str, Tensor]) -> Found:
        """The best structures, with what the penalties (float64, of some of the indicators) add to their scores."""

    def take(self, rows: Int64[Tensor, " K"]) -> Oracle:
        """The same for some of the sentences."""


Primal = Callable[[Sequence[Found], Int64[Tensor, " K"]], tuple[Structures, Float64[Tensor, " K"]]]
Rounding = Callable[[Float64[Tensor, " K"], Int64[Tensor, " K"]], Float64[Tensor, " K"]]


@dataclass(frozen=True, eq=False)
class Agreement:
    """What dual decomposition found.

    Attributes:
        structures: by name, [B, ..]; which ones, see ``output`` of ``DualDecomposition``.
        score: of these [B]; -inf where there is none.
        bound: no structure scores more [B]; -inf where it is proven that there is none.
        certified: whether the best is proven best [B].
        iterations: how many each sentence took [B].
        duals, scores: L(u) and the best score so far by iteration [iterations, B]; NaN once a sentence was done.
        sizes: of the steps, likewise.
        penalties: the last ones, of each oracle by name; indicators: averages over the iterations, likewise.
        least: the penalties of the least L(u), likewise; none unless they were to be kept.

    Example:
        >>> import torch, gpuparse as gp
        >>> from gpuparse import dual
        >>> found = dual.second_order(gp.Scores(torch.zeros(1, 4, 4), siblings=torch.ones(1, 4, 4, 4))).run()
        >>> found.structures["heads"].shape, found.duals.shape[1], found.certified
        (torch.Size([1, 4]), 1, tensor([True]))
    """

    structures: Structures
    score: Float64[Tensor, " B"]
    bound: Float64[Tensor, " B"]
    certified: Bool[Tensor, " B"]
    iterations: Int64[Tensor, " B"]
    duals: Trace
    scores: Trace
    sizes: Trace
    penalties: tuple[Penalties, ...]
    indicators: tuple[Penalties, ...]
    least: tuple[Penalties, ...] = ()


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
        self.primal = primal
        self.step = step or Polyak()
        self.iterations = iterations
        self.output = output
        self.tolerance = tolerance
        self.rounding = rounding
        self.keep = keep

    def is_best(self, score: Tensor, bound: Tensor, size: Tensor, rows: Int64[Tensor, " K"]) -> Bool[Tensor, " K"]:
        """Whether scores of sentences are proven best by bounds, where so much was added up."""
        close = (score > -torch.inf) & certificates.is_proven(
            score, bound, self.tolerance * torch.maximum(size, score.abs())
        )
        if self.rounding is None or not bool(close.any()):
            return close
        some = close.nonzero()[:, 0]
        proven = torch.zeros_like(close)
        proven[some] = certificates.is_proven(score[some], bound[some], self.rounding(score[some], rows[some]))
        return proven

    @torch.no_grad()
    def run(
        self,
        penalties: Sequence[Mapping[str, Tensor]] | None = None,
        enough: Float64[Tensor, " B"] | None = None,
        stop_at: Float64[Tensor, " B"] | None = None,
    ) -> Agreement:
        """Go down on the dual until all is proven, or for ``iterations``.

        Args:
            penalties: where to begin, of each oracle by name; what they do not add up to 0 by is taken off.
            enough: scores that are known elsewhere; a sentence whose bound is not above its own is done.
            stop_at: a sentence whose score is above that is done.
        """
        state = _Multipliers.begin(self, penalties)
        if enough is not None:
            if enough.shape != state.enough.shape:
                raise ValueError(f"enough must have shape {list(state.enough.shape)}, got {list(enough.shape)}")
            state.enough = enough.double()
        state.stop_at = stop_at
        for number in range(self.iterations):
            state.iterate(number, last=number == self.iterations - 1)
            if not len(state.rows):
                break
        return state.result()


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


class _Multipliers:
    """The sentences that are not done (``rows``, of which some may be done and not yet left out), and what is known of
    all of them."""

    def __init__(self, owner: DualDecomposition, u: dict[str, Tensor]) -> None:
        self.owner, self.u = owner, u  # u by name: [oracles that share, B, ..]
        some = next(iter(u.values()))
        self.B, self.device = some.shape[1], some.device
        self.oracles: Sequence[Oracle] = owner.oracles
        self.rows = torch.arange(self.B, device=self.device)
        self.step = owner.step.begin(self.B, self.device)
        fresh = torch.full((self.B,), -torch.inf, dtype=torch.float64, device=self.device)
        self.score, self.bound = fresh.clone(), -fresh
        self.enough = fresh.clone()
        self.stop_at: Float64[Tensor, " B"] | None = None
        self.size = -fresh  # of what is added up, the least so far
        self.done = torch.zeros(self.B, dtype=torch.bool, device=self.device)
        self.certified = self.done.clone()
        self.iterations = torch.zeros(self.B, dtype=torch.int64, device=self.device)
        self.best: Structures = {}
        self.last: Sequence[Found] = ()
        self.trace: list[tuple[Tensor, Tensor, Tensor]] = []
        self.all_u = {name: x.clone() for name, x in u.items()}
        self.least = {name: x.clone() for name, x in u.items()} if owner.keep else {}
        self.sums = {name: torch.zeros_like(x) for name, x in u.items()}

    @classmethod
    def begin(cls, owner: DualDecomposition, penalties: Sequence[Mapping[str, Tensor]] | None) -> _Multipliers:
        if penalties is not None and len(penalties) != len(owner.oracles):
            raise ValueError(f"penalties must be one for each of {len(owner.oracles)} oracles, got {len(penalties)}")
        u = {}
        for o, given in enumerate(penalties or ()):
            for name, x in given.items():
                if name not in owner.sharing or o not in owner.sharing[name]:
                    raise ValueError(f"penalties[{o}]: {name!r} is nothing that oracle must agree on")
                shape = list(owner.oracles[o].shapes[name])
                if list(x.shape) != shape or not bool(x.isfinite().all()):
                    raise ValueError(
                        f"penalties[{o}][{name!r}] must be finite and of shape {shape}, got {list(x.shape)}"
                    )
        for name, those in owner.sharing.items():
            size, device = tuple(owner.oracles[those[0]].shapes[name]), owner.oracles[those[0]].device
            u[name] = torch.zeros(len(those), *size, dtype=torch.float64, device=device)
            for place, o in enumerate(those):
                if penalties is not None and name in penalties[o]:
                    u[name][place] = penalties[o][name]
            u[name] -= u[name].mean(0)
        return cls(owner, u)

    def _penalties(self) -> list[Penalties]:
        found: list[Penalties] = [{} for _ in self.oracles]
        for name, those in self.owner.sharing.items():
            for place, o in enumerate(those):
                found[o][name] = self.u[name][place]
        return found

    def iterate(self, number: int, last: bool) -> None:
        """One evaluation of L(u), and a step."""
        found = [oracle.best(u) for oracle, u in zip(self.oracles, self._penalties(), strict=True)]
        values = torch.stack([f.value for f in found]).double()
        dual = values.sum(0)
        live = ~self.done[self.rows]
        direction, agree = self._direction(found)
        norm = torch.stack([d.square().flatten(2).sum((0, 2)) for d in direction.values()]).sum(0)
        structures, score = self._primal(found, agree, dual)
        self._keep(structures, score, live & (score > self.score[self.rows]) & (dual > -torch.inf))
        self.last = found
        rows = self.rows[live]
        own = torch.where(dual.isfinite(), values.abs().sum(0) + self._spent(found), 0.0)
        self.size[rows] = torch.minimum(self.size[rows], own[live])
        sure = dual if self.owner.rounding is None else dual + certificates.rounding(0, own)
        for name, x in self.least.items():
            lower = live & (sure < self.bound[self.rows])
            x[:, self.rows[lower]] = self.u[name][:, lower]
        self.bound[rows] = torch.minimum(self.bound[rows], sure[live])
        self.iterations[rows] = number + 1
        for name, sums in self.sums.items():
            sums[:, rows] += torch.stack([found[o].indicators[name] for o in self.owner.sharing[name]])[:, live]
        self.certified |= self._is_best(self.score)
        self.done |= self.certified | self._is_best(self.enough) | (self.bound == -torch.inf)
        if self.stop_at is not None:
            self.done |= self.score > self.stop_at
        size = self.step.size(dual, self.bound[self.rows], self.score[self.rows], norm)
        self._note(dual, size, live)
        if last:
            return
        for name, d in direction.items():
            self.u[name] = self.u[name] - size.view(-1, *[1] * (d.dim() - 2)) * d
        self._leave()

    def _is_best(self, score: Float64[Tensor, " B"]) -> Bool[Tensor, " B"]:
        return self.owner.is_best(score, self.bound, self.size, torch.arange(self.B, device=self.device))

    def _spent(self, found: Sequence[Found]) -> Float64[Tensor, " K"]:
        """The sizes of the penalties that are in the values."""
        sizes = [
            (self.u[name][place].abs() * found[o].indicators[name]).flatten(1).sum(1)
            for name, those in self.owner.sharing.items()
            for place, o in enumerate(those)
        ]
        return torch.stack(sizes).sum(0)

    def _direction(self, found: Sequence[Found]) -> tuple[dict[str, Tensor], Bool[Tensor, " K"]]:
        """The subgradient: what each oracle has more than the average; and where all agree."""
        direction = {}
        agree = torch.ones(len(self.rows), dtype=torch.bool, device=self.device)
        for name, those in self.owner.sharing.items():
            y = torch.stack([found[o].indicators[name] for o in those])
            direction[name] = y - y.mean(0)
            agree &= (y == y[0]).flatten(2).all(2).all(0)
        return direction, agree

    def _primal(self, found: Sequence[Found], agree: Tensor, dual: Tensor) -> tuple[Structures, Tensor]:
        if self.owner.primal is not None:
            structures, score = self.owner.primal(found, self.rows)
            return structures, score.double()
        structures = {name: x for f in found for name, x in f.structures.items()}
        return structures, torch.where(agree, dual, -torch.inf)

    def _keep(self, structures: Structures, score: Tensor, better: Tensor) -> None:
        for name, x in structures.items():
            if name not in self.best:
                self.best[name] = torch.full((self.B, *x.shape[1:]), -1, dtype=x.dtype, device=x.device)
            self.best[name][self.rows[better]] = x[better]
        self.score[self.rows[better]] = score[better]

    def _note(self, dual: Tensor, size: Tensor, live: Tensor) -> None:
        nothing = torch.full((3, self.B), torch.nan, dtype=torch.float64, device=self.device)
        rows = self.rows[live]
        nothing[0, rows], nothing[1, rows], nothing[2, rows] = dual[live], self.score[rows], size[live]
        self.trace.append((nothing[0], nothing[1], nothing[2]))

    def _leave(self) -> None:
        """Leave out sentences that are done, if there are enough of them."""
        done = self.done[self.rows]
        count = int(done.sum())
        if count < len(done) and count < LEAVE * len(done):
            return
        self._store()
        stay = (~done).nonzero()[:, 0]
        self.rows = self.rows[stay]
        self.u = {name: x[:, stay] for name, x in self.u.items()}
        if len(stay):
            self.oracles = [oracle.take(stay) for oracle in self.oracles]
            self.step = self.step.take(stay)

    def _store(self) -> None:
        for name, x in self.u.items():
            self.all_u[name][:, self.rows] = x

    def _give(self, output: Which) -> None:
        """Of sentences without a proof the structure of the last iteration, or that of the average of all."""
        found = list(self.last)
        if output == "average":
            for o, oracle in enumerate(self.oracles):
                own = {
                    n: self.sums[n][those.index(o), self.rows] for n, those in self.owner.sharing.items() if o in those
                }
                found[o] = oracle.best({name: FAR * x for name, x in own.items()})
        none = torch.zeros(len(self.rows), dtype=torch.bool, device=self.device)
        structures, score = self._primal(found, none, none.double())
        self._keep(structures, score, ~self.done[self.rows] & (score > -torch.inf))

    def result(self) -> Agreement:
        self._store()
        count = self.iterations.clamp(min=1)
        certified = self.certified.clone()
        if self.owner.output != "best" and len(self.rows):
            self._give(self.owner.output)
        penalties: list[Penalties] = [{} for _ in self.owner.oracles]
        averages: list[Penalties] = [{} for _ in self.owner.oracles]
        least: list[Penalties] = [{} for _ in self.owner.oracles]
        for name, those in self.owner.sharing.items():
            mean = self.sums[name] / count.view(1, -1, *[1] * (self.sums[name].dim() - 2))
            for place, o in enumerate(those):
                penalties[o][name], averages[o][name] = self.all_u[name][place], mean[place]
                if name in self.least:
                    least[o][name] = self.least[name][place]
        duals, scores, sizes = (torch.stack(x) for x in zip(*self.trace, strict=True))
        none = self.score == -torch.inf
        best = {name: x.masked_fill(none.view(-1, *[1] * (x.dim() - 1)), -1) for name, x in self.best.items()}
        bound = torch.where(certified, self.score, torch.maximum(self.bound, self.score))
        found = best, self.score, bound, certified, self.iterations
        return Agreement(*found, duals, scores, sizes, tuple(penalties), tuple(averages), tuple(least))
