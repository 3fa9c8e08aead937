"""What every distribution is as an object: batches, arguments, copies, and what torch asks for."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import Distribution, kl_divergence

from tests.distributions.families import FAMILIES, Family, everything, is_own, leaves_of, marginals_of
from tests.distributions.numeric import F32, F64, INF, NAN, NEG_INF, close, tolerance


def without(family: Family, b: int, **options: Any) -> tuple[dict[str, Tensor], Tensor]:
    """A batch whose sentence b has no structure, though others have."""
    scores, lengths = family.scores(3, forbidden=0.2, poison=False, **options)
    first = next(iter(scores.values()))
    first[b] = NEG_INF
    return scores, lengths


# ------------------------------------------------------------------------------------------------ batches and sentences


def test_no_structure(family: Family, dtype: torch.dtype) -> None:
    """log Z is -inf, the entropy and the divergence 0, and neighbours are as ever; an error where that is said."""
    scores, lengths = without(family, 1, dtype=dtype)
    leaves = leaves_of(scores)
    p = family.make(leaves, lengths, validate_args=False)
    fine = [0, 2]
    alone = family.make(
        {n: x[fine] if x.shape[:1] == (3,) and x.dim() == p.parts[n] else x for n, x in scores.items()}, lengths[fine]
    )
    assert p.log_partition[1] == NEG_INF and p.max[1] == NEG_INF and p.entropy()[1] == 0
    assert bool((p.argmax[1] == -1).all()) and bool((p.sample((3,))[:, 1] == -1).all())
    assert not any(bool(m[1].any()) for m in marginals_of(p).values())
    for x in (p.argmax, alone.sample((2,)).repeat_interleave(2, 1)[:, :3]):
        assert bool((p.log_prob(x)[..., 1] == NEG_INF).all()) and bool((p.score(x)[..., 1] == NEG_INF).all())
    for name, x in everything(alone).items():
        axis = 1 if name.startswith("topk") else 0
        assert torch.equal(everything(p)[name].index_select(axis, torch.tensor(fine)), x), name
    q = family.make({name: 0.5 * x for name, x in scores.items()}, lengths, validate_args=False)
    some = family.make(family.scores(3, forbidden=0.0, poison=False, dtype=dtype)[0], lengths)
    assert kl_divergence(p, q)[1] == 0 and kl_divergence(p, some)[1] == 0 and kl_divergence(some, p)[1] == INF
    value = (
        p.log_partition[fine].sum() + p.entropy().sum() + kl_divergence(p, q).sum() + p.log_prob(p.argmax)[fine].sum()
    )
    for name, g in zip(leaves, grad(value, list(leaves.values())), strict=True):
        assert bool(g.isfinite().all()), name
        assert g.dim() != p.parts[name] or not bool(g[1].any()), name
    if p.exists:
        with pytest.raises(ValueError, match=r"sentence 1 allows? no (projective )?(tree|chain)"):
            family.make(scores, lengths)
    else:
        assert family.make(scores, lengths).log_partition[1] == NEG_INF


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("value", [NAN, INF])
def test_bad_scores(family: Family, value: float) -> None:
    """They are named where values are looked at, and make NaN of their sentence alone where they are not."""
    for name in [x for x in family.shapes(1, 1) if x != "roots"]:  # those are the grammar's own
        scores, lengths = family.scores(2, forbidden=0.0, poison=False)
        _, parts, used = family.all(int(lengths[1]))
        place, own = parts[name][used[name]][0].tolist(), is_own(name, scores[name].shape)
        scores[name][(1, *place) if own else tuple(place)] = value
        index, told = ([1, *place], "" if name == "transitions" else r" \(sentence 1") if own else (place, "")
        where = rf"\[{', '.join(map(str, index))}\] is {value}{told}"
        with pytest.raises(ValueError, match=rf"^{name}{where}.*; scores must be finite, or -inf for"):
            family.make(scores, lengths)
        p = family.make(scores, lengths, validate_args=False)
        bad = [False, True, False] if own else p.log_partition.isnan().tolist()
        assert bad[1] and p.log_partition.isnan().tolist() == p.entropy().isnan().tolist() == bad
        good = [b for b in range(3) if not bad[b]]
        assert bool((p.argmax[1] == -1).all()) and bool((p.sample((2,))[:, 1] == -1).all())
        assert not hasattr(p, "topk") or bool((p.topk(2)[0][:, 1] == -1).all())
        for x in marginals_of(p).values():
            assert bool(x[1].isnan().any()) and not bool(x[good].isnan().any())


def test_sentences_do_not_depend_on_their_batch(family: Family, dtype: torch.dtype) -> None:
    """Alone and without padding they are the same."""
    scores, lengths = family.scores(9, words=7, forbidden=0.0, dtype=dtype)
    p = family.make(scores, lengths)
    whole = everything(p)
    for b, n in enumerate(lengths.tolist()):
        cut = {}
        for name, shape in family.shapes(1, n).items():
            own = scores[name].dim() == p.parts[name]
            cut[name] = (
                scores[name][(slice(b, b + 1) if own else slice(None), *map(slice, shape[1:]))] if own else scores[name]
            )
        for name, x in everything(family.make(cut, [n])).items():
            inner = whole[name][:, b : b + 1] if name.startswith("topk") else whole[name][b : b + 1]
            inner = inner[tuple(map(slice, x.shape))]
            close(inner, x, tolerance(dtype, 10.0)) if x.is_floating_point() else torch.testing.assert_close(inner, x)


def test_empty_batch(family: Family, dtype: torch.dtype) -> None:
    leaves = {name: torch.zeros(s, dtype=dtype, requires_grad=True) for name, s in family.shapes(0, 4).items()}
    for lengths in (None, [], torch.empty(0, dtype=torch.int64)):
        p = family.make(leaves, lengths)
        values = [p.log_partition, p.max, p.entropy(), kl_divergence(p, p)]
        assert all(x.shape == (0,) and x.dtype == dtype for x in values)
        assert p.argmax.shape == (0, *p.event_shape) and p.sample((2, 3)).shape == (2, 3, 0, *p.event_shape)
        assert p.log_prob(p.sample((2,))).shape == p.score(p.sample((2,))).shape == (2, 0)
        if hasattr(p, "topk"):
            assert [x.shape[:2] for x in p.topk(3)] == [(3, 0)] * 2
        total = sum(x.sum() for x in (*values, *marginals_of(p).values()))
        by = grad(total, list(leaves.values()), materialize_grads=True)  # type: ignore[arg-type]
        assert [x.shape for x in by] == [x.shape for x in leaves.values()]


def test_memory_and_threads_do_not_matter(family: Family, dtype: torch.dtype) -> None:
    """Transposed scores, strided lengths and two threads."""
    scores, lengths = family.scores(4, batch=5, forbidden=0.2, dtype=dtype)
    views = {name: x.mT.contiguous().mT if x.dim() > 1 else torch.stack([x, x], 1)[:, 0] for name, x in scores.items()}
    torch.manual_seed(0)
    p = family.make(scores, lengths)
    want = {**everything(p), "sample": p.sample((3,))}
    torch.set_num_threads(2)
    torch.manual_seed(0)
    q = family.make(views, torch.stack([lengths, -lengths], 1)[:, 0])
    found = {**everything(q), "sample": q.sample((3,))}
    for name, x in want.items():
        close(found[name], x, tolerance(dtype)) if x.is_floating_point() else torch.testing.assert_close(found[name], x)


BIG = 2.0**50


def shifted(name: str, x: Tensor, single_root: bool) -> Tensor:
    """By what all structures share: different for each word, or the same for all parts."""
    each = torch.tensor([1.0, -1.0, 3.0, 2.0, -2.0], dtype=F64) * BIG
    if name == "arcs" and single_root:  # one is the root's
        x = torch.cat([x[:, :1] - BIG, x[:, 1:]], 1)
    if name in ("arcs", "unary", "tags"):
        return x + (each[: x.shape[2]] if name == "arcs" else each[: x.shape[1], None])
    above = name in ("grandparents", "grandsiblings")  # as many as words that are not under the root
    if name == "roots" or (above and not single_root):
        return x
    return x + (BIG if name in ("transitions", "grandparents") else -BIG)


def test_large_scores(family: Family) -> None:
    """What all structures share changes log Z alone; scores are such that sums with it are exact."""
    scores, lengths = family.scores(7, forbidden=0.1, poison=False)
    scores = {name: (x * 2).round() / 2 for name, x in scores.items()}
    p = family.make(scores, lengths)
    single_root = getattr(p, "single_root", True)
    q = family.make({name: shifted(name, x, single_root) for name, x in scores.items()}, lengths)
    draws = p.sample((20,))
    pairs = [(p.entropy(), q.entropy()), (p.log_prob(draws), q.log_prob(draws))]
    pairs += [(x, marginals_of(q)[name]) for name, x in marginals_of(p).items()]
    for x, y in pairs:
        close(y, x, 1e-12)
    assert torch.equal(p.log_prob(q.argmax), p.log_prob(p.argmax)) and bool((p.log_prob(q.sample((20,))) > -40).all())
    if hasattr(p, "topk"):
        close(family.make(scores, lengths, validate_args=False).score(q.topk(3)[0]), p.topk(3)[1], 1e-12)
    close(kl_divergence(q, q), torch.zeros(3), 1e-13)
    close(q.log_partition - q.max, p.log_partition - p.max, 2.0)  # of sums near 1e16
    name, first = next(iter(scores.items()))
    with pytest.raises(ValueError, match=rf"^{name}\[.*\] is 1e\+300; scores must be below"):
        family.make({**scores, name: first + 1e300}, lengths)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(family: Family, half: torch.dtype) -> None:
    """Computed in float32, gradients in the dtype given."""
    scores, lengths = family.scores(3, forbidden=0.1, poison=False, dtype=half)
    leaves = leaves_of(scores)
    p, q = family.make(leaves, lengths), family.make({name: x.float() for name, x in scores.items()}, lengths)
    for name, x in everything(q).items():
        assert torch.equal(everything(p)[name], x) and x.dtype in (F32, torch.int64), name
    for name, g in zip(leaves, grad(p.log_partition.sum(), list(leaves.values())), strict=True):
        assert g.dtype == half and bool(g.isfinite().all()) and bool(g.any()), name


NOT_SHAPES = [3, (-1,), (2, -1), "ab", (1.5,), (True,), [[1]], None, torch.tensor([2]), (2**64,)]


def test_shapes_that_are_none(family: Family) -> None:
    p = family.random(0)
    for shape in NOT_SHAPES:
        with pytest.raises(ValueError, match=r"^sample_shape must be a tuple of whole numbers, none below 0.*, got "):
            p.sample(shape)
        with pytest.raises(ValueError, match=r"^batch_shape must be"):
            p.expand(shape)
    with pytest.raises(ValueError, match=r"^sample_shape must be of 2147483647 draws at most"):
        p.sample((2**20, 2**20))


def test_structures_that_are_none(family: Family) -> None:
    p = family.random(0, poison=False)
    best = p.argmax
    for wrong in (best.to(torch.uint64), best.float(), best.tolist(), best.to_sparse(), None, best[:, 1:], best[:2]):
        with pytest.raises(ValueError, match=r"^(heads|tags|trees) must "):
            p.log_prob(wrong)
    if hasattr(p, "topk"):
        for k in (0, 65, -1, 1.5, 2.0, True, None, torch.ones(2), 2**70):
            with pytest.raises(ValueError, match=r"^k must be a whole number from 1 to 64"):
                p.topk(k)


# -------------------------------------------------------------------------------------------------------- as an object


@pytest.mark.parametrize("name", ["projective", "any trees", "siblings and grandparents", "tags", "trigrams"])
def test_compiled_loss_is_the_same(name: str) -> None:
    """One graph, without a break, through the constructor, log_prob and entropy."""
    torch.compiler.reset()
    family = FAMILIES[name]
    scores, lengths = family.scores(1, batch=2, forbidden=0.0, poison=False)
    leaves = leaves_of(scores)
    every, best = list(leaves.values()), family.make(leaves, lengths).argmax

    def loss(*x: Tensor) -> Tensor:
        p = family.make(dict(zip(leaves, x, strict=True)), lengths)
        return (p.entropy() - p.log_prob(best)).sum()  # type: ignore[no-any-return]

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for x, y in zip(grad(compiled(*every), every), grad(loss(*every), every), strict=True):
        close(x, y, 1e-12)


def test_is_a_distribution(family: Family) -> None:
    p = family.random(1)
    assert isinstance(p, Distribution) and p.batch_shape == (3,) and p.event_shape == p.argmax.shape[1:]
    assert repr(p).startswith(f"{type(p).__name__}(sentences: 3, words: {family.words}, ")
    assert bool(p.support.check(p.sample((3,))).all()) and not bool(p.support.check(p.argmax + 1000).any())
    assert len(p.scores) == len(p.parts)


def test_expand(family: Family) -> None:
    scores, lengths = family.scores(1, batch=1)
    leaves = leaves_of(scores)
    p = family.make(leaves, lengths)
    wide = p.expand(torch.Size([3]))
    assert type(wide) is type(p) and wide.batch_shape == (3,) and wide.sample((2,)).shape == (2, 3, *p.event_shape)
    for name, x in everything(p).items():
        assert torch.equal(everything(wide)[name], x.repeat_interleave(3, 1 if name.startswith("topk") else 0)), name
    for x, y in zip(
        grad(wide.log_partition.sum(), list(leaves.values())),
        grad(p.log_partition.sum(), list(leaves.values())),
        strict=True,
    ):
        close(x, 3 * y, 1e-12)
    assert p.expand([0]).log_partition.shape == (0,) and wide.expand([3]).batch_shape == (3,)
    for wrong in ([2], [4, 2], []):
        with pytest.raises(ValueError, match="batch_shape"):
            wide.expand(wrong)
    if wide.what != "trees" or wide.event_shape[1:] == ():  # it still looks at what it is given
        with pytest.raises(ValueError, match=r"^(heads|tags) of sentence 0: word \d has (head|tag) 9"):
            wide.log_prob(torch.full_like(wide.argmax, 9))


def test_copies(family: Family) -> None:
    scores, lengths = family.scores(1)
    p = family.make(scores, lengths)
    want = everything(p)
    for q in (copy.copy(p), copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert repr(q) == repr(p)
        for name, x in everything(q).items():
            assert torch.equal(x, want[name]), name


def test_what_is_given_out_is_the_callers(family: Family) -> None:
    p = family.random(0)
    before = p.max
    p.argmax.fill_(0)
    assert torch.equal(p.max, before)


def test_rounding_does_not_cross_zero(family: Family) -> None:
    p = family.random(0, batch=8, forbidden=0.0, magnitude=1e4, words=6)
    assert bool((p.entropy() >= 0).all()) and bool((p.log_prob(p.argmax) <= 0).all())
    assert math.isclose(float(p.log_prob(p.argmax)[0]), float(p.max[0] - p.log_partition[0]), abs_tol=1e-9)
    assert p.log_partition.dtype == F64
