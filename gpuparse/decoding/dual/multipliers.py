"""The iterations of dual decomposition. None waits for a device: what is known of sentences is kept there, and looked
at every so often, to leave out those that are done."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float64
from torch import Tensor

from gpuparse.decoding.dual.agreement import Agreement, OneByOne, Said, Together
from gpuparse.ops.multipliers import multipliers
from gpuparse.ops.plain.multipliers import (
    BOUND,
    CERTIFIED,
    DONE,
    ENOUGH,
    ITERATIONS,
    KNOWN,
    OF_DUAL,
    SCORE,
    SIZE,
    STOP_AT,
    TOLERANCE,
)
from gpuparse.structures.trees import can_validate

if TYPE_CHECKING:
    from gpuparse.decoding.dual.decomposition import DualDecomposition

LEAVE = 0.1  # share of the batch that is done before it is made smaller
LOOK = 16  # iterations between two looks at who is done, where looking is to wait
PAGE = 64  # iterations of which a tensor keeps the trace
FAR = 1e6  # what an average counts for against scores
FIRST = {BOUND: torch.inf, SCORE: -torch.inf, SIZE: torch.inf, ENOUGH: -torch.inf, STOP_AT: torch.inf}


class Multipliers:
    """The sentences that are not done (``rows``, of which some may be done and not yet left out), and what is known of
    all of them."""

    def __init__(
        self,
        owner: DualDecomposition,
        penalties: Sequence[Mapping[str, Tensor]] | None,
        enough: Float64[Tensor, " B"] | None,
        stop_at: Float64[Tensor, " B"] | None,
        seconds: Float64[Tensor, " B"] | None = None,
    ) -> None:
        self.owner, self.shared = owner, owner.shared
        u = _first_penalties(owner, penalties)
        B, device = len(u), u.device
        known = torch.zeros(B, KNOWN, dtype=torch.float64, device=device)
        rest = {**FIRST, TOLERANCE: owner.tolerance}
        for column, value in rest.items():
            known[:, column] = value
        for column, given in ((ENOUGH, enough), (STOP_AT, stop_at)):
            if given is not None:
                known[:, column] = given
        self.rounding = owner.rounding
        if self.rounding is not None:
            known[:, OF_DUAL:] = self.rounding.numbers
        self.now = {"u": u, "sums": torch.zeros_like(u), "known": known}
        if owner.keep:
            self.now["least"] = u.clone()
        if seconds is not None:
            self.now["seconds"] = seconds.double().clone()
        self.all: dict[str, Tensor] = {}
        self.rows = torch.arange(B, device=device)
        self.together: Together = owner.together or self._one_by_one()
        self.step = owner.step.begin(B, device)
        self.parts = owner.shared.parts, torch.tensor(owner.shared.parts, device=device)
        self.better = torch.zeros(B, dtype=torch.bool, device=device)
        self.pages: list[tuple[Tensor, Tensor]] = []  # the trace, and of which sentences
        self.free = 0  # iterations that the last page has room for
        self.said: Said | None = None

    def _one_by_one(self) -> OneByOne:
        every = torch.arange(next(iter(self.shared.shapes.values()))[0], device=self.rows.device)
        return OneByOne(self.owner.oracles, self.shared, self.owner.primal, every)

    def run(self) -> Agreement:
        most = self.owner.iterations
        look = 1 if can_validate(self.rows, None) else LOOK
        begun = time.monotonic()
        for number in range(1, most + 1):
            self._iterate(last=number == most)
            if number % look == 0 and number < most:
                self.together.look()
                begun = self._charge(begun)
                if not self._leave():
                    break
        return self._result()

    def _charge(self, begun: float) -> float:
        """Take the time since then from what sentences have, in equal shares; those that have none left are done. Says
        what time it is."""
        now = time.monotonic()
        if (left := self.now.get("seconds")) is not None:
            left -= (now - begun) / len(self.rows)
            self.now["known"][:, DONE].masked_fill_(left <= 0, 1.0)
        return now

    def _iterate(self, last: bool) -> None:
        """One evaluation of L(u), and a step."""
        now = self.now
        self.said = said = self.together.ask(now["u"])
        total, moved = (None, None) if self.rounding is None else (self.rounding.total, self.rounding.moved)
        given = said.indicators, said.values, said.score, total, moved, self.parts
        state = now["u"], now["sums"], now.get("least"), now["known"]
        multipliers(*given, *state, self.better, self._line(), self.step, last)
        for name, x in said.structures.items():
            key, better = f"best {name}", self.better.view(-1, *[1] * (x.dim() - 1))
            now[key] = torch.where(better, x, now.get(key, -1))

    def _line(self) -> Float64[Tensor, "3 K"]:
        """Where the trace of an iteration goes."""
        if not self.free:
            self.pages.append((self.now["u"].new_empty(PAGE, 3, len(self.rows)), self.rows))
            self.free = PAGE
        self.free -= 1
        return self.pages[-1][0][PAGE - 1 - self.free]

    def _leave(self) -> bool:
        """Leave out sentences that are done, if there are enough of them; whether any are not."""
        stay = (self.now["known"][:, DONE] == 0).nonzero()[:, 0]
        if len(stay) and len(stay) > (1 - LEAVE) * len(self.rows):
            return True
        self._store()
        if len(stay):
            self.now = {name: x[stay] for name, x in self.now.items()}
            self.rows, self.better = self.rows[stay], self.better[stay]
            self.together, self.step = self.together.take(stay), self.step.take(stay)
            self.rounding = None if self.rounding is None else self.rounding.take(stay)
            self._end_page()
        return len(stay) > 0

    def _store(self) -> None:
        if not self.all:
            self.all = dict(self.now)
        for name, x in self.now.items():
            if x is not self.all[name]:
                self.all[name].index_copy_(0, self.rows, x)

    def _end_page(self) -> None:
        if self.pages:
            page, rows = self.pages[-1]
            self.pages[-1] = page[: PAGE - self.free], rows
        self.free = 0

    def _give(self, output: Literal["last", "average"]) -> None:
        """Of sentences without a proof the structure of the last iteration, or that of the average of all."""
        assert self.said is not None
        structures, score = self.said.structures, self.said.score
        if output == "average":
            some = self._one_by_one().take(self.rows)
            sums = self.shared.apart(FAR * self.now["sums"])
            structures, score = some.whole([o.best(u) for o, u in zip(some.oracles, sums, strict=True)])
        if score is None:
            return
        known = self.now["known"]
        given = (known[:, DONE] == 0) & (score > -torch.inf)
        known[:, SCORE] = torch.where(given, score, known[:, SCORE])
        for name, x in structures.items():
            key = f"best {name}"
            self.now[key] = torch.where(given.view(-1, *[1] * (x.dim() - 1)), x, self.now[key])
        self._store()

    def _result(self) -> Agreement:
        self._store()
        if self.owner.output != "best":
            self._give(self.owner.output)
        self._end_page()
        B = len(self.all["u"])
        duals, scores, sizes = torch.cat([_spread(page, rows, B) for page, rows in self.pages]).unbind(1)
        known = self.all["known"]
        score, certified, count = known[:, SCORE], known[:, CERTIFIED] != 0, known[:, ITERATIONS]
        bound = torch.where(certified, score, torch.maximum(known[:, BOUND], score))
        best = {
            name.removeprefix("best "): x.masked_fill((score == -torch.inf).view(-1, *[1] * (x.dim() - 1)), -1)
            for name, x in self.all.items()
            if name.startswith("best ")
        }
        apart = self.shared.apart
        average = apart(self.all["sums"] / count.clamp(min=1)[:, None])
        least = apart(self.all["least"]) if "least" in self.all else tuple({} for _ in self.owner.oracles)
        found = best, score, bound, certified, count.long(), duals, scores, sizes
        return Agreement(*found, apart(self.all["u"]), average, least, self.all.get("seconds"))


def _spread(page: Tensor, rows: Tensor, B: int) -> Float64[Tensor, "I 3 B"]:
    """A page of some sentences as one of all."""
    if page.shape[2] == B:
        return page
    return page.new_full((*page.shape[:2], B), torch.nan).index_copy_(2, rows, page)


def _first_penalties(owner: DualDecomposition, given: Sequence[Mapping[str, Tensor]] | None) -> Float64[Tensor, "B T"]:
    """Side by side, adding up to 0."""
    if given is not None and len(given) != len(owner.oracles):
        raise ValueError(f"penalties must be one for each of {len(owner.oracles)} oracles, got {len(given)}")
    for o, of_oracle in enumerate(given or ()):
        for name, x in of_oracle.items():
            if o not in owner.sharing.get(name, ()):
                raise ValueError(f"penalties[{o}]: {name!r} is nothing that oracle must agree on")
            shape = list(owner.oracles[o].shapes[name])
            if list(x.shape) != shape or (can_validate(x, None) and not bool(x.isfinite().all())):
                raise ValueError(f"penalties[{o}][{name!r}] must be finite and of shape {shape}, got {list(x.shape)}")
    shared, device = owner.shared, owner.oracles[0].device
    (B, *_), width = next(iter(shared.shapes.values())), sum(many * size for many, size in shared.parts)
    u = torch.zeros(B, width, dtype=torch.float64, device=device)
    for into, of_oracle in zip(shared.apart(u), given or (), strict=False):
        for name, x in of_oracle.items():
            into[name].copy_(x)
    for x, part in zip(u.split([many * size for many, size in shared.parts], 1), shared.parts, strict=True):
        own = x.unflatten(1, part)
        own -= own.mean(1, keepdim=True)
    return u
