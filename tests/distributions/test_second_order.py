"""Projective trees with scores of pairs of arcs: against all trees, plain torch, and finite differences."""

from __future__ import annotations

import copy
import pickle
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import kl_divergence

import gpuparse as gp
from gpuparse.nn.trilinear import TrilinearParts
from gpuparse.ops import second_order as ops
from gpuparse.parts import DenseParts
from gpuparse.plain import second_order as plain
from gpuparse.plain.second_order import Scores, grandparent_mask, sibling_mask
from tests.distributions.families import F64, NAN, NEG_INF, close
from tests.oracle import all_trees, random_instance

FAMILIES = pytest.mark.parametrize("family", ("siblings", "grandparents", "both", "neither"))
ROOTS = pytest.mark.parametrize("single_root", (True, False), ids=("single", "multi"))


@cache
def parts_of_trees(n: int, single_root: bool) -> tuple[Tensor, Tensor, Tensor]:
    """All trees [T, n+1], and for each word its triples (h, s, m) and (g, h, m) [T, n, 3], read off one by one; g = -1
    where there is no grandparent."""
    trees = all_trees(n, single_root=single_root, projective=True)
    siblings, grandparents = [], []
    for heads in trees.tolist():
        rows, ups = [], []
        for m in range(1, n + 1):
            h = heads[m]
            inner = range(h + 1, m) if h < m else range(h - 1, m, -1)  # outward from the head
            before = [s for s in inner if s >= 1 and heads[s] == h]
            rows.append((h, before[-1] if before else h, m))
            ups.append((heads[h], h, m))
        siblings.append(rows)
        grandparents.append(ups)
    return trees, torch.tensor(siblings), torch.tensor(grandparents)


class Enumerated:
    """The distribution over all trees of one sentence; its scores in float64."""

    def __init__(self, scores: Scores, n: int, single_root: bool) -> None:
        self.trees, siblings, grandparents = parts_of_trees(n, single_root)
        arcs, beside, under = (None if x is None else x.detach().double() for x in scores)
        assert arcs is not None
        self.index = [(arcs, (siblings[..., 0], siblings[..., 2]), torch.ones_like(siblings[..., 0]).bool())]
        if beside is not None:
            self.index.append((beside, siblings.unbind(-1), torch.ones_like(siblings[..., 0]).bool()))
        if under is not None:
            self.index.append((under, grandparents.unbind(-1), grandparents[..., 1] > 0))
        each = [torch.where(used, x[tuple(i)], 0.0).sum(1) for x, i, used in self.index]
        self.scores = torch.stack(each).sum(0)
        self.log_partition = self.scores.logsumexp(0)
        self.probs = (self.scores - self.log_partition).exp() if self.scores.max() > NEG_INF else self.scores * 0
        self.marginals = [
            torch.zeros_like(x).index_put_(tuple(i), torch.where(used, self.probs[:, None], 0.0), accumulate=True)
            for x, i, used in self.index
        ]


def instance(
    seed: int, family: str, *, words: int = 5, forbidden: float = 0.2, magnitude: float = 1.0, batch: int = 3
) -> tuple[Scores, Tensor]:
    """A ragged batch; what is never read is NaN, and each sentence has a tree whose parts are all allowed."""
    arcs, lengths = random_instance(seed, batch=batch, words=words, forbidden=forbidden, magnitude=magnitude)
    g = torch.Generator().manual_seed(seed)
    found: list[Tensor | None] = [arcs]
    for name, mask in (("siblings", sibling_mask), ("grandparents", grandparent_mask)):
        if family not in (name, "both"):
            found.append(None)
            continue
        x = magnitude * torch.randn(batch, *[words + 1] * 3, generator=g, dtype=F64)
        barred = torch.rand(x.shape, generator=g) < forbidden
        for b, n in enumerate(lengths.tolist()):
            trees, beside, under = parts_of_trees(n, True)
            m = torch.arange(1, n + 1)
            possible = (arcs[b, trees[:, 1:], m] > NEG_INF).all(1).nonzero()[0, 0]
            triples = (beside if name == "siblings" else under)[possible]
            barred[b][tuple(triples.unbind(-1))] = False
        x = x.masked_fill(barred, NEG_INF)
        found.append(torch.where(mask(lengths, words + 1), x, NAN))
    assert found[0] is not None
    return (found[0], found[1], found[2]), lengths


def make(scores: Scores, lengths: Tensor, single_root: bool, **options: bool) -> gp.SecondOrderTrees:
    return gp.SecondOrderTrees(
        scores[0], lengths, siblings=scores[1], grandparents=scores[2], single_root=single_root, **options
    )


def sentences(scores: Scores, lengths: Tensor, single_root: bool) -> list[Enumerated]:
    cut = []
    for b, n in enumerate(lengths.tolist()):
        k = n + 1
        arcs, beside, under = scores
        one = (arcs[b, :k, :k], None if beside is None else beside[b, :k, :k, :k])
        cut.append(Enumerated((*one, None if under is None else under[b, :k, :k, :k]), n, single_root))
    return cut


def there(scores: Scores) -> list[Tensor]:
    return [x for x in scores if x is not None]


@FAMILIES
@ROOTS
def test_no_tree_of_another_kind_has_probability(family: str, single_root: bool) -> None:
    scores, _ = instance(5, family, words=4, forbidden=0.0, batch=1)
    p = make(scores, torch.tensor([4]), single_root)
    heads = torch.cartesian_prod(*[torch.arange(5)] * 4)
    heads = torch.cat([torch.full((len(heads), 1), -1), heads], 1)[:, None]
    assert int((p.log_prob(heads) > NEG_INF).sum()) == len(all_trees(4, single_root=single_root, projective=True))


@FAMILIES
@ROOTS
def test_plain_path(family: str, single_root: bool) -> None:
    scores, lengths = instance(7, family, words=4)
    wanted = sentences(scores, lengths, single_root)
    log_z = plain.log_partition(scores, lengths, single_root)
    mu = plain.derivative(scores, lengths, single_root)
    heads = plain.topk(plain.argmax, scores, lengths, single_root, 3)
    best = plain.tree_scores(scores, heads, lengths)
    drawn = plain.sample(scores, lengths, single_root, 30)
    for b, want in enumerate(wanted):
        n = int(lengths[b])
        close(log_z[b], want.log_partition)
        for found, expected in zip(mu, want.marginals, strict=True):
            close(found[(b, *[slice(n + 1)] * (found.dim() - 1))], expected)
        ordered = torch.cat([want.scores.sort(descending=True).values, torch.full((3,), NEG_INF, dtype=F64)])[:3]
        close(best[:, b], ordered)
        for tree in drawn[:, b, : n + 1]:
            assert want.probs[(want.trees == tree).all(1)].item() > 0


@pytest.mark.parametrize("family", ("siblings", "grandparents", "both"))
@ROOTS
@pytest.mark.parametrize("magnitude", (1.0, 300.0))
def test_derivatives_of_longer_sentences(family: str, single_root: bool, magnitude: float) -> None:
    """Kernels against plain torch; with the magnitude of 300 the numbers with an exponent are needed."""
    g = torch.Generator().manual_seed(3)
    words, B = 11, 3
    shapes = [(B, words + 1, words + 1), *[(B, *[words + 1] * 3)] * 2]
    arcs, *pairs = (magnitude * torch.randn(s, generator=g, dtype=F64) for s in shapes)
    scores = arcs, pairs[0] if family != "grandparents" else None, pairs[1] if family != "siblings" else None
    lengths = torch.tensor([11, 9, 2])
    u, v = (tuple(None if x is None else torch.rand(x.shape, generator=g, dtype=F64) for x in scores) for _ in "uv")
    log_z, *mu = ops.marginals(scores, lengths, single_root)
    close(log_z, plain.log_partition(scores, lengths, single_root), 1e-12)
    for found, expected in zip(there(mu), plain.derivative(scores, lengths, single_root), strict=True):
        close(found, expected, 1e-10)
    first = torch.ops.gpuparse.second_order_hvp(*scores, lengths, single_root, *u)
    for found, expected in zip(
        [x for x in first if x.numel()], plain.derivative(scores, lengths, single_root, [u]), strict=True
    ):
        close(found, expected, 1e-9)
    second = torch.ops.gpuparse.second_order_third(*scores, lengths, single_root, *u, *v)
    for found, expected in zip(
        [x for x in second if x.numel()], plain.derivative(scores, lengths, single_root, [u, v]), strict=True
    ):
        close(found, expected, 1e-8)


@pytest.mark.parametrize("family", ("siblings", "both"))
def test_more_derivatives(family: str) -> None:
    """The fourth derivative, beyond the kernels, equals plain torch's."""
    (arcs, beside, under), lengths = instance(13, family, words=3, batch=2, forbidden=0.0)
    leaves = [x.nan_to_num().requires_grad_() for x in there((arcs, beside, under))]
    scores: Scores = (leaves[0], leaves[1], leaves[2] if len(leaves) > 2 else None)
    results = []
    for log_z in (make(scores, lengths, True).log_partition, plain.log_partition(scores, lengths, True)):
        value = log_z.sum()
        for step in range(4):
            g = torch.Generator().manual_seed(step)
            found = grad(value, leaves, create_graph=True)
            value = sum((x * torch.rand(x.shape, generator=g, dtype=F64)).sum() for x in found)  # type: ignore[assignment]
        results.append(found)
    for a, b in zip(*results, strict=True):
        close(a, b)


@ROOTS
@pytest.mark.parametrize("families", (("both", "both"), ("siblings", "grandparents"), ("neither", "siblings")))
def test_kl(single_root: bool, families: tuple[str, str]) -> None:
    for seed, forbidden in ((0, 0.0), (1, 0.0), (2, 0.1), (3, 0.3)):
        (one, lengths), (other, _) = (
            instance(seed, families[0], forbidden=0.1),
            instance(seed, families[1], forbidden=forbidden),
        )
        g = torch.Generator().manual_seed(seed)
        other = (other[0] + torch.randn(other[0].shape, generator=g, dtype=F64), *other[1:])
        p, q = make(one, lengths, single_root), make(other, lengths, single_root)
        found = kl_divergence(p, q)
        pairs = zip(sentences(one, lengths, single_root), sentences(other, lengths, single_root), strict=True)
        for b, (x, y) in enumerate(pairs):
            log_q = y.scores - y.log_partition
            log_p = x.scores - x.log_partition
            want = torch.where(x.probs > 0, x.probs * (log_p - log_q), 0.0).sum()
            close(found[b], want)
        close(kl_divergence(p, p), torch.zeros(len(lengths)), 1e-12)


@pytest.mark.parametrize("family", ("siblings", "grandparents", "both"))
@ROOTS
def test_samples(family: str, single_root: bool) -> None:
    torch.manual_seed(0)
    for magnitude in (1.0, 400.0):
        scores, lengths = instance(23, family, words=4, magnitude=magnitude)
        p = make(scores, lengths, single_root)
        num = 4000
        heads = p.sample((num // 2, 2)).flatten(0, 1)
        for b, want in enumerate(sentences(scores, lengths, single_root)):
            n = int(lengths[b])
            same = (heads[:, b, None, : n + 1] == want.trees).all(-1)
            assert bool((same.sum(1) == 1).all()) and not bool(same[:, want.probs == 0].any())
            seen = same.double().mean(0)
            assert bool(((seen - want.probs).abs() <= 5 * (want.probs / num).sqrt() + 1e-12 + 5 / num).all())
    torch.manual_seed(5)
    first = p.sample((3,))
    torch.manual_seed(5)
    assert torch.equal(first, p.sample((3,)))


@ROOTS
def test_without_pairs_it_is_first_order(single_root: bool) -> None:
    (arcs, _, _), lengths = instance(29, "neither", words=5)
    zeros = torch.zeros(len(arcs), 6, 6, 6, dtype=F64)
    q = gp.ProjectiveTrees(arcs, lengths, single_root=single_root)
    for pairs in ({}, {"siblings": zeros}, {"grandparents": zeros}, {"siblings": zeros, "grandparents": zeros}):
        p = gp.SecondOrderTrees(arcs, lengths, single_root=single_root, **pairs)
        close(p.log_partition, q.log_partition)
        close(p.marginals, q.marginals)
        close(p.entropy(), q.entropy())
        close(p.sibling_marginals.sum(2), q.marginals)
        close(p.grandparent_marginals.sum(1)[:, 1:], q.marginals[:, 1:])
        assert torch.equal(p.argmax, q.argmax)


def test_sentences_without_a_tree_and_bad_scores() -> None:
    B, N = 4, 4
    arcs, beside, under = torch.zeros(B, N, N), torch.zeros(B, N, N, N), torch.zeros(B, N, N, N)
    beside[0, :, :, 2] = NEG_INF
    beside[1, 1, 1, 2] = NAN
    beside[3, 1, 3, 2] = NAN  # never read: 3 is not between 1 and 2
    for pairs in ({"siblings": beside}, {"siblings": beside, "grandparents": under}):
        p = gp.SecondOrderTrees(arcs, validate_args=False, **pairs)
        assert p.log_partition[0] == NEG_INF and not bool(p.marginals[0].any())
        assert bool(p.log_partition[1].isnan()) and bool(p.sibling_marginals[1].isnan().all())
        assert bool((p.argmax[:2] == -1).all()) and bool((p.sample()[:2] == -1).all())
        assert bool((p.topk(2)[0][:, :2] == -1).all())
        for x in (p.log_partition, p.marginals, p.sibling_marginals, p.max):
            assert bool(x[2:].isfinite().all())
        assert bool(p.entropy()[1].isnan()) and bool(p.entropy()[2:].isfinite().all())
        with pytest.raises(ValueError, match=r"siblings\[1, 1, 1, 2\] is nan \(sentence 1\)"):
            gp.SecondOrderTrees(arcs, **pairs)
    with pytest.raises(ValueError, match=r"^arcs with their best siblings of sentence 0 allow no .* head of word 2"):
        gp.SecondOrderTrees(arcs[:1], siblings=beside[:1])
    beside = torch.zeros(1, N, N, N)
    beside[0, 0, 1, 2] = NAN  # read, though no tree with a single root has it
    p = gp.SecondOrderTrees(arcs[:1], siblings=beside, validate_args=False)
    assert bool(p.log_partition.isnan().all()) and bool(p.entropy().isnan().all())
    under[2, 1, 2, 3] = float("inf")
    with pytest.raises(ValueError, match=r"grandparents\[2, 1, 2, 3\] is inf"):
        gp.SecondOrderTrees(arcs, grandparents=under)
    with pytest.raises(ValueError, match="siblings must have shape"):
        gp.SecondOrderTrees(arcs, siblings=arcs)
    with pytest.raises(ValueError, match="grandparents must be a tensor"):
        gp.SecondOrderTrees(arcs, grandparents=[1.0])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="siblings must be float32 or float64"):
        gp.SecondOrderTrees(arcs, siblings=beside.long())


def test_what_allows_no_tree_is_named() -> None:
    """The fewest kinds of scores that do, whichever of them are -inf besides."""
    some = torch.zeros(2, 4, 4)
    some[:, 3, 1] = NEG_INF
    none = some.clone()
    none[1, :, 2] = NEG_INF
    zeros, no_head, no_pair, root_2, not_under_2 = (torch.zeros(2, 4, 4, 4) for _ in range(5))
    no_head[1, :, :, 2] = NEG_INF
    no_pair[1] = NEG_INF
    root_2[1, 0, 0, [1, 3]] = NEG_INF
    not_under_2[1, 0, 2] = NEG_INF
    for arcs, siblings, grandparents, name in (
        (none, no_head, no_pair, "arcs"),
        (some, no_head, zeros, "arcs with their best siblings"),
        (some, zeros, no_pair, "arcs with their best grandparents"),
        (some, None, no_pair, "arcs with their best grandparents"),
        (some, root_2, not_under_2, "arcs with their best siblings and grandparents"),
    ):
        with pytest.raises(ValueError, match=rf"^{name} of sentence 1 allow no projective tree with a single root"):
            gp.SecondOrderTrees(arcs, siblings=siblings, grandparents=grandparents)


def test_parts_must_fit() -> None:
    lengths = torch.tensor([3, 2])
    arcs, values = torch.zeros(2, 4, 4), torch.zeros(2, 4, 4, 4)
    parts = DenseParts(values, lengths, kind="siblings")
    with pytest.raises(ValueError, match=r"^grandparents must be parts of kind 'grandparents', got 'siblings'$"):
        gp.SecondOrderTrees(arcs, lengths, grandparents=parts, validate_args=False)
    with pytest.raises(ValueError, match=r"^siblings of sentence 1 have 2 words, but lengths\[1\] is 3$"):
        gp.SecondOrderTrees(arcs, siblings=parts)
    gp.SecondOrderTrees(arcs, siblings=parts, validate_args=False)  # not looked at
    with pytest.raises(ValueError, match=r"^siblings must have shape"):
        gp.SecondOrderTrees(arcs[:1], lengths[:1], siblings=parts)


def test_parts_past_the_end_have_no_gradient() -> None:
    """Not even where the rows that they are computed from are NaN."""
    g = torch.Generator().manual_seed(0)
    lengths = torch.tensor([4, 2])
    rows = [torch.randn(2, 5, 3, generator=g, dtype=F64) for _ in range(3)]
    for x in rows:
        x[1, 3:] = NAN
        x.requires_grad_()
    parts = TrilinearParts(rows[0], rows[1], rows[2], lengths, kind="grandparents")
    gp.SecondOrderTrees(torch.zeros(2, 5, 5), lengths, grandparents=parts).log_partition.sum().backward()
    for x in rows:
        assert x.grad is not None and bool(x.grad.isfinite().all()) and not bool(x.grad[1, 3:].any())


@pytest.mark.parametrize("wrong", (3, (-1,), (2, -1), "ab", (1.5,)))
def test_sample_shapes_that_are_none(wrong: object) -> None:
    arcs = torch.zeros(1, 4, 4)
    for family in (gp.ProjectiveTrees, gp.NonProjectiveTrees, gp.SecondOrderTrees):
        with pytest.raises(ValueError, match=r"^sample_shape must be a tuple of whole numbers, none below 0.*, got "):
            family(arcs).sample(wrong)
        assert family(arcs).sample((0, 2)).shape == (0, 2, 1, 4)


def test_one_call_gives_all_that_an_entropy_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = ops.marginals
    monkeypatch.setattr(ops, "marginals", lambda *args: calls.append(1) or real(*args))
    (arcs, beside, under), lengths = instance(47, "both", words=4, forbidden=0.0)
    leaves = [x.nan_to_num().requires_grad_() for x in there((arcs, beside, under))]
    for grad_enabled in (True, False):
        with torch.set_grad_enabled(grad_enabled):
            p, q = (make((leaves[0], leaves[1], leaves[2]), lengths, True) for _ in "pq")
            calls.clear()
            p.entropy()
            assert len(calls) == 1
            calls.clear()
            kl_divergence(q, make((leaves[0] * 2, None, None), lengths, True))
            assert len(calls) == 1 + grad_enabled  # log Z of the other, with its gradient


@pytest.mark.parametrize("family", ("siblings", "grandparents", "both"))
@ROOTS
def test_entropy_keeps_its_digits(family: str, single_root: bool) -> None:
    """Large scores that all trees have, or that none can have, change nothing; scores are such that sums are exact."""
    (arcs, beside, under), lengths = instance(53, family, words=5, forbidden=0.0, magnitude=64.0)
    arcs, beside, under = (None if x is None else x.nan_to_num().round() / 64 for x in (arcs, beside, under))
    assert arcs is not None
    arcs[:, 4, 2] = NEG_INF
    want, large = make((arcs, beside, under), lengths, single_root), 2.0**40
    if beside is not None:
        beside = beside + large
        beside[:, 4, 4, 2] = beside[:, 4, 3, 2] = beside[:, 4, 2, 1] = 2 * large  # with a forbidden arc
        if single_root:
            beside[:, 0, 1:] = 3 * large
    if under is not None:
        under[:, 4, 2] = 2 * large
        if single_root:
            under = under + large
    arcs = arcs - large
    if single_root:
        arcs[:, 0] += 3 * large
    found = make((arcs, beside, under), lengths, single_root)
    close(found.entropy(), want.entropy(), 1e-12)
    close(kl_divergence(found, want), torch.zeros(len(lengths)), 1e-12)


def test_parts_and_other_dtypes_are_taken() -> None:
    (arcs, beside, under), lengths = instance(31, "both", words=4, forbidden=0.0)
    assert beside is not None and under is not None
    p = gp.SecondOrderTrees(arcs, lengths, siblings=beside, grandparents=under)
    parts = DenseParts(beside.nan_to_num(), lengths, kind="siblings")
    q = gp.SecondOrderTrees(arcs, lengths, siblings=parts, grandparents=under.float())
    close(q.log_partition, p.log_partition, 1e-5)
    assert q.grandparent_marginals.dtype == F64 and parts.scored > 0


def test_it_is_a_distribution() -> None:
    scores, lengths = instance(37, "both", words=4, batch=1)
    p = make(scores, lengths, True)
    wide = p.expand((3,))
    close(wide.log_partition, p.log_partition.expand(3))
    close(wide.grandparent_marginals[2], p.grandparent_marginals[0])
    for again in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        close(again.log_partition, p.log_partition)
    assert repr(p) == "SecondOrderTrees(sentences: 1, words: 4, single_root=True, siblings, grandparents)"
    assert torch.equal(p.mode, p.argmax)
    with torch.inference_mode():
        close(make(scores, lengths, True).marginals, p.marginals)


@pytest.mark.parametrize("family", ("siblings", "grandparents", "both"))
def test_opcheck(family: str) -> None:
    scores, lengths = instance(41, family, words=3, batch=2, forbidden=0.0)
    arcs, beside, under = (None if x is None else x.nan_to_num() for x in scores)
    given = arcs, beside, under
    u = [None if x is None else torch.rand_like(x) for x in given]
    wanted = [None if x is None else x.clone().requires_grad_() for x in given]
    calls = {
        "log_partition": (*given, lengths, True),
        "marginals": (*wanted, lengths, True),
        "hvp": (*wanted, lengths, True, *u),
        "third": (*given, lengths, True, *u, *u),
        "argmax": (*given, lengths, True),
        "sample": (*given, lengths, torch.tensor([5]), True, 4),
    }
    for name, args in calls.items():
        torch.library.opcheck(getattr(torch.ops.gpuparse, f"second_order_{name}").default, args)


def test_compiled_loss_is_the_same() -> None:
    scores, lengths = instance(43, "both", words=4, batch=2, forbidden=0.0)
    leaves = [x.nan_to_num().requires_grad_() for x in there(scores)]
    heads = make((leaves[0], leaves[1], leaves[2]), lengths, True).argmax

    def loss(*x: Tensor) -> Tensor:
        trees = make((x[0], x[1], x[2]), lengths, True)
        return (trees.entropy() - trees.log_prob(heads)).sum()

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    for a, b in zip(grad(compiled(*leaves), leaves), grad(loss(*leaves), leaves), strict=True):
        close(a, b)
