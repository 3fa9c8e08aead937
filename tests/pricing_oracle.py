"""Pricing: parts and duals to price by, and a loop over triples."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor

from gpuparse.data.vocab import Vocabulary
from gpuparse.decoding.parts import DenseParts, Kind, Parts, legal_triples
from gpuparse.nn.templates import TemplateConfig, TemplateScorer, mcdonald
from gpuparse.nn.trilinear import TrilinearParts
from gpuparse.ops.plain.pricing import Score
from gpuparse.ops.pricing import Priced, Scorer
from tests.nn import templates_oracle as oracle

INF = float("inf")


KINDS = ("dense", "trilinear", "templates")
ALL = (*((kind, "grandparents") for kind in KINDS), ("dense", "siblings"), ("trilinear", "siblings"))


DTYPES = (torch.float32, torch.float64)


RELATIONS = (  # both ways round, several of two nodes, none, and nothing but one
    ("g.tag", "cg.direction", "c.feats"),
    ("p.word", "pc.direction+distance", "pg.direction+distance"),
    ("c.tag", "g.word", "gc.distance", "gc.direction", "cp.distance"),
    ("g.word", "p.word", "c.word"),
    ("gp.distance",),
)


def some_parts(kind: str, lengths: list[int], dtype: torch.dtype, seed: int, pairs: Kind = "grandparents") -> Parts:
    """Pairs of a ragged batch; dense ones with forbidden triples and, past the ends, NaN."""
    generator = torch.Generator().manual_seed(seed)
    B, N, counts = len(lengths), max(lengths) + 1, torch.tensor(lengths)
    if kind == "dense":
        values = torch.randn(B, N, N, N, generator=generator, dtype=dtype)
        values[torch.rand(values.shape, generator=generator) < 0.2] = -INF
        values[~legal_triples(pairs, counts, N)] = torch.nan
        return DenseParts(values, counts, kind=pairs)
    if kind == "trilinear":
        rank = 1 + seed % 20
        factors = torch.randn(3, B, N, rank, generator=generator, dtype=dtype)
        return TrilinearParts(*factors, counts, kind=pairs)
    made = oracle.sentences(lengths, seed)
    vocabulary = Vocabulary.build(made, min_count=1)
    templates = RELATIONS if seed % 2 else mcdonald.GRANDPARENTS
    scorer = TemplateScorer(TemplateConfig(grandparents=templates, bits=9 + seed % 5), vocabulary).to(dtype)
    torch.nn.init.normal_(scorer.weights, generator=generator)
    with torch.no_grad():
        parts = scorer(oracle.batch_of(made, vocabulary)).scores.grandparents
    assert parts is not None
    return parts


def some_duals(parts: Parts, seed: int, known: float = 0.3) -> dict[str, Any]:
    """Duals under which some arcs are settled and some are not, and a share of the scores that is known already."""
    generator = torch.Generator().manual_seed(seed)
    B, N = parts.lengths.shape[0], parts.nodes

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    over_g, over_c = parts.bound(0 if parts.kind == "grandparents" else 1).double(), parts.bound(2).double()
    ceiling = torch.where(over_g > -INF, over_g, 0.0) + 4 * (rand(B, N, N) - 0.6) - 20 * rand(B, N, N) ** 3
    ceiling[rand(B, N, N) < 0.1] = INF
    floor = torch.where(rand(B, N, N) < 0.5, ceiling - rand(B, N, N), -INF)
    kappa = (rand(B, N, N) - 0.5).clamp(min=0.0)
    scores = torch.full((B, N, N, N), torch.nan, dtype=torch.float64)
    where = (legal(parts) & (rand(B, N, N, N) < known)).nonzero()
    with torch.no_grad():
        scores[tuple(where.T)] = score_of(parts)(*where.T).double()
    return {
        "ceiling": ceiling, "floor": floor, "kappa": kappa, "over_g": over_g, "over_c": over_c,
        "known": scores.permute(0, 2, 3, 1).contiguous(),
    }  # fmt: skip


def legal(parts: Parts) -> Tensor:
    """Which triples there are, at [b, g, p, c]; of siblings g is the sibling and p the head."""
    found = legal_triples(parts.kind, parts.lengths, parts.nodes)
    return found if parts.kind == "grandparents" else found.transpose(1, 2)


def score_of(parts: Parts) -> Score:
    """Scores of a list, in the order of pricing."""
    return parts.score if parts.kind == "grandparents" else lambda b, g, p, c: parts.score(b, p, g, c)


def by_loop(parts: Parts, lengths: Tensor, duals: dict[str, Tensor], tolerance: float) -> list[list[tuple[int, ...]]]:
    """What is found, one triple at a time."""
    found = []
    for b, n in enumerate(lengths.tolist()):
        ceiling, floor, kappa, over_g, over_c = (
            duals[name][b].tolist() for name in ("ceiling", "floor", "kappa", "over_g", "over_c")
        )
        known = duals["known"][b].clone()
        left: set[tuple[int, int, int]] = set()
        siblings, here = parts.kind == "siblings", legal(parts)[b].tolist()
        for g, p in product(range(n + 1), range(n + 1)):
            h, m = (p, g) if siblings else (g, p)
            if (h != m or not siblings) and ceiling[h][m] == INF:
                continue
            spare = 0.0
            if h == 0 and not siblings:
                spare = max(0.0, ceiling[h][m])
            elif h != m and over_g[h][m] <= ceiling[h][m]:
                spare = ceiling[h][m] - max(over_g[h][m], floor[h][m])
            children = [c for c in range(1, n + 1) if here[g][p][c] and over_g[p][c] > ceiling[p][c]]
            for exact in (False, True):
                costs = {}
                for c in children:
                    s = float(known[p, c, g])
                    if s != s and exact:
                        place = (torch.tensor([x]) for x in (b, g, p, c))
                        s = float(score_of(parts)(*place).detach())
                    s = min(over_c[h][m], over_g[p][c]) if s != s else s
                    costs[c] = s - ceiling[p][c] - (kappa[p][0] if h == m and c < p else kappa[h][m])
                children = [c for c in children if costs[c] > tolerance]
                together = max if siblings else sum
                if together([costs[c] for c in children] or [0.0]) <= spare:
                    children = []
            left |= {(g, p, c) for c in children}
        found.append(sorted(left, key=lambda triple: (triple[1], triple[2], triple[0])))
    return found


def equal(found: Priced, expected: Priced) -> None:
    for name, other in vars(expected).items():
        one = getattr(found, name)
        assert (one.dtype, one.shape) == (other.dtype, other.shape), name
        if name in ("triples", "score", "r"):
            there = torch.arange(other.shape[1]) < expected.count[:, None]
            one, other = one[there], other[there]
        assert torch.equal(one.nan_to_num(), other.nan_to_num()), name


def copied(duals: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in duals.items()}


def scorer_of(parts: Parts) -> Scorer:
    scorer = parts.scorer()
    assert scorer is not None
    return scorer
