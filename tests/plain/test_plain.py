"""The plain torch path against enumeration, closed-form counts and finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from gpuparse.plain import eisner, generic, matrix_tree, mst, semiring
from tests.oracle import Enumeration, count, is_tree, never_read, random_instance

pytestmark = pytest.mark.usefixtures("one_thread")

NEG_INF = float("-inf")
LOG_PARTITION = {True: eisner.log_partition, False: matrix_tree.log_partition}  # by `projective`
ARGMAX = {True: eisner.argmax, False: mst.mst}

roots = pytest.mark.parametrize("single_root", [True, False], ids=["single", "multi"])
families = pytest.mark.parametrize("projective", [True, False], ids=["projective", "nonprojective"])


def enumerate_batch(arcs: Tensor, lengths: Tensor, *, single_root: bool, projective: bool) -> list[Enumeration]:
    return [
        Enumeration(a[: n + 1, : n + 1], single_root=single_root, projective=projective)
        for a, n in zip(arcs, lengths.tolist(), strict=True)
    ]


def padded(parts: list[Tensor], nodes: int) -> Tensor:
    """[n+1, n+1] tensors as one [B, N, N], zeros elsewhere."""
    out = torch.zeros(len(parts), nodes, nodes, dtype=torch.float64)
    for b, part in enumerate(parts):
        out[b, : len(part), : len(part)] = part
    return out


def close(x: Tensor, y: Tensor, tol: float = 1e-10) -> None:
    torch.testing.assert_close(x, y, rtol=tol, atol=tol)


def check_heads(heads: Tensor, lengths: Tensor) -> None:
    """int64, a head in the sentence for each word and -1 elsewhere."""
    word = semiring.word_mask(lengths, heads.shape[-1])
    assert heads.dtype == torch.int64
    assert bool(((heads >= 0) == word).all())
    assert bool((heads <= lengths[:, None]).all())


# ----------------------------------------------------------------------------------------------- the sums


def test_logsumexp_at_minus_infinity() -> None:
    x = torch.tensor([[NEG_INF, NEG_INF], [0.5, NEG_INF], [1e4, -1e4]], dtype=torch.float64, requires_grad=True)
    y = semiring.logsumexp(x, 1)
    assert y.tolist() == [NEG_INF, 0.5, 1e4]
    g = x
    for _ in range(4):
        (g,) = torch.autograd.grad(y.sum() if g is x else (g * g).sum(), x, create_graph=True)
        assert bool(g.isfinite().all())
        assert g[0].tolist() == [0, 0]


@families
@roots
@pytest.mark.parametrize("n", range(1, 13))
def test_counts_by_zero_scores(n: int, single_root: bool, projective: bool) -> None:
    """log Z of zero scores is the log of the number of trees; the sentence stands in a longer batch."""
    arcs = torch.zeros(2, n + 3, n + 3, dtype=torch.float64)
    lengths = torch.tensor([n, n + 2])
    want = [math.log(count(m, single_root=single_root, projective=projective)) for m in (n, n + 2)]
    close(LOG_PARTITION[projective](arcs, lengths, single_root), torch.tensor(want, dtype=torch.float64), 1e-12)


@families
@roots
@pytest.mark.parametrize("forbidden", [0.0, 0.4, 0.8])
@pytest.mark.parametrize("magnitude", [1.0, 30.0, 1e4])
def test_derivatives_against_enumeration(
    magnitude: float, forbidden: float, single_root: bool, projective: bool
) -> None:
    """log Z, marginals and the second and third derivatives; exactly 0 in places never read."""
    log_partition = LOG_PARTITION[projective]
    arcs, lengths = random_instance(7, batch=6, forbidden=forbidden, magnitude=magnitude)
    oracles = enumerate_batch(arcs, lengths, single_root=single_root, projective=projective)
    unread = never_read(lengths, arcs.shape[-1])
    g = torch.Generator().manual_seed(1)
    u, v = torch.randn(2, *arcs.shape, generator=g, dtype=torch.float64)
    cut = [slice(0, n + 1) for n in lengths.tolist()]

    tol = max(1e-10, 1e-13 * magnitude)
    close(log_partition(arcs, lengths, single_root), torch.stack([o.log_partition for o in oracles]), 1e-12)
    p = generic.marginals(log_partition, arcs, lengths, single_root)
    close(p, padded([o.marginals for o in oracles], arcs.shape[-1]), tol)
    nan_v = v.masked_fill(unread, math.nan)
    h = generic.hvp(log_partition, arcs, lengths, single_root, nan_v)
    close(h, padded([o.hvp(v[b, c, c]) for b, (o, c) in enumerate(zip(oracles, cut, strict=True))], 6), tol)
    t = generic.third(log_partition, arcs, lengths, single_root, u, nan_v)
    want = [o.third(u[b, c, c], v[b, c, c]) for b, (o, c) in enumerate(zip(oracles, cut, strict=True))]
    close(t, padded(want, 6), tol)
    for x in (p, h, t):
        assert not x.requires_grad
        assert bool((x[unread] == 0).all())
        assert bool((x[arcs == NEG_INF] == 0).all())


@families
@roots
def test_gradcheck(single_root: bool, projective: bool) -> None:
    """First to fourth derivatives by finite differences over the finite scores of a masked, ragged batch."""
    log_partition = LOG_PARTITION[projective]
    arcs, lengths = random_instance(3, batch=2, words=3, forbidden=0.35, poison=True)
    where = arcs.isfinite()
    assert bool((arcs == NEG_INF).any())
    free = arcs[where].clone().requires_grad_()
    v = torch.randn_like(free).requires_grad_()

    def fill(values: Tensor, rest: Tensor = arcs) -> Tensor:
        return rest.masked_scatter(where, values)

    def log_z(values: Tensor) -> Tensor:
        return log_partition(fill(values), lengths, single_root)

    def p(values: Tensor) -> Tensor:
        return generic.marginals(log_partition, fill(values), lengths, single_root)

    def h(values: Tensor, v: Tensor) -> Tensor:
        direction = fill(v, torch.zeros_like(arcs))
        return generic.hvp(log_partition, fill(values), lengths, single_root, direction)

    assert gradcheck(log_z, (free,))
    assert gradgradcheck(log_z, (free,))
    assert gradcheck(p, (free,))
    assert gradcheck(h, (free, v))
    assert gradgradcheck(p, (free,))


@families
@roots
def test_no_nan_at_any_order(single_root: bool, projective: bool) -> None:
    """Sentences with and without a tree in one batch, NaN where nothing is read, four derivatives."""
    arcs, lengths = random_instance(5, batch=4, words=4, forbidden=0.6)
    arcs[1, :, 1] = NEG_INF  # no head for word 1
    arcs[2] = NEG_INF
    arcs.requires_grad_()
    y = LOG_PARTITION[projective](arcs, lengths, single_root)
    assert y[1:3].tolist() == [NEG_INF, NEG_INF]
    assert bool(y[[0, 3]].isfinite().all())
    g = torch.autograd.grad(y.sum(), arcs, create_graph=True)[0]
    for order in range(4):
        assert bool(g.isfinite().all()), order
        assert not bool(g[1:3].any())
        assert not bool(g[never_read(lengths, 5)].any())
        (g,) = torch.autograd.grad((g * torch.arange(25.0).view(5, 5)).sum(), arcs, create_graph=True)


def test_a_word_with_no_other_head_goes_last() -> None:
    """Words 2 and 3 have no heads but each other and the root: eliminating 3 leaves 2 with a loop only."""
    arcs = torch.full((1, 4, 4), NEG_INF, dtype=torch.float64)
    for h, m in ((0, 2), (0, 3), (2, 3), (3, 2), (2, 1), (3, 1)):
        arcs[0, h, m] = 0.25 * h - 0.5 * m
    o = Enumeration(arcs[0], single_root=True, projective=False)
    close(matrix_tree.log_partition(arcs, torch.tensor([3]), True), o.log_partition[None])
    close(generic.marginals(matrix_tree.log_partition, arcs, torch.tensor([3]), True), o.marginals[None])


@families
def test_direction_may_depend_on_the_arcs(projective: bool) -> None:
    """hvp takes its direction as a constant, and passes derivatives on to it."""
    log_partition = LOG_PARTITION[projective]
    arcs, lengths = random_instance(11, words=3, poison=False)
    finite = torch.where(arcs.isfinite(), arcs, 0.0)
    want = generic.hvp(log_partition, arcs, lengths, True, finite)
    arcs.requires_grad_()
    got = generic.hvp(log_partition, arcs, lengths, True, torch.where(arcs.isfinite(), arcs, 0.0))
    close(got.detach(), want)
    assert got.requires_grad
    with torch.no_grad():
        assert not generic.hvp(log_partition, arcs, lengths, True, arcs).requires_grad


# ------------------------------------------------------------------------- trees: the best, k best, samples


def check_best(arcs: Tensor, lengths: Tensor, single_root: bool, projective: bool) -> None:
    heads = ARGMAX[projective](arcs, lengths, single_root)
    oracles = enumerate_batch(arcs, lengths, single_root=single_root, projective=projective)
    for b, o in enumerate(oracles):
        if o.has_tree:
            n = int(lengths[b])
            check_heads(heads[b : b + 1], lengths[b : b + 1])
            close(o.score(heads[b, : n + 1]), o.max, 1e-13)
        else:
            assert bool((heads[b] == -1).all())


@families
@roots
@pytest.mark.parametrize("seed", range(6))
def test_argmax_against_enumeration(seed: int, single_root: bool, projective: bool) -> None:
    """Scores real, and small integers with many equals; masks light to heavy, some without a tree."""
    for forbidden in (0.0, 0.3, 0.6, 0.9):
        arcs, lengths = random_instance(seed, batch=24, forbidden=forbidden, magnitude=3.0)
        for scores in (arcs, arcs.round()):
            check_best(scores, lengths, single_root, projective)
        g = torch.Generator().manual_seed(seed)
        more = torch.rand(arcs.shape, generator=g) < 0.3
        check_best(arcs.masked_fill(more, NEG_INF), lengths, single_root, projective)


@families
@roots
def test_argmax_ties_are_deterministic(single_root: bool, projective: bool) -> None:
    """Alone or in a batch with longer ones, equal scores give the same tree."""
    lengths = torch.tensor([5, 3, 4, 3])
    heads = ARGMAX[projective](torch.zeros(4, 6, 6), lengths, single_root)
    for b, n in enumerate(lengths.tolist()):
        alone = ARGMAX[projective](torch.zeros(1, n + 1, n + 1), torch.tensor([n]), single_root)
        assert heads[b, : n + 1].tolist() == alone[0].tolist()


def test_mst_many_rounds() -> None:
    """Cycles within cycles: words 1 and 2 prefer each other, and each next word prefers the one before.

    The component of the words 1 .. m then likes word m+1 best, so every round contracts one pair only.
    """
    n = 12
    arcs = torch.full((1, n + 1, n + 1), NEG_INF, dtype=torch.float64)
    for m in range(2, n + 1):
        arcs[0, m - 1, m] = 100.0
        arcs[0, m, 1] = 50.0 - m
    arcs[0, 0, n] = -5.0
    arcs[0, 0, 1] = -1000.0
    for single_root in (True, False):
        # the root arc at n leaves a way to word 1 only through n
        heads = mst.mst(arcs, torch.tensor([n]), single_root)
        assert heads[0].tolist() == [-1, n, *range(1, n - 1), 0]
        assert is_tree(heads).all()


@roots
@pytest.mark.parametrize("seed", range(3))
def test_mst_larger_is_optimal(seed: int, single_root: bool) -> None:
    """A tree, not worse than the best projective one, and the one that cold marginals concentrate on."""
    arcs, lengths = random_instance(seed, batch=8, words=14, forbidden=0.5)
    heads = mst.mst(arcs, lengths, single_root)
    check_heads(heads, lengths)
    assert bool(is_tree(heads).all())
    w, words = semiring.clean(arcs, lengths), semiring.word_mask(lengths, 15)
    best = generic._tree_score(w, heads, words)
    if single_root:
        assert bool((((heads == 0) & words).sum(1) == 1).all())
    projective = eisner.argmax(arcs, lengths, single_root)
    assert bool((best >= generic._tree_score(w, projective, words) - 1e-12).all())
    p = generic.marginals(matrix_tree.log_partition, arcs * 1e4, lengths, single_root)
    assert bool((p.argmax(1) == heads)[words].all())


@families
@roots
@pytest.mark.parametrize("integers", [False, True], ids=["real", "ties"])
def test_topk_against_enumeration(integers: bool, single_root: bool, projective: bool) -> None:
    """All ranks of small sentences: scores in order, trees distinct, -1 when there are no more."""
    arcs, lengths = random_instance(2, batch=8, words=4, forbidden=0.3)
    arcs[3, :, 1] = NEG_INF
    if integers:
        arcs = arcs.round()
    k = 20
    heads = generic.topk(ARGMAX[projective], arcs, lengths, single_root, k)
    assert heads.shape == (k, 8, 5)
    assert torch.equal(heads[0], ARGMAX[projective](arcs, lengths, single_root))
    oracles = enumerate_batch(arcs, lengths, single_root=single_root, projective=projective)
    for b, o in enumerate(oracles):
        total = min(k, int((o.scores > NEG_INF).sum()))
        own = heads[:, b, : int(lengths[b]) + 1]
        assert bool((heads[total:, b] == -1).all())
        assert len(own[:total].unique(dim=0)) == total
        scores = [o.score(t) for t in own[:total]]
        if scores:
            close(torch.stack(scores), o.sorted_scores[:total], 1e-12)


@families
@roots
def test_samples_are_exact(single_root: bool, projective: bool) -> None:
    """Frequencies of whole trees within five standard deviations, and never one of probability 0."""
    torch.manual_seed(0)
    arcs, lengths = random_instance(4, batch=3, words=3, forbidden=0.2)
    arcs[1] = NEG_INF
    num = 4000
    heads = generic.sample(LOG_PARTITION[projective], arcs, lengths, single_root, num)
    assert heads.shape == (num, 3, 4)
    oracles = enumerate_batch(arcs, lengths, single_root=single_root, projective=projective)
    assert bool((heads[:, 1] == -1).all())
    for b in (0, 2):
        check_heads(heads[:, b], lengths[b].expand(num))
        o = oracles[b]
        same = (heads[:, b, None, : int(lengths[b]) + 1] == o.trees).all(-1)
        assert bool(same.any(1).all())
        freq = same.double().mean(0)
        assert bool((freq[o.probs == 0] == 0).all())
        assert bool(((freq - o.probs).abs() <= 5 * (o.probs * (1 - o.probs) / num).sqrt() + 1e-9).all())


def test_samples_of_wide_scores_are_trees() -> None:
    """Scores of 1e4 and heavy masks: every sample is possible."""
    torch.manual_seed(1)
    arcs, lengths = random_instance(9, batch=6, words=8, forbidden=0.6, magnitude=1e4)
    heads = generic.sample(matrix_tree.log_partition, arcs, lengths, True, 3).flatten(0, 1)
    lengths = lengths.repeat(3)
    check_heads(heads, lengths)
    score = generic._tree_score(semiring.clean(arcs, lengths[:6]).repeat(3, 1, 1), heads, heads >= 0)
    assert bool(score.isfinite().all())
    assert bool(is_tree(heads).all())


@families
@roots
def test_samples_survive_rounding(monkeypatch: pytest.MonkeyPatch, single_root: bool, projective: bool) -> None:
    """Should a head of probability 0 ever be drawn, it is not taken."""
    monkeypatch.setattr(generic, "_draw", lambda p: p.argmin(1))
    arcs, lengths = random_instance(10, batch=6)
    heads = generic.sample(LOG_PARTITION[projective], arcs, lengths, single_root, 1)[0]
    for b, o in enumerate(enumerate_batch(arcs, lengths, single_root=single_root, projective=projective)):
        assert o.score(heads[b, : int(lengths[b]) + 1]) > NEG_INF


def test_draw_takes_no_weight_of_zero() -> None:
    p = torch.tensor([0.0, 0.0, 1e-300, 0.0, 3.0, 1.0, 0.0], dtype=torch.float64).expand(4000, -1)
    torch.manual_seed(0)
    freq = generic._draw(p).bincount(minlength=7) / 4000
    assert freq[[0, 1, 2, 3, 6]].tolist() == [0, 0, 0, 0, 0]
    assert abs(float(freq[4]) - 0.75) < 0.05


# ------------------------------------------------------------------------------ any mask, any size, any mode


@families
@roots
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    words=st.integers(1, 5),
    forbidden=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    keep_tree=st.booleans(),
    magnitude=st.sampled_from([0.0, 1.0, 100.0, 1e4]),
)
def test_any_instance(
    seed: int,
    words: int,
    forbidden: float,
    keep_tree: bool,
    magnitude: float,
    single_root: bool,
    projective: bool,
) -> None:
    arcs, lengths = random_instance(seed, batch=3, words=words, forbidden=forbidden, magnitude=magnitude)
    if not keep_tree:
        more = torch.rand(arcs.shape, generator=torch.Generator().manual_seed(seed)) < 0.4
        arcs = arcs.masked_fill(more, NEG_INF)
    oracles = enumerate_batch(arcs, lengths, single_root=single_root, projective=projective)
    log_partition = LOG_PARTITION[projective]
    close(log_partition(arcs, lengths, single_root), torch.stack([o.log_partition for o in oracles]), 1e-12)
    p = generic.marginals(log_partition, arcs, lengths, single_root)
    close(p, padded([o.marginals for o in oracles], words + 1), max(1e-12, 1e-13 * magnitude))
    check_best(arcs, lengths, single_root, projective)


@families
@roots
def test_offsets_cost_no_digits(single_root: bool, projective: bool) -> None:
    """A constant for all heads of a word is a constant of log Z and nothing to the marginals."""
    log_partition = LOG_PARTITION[projective]
    arcs = (torch.randn(2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 64).round() / 64
    lengths = torch.tensor([5, 4])
    offset = 2.0**20
    close(
        generic.marginals(log_partition, arcs + offset, lengths, single_root),
        generic.marginals(log_partition, arcs, lengths, single_root),
        1e-14,
    )
    shifted = log_partition(arcs + offset, lengths, single_root)
    close(shifted - offset * lengths, log_partition(arcs, lengths, single_root), 1e-8)


@families
@roots
def test_float32(single_root: bool, projective: bool) -> None:
    """float32 in, float32 out, as good as float64 inside."""
    log_partition = LOG_PARTITION[projective]
    arcs, lengths = random_instance(8, dtype=torch.float32)
    wide = arcs.double()
    assert torch.equal(log_partition(arcs, lengths, single_root), log_partition(wide, lengths, single_root).float())
    v = torch.ones_like(arcs)
    p = generic.marginals(log_partition, arcs, lengths, single_root)
    assert torch.equal(p, generic.marginals(log_partition, wide, lengths, single_root).float())
    assert generic.hvp(log_partition, arcs, lengths, single_root, v).dtype == torch.float32
    assert torch.equal(ARGMAX[projective](arcs, lengths, single_root), ARGMAX[projective](wide, lengths, single_root))


@families
@roots
@pytest.mark.parametrize("nodes", [1, 2])
def test_smallest(nodes: int, single_root: bool, projective: bool) -> None:
    """No words (the empty tree) and one word, for which log Z is linear."""
    arcs = torch.full((2, nodes, nodes), 0.75)
    lengths = torch.tensor([nodes - 1, 0])
    log_partition, argmax = LOG_PARTITION[projective], ARGMAX[projective]
    want = torch.zeros(2, nodes, nodes)
    want[0, 0, 1:] = 1
    heads = [[-1, 0][:nodes], [-1, -1][:nodes]]
    assert log_partition(arcs, lengths, single_root).tolist() == [0.75 * (nodes - 1), 0]
    assert torch.equal(generic.marginals(log_partition, arcs, lengths, single_root), want)
    assert not generic.hvp(log_partition, arcs, lengths, single_root, arcs).any()
    assert not generic.third(log_partition, arcs, lengths, single_root, arcs, arcs).any()
    assert argmax(arcs, lengths, single_root).tolist() == heads
    assert generic.topk(argmax, arcs, lengths, single_root, 3)[0].tolist() == heads
    assert (generic.topk(argmax, arcs, lengths, single_root, 3)[1:] == -1).all()
    assert generic.sample(log_partition, arcs, lengths, single_root, 2)[1].tolist() == heads


def run_all(arcs: Tensor, lengths: Tensor, single_root: bool, projective: bool) -> list[Tensor]:
    log_partition, argmax = LOG_PARTITION[projective], ARGMAX[projective]
    return [
        log_partition(arcs, lengths, single_root),
        generic.marginals(log_partition, arcs, lengths, single_root),
        generic.hvp(log_partition, arcs, lengths, single_root, torch.ones_like(arcs)),
        generic.third(log_partition, arcs, lengths, single_root, torch.ones_like(arcs), torch.ones_like(arcs)),
        argmax(arcs, lengths, single_root),
        generic.topk(argmax, arcs, lengths, single_root, 3),
        generic.sample(log_partition, arcs, lengths, single_root, 2),
    ]


@families
@roots
def test_inference_mode(single_root: bool, projective: bool) -> None:
    arcs, lengths = random_instance(6, words=4)
    torch.manual_seed(0)
    want = run_all(arcs, lengths, single_root, projective)
    with torch.inference_mode():
        torch.manual_seed(0)
        got = run_all(arcs.clone(), lengths.clone(), single_root, projective)
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


@families
@roots
def test_no_synchronisation(single_root: bool, projective: bool) -> None:
    """On the meta device any look at a value, or a tensor left on another device, is an error."""
    arcs, lengths = torch.empty(3, 5, 5, device="meta"), torch.empty(3, dtype=torch.int64, device="meta")
    for x in run_all(arcs, lengths, single_root, projective):
        assert x.device.type == "meta"
    p = generic.marginals(LOG_PARTITION[projective], arcs.requires_grad_(), lengths, single_root)
    assert torch.autograd.grad(p.sum(), arcs)[0].device.type == "meta"


def test_the_meta_device_tells() -> None:
    """What the test above relies on."""
    x = torch.empty(3, device="meta")
    for look in (
        x.tolist,
        x.sum().item,
        lambda: x[x > 0],
        lambda: x + torch.arange(3),
        lambda: bool(x.any()),
    ):
        with pytest.raises((RuntimeError, NotImplementedError)):
            look()
