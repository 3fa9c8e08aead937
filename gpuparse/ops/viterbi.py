"""Best chains of tags, as operators: the dense program, column generation, beams.

Pairs that all places share are given to the kernels as a ``TransitionTable``: doubles in rows of whole packs, with
their bounds.
It costs about as much as one word of the dense program; who decodes many batches makes it once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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


def launch_dense(
    unary: Tensor,
    rows: Tensor,
    columns: Tensor | None,
    row_max: Tensor | None,
    lengths: Tensor,
    M: int,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor]:
    B, n, T = unary.shape
    outputs = _like_answer(unary)
    doubles = n * (whole(M * T) + PAD)
    launch(
        backend or kernels_for(unary),
        Kernel("viterbi", NUMBERS[unary.dtype], int(rows.dim() > 2)),
        [unary.contiguous(), rows, columns, row_max, lengths.contiguous(), *outputs],
        sentences=B,
        nodes=M * T,
        work=n * M * T * T // 8,
        doubles=doubles,
        tail=[Long(doubles), M, rows.shape[-1], B, n, T],
    )
    return outputs


def launch_forward(
    unary: Tensor, rows: Tensor, row_max: Tensor, row_min: Tensor, lengths: Tensor, backend: Backend | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    B, n, T = unary.shape
    outputs = _like_counted(unary)
    doubles, ints = n * (whole(T) + PAD), (n + 1) * T + n
    launch(
        backend or kernels_for(unary),
        Kernel("viterbi_forward", NUMBERS[unary.dtype]),
        [unary.contiguous(), rows, row_max, row_min, lengths.contiguous(), *outputs],
        sentences=B,
        nodes=T,
        work=n * T * 4,
        doubles=doubles,
        ints=(ints,),
        tail=[Long(doubles), Long(ints), rows.shape[-1], B, n, T],
    )
    return outputs


def launch_averaged(
    unary: Tensor,
    rows: Tensor,
    columns: Tensor,
    row_max: Tensor,
    column_max: Tensor,
    lengths: Tensor,
    initial: int,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    B, n, T = unary.shape
    outputs = _like_counted(unary)
    doubles, ints = (4 * n + 4) * (whole(T) + PAD) + whole(2 * n), (n + 2) * T + 4 * n
    launch(
        backend or kernels_for(unary),
        Kernel("viterbi_averaged", NUMBERS[unary.dtype]),
        [unary.contiguous(), rows, columns, row_max, column_max, lengths.contiguous(), *outputs],
        sentences=B,
        nodes=T,
        work=n * T * 8,
        doubles=doubles,
        ints=(ints,),
        tail=[Long(doubles), Long(ints), rows.shape[-1], initial, B, n, T],
    )
    return outputs


def launch_beam(
    unary: Tensor,
    rows: Tensor,
    row_max: Tensor | None,
    row_min: Tensor | None,
    column_max: Tensor | None,
    lengths: Tensor,
    beam: int,
    backend: Backend | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    B, n, T = unary.shape
    outputs = _like_bounded(unary)
    doubles, ints = (n + 1) * (whole(T) + PAD), n * beam + n
    launch(
        backend or kernels_for(unary),
        Kernel("viterbi_beam", NUMBERS[unary.dtype], int(rows.dim() > 2)),
        [unary.contiguous(), rows, row_max, row_min, column_max, lengths.contiguous(), *outputs],
        sentences=B,
        nodes=T,
        work=n * T * beam // 2,
        doubles=doubles,
        ints=(ints,),
        tail=[Long(doubles), Long(ints), rows.shape[-1], beam, B, n, T],
    )
    return outputs


def _like_answer(unary: Tensor, *_: object) -> tuple[Tensor, Tensor]:
    B, n = unary.shape[:2]
    return unary.new_empty((B, n), dtype=torch.int64), unary.new_empty(B, dtype=torch.float64)


def _like_counted(unary: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor]:
    return (*_like_answer(unary), unary.new_empty((unary.shape[0], 4), dtype=torch.int64))


def _like_bounded(unary: Tensor, *_: object) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (*_like_counted(unary), unary.new_empty(unary.shape[0], dtype=torch.float64))


_dense_op = define(
    "viterbi(Tensor unary, Tensor rows, Tensor? columns, Tensor? row_max, Tensor lengths, int contexts) "
    "-> (Tensor, Tensor)",
    launch_dense,
    _like_answer,
)
_forward_op = define(
    "viterbi_forward(Tensor unary, Tensor rows, Tensor row_max, Tensor row_min, Tensor lengths) "
    "-> (Tensor, Tensor, Tensor)",
    launch_forward,
    _like_counted,
)
_averaged_op = define(
    "viterbi_averaged(Tensor unary, Tensor rows, Tensor columns, Tensor row_max, Tensor column_max, Tensor lengths, "
    "int initial) -> (Tensor, Tensor, Tensor)",
    launch_averaged,
    _like_counted,
)
_beam_op = define(
    "viterbi_beam(Tensor unary, Tensor rows, Tensor? row_max, Tensor? row_min, Tensor? column_max, Tensor lengths, "
    "int beam) -> (Tensor, Tensor, Tensor, Tensor)",
    launch_beam,
    _like_bounded,
)


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
        tags, score = _dense_op(unary.detach(), table.rows, table.columns, row_max, lengths, contexts)
    return Best(tags, score, _counts(lengths, table.T, table.T, switched))


def forward_columns(unary: Unary, table: TransitionTable, lengths: Lengths) -> Best:
    """The same by column generation in one sweep. To bound the transitions of each place all of them would have to be
    read, which is what the dense program does: those are left to it."""
    if table.own or not takes_kernels(unary, "viterbi_forward"):
        return best_chain(unary, table, lengths, switched=True)
    return Best(*_forward_op(unary.detach(), table.rows, table.row_max, table.row_min, lengths))


def averaged_columns(unary: Unary, table: TransitionTable, lengths: Lengths, initial: int) -> Best:
    """The same by rounds of column generation, from the ``initial`` best tags of each word."""
    if table.own or not takes_kernels(unary, "viterbi_averaged"):
        return best_chain(unary, table, lengths, switched=True)
    bounds = table.row_max, table.column_max
    return Best(*_averaged_op(unary.detach(), table.rows, table.columns, *bounds, lengths, min(initial, table.T)))


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
    *best, bound = _beam_op(unary.detach(), table.rows, *bounds, lengths, beam)
    return Best(*best), bound


def _counts(lengths: Lengths, states: int, T: int, switched: bool = False) -> Int[Tensor, "B 4"]:
    """Of a program that sends messages from ``states`` tags of every word but the last to all T of the next."""
    words = (lengths - 1).clamp(min=0)
    dense = words if switched else torch.zeros_like(words)
    return torch.stack([states * words, states * words * T, dense, torch.ones_like(words)], 1)


def _plain_score(unary: Tensor, pairs: Tensor, tags: Tensor, lengths: Tensor, trigrams: bool) -> Tensor:
    score = plain.chain.score(unary.detach(), pairs, tags, lengths, trigrams)
    return torch.where((tags >= 0).any(1), score, -torch.inf)
