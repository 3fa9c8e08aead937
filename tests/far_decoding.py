"""Decoders that solve on the host, for scores on a simulated `cuda` device. Run by test_far_decoding, which see.

The argument says what is done. What comes out is JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.decoding.parts import DenseParts
from gpuparse.decoding.ppc import work
from gpuparse.decoding.ppc.link import DeviceLink
from gpuparse.decoding.solver import Program, Solution
from gpuparse.nn.trilinear import TrilinearParts
from gpuparse.ops.pricing import Scorer
from tests.simulated_cuda import RUBBISH, SimulatedDevice, simulated_cuda

FIELDS = ("heads", "score", "bound", "certified", "iterations")
work.FEW = 10**9  # a device goes to the programs at once; so does what it is compared with


class ListedParts(DenseParts):
    """Those that no kernel scores."""

    def scorer(self) -> Scorer | None:
        return None


def scores_of(kind: str, B: int, n: int, size: float, seed: int = 0, **kinds: torch.dtype) -> gp.Scores:
    """Peaked arcs, as a trained parser gives them, and random grandparents."""
    generator, N = torch.Generator().manual_seed(seed), n + 1
    like: dict[str, Any] = {"generator": generator, "dtype": kinds.get("dtype", torch.float32)}
    lengths = torch.randint(n // 2, n + 1, (B,), generator=generator)
    lengths[0] = n
    arcs = torch.randn(B, N, N, **like)
    heads = torch.randint(1 << 30, (B, 1, N), generator=generator) % (lengths[:, None, None] + 1)
    arcs.scatter_add_(1, heads, torch.full((B, 1, N), 4.0, dtype=arcs.dtype))
    if kind == "trilinear":
        factors = [torch.randn(B, N, 32, **like) * (size / 32**0.5) ** (1 / 3) for _ in range(3)]
        return gp.Scores(arcs, lengths, grandparents=TrilinearParts(*factors, lengths, kind="grandparents"))
    pairs = size * torch.randn(B, N, N, N, **like)
    if kind == "masked":
        pairs[torch.rand(pairs.shape, generator=generator) < 0.3] = -torch.inf
        arcs[torch.rand(arcs.shape, generator=generator) < 0.1] = -1e30
    parts = (ListedParts if kind == "listed" else DenseParts)(pairs, lengths, kind="grandparents", validate_args=False)
    return gp.Scores(arcs, lengths, grandparents=parts, validate_args=False)  # there may be no tree


def here(x: Tensor) -> Tensor:
    """A tensor, wherever it was."""
    return getattr(x, "elem", x)


def differences(one: gp.Parse, other: gp.Parse) -> list[str]:
    """What a parse on the device says differently."""
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in ("heads", "certified", "iterations")}
    found = [name for name, (x, y) in pairs.items() if not torch.equal(x, here(y))]
    for name in ("score", "bound"):
        if not torch.allclose(getattr(one, name), here(getattr(other, name)), rtol=1e-12, atol=0):
            found.append(name)
    return found


def run_far(scores: gp.Scores, method: str, **options: Any) -> tuple[gp.Parse, SimulatedDevice, set[int]]:
    """A parse on the device, which says what happened, and the launches during which a program was solved."""
    overlapped: set[int] = set()
    with simulated_cuda() as on:
        far = scores.to("cuda:0")
        on.reset()
        solve = Program.solve

        def watched(self: Program, seconds: float) -> Solution:
            overlapped.update(range(on.done + 1, on.launched + 1))
            return solve(self, seconds)

        with mock.patch.object(Program, "solve", watched):
            return gp.decode(far, method, **options), on, overlapped


def count_ppc(kind: str, *, exact: bool = False) -> dict[str, Any]:
    """Of a batch of 32 sentences of up to 40 words, all but what is done once a batch."""
    scores = scores_of(kind, 32, 40, 0.5)
    expected = gp.decode(scores, "ppc", threads=1, exact=exact)
    found, on, overlapped = run_far(scores, "ppc", threads=1, exact=exact)
    rounds = int(expected.iterations.max())
    turns = on.waited("event") - 1
    return {
        "different": differences(expected, found),
        "rounds": rounds,
        "branches": int(expected.stats["branches"].sum()),
        "waits": on.waits.total() - 2,  # those for arcs and bounds, and for the first triples
        "bytes": on.up + on.down,
        "overlap": len(overlapped) / turns,
    }


def check_answers() -> dict[str, Any]:
    """What differs from a CPU."""
    found = {}
    for kind in ("dense", "trilinear", "listed", "masked"):
        for exact in (False, True):
            for dtype in (torch.float32, torch.float64):
                scores = scores_of(kind, 8, 7, 1.5, seed=int(exact), dtype=dtype)
                expected = gp.decode(scores, "ppc", exact=exact, threads=2, proof=True)
                far, *_ = run_far(scores, "ppc", exact=exact, threads=2, proof=True)
                found[f"{kind}, {dtype}, exact: {exact}"] = differences(expected, far)
                near = {name: here(getattr(far, name)) for name in FIELDS}
                gp.verify(scores, replace(far, **near))
    return found


def check_room() -> dict[str, Any]:
    """Less room, and less expected, than there is: it is asked again."""
    scores = scores_of("dense", 6, 10, 2.0)
    expected = gp.decode(scores, "ppc", threads=1)
    with (
        mock.patch("gpuparse.decoding.ppc.pricing.ROOM", 1),
        mock.patch("gpuparse.decoding.ppc.link.FIRST", 0),
        mock.patch("gpuparse.decoding.ppc.link.LIKELY", 1),
    ):
        found, on, _ = run_far(scores, "ppc", threads=1)
        near = gp.decode(scores, "ppc", threads=1)
    return {"different": differences(expected, found) + differences(expected, near), "again": on.waited("copy") - 1}


def check_branches() -> dict[str, Any]:
    """Turns in which one sentence alone is priced: how many, and the most bytes that went there."""
    turns: list[tuple[int, int]] = []
    send = DeviceLink.send
    with mock.patch.object(DeviceLink, "send", autospec=True) as sent:

        def watched(self: DeviceLink, rows: Any, *rest: Any) -> Any:
            on = self._known.on  # type: ignore[attr-defined]
            before = on.up
            arrive = send(self, rows, *rest)
            turns.append((len(rows), on.up - before))
            return arrive

        sent.side_effect = watched
        found, *_ = run_far(scores_of("dense", 16, 12, 1.5), "ppc", exact=True, threads=1)
    alone = [up for count, up in turns if count == 1]
    return {"branches": int(here(found.stats["branches"]).sum()), "alone": len(alone), "bytes": max(alone)}


def count_ilp() -> dict[str, Any]:
    """Six sentences with pairs of both kinds, and labels."""
    B, n, found = 6, 7, {}
    generator, N = torch.Generator().manual_seed(0), n + 1
    lengths = torch.tensor([7, 4, 5, 7, 1, 6])
    arcs, labels = torch.randn(B, N, N, generator=generator), torch.randn(B, N, N, 3, generator=generator)
    pairs = {kind: torch.randn(B, N, N, N, generator=generator) for kind in ("grandparents", "siblings")}
    pairs["siblings"][torch.rand(B, N, N, N, generator=generator) < 0.1] = -torch.inf
    for projective in (False, True):
        scores = gp.Scores(arcs, lengths, labels=labels, **pairs)
        expected = gp.decode(scores, "ilp", projective=projective)
        far, on, _ = run_far(scores, "ilp", projective=projective)
        different = differences(expected, far) + ["labels"] * int(not torch.equal(expected.labels, here(far.labels)))
        found[str(projective)] = {"different": different, "transfers": on.transfers, "waits": on.waits.total()}
    return found


def check_device() -> dict[str, Any]:
    """What the device itself has to do."""
    with simulated_cuda() as on:
        x, y = torch.arange(6.0).to("cuda:0"), torch.arange(6.0)
        assert x.device.type == "cuda" and (on.up, on.transfers) == (24, 1) and not on.waits
        assert (x[1:3] * 2).device == x.device
        assert float(x[5]) == 5.0 and on.waits.total() == 1
        assert x[x > 2].shape == (3,) and on.waits.total() == 2
        assert torch.equal(x.cpu(), y) and on.waits.total() == 3 and on.down == 24
        for wrong in (lambda: x + y, lambda: x.numpy(), lambda: torch.cat([x, y])):
            try:
                wrong()
            except (RuntimeError, TypeError):
                continue
            raise AssertionError("devices were mixed")
        pinned = torch.empty(6, pin_memory=True)
        pinned.copy_(x, non_blocking=True)
        assert pinned.view(torch.uint8).eq(RUBBISH).all()
        torch.cuda.Stream().record_event().synchronize()
        assert torch.equal(pinned, y)
        pinned.to("cuda:0", non_blocking=True)
        pinned.zero_()
        try:
            x.tolist()
        except AssertionError:
            return {"ok": True}
    return {"ok": False}


if __name__ == "__main__":
    torch.set_num_threads(1)
    runs: dict[str, Any] = {
        "dense": lambda: count_ppc("dense"),
        "trilinear": lambda: count_ppc("trilinear"),
        "exact": lambda: count_ppc("dense", exact=True),
        "answers": check_answers,
        "room": check_room,
        "branches": check_branches,
        "ilp": count_ilp,
        "device": check_device,
    }
    print(json.dumps(runs[sys.argv[1]]()))
