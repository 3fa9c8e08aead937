"""Scores, parts and decoders on fake `cuda` tensors: no device mix and no hidden wait. Run by test_decoding.

In a process that the fixture ``simulate`` starts.
"""

from __future__ import annotations

import itertools

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from gpuparse.decoding.methods import METHODS, decode
from gpuparse.decoding.parts import KINDS, Kind
from gpuparse.decoding.scores import Scores
from gpuparse.nn.trilinear import Trilinear
from tests.fake_cuda import expect, gradient


def make(kind: Kind, width: int, dtype: torch.dtype) -> Trilinear:
    """Made where it is to be: a fake module cannot be moved."""
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        module = Trilinear(width, 3, 0.5, kind=kind)
    torch.set_default_dtype(torch.float32)
    return module


def try_scores() -> int:
    """Every kind of part, dense and lazily scored."""
    B, N, D, L, checks = 3, 6, 4, 2, 0
    for dtype, ragged, lazy in itertools.product((torch.float32, torch.float64), (True, False), (True, False)):
        lengths = torch.empty(B, dtype=torch.int64, device="cuda") if ragged else None
        arcs = torch.empty(B, N, N, device="cuda", dtype=dtype, requires_grad=True)
        labels = torch.empty(B, N, N, L, device="cuda", dtype=dtype)
        states = torch.empty(B, N, D, device="cuda", dtype=dtype)
        parts = {}
        for kind in KINDS:
            module = make(kind, D, dtype)
            parts[kind] = module(states, lengths) if lazy else torch.empty(B, N, N, N, device="cuda", dtype=dtype)
        scores = Scores(arcs, lengths, labels=labels, **parts)
        heads = torch.empty(4, B, N, dtype=torch.int64, device="cuda")
        chosen = torch.empty(4, B, N, dtype=torch.int64, device="cuda")
        expect(scores.tree_score(heads), 4, B)
        expect(gradient(expect(scores.tree_score(heads, chosen), 4, B), arcs), B, N, N)
        expect(scores.best_labels(heads), 4, B, N)
        expect(scores.fold_labels().arcs, B, N, N)
        for family in (scores.siblings, scores.grandparents):
            assert family is not None
            for axis in range(3):
                expect(family.bound(axis), B, N, N)
            expect(family.dense(), B, N, N, N)
        for (name, method), root in itertools.product(METHODS.items(), (True, False)):
            if method.waits:
                continue
            parse = decode(
                scores if method.parts else scores.first_order(),
                name,
                projective=not method.nonprojective,
                single_root=root,
            )
            expect(parse.heads, B, N)
            assert parse.labels is not None
            expect(parse.labels, B, N)
            for value in (parse.score, parse.bound, parse.certified, parse.iterations, *parse.stats.values()):
                expect(value, B)
            checks += 1
    return checks


if __name__ == "__main__":
    with FakeTensorMode():
        print(f"{try_scores()} ok")
