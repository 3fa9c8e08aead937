"""Pricing on a device that is not the host: what is asked goes there as one block, what is found comes back as one.

Only what changed since the last time goes, of the sentences that are asked about. With the triples that were found come
scores that the host is likely to want next: where an arc of one of them would be new, that of its grandparent in the
last solution. On a GPU all this happens on a stream of its own, by pinned memory, while the host solves programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float64, Int, Int64
from torch import Tensor

from gpuparse.decoding.parts import Parts
from gpuparse.decoding.ppc.program import Bools, Doubles, Ints
from gpuparse.ops.pricing import Priced
from gpuparse.system.transfer import to_device

FIRST = 16  # triples by word that are expected to be found at first
LIKELY = 16  # scores by word that may come besides
MORE = 1.25  # so many times what was found the last time is expected

Scored = dict[int, tuple[Ints, Doubles]]  # triples [T, 3] of sentences, and their scores


@dataclass(frozen=True)
class Arrived:
    """What came of a question: ``count`` and ``looked`` of the sentences that were priced, ``scored`` of all; triples
    that were found of each, and others of sentences whose scores are known (NaN: they are not) now."""

    count: Ints
    looked: Ints
    scored: Ints
    found: Scored
    scores: list[tuple[int, Ints, Doubles]]


class DeviceLink:
    """The duals and the known scores of a batch, on the device.

    Args:
        score: scores of a list of triples, as pricing has them.
        price: pricing of the whole batch, given lengths, duals, known scores and room.
        dtype: that holds every score.
    """

    def __init__(
        self, parts: Parts, score: Callable[..., Tensor], price: Callable[..., Priced], dtype: torch.dtype
    ) -> None:
        self.parts, self._score_list, self._price, self._dtype = parts, score, price, dtype
        self.device, B, N = parts.device, parts.lengths.shape[0], parts.nodes
        self._stream = None
        if self.device.type == "cuda":
            self._stream = torch.cuda.Stream(self.device)
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with self._aside():
            self._duals = torch.zeros((3, B, N, N), dtype=torch.float64, device=self.device)
            self._known = torch.full((B, N, N, N), torch.nan, dtype=torch.float64, device=self.device)
        self._expected = np.full(B, FIRST * N)

    def _aside(self) -> AbstractContextManager[object]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    @torch.no_grad()
    def send(
        self,
        rows: Ints,
        duals: Doubles,
        changed: Bools,
        heads: npt.NDArray[np.int16],
        wanted: Mapping[int, Ints],
        room: int,
    ) -> Callable[[], Arrived]:
        """Begin to price sentences, and to score triples. What is returned waits for what comes of it.

        Args:
            rows: the sentences to price [K].
            duals: theirs, ceiling, floor and kappa [3, K, N, N]; only those that changed are read.
            heads: what the solutions give the nodes [K, N].
            wanted: triples [T, 3] of sentences.
            room: as for ``price``.
        """
        N, K = self.parts.nodes, len(rows)
        codes = [_codes(b, triples, N) for b, triples in wanted.items()]
        asked = np.concatenate([np.zeros(0, dtype=np.int64), *codes])
        bits = np.packbits(changed.reshape(3, K, N * N), axis=-1, bitorder="little")
        sent = [asked, np.append(duals[changed], 0.0), rows.astype(np.int32), heads, bits]
        with self._aside():
            so_far = self.parts.scored
            found = self._find(room, *to_device(sent, self.device))
            self.parts.scored = so_far  # ``scored`` says how many were
            expected = len(asked) + int(self._expected[rows].sum())
            header = K * 3 + len(self._known)
            width = 1 + self._dtype.itemsize // 4
            size = min(header + expected * width, len(found))
            here = torch.empty(size, dtype=torch.int32, pin_memory=self._stream is not None)
            here.copy_(found[:size], non_blocking=True)
            event = None if self._stream is None else self._stream.record_event()

        def arrive() -> Arrived:
            if event is not None:
                event.synchronize()
            block = here.numpy()
            numbers = block[:header].astype(np.int64)
            count, likely, looked = numbers[: K * 3].reshape(3, K)
            listed = np.minimum(count, room)
            self._expected[rows] = np.ceil(MORE * (listed + likely)).astype(np.int64) + N
            size_now = header + int(len(asked) + listed.sum() + likely.sum()) * width
            if size_now > size:  # more than was expected
                with self._aside():
                    block = np.concatenate([block, found[size:size_now].cpu().numpy()])
            entries = block[header:size_now].reshape(-1, width)
            scores = np.ascontiguousarray(entries[:, 1:]).view(np.float32 if width == 2 else np.float64)[:, 0]
            c, g = entries[:, 0].astype(np.int64) // N, entries[:, 0].astype(np.int64) % N
            triples = np.stack([g, c // N, c % N], 1)
            sizes = [*listed, *[len(t) for t in wanted.values()], *likely]
            ends = np.cumsum(sizes)[:-1]
            lists = list(zip(np.split(triples, ends), np.split(scores.astype(np.float64), ends), strict=True))
            of_rows = rows.tolist()
            known = [(b, *list_) for b, list_ in zip([*wanted, *of_rows], lists[K:], strict=True)]
            return Arrived(count, looked, numbers[K * 3 :], dict(zip(of_rows, lists, strict=False)), known)

        return arrive

    def _find(
        self,
        room: int,
        asked: Int64[Tensor, " T"],
        values: Float64[Tensor, " V"],
        rows: Int[Tensor, " K"],
        heads: Int[Tensor, "K N"],
        bits: Int[Tensor, "3 K bytes"],
    ) -> Int[Tensor, " size"]:
        """Counts found, likely and looked [3, K] and scored [B]; then a triple and its score for each that was found,
        asked for, and is likely to be."""
        (B, N), K, device = self._known.shape[:2], len(rows), self.device
        at, cube = rows.long(), N**3
        scored = torch.zeros(B, dtype=torch.int64, device=device)
        count, looked = scored[at], scored[at]
        codes, inside = asked[:0], asked[:0] > 0
        likely, wanted = codes, inside.view(K, 0)
        if K:
            self._put(at, values, bits)
            lengths = scored.index_copy(0, at, self.parts.lengths[at].long())
            ceiling, floor, kappa = self._duals
            duals = {"ceiling": ceiling, "floor": floor, "kappa": kappa}
            priced = self._price(lengths, **duals, known=self._known, room=room)
            count, looked, scored = priced.count[at], priced.looked[at], priced.scored
            within = torch.arange(room, device=device) < count[:, None]
            g, p, c = priced.triples[at].long().unbind(-1)
            codes, inside = _code(at[:, None], g, p, c, N).flatten(), within.flatten()
            arcs = torch.zeros((K, N * N), dtype=torch.bool, device=device)
            arcs.scatter_(1, torch.where(within, g * N + p, 0), True)
            if self.parts.kind == "grandparents":
                likely, wanted = self._likely(at, arcs, heads.long())
        list_ = torch.cat([asked, _first(likely, wanted.flatten(), LIKELY * N * K)])
        there = torch.arange(len(list_), device=device) < len(asked) + wanted.sum()
        scored = self._score(list_, there, scored)
        every = torch.cat([codes, asked, likely])
        valid = torch.cat([inside, torch.ones_like(asked, dtype=torch.bool), wanted.flatten()])
        every = _first(every, valid, len(every))
        scores = self._known.view(-1)[every].to(self._dtype)[:, None].view(torch.int32)
        entries = torch.cat([(every % cube).int()[:, None], scores], 1)
        return torch.cat([count.int(), wanted.sum(1).int(), looked.int(), scored.int(), entries.flatten()])

    def _put(self, rows: Int64[Tensor, " K"], values: Float64[Tensor, " V"], bits: Int[Tensor, "3 K bytes"]) -> None:
        """Duals that changed."""
        changed = (bits[..., None] >> torch.arange(8, device=self.device, dtype=torch.uint8)).bitwise_and(1).flatten(2)
        changed = changed[..., : self.parts.nodes**2] > 0
        place = changed.flatten().cumsum(0).view(changed.shape) - 1
        flat = self._duals.view(*self._duals.shape[:2], -1)
        flat.index_copy_(1, rows, torch.where(changed, values[place.clamp(min=0)], flat[:, rows]))

    def _likely(
        self, rows: Int64[Tensor, " K"], arcs: Bool[Tensor, "K arcs"], heads: Int64[Tensor, "K N"]
    ) -> tuple[Int64[Tensor, " some"], Bool[Tensor, "K some"]]:
        """Of all arcs, their grandparents by the heads; and of which a score may be wanted, given the arcs (g, p) of
        what was found: those of arcs that are no columns."""
        N = self.parts.nodes
        node = torch.arange(N, device=self.device)
        ceiling, floor = self._duals[:2, rows]
        possible = (ceiling.gather(1, heads[:, None])[:, 0] < torch.inf) & (node > 0)  # heads of heads
        wanted = arcs.view(-1, N, N) & (floor == -torch.inf) & (heads[:, :, None] != node) & possible[:, :, None]
        codes = _code(rows[:, None, None], heads[:, :, None], node[:, None], node, N)
        return codes.flatten(), wanted.flatten(1)

    def _score(self, codes: Int64[Tensor, " T"], there: Bool[Tensor, " T"], scored: Tensor) -> Int64[Tensor, " B"]:
        """Score triples that are not known; how many have been scored of each sentence, so far and now."""
        if not len(codes):
            return scored
        N, known = self.parts.nodes, self._known.view(-1)
        before = known[codes]
        new = there & before.isnan()
        sentence, p, c, g = codes // N**3, codes // N**2 % N, codes // N % N, codes % N
        now = torch.where(new, self._score_list(sentence, g, p, c).double(), before)
        known.scatter_(0, codes, now)
        return scored.scatter_add(0, sentence, new.long())


def _code(b: Tensor, g: Tensor, p: Tensor, c: Tensor, N: int) -> Tensor:
    """Where a score is known."""
    return ((b * N + p) * N + c) * N + g


def _codes(b: int, triples: Ints, N: int) -> Ints:
    g, p, c = triples.T
    return ((b * N + p) * N + c) * N + g


def _first(values: Int64[Tensor, " T"], which: Bool[Tensor, " T"], size: int) -> Int64[Tensor, " size"]:
    """Some of the values, one after the other, and 0 after them; no more than fit."""
    place = torch.where(which, which.cumsum(0) - 1, size).clamp(max=size)
    return values.new_zeros(size + 1).scatter_(0, place, values)[:size]
