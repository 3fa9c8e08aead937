"""Best chains of tags, as operators: the dense program, column generation, beams.

Pairs that all places share are given to the kernels as a ``TransitionTable``: doubles in rows of whole packs, with
their bounds.
It costs about as much as one word of the dense program; who decodes many batches makes it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from gpuparse.ops import plain
from gpuparse.ops.backend import Backend, Kernel, Long
from gpuparse.ops.chains import checked
from gpuparse.ops.launch import NUMBERS, kernels_for, launch
from gpuparse.ops.library import define, takes_kernels

Unary = Float[Tensor, "B n T"]
Pairs = Float[Tensor, "b p S T"]
Lengths = Int[Tensor, " B"]

PAD = 8  # of lanes.cuh on a CPU; a GPU needs less


def whole(T: int) -> int:
    """Places in a row of whole packs."""
    return (T + 7) // 8 * 8


def in_rows(scores: Float[Tensor, "R T"]) -> Float64[Tensor, "R wide"]:
    """Doubles in rows of whole packs, -inf past their end."""
    rows = torch.full((len(scores), whole(scores.shape[1])), -torch.inf, dtype=torch.float64, device=scores.device)
    rows[:, : scores.shape[1]] = scores
    return rows


class TransitionTable:
    """Scores of pairs [1 or B, 1 or P, S, T] as the kernels want them; a copy where all places share them."""

    def __init__(self, pairs: Pairs) -> None:
        self.own = pairs.shape[:2] != (1, 1)  # each place has its own
        self.S, self.T = pairs.shape[2:]
        self.rows = pairs.detach().contiguous() if self.own else in_rows(pairs.detach()[0, 0])
        self._known: dict[str, Tensor] = {}

    @property
    def pairs(self) -> Pairs:
        """What it was made of, in float64 where all places share it."""
        return self.rows if self.own else self.rows[None, None, :, : self.T]

    @property
    def columns(self) -> Tensor | None:
        """The shared pairs transposed."""
        return None if self.own or self.S != self.T else self._once("columns", lambda x: x[0, 0].t())

    @property
    def row_max(self) -> Float64[Tensor, "R wide"]:
        """The greatest score of each row; NaN or inf if it has one."""
        return self._once("row_max", lambda x: x.amax(-1).reshape(-1, self.S))

    @property
    def row_min(self) -> Float64[Tensor, "R wide"]:
        return self._once("row_min", lambda x: x.amin(-1).reshape(-1, self.S))

    @property
    def column_max(self) -> Float64[Tensor, "R wide"]:
        return self._once("column_max", lambda x: x.amax(-2).reshape(-1, self.T))

    def _once(self, name: str, make: Callable[[Tensor], Tensor]) -> Tensor:
        if name not in self._known:
            self._known[name] = in_rows(make(self.pairs))
        return self._known[name]


class ChainProgram:
    """A kernel for best chains, and its operator: called with unary scores, the rows of a ``TransitionTable``, what it
    is given of it besides, lengths and numbers.

    Args:
        given: what it is given, as in a schema, between the rows and the sizes: tensors, the lengths, numbers.
        outputs: how many of tags, scores, counts and bounds it gives.
        need: by n, T and the numbers what it takes: doubles, ints, lanes that find work at once, and steps.
        each: whether it also takes rows that each place has of its own.
    """

    def __init__(
        self,
        name: str,
        given: str,
        outputs: int,
        need: Callable[..., tuple[int, tuple[int, ...], int, int]],
        each: bool = False,
    ) -> None:
        self.name, self.outputs, self.need, self.each = name, outputs, need, each
        self.tensors = given.count("Tensor")
        made = ", ".join(["Tensor"] * outputs)
        self.op = define(f"{name}(Tensor unary, Tensor rows, {given}) -> ({made})", self.launch, self.like)

    def like(self, unary: Tensor, *_: object) -> tuple[Tensor, ...]:
        B, n = unary.shape[:2]
        made: tuple[Tensor, ...] = unary.new_empty((B, n), dtype=torch.int64), unary.new_empty(B, dtype=torch.float64)
        if self.outputs > 2:
            made += (unary.new_empty((B, 4), dtype=torch.int64),)
        return made if self.outputs < 4 else (*made, torch.empty_like(made[1]))

    def launch(self, unary: Tensor, rows: Tensor, *given: Any, backend: Backend | None = None) -> tuple[Tensor, ...]:
        """Run the kernel."""
        (B, n, T), outputs = unary.shape, self.like(unary)
        *tables, lengths = given[: self.tensors]
        numbers = given[self.tensors :]
        doubles, ints, nodes, work = self.need(n, T, *numbers)
        launch(
            backend or kernels_for(unary),
            Kernel(self.name, NUMBERS[unary.dtype], int(rows.dim() > 2) if self.each else None),
            [unary.contiguous(), rows, *tables, lengths.contiguous(), *outputs],
            sentences=B,
            nodes=nodes,
            work=work,
            doubles=doubles,
            ints=ints,
            tail=[Long(doubles), *map(Long, ints), rows.shape[-1], *numbers, B, n, T],
        )
        return outputs


def _dense_needs(n: int, T: int, M: int) -> tuple[int, tuple[int, ...], int, int]:
    return n * (whole(M * T) + PAD), (), M * T, n * M * T * T // 8


def _forward_needs(n: int, T: int) -> tuple[int, tuple[int, ...], int, int]:
    return n * (whole(T) + PAD), ((n + 1) * T + n,), T, n * T * 4


def _averaged_needs(n: int, T: int, _: int) -> tuple[int, tuple[int, ...], int, int]:
    return (4 * n + 4) * (whole(T) + PAD) + whole(2 * n), ((n + 2) * T + 4 * n,), T, n * T * 8


def _beam_needs(n: int, T: int, beam: int) -> tuple[int, tuple[int, ...], int, int]:
    return (n + 1) * (whole(T) + PAD), (n * beam + n,), T, n * T * beam // 2


_BEAM = "Tensor? row_max, Tensor? row_min, Tensor? column_max, Tensor lengths, int beam"
_AVERAGED = "Tensor columns, Tensor row_max, Tensor column_max, Tensor lengths, int initial"
DENSE = ChainProgram(
    "viterbi", "Tensor? columns, Tensor? row_max, Tensor lengths, int contexts", 2, _dense_needs, each=True
)
FORWARD = ChainProgram("viterbi_forward", "Tensor row_max, Tensor row_min, Tensor lengths", 3, _forward_needs)
AVERAGED = ChainProgram("viterbi_averaged", _AVERAGED, 3, _averaged_needs)
BEAM = ChainProgram("viterbi_beam", _BEAM, 4, _beam_needs, each=True)


class Best(NamedTuple):
    """Tags, -1 past the end and everywhere where there is no chain or a score read is NaN or +inf; their score, then
    -inf; and counts: tags that messages were sent from, transitions read, words left to the dense program, rounds."""

    tags: Int[Tensor, "B n"]
    score: Float64[Tensor, " B"]
    counts: Int[Tensor, "B 4"]


def best_chain(
    unary: Unary, pairs: Pairs | TransitionTable, lengths: Lengths, trigrams: bool = False, *, switched: bool = False
) -> Best:
    """A best chain by the dense program (``switched``: from another). Ties: the smallest tag, from the last word on."""
    table = pairs if isinstance(pairs, TransitionTable) else TransitionTable(pairs)
    if not takes_kernels(unary, "viterbi") or (trigrams and (table.own or table.T == 1)):
        lengths, bad = checked(unary, table.pairs, lengths, trigrams)
        tags = torch.where(bad[:, None], -1, plain.chain.argmax(unary, table.pairs, lengths, trigrams))
        score = _plain_score(unary, table.pairs, tags, lengths, trigrams)
    else:
        row_max = None if table.own else table.row_max
        contexts = unary.shape[2] if trigrams else 1
        tags, score = DENSE.op(unary.detach(), table.rows, table.columns, row_max, lengths, contexts)
    return Best(tags, score, _counts(lengths, table.T, table.T, switched))


def forward_columns(unary: Unary, table: TransitionTable, lengths: Lengths) -> Best:
    """The same by column generation in one sweep. To bound the transitions of each place all of them would have to be
    read, which is what the dense program does: those are left to it."""
    if table.own or not takes_kernels(unary, "viterbi_forward"):
        return best_chain(unary, table, lengths, switched=True)
    return Best(*FORWARD.op(unary.detach(), table.rows, table.row_max, table.row_min, lengths))


def averaged_columns(unary: Unary, table: TransitionTable, lengths: Lengths, initial: int) -> Best:
    """The same by rounds of column generation, from the ``initial`` best tags of each word."""
    if table.own or not takes_kernels(unary, "viterbi_averaged"):
        return best_chain(unary, table, lengths, switched=True)
    bounds = table.row_max, table.column_max
    return Best(*AVERAGED.op(unary.detach(), table.rows, table.columns, *bounds, lengths, min(initial, table.T)))


def beam_search(
    unary: Unary, table: TransitionTable, lengths: Lengths, beam: int
) -> tuple[Best, Float64[Tensor, " B"]]:
    """A chain by beam search, and a bound of all chains: -inf where this one is proven best, +inf if none is known."""
    beam = min(beam, table.T)
    if not takes_kernels(unary, "viterbi_beam"):
        lengths, bad = checked(unary, table.pairs, lengths, False)
        tags, bound = plain.beam.search(unary, table.pairs, lengths, beam)
        tags = torch.where(bad[:, None], -1, tags)
        best = Best(tags, _plain_score(unary, table.pairs, tags, lengths, False), _counts(lengths, beam, table.T))
        return best, torch.full_like(bound, -torch.inf) if beam == table.T else bound
    bounds = (None, None, None) if table.own else (table.row_max, table.row_min, table.column_max)
    *best, bound = BEAM.op(unary.detach(), table.rows, *bounds, lengths, beam)
    return Best(*best), bound


def _counts(lengths: Lengths, states: int, T: int, switched: bool = False) -> Int[Tensor, "B 4"]:
    """Of a program that sends messages from ``states`` tags of every word but the last to all T of the next."""
    words = (lengths - 1).clamp(min=0)
    dense = words if switched else torch.zeros_like(words)
    return torch.stack([states * words, states * words * T, dense, torch.ones_like(words)], 1)


def _plain_score(unary: Tensor, pairs: Tensor, tags: Tensor, lengths: Tensor, trigrams: bool) -> Tensor:
    score = plain.chain.score(unary.detach(), pairs, tags, lengths, trigrams)
    return torch.where((tags >= 0).any(1), score, -torch.inf)
