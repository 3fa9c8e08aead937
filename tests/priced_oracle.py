"""Scores with pairs of arcs, scored lazily or not, for programs that leave most of them unscored."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.data.vocab import Vocabulary
from gpuparse.decoding.parts import DenseParts, Kind, Parts
from gpuparse.nn.templates import TemplateConfig, TemplateScorer, mcdonald
from gpuparse.nn.trilinear import TrilinearParts
from gpuparse.ops.priced import Pairs
from tests.nn import templates_oracle

FORMS = ("dense", "trilinear", "templates")
KINDS: tuple[tuple[Kind, ...], ...] = (("siblings",), ("grandparents",), ("siblings", "grandparents"))
SIBLINGS = (  # all ways in which nodes may lie to each other, s = h among them
    ("s.tag", "m.tag", "hs.direction+distance"),
    ("h.word", "s.word", "sh.direction", "sm.distance"),
    ("m.tag", "ms.direction", "hm.direction+distance"),
    ("s.word",),
)


def pairs_of(
    form: str,
    kind: Kind,
    lengths: Sequence[int],
    dtype: torch.dtype,
    seed: int,
    *,
    size: float = 1.0,
    masked: float = 0.0,
) -> Parts:
    """A family; some of the dense ones are masked, by -inf and by -1e30 in turns."""
    generator = torch.Generator().manual_seed(seed)
    B, N, counts = len(lengths), max(lengths) + 1, torch.tensor(lengths)
    if form == "dense":
        values = size * torch.randn(B, N, N, N, generator=generator, dtype=dtype)
        values[torch.rand(values.shape, generator=generator) < masked] = -math.inf if seed % 2 else -1e30
        return DenseParts(values, counts, kind=kind)
    if form == "trilinear":
        rank = 1 + seed % 20
        factors = torch.randn(3, B, N, rank, generator=generator, dtype=dtype) * (size / rank**0.5) ** (1 / 3)
        return TrilinearParts(*factors, counts, kind=kind)
    made = templates_oracle.sentences(lengths, seed)
    vocabulary = Vocabulary.build(made, min_count=1)
    ready = {"siblings": SIBLINGS if seed % 2 else mcdonald.SIBLINGS, "grandparents": mcdonald.GRANDPARENTS}
    scorer = TemplateScorer(TemplateConfig(**{kind: ready[kind]}, bits=9), vocabulary).to(dtype)
    torch.nn.init.normal_(scorer.weights, std=size / 3, generator=generator)
    with torch.no_grad():
        parts = getattr(scorer(templates_oracle.batch_of(made, vocabulary)).scores, kind)
    assert isinstance(parts, Parts)
    return parts


def some_scores(
    form: str,
    kinds: Sequence[Kind],
    lengths: Sequence[int],
    dtype: torch.dtype,
    seed: int,
    *,
    peak: float = 0.0,
    size: float = 1.0,
    masked: float = 0.0,
) -> gp.Scores:
    """A ragged batch. ``peak``: how far the arcs of one projective tree are above all others; ``masked``: a share of
    the arcs between words, and of dense pairs, that is forbidden by -inf or a large number."""
    generator = torch.Generator().manual_seed(1000 + seed)
    B, N = len(lengths), max(lengths) + 1
    arcs = torch.randn(B, N, N, generator=generator, dtype=dtype)
    counts = torch.tensor(lengths)
    tree = gp.decode(gp.Scores(torch.randn(B, N, N, generator=generator), counts), "eisner").heads.clamp(min=0)
    arcs.scatter_add_(1, tree[:, None], torch.full((B, 1, N), peak, dtype=dtype))
    hidden = torch.rand(arcs.shape, generator=generator) < masked
    hidden[:, 0] = False
    arcs[hidden] = -math.inf if seed % 2 else -1e30
    families = {
        kind: pairs_of(form, kind, lengths, dtype, seed + 7 * number, size=size, masked=masked)
        for number, kind in enumerate(kinds)
    }
    return gp.Scores(arcs, counts, **families)


def as_pairs(scores: gp.Scores) -> tuple[Pairs | None, Pairs | None]:
    """As the operator takes them."""
    made: list[Pairs | None] = []
    for axis, parts in ((1, scores.siblings), (0, scores.grandparents)):
        scorer = None if parts is None else parts.scorer()
        made.append(None if parts is None or scorer is None else Pairs(scorer, parts.bound(axis).double()))
    return made[0], made[1]


def same_scores(scores: gp.Scores, found: Tensor, expected: Tensor) -> None:
    """Trees that score the same but for rounding, which sums of a few hundred doubles have; most are the same."""
    every = scores.dense()
    one, other = every.total(found), every.total(expected)
    tolerance = 1e-12 if scores.dtype == torch.float64 else 1e-6  # a float32 pair may be rounded another way
    torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
