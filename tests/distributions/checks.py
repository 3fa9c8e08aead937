"""What is checked of every family: values and derivatives against all structures of short sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import kl_divergence

from tests.distributions.families import Family, enumerate_all, everything, leaves_of, marginals_of, plainly, summed
from tests.distributions.numeric import F32, INF, NAN, NEG_INF, chi_square, close, normal, tolerance

# share of forbidden scores (of all: one structure is left, or a few), magnitude of the scores
SCORES = pytest.mark.parametrize(
    ("forbidden", "magnitude"), [(0.0, 1.0), (0.3, 1.0), (0.7, 1.0), (1.0, 1e3), (0.4, 30.0), (0.3, 1e4)]
)
Batch = tuple[dict[str, Tensor], Tensor]


def check_sums(family: Family, batch: Batch, dtype: torch.dtype, magnitude: float) -> None:
    p, oracles = family.make(*batch, validate_args=False), enumerate_all(family, *batch)
    assert p.log_partition.dtype == p.entropy().dtype == dtype
    close(p.log_partition, torch.stack([o.log_partition for o in oracles]), tolerance(dtype))
    close(p.entropy(), torch.stack([o.entropy for o in oracles]), tolerance(dtype, 10 * magnitude))
    for name, found in marginals_of(p).items():
        assert found.dtype == dtype
        for b, o in enumerate(oracles):
            want = o.marginals[name] if name in o.marginals else found[b]
            close(found[b] if found[b].dim() == want.dim() else found[b].sum(0), want, tolerance(dtype, magnitude))


def check_best(family: Family, batch: Batch, dtype: torch.dtype, k: int = 4) -> None:
    p = family.make(*batch, validate_args=False)
    found, best, ranked = p.argmax, p.max, p.topk(k) if hasattr(p, "topk") else None
    assert best.dtype == dtype and found.dtype == torch.int64 and torch.equal(p.mode, found)
    for b, o in enumerate(enumerate_all(family, *batch)):
        close(best[b], o.scores.max(), tolerance(dtype))
        if o.exists:
            close(o.scores[o.where(found[b])], o.scores.max(), 1e-13)
        else:
            assert bool((found[b] == -1).all())
        if ranked is not None:
            assert ranked[0].shape == (k, *found.shape) and ranked[0].dtype == torch.int64 and ranked[1].dtype == dtype
            exist = min(k, int((o.scores > NEG_INF).sum()))
            want, places = o.scores.sort(descending=True).values[:exist], o.where(ranked[0][:exist, b])
            close(ranked[1][:exist, b], want, tolerance(dtype))
            close(o.scores[places], want, 1e-13)
            assert len(places.unique()) == exist
            assert bool((ranked[0][exist:, b] == -1).all()) and bool((ranked[1][exist:, b] == NEG_INF).all())


def check_samples(family: Family, scores: dict[str, Tensor], lengths: Tensor, draws: int = 4000) -> None:
    """Whole structures, by chi-square; never one of probability 0."""
    torch.manual_seed(0)
    drawn = family.make(scores, lengths).sample((draws,))
    for b, o in enumerate(enumerate_all(family, scores, lengths)):
        seen = o.where(drawn[:, b]).bincount(minlength=len(o.probs))
        assert not bool(seen[o.probs == 0].any())
        statistic, bound = chi_square(seen, o.probs)
        assert statistic < bound, b


def check_kl(family: Family, one: Batch, other: Batch, tol: float) -> None:
    """Both ways; finite if the second forbids nothing that the first allows, inf otherwise."""
    p, q = (family.make(*batch, validate_args=False) for batch in (one, other))
    oracles, rivals = (enumerate_all(family, *batch) for batch in (one, other))
    for a, b, mine, others in ((p, q, oracles, rivals), (q, p, rivals, oracles)):
        found = kl_divergence(a, b)
        assert found.dtype == p.log_partition.dtype and bool((found >= 0).all())
        pairs = list(zip(mine, others, strict=True))
        want = [x.kl(y) if x.exists and y.exists else torch.tensor(INF if x.exists else 0.0) for x, y in pairs]
        close(found, torch.stack([x.double() for x in want]), tol)
    assert bool((kl_divergence(p, p) == 0).all())


def check_derivatives(family: Family, batch: Batch, dtype: torch.dtype, magnitude: float) -> None:
    """Of log Z to the third, along directions that are NaN where nothing is read; nothing comes to what is forbidden or
    not read."""
    scores, lengths = batch
    leaves, oracles = leaves_of(scores), enumerate_all(family, scores, lengths)
    every = list(leaves.values())
    along = [
        {name: normal(*x.shape, seed=seed, dtype=dtype).masked_fill(x.isnan(), NAN) for name, x in scores.items()}
        for seed in (1, 2)
    ]
    by = grad(family.make(leaves, lengths).log_partition.sum(), every, create_graph=True)
    tol = 1e-5 if dtype == F32 else tolerance(dtype, 10 * magnitude)
    for order in range(3):
        want = summed(scores, [o.derivative(along[:order]) for o in oracles])
        for name, g in zip(leaves, by, strict=True):
            close(g.detach(), want[name], tol)
            assert g.dtype == dtype and not bool(g[~scores[name].isfinite()].any())
        if order < 2:
            by = grad(by, every, list(along[order].values()), create_graph=True, materialize_grads=True)


def free_scores(family: Family, seed: int) -> tuple[tuple[Tensor, ...], Callable[..., Any], Batch]:
    """The finite scores of a masked, ragged batch, what makes a distribution of them, and the batch."""
    scores, lengths = family.scores(seed, batch=2, words=3, forbidden=0.3)
    lengths[1] = 2
    where = {name: x.isfinite() for name, x in scores.items()}

    def make(*values: Tensor) -> Any:
        pairs = zip(scores.items(), values, strict=True)
        return family.make({name: x.masked_scatter(where[name], v) for (name, x), v in pairs}, lengths)

    return tuple(x[where[name]].clone().requires_grad_() for name, x in scores.items()), make, (scores, lengths)


DIFFERENTIABLE = pytest.mark.parametrize("what", ["log_partition", "marginals", "entropy", "log_prob", "kl"])


def value_of(what: str, p: Any, best: Tensor, other: Any) -> Tensor:
    """What is differentiated: of the structures `best` and from the distribution `other`, if it takes such."""
    if what == "marginals":
        return torch.cat([m.square().flatten() for m in marginals_of(p).values()])
    if what == "log_prob":
        return p.log_prob(best)  # type: ignore[no-any-return]
    return kl_divergence(p, other) if what == "kl" else p.entropy() if what == "entropy" else p.log_partition


def derivatives_of(family: Family, scores: dict[str, Tensor], lengths: Tensor) -> dict[str, Tensor]:
    """Everything, and derivatives: of marginals to the second, along random directions, and of the entropy."""
    leaves = leaves_of(scores)
    every, p = list(leaves.values()), family.make(leaves, lengths, validate_args=False)
    total = sum((m * normal(*m.shape, seed=5, dtype=m.dtype)).sum() for m in marginals_of(p).values())
    first = grad(total, every, create_graph=True, materialize_grads=True)  # type: ignore[arg-type]
    again = sum((g * normal(*g.shape, seed=6, dtype=g.dtype)).sum() for g in first)
    second = grad(again, every, materialize_grads=True)  # type: ignore[arg-type]
    kinds = {
        "marginals": first,
        "marginals twice": second,
        "entropy": grad(p.entropy().sum(), every, materialize_grads=True),
    }
    found = {f"{kind} by {name}": g for kind, by in kinds.items() for name, g in zip(leaves, by, strict=True)}
    return {name: x.detach() for name, x in {**everything(p), **found}.items()}


def check_against_plain(family: Family, scores: dict[str, Tensor], lengths: Tensor, tol: float = 1e-9) -> None:
    """Kernels and plain torch say the same; structures are compared by their scores."""
    found = derivatives_of(family, scores, lengths)
    with plainly():
        want = derivatives_of(family, scores, lengths)
    for name, x in want.items():
        if x.is_floating_point():
            close(found[name], x, tol)
