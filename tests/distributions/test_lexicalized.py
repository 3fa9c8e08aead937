"""Lexicalised trees: against all trees of small grammars, plain torch, and finite differences."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck

import gpuparse as gp
from gpuparse.distributions.lexicalized import _rules_of
from gpuparse.ops import lexical as ops
from gpuparse.ops.lexical import LEXICAL
from gpuparse.plain import lexical as plain
from gpuparse.trees import is_tree
from tests.distributions.families import F32, F64, NAN, NEG_INF, close

DTYPES = pytest.mark.parametrize("dtype", (F64, F32), ids=("float64", "float32"))
Row = tuple[int, int, int, int, int]


def grammar(seed: int, *, tags: int = 2, symbols: int = 4, rules: int = 12, dtype: torch.dtype = F64) -> gp.Grammar:
    """Random rules, each once, some of them forbidden, and one symbol that may not be a root."""
    g = torch.Generator().manual_seed(seed)
    codes = torch.randperm((symbols - tags) * symbols * symbols * 2, generator=g)[:rules]
    parents, rest = tags + codes % (symbols - tags), codes // (symbols - tags)
    scores, roots = torch.randn(len(codes), generator=g, dtype=dtype), torch.randn(symbols, generator=g, dtype=dtype)
    scores[torch.rand(len(codes), generator=g) < 0.1] = NEG_INF
    roots[tags] = NEG_INF
    names = tuple(f"s{k}" for k in range(symbols))
    sides = rest // symbols // symbols
    return gp.Grammar(names, tags, parents, rest % symbols, rest // symbols % symbols, sides, scores, roots)


def scores_for(
    g: gp.Grammar, seed: int, lengths: list[int], *, forbidden: float = 0.1, magnitude: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """tags and arcs of a ragged batch; what is never read is NaN."""
    r = torch.Generator().manual_seed(seed)
    B, n = len(lengths), max(lengths)
    tags = magnitude * torch.randn(B, n, g.tags, generator=r, dtype=F64)
    arcs = magnitude * torch.randn(B, n + 1, n + 1, generator=r, dtype=F64)
    for x in (tags, arcs):
        x[torch.rand(x.shape, generator=r) < forbidden] = NEG_INF
    scores = (tags, arcs, g.scores[None], g.roots)
    given = torch.tensor(lengths)
    read = plain.masks(scores, given)
    tags, arcs = (torch.where(mask, x, NAN).to(g.scores.dtype) for x, mask in zip((tags, arcs), read, strict=False))
    return tags, arcs, given


class Enumerated:
    """All trees of one sentence, put together from the bottom up, and their scores in float64."""

    def __init__(self, g: gp.Grammar, tags: Tensor, arcs: Tensor, rules: Tensor, n: int) -> None:
        each = list(zip(*(x.tolist() for x in (g.parents, g.lefts, g.rights, g.heads)), strict=True))
        # of a span: (symbol, head), rows, arcs and rules
        found: dict[tuple[int, int], list[tuple[int, int, list[Row], list[tuple[int, int]], list[int]]]] = {}
        for i in range(n):
            found[i, i] = [(t, i + 1, [(i, i, t, -1, i + 1)], [], []) for t in range(g.tags)]
        for d in range(1, n):
            for i in range(n - d):
                here = found[i, i + d] = []
                for j in range(i, i + d):
                    for left in found[i, j]:
                        for right in found[j + 1, i + d]:
                            for r, (A, B, C, side) in enumerate(each):
                                if (left[0], right[0]) != (B, C):
                                    continue
                                h, m = (left[1], right[1]) if side == 0 else (right[1], left[1])
                                rows = [(i, i + d, A, j, h), *left[2], *right[2]]
                                here.append((A, h, rows, [(h, m), *left[3], *right[3]], [r, *left[4], *right[4]]))
        whole = found[0, n - 1]
        S, R = len(g.symbols), len(each)
        K = len(whole)
        self.trees = torch.tensor([t[2] for t in whole], dtype=torch.int64).reshape(K, 2 * n - 1, 5)
        self.heads = torch.full((K, n + 1), -1)
        counts = [torch.zeros(K, *shape, dtype=F64) for shape in ((n, g.tags), (n + 1, n + 1), (R,), (S,))]
        for k, (A, h, rows, pairs, used) in enumerate(whole):
            for a, b in ((0, h), *pairs):
                counts[1][k, a, b] += 1
                self.heads[k, b] = a
            for r in used:
                counts[2][k, r] += 1
            counts[3][k, A] += 1
            for i, j, t, _, _ in rows:
                if i == j:
                    counts[0][k, i, t] += 1
        values = (tags[:n], arcs[: n + 1, : n + 1], rules, g.roots)
        self.scores = torch.zeros(K, dtype=F64)
        for c, x in zip(counts, values, strict=True):
            self.scores += torch.where(c > 0, c * x.detach().double(), 0.0).flatten(1).sum(1)
        self.log_partition = self.scores.logsumexp(0) if K else torch.tensor(NEG_INF, dtype=F64)
        some = float(self.log_partition) > NEG_INF
        self.probs = (self.scores - self.log_partition).exp() if some else torch.zeros(K, dtype=F64)
        self.expected = [torch.einsum("k,k...->...", self.probs, c) for c in counts]


def sentences(p: gp.LexicalizedTrees) -> list[Enumerated]:
    rules = p.scores[2].expand(len(p.lengths), -1)
    return [Enumerated(p.grammar, p.tags[b], p.arcs[b], rules[b], n) for b, n in enumerate(p.lengths.tolist())]


def check(p: gp.LexicalizedTrees, tolerance: float) -> None:
    expected = p.tag_marginals, p.arc_marginals, p.rule_marginals, p.root_marginals
    entropy, best, heads, tags = p.entropy(), p.argmax, p.heads_of(p.argmax), p.tags_of(p.argmax)
    assert {x.dtype for x in (*expected, entropy, p.log_partition, p.max)} == {p.tags.dtype}
    for b, want in enumerate(sentences(p)):
        n = int(p.lengths[b])
        close(p.log_partition[b], want.log_partition, tolerance)
        for found, wanted in zip(expected, want.expected, strict=True):
            inner = found[(b, *map(slice, wanted.shape))]
            close(inner, wanted, tolerance)
            assert found[b].count_nonzero() == inner.count_nonzero() and bool((found >= 0).all())
        if float(want.log_partition) == NEG_INF:
            assert bool((best[b] == -1).all()) and bool(p.max[b] == NEG_INF) and bool(entropy[b] == 0)
            assert bool((heads[b] == -1).all()) and bool((tags[b] == -1).all())
            continue
        close(p.max[b], want.scores.max(), tolerance)
        chosen = (want.trees == best[b, : 2 * n - 1]).flatten(1).all(1).nonzero()
        assert len(chosen) == 1 and bool((best[b, 2 * n - 1 :] == -1).all())
        close(want.scores[int(chosen[0])], want.scores.max(), tolerance)
        assert torch.equal(heads[b, : n + 1], want.heads[int(chosen[0])]) and bool((heads[b, n + 1 :] == -1).all())
        leaves = best[b][best[b, :, 3] == -1]
        assert torch.equal(tags[b, :n], leaves[leaves[:, 0] >= 0, 2]) and bool((tags[b, n:] == -1).all())
        close(entropy[b], -torch.special.xlogy(want.probs, want.probs).sum(), tolerance)
        trees = torch.full((len(want.trees), *best.shape), -1)
        trees[:, b, : 2 * n - 1] = want.trees
        scale = max(1.0, float(want.scores[want.scores > NEG_INF].abs().max()))
        close(p.log_prob(trees)[:, b], want.scores - want.log_partition, tolerance * scale)
        assert torch.equal(p.log_prob(trees.flip(-2)), p.log_prob(trees))  # rows in any order


@DTYPES
@pytest.mark.parametrize("magnitude", (1.0, 30.0, 1000.0))
def test_against_enumeration(dtype: torch.dtype, magnitude: float) -> None:
    tolerance = 1e-9 if dtype == F64 else 2e-6  # float32: half an ulp is 6e-8 of scores that were rounded before
    for seed, lengths in enumerate(([4, 1, 3], [2], [1, 2], [4, 4], [3, 2, 4])):
        g = grammar(seed, dtype=dtype)
        tags, arcs, given = scores_for(g, seed, lengths, magnitude=magnitude)
        check(gp.LexicalizedTrees(g, tags, arcs, given), tolerance)


def test_five_words_and_other_grammars() -> None:
    for seed, (tags, symbols, rules) in enumerate(((1, 2, 8), (1, 3, 8), (2, 3, 9), (3, 7, 14))):
        g = grammar(10 + seed, tags=tags, symbols=symbols, rules=rules)
        check(gp.LexicalizedTrees(g, *scores_for(g, seed, [5, 4, 2])), 1e-9)


def test_roots_are_taken_in_the_dtype_of_the_scores() -> None:
    g = grammar(3)
    tags, arcs, lengths = scores_for(g, 3, [4, 2])
    expected = gp.LexicalizedTrees(g, tags, arcs, lengths).log_partition
    found = gp.LexicalizedTrees(g.to(torch.float32), tags, arcs, lengths, rules=g.scores).log_partition
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_rules_of_each_sentence() -> None:
    g = grammar(3)
    tags, arcs, lengths = scores_for(g, 4, [4, 2, 3])
    rules = torch.randn(3, 12, dtype=F64, generator=torch.Generator().manual_seed(0))
    p = gp.LexicalizedTrees(g, tags, arcs, lengths, rules=rules)
    check(p, 1e-9)
    q = gp.LexicalizedTrees(g, tags[:1], arcs[:1], lengths[:1], rules=rules[0])
    close(p.log_partition[:1], q.log_partition)
    assert torch.equal(p.argmax[0], q.argmax[0])


def test_no_tree() -> None:
    """A grammar without rules has trees of one word alone, and a word may have no tag."""
    nothing = torch.zeros(0, dtype=torch.int64)
    roots = torch.zeros(2, dtype=F64)
    g = gp.Grammar(("x", "y"), 2, nothing, nothing, nothing, nothing, torch.zeros(0, dtype=F64), roots)
    tags, arcs, lengths = scores_for(g, 0, [1, 3], forbidden=0.0)
    p = gp.LexicalizedTrees(g, tags, arcs, lengths)
    check(p, 1e-9)
    assert float(p.log_partition[1]) == NEG_INF and float(p.log_prob(p.argmax)[1]) == NEG_INF
    assert bool((p.sample((2,))[:, 1] == -1).all())
    g = grammar(0)
    tags, arcs, lengths = scores_for(g, 0, [4, 4], forbidden=0.0)
    tags[0, 2] = NEG_INF
    leaves = [x.requires_grad_() for x in (tags, arcs)]
    p = gp.LexicalizedTrees(g, tags, arcs, lengths)
    check(p, 1e-9)
    (p.log_partition[1] + p.entropy().sum() + p.log_prob(p.argmax)[1]).backward()
    for x in leaves:
        assert x.grad is not None and not bool(x.grad[0].any()) and bool(x.grad.isfinite().all())


@pytest.mark.parametrize("magnitude", (1.0, 300.0))
def test_longer_sentences_against_plain_torch(magnitude: float) -> None:
    """With the magnitude of 300 the numbers with an exponent are needed."""
    g = grammar(7, tags=4, symbols=10, rules=80)
    tags, arcs, lengths = scores_for(g, 2, [12, 9, 2], magnitude=magnitude)
    p = gp.LexicalizedTrees(g, tags, arcs, lengths)
    rules = _rules_of(g)
    close(p.log_partition, plain.log_partition(p.scores, rules, lengths), 1e-12)
    found = p.tag_marginals, p.arc_marginals, p.rule_marginals, p.root_marginals
    for x, y in zip(found, LEXICAL.derivative(p.scores, (rules.table, lengths)), strict=True):
        close(x, y, 1e-9)
    close(p.max, p.score(plain.argmax(p.scores, rules, lengths)), 1e-12)
    assert bool(is_tree(p.heads_of(p.argmax), lengths, projective=True, single_root=True).all())
    close(p.arc_marginals.sum((1, 2)), lengths)
    close(p.rule_marginals.sum(1), lengths - 1)


def test_more_than_64_words() -> None:
    """Bits of spans in several words of memory; a chain to the right is the only tree."""
    names, one = ("x", "A"), torch.tensor([1, 1])
    pair = gp.Grammar(
        names, 1, one, torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([0, 1]), *torch.zeros(2, 2, dtype=F64)
    )
    n = 70
    arcs = torch.randn(1, n + 1, n + 1, dtype=F64, generator=torch.Generator().manual_seed(1))
    p = gp.LexicalizedTrees(pair, torch.zeros(1, n, 1, dtype=F64), arcs)
    heads = torch.full((n + 1,), n - 1)
    heads[0], heads[n - 1] = -1, 0
    assert torch.equal(p.heads_of(p.argmax)[0], heads)
    close(p.log_partition, p.max)
    close(p.arc_marginals[0].argmax(0)[1:], heads[1:])


def test_samples() -> None:
    torch.manual_seed(0)
    num = 1500
    for magnitude in (1.0, 400.0):
        g = grammar(2)
        p = gp.LexicalizedTrees(g, *scores_for(g, 6, [3, 4, 1], magnitude=magnitude))
        for trees in (p.sample((num // 2, 2)).flatten(0, 1), plain.sample(p.scores, _rules_of(g), p.lengths, num)):
            for b, want in enumerate(sentences(p)):
                n = int(p.lengths[b])
                if float(want.log_partition) == NEG_INF:
                    assert bool((trees[:, b] == -1).all())
                    continue
                same = (trees[:, b, None, : 2 * n - 1] == want.trees).flatten(2).all(2)
                assert bool((same.sum(1) == 1).all()) and not bool(same[:, want.probs == 0].any())
                seen = same.double().mean(0)
                assert bool(((seen - want.probs).abs() <= 5 * (want.probs / num).sqrt() + 5 / num).all())
    torch.manual_seed(5)
    first = p.sample((3,))
    torch.manual_seed(5)
    assert torch.equal(first, p.sample((3,)))


@pytest.mark.parametrize("shared", (True, False), ids=("shared", "own"))
def test_gradients(shared: bool) -> None:
    """First and second derivatives by finite differences, in all scores; what is forbidden is left alone."""
    g = grammar(1, rules=20)
    tags, arcs, lengths = scores_for(g, 5, [3, 2])
    rules = g.scores if shared else g.scores + torch.randn(2, 20, dtype=F64, generator=torch.Generator().manual_seed(0))
    given = [tags, arcs, rules, g.roots]
    free = [x.isfinite() for x in given]
    leaves = tuple(x[f].requires_grad_() for x, f in zip(given, free, strict=True))

    def build(*values: Tensor) -> gp.LexicalizedTrees:
        a, b, c, d = (x.masked_scatter(f, v) for x, f, v in zip(given, free, values, strict=True))
        return gp.LexicalizedTrees(replace(g, roots=d), a, b, lengths, rules=c, validate_args=False)

    def all_marginals(*values: Tensor) -> Tensor:
        p = build(*values)
        parts = p.tag_marginals, p.arc_marginals, p.rule_marginals, p.root_marginals
        return torch.cat([x.square().flatten() for x in parts])

    assert gradcheck(lambda *x: build(*x).log_partition, leaves)
    for value in (lambda *x: build(*x).entropy(), all_marginals):
        assert gradcheck(value, leaves, fast_mode=True)
    assert gradgradcheck(lambda *x: build(*x).log_partition, leaves, fast_mode=True)
    assert gradgradcheck(lambda *x: build(*x).entropy(), leaves, fast_mode=True)
    p = build(*leaves)
    assert bool(p.log_partition.isfinite().all())
    assert gradcheck(lambda *x: build(*x).log_prob(p.argmax), leaves)


def test_the_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "takes_kernels", lambda *_: False)
    g = grammar(3)
    tags, arcs, lengths = scores_for(g, 4, [4, 2, 3])
    check(gp.LexicalizedTrees(g, tags, arcs, lengths), 1e-9)
    p = gp.LexicalizedTrees(g, tags, arcs, lengths)
    assert torch.equal(p.log_prob(p.sample((20,))) > NEG_INF, (p.log_partition > NEG_INF).expand(20, 3))
    tags[1, 0, 0] = NAN
    p = gp.LexicalizedTrees(g, tags, arcs, lengths, validate_args=False)
    assert p.log_partition.isnan().tolist() == p.rule_marginals.isnan().any(1).tolist() == [False, True, False]
    assert bool((p.argmax[1] == -1).all()) and bool((p.sample((2,))[:, 1] == -1).all())


def test_nothing_is_looked_at() -> None:
    """Fake tensors have no values: whoever reads one, or lets a shape depend on it, fails."""
    with FakeTensorMode():
        B, n, T, S, R = 3, 5, 2, 6, 9
        shapes = (B, n, T), (B, n + 1, n + 1), (1, R), (S,)
        tags, arcs, by_rule, roots = (torch.empty(shape, requires_grad=True) for shape in shapes)
        lengths = torch.empty(B, dtype=torch.int64)
        rules = plain.Rules.from_table(torch.empty(3 * (S + 1) + 12 * R, dtype=torch.int32), S)
        scores = tags, arcs, by_rule, roots
        log_z, expected = ops.marginals(scores, rules, lengths)
        for x, shape in zip(expected, ((B, n, T), (B, n + 1, n + 1), (B, R), (B, S)), strict=True):
            assert x.shape == shape
        for x, y in zip(torch.autograd.grad(log_z.sum(), scores), scores, strict=True):
            assert x.shape == y.shape
        values = tags.detach(), arcs.detach(), by_rule.detach(), roots.detach()
        assert ops.argmax(values, rules, lengths).shape == (B, 2 * n - 1, 5)
        trees = ops.sample(values, rules, lengths, 4)
        assert trees.shape == (4, B, 2 * n - 1, 5) and plain.tags_of(trees).shape == (4, B, n)
        assert plain.heads_of(trees).shape == (4, B, n + 1)
        assert plain.tree_scores(scores, rules, trees, lengths).shape == (4, B)
        assert plain.log_partition(values, rules, lengths).shape == (B,)


@pytest.mark.parametrize("where", ("tags", "arcs", "rules"))
@pytest.mark.parametrize("value", (NAN, float("inf")))
def test_bad_scores(where: str, value: float) -> None:
    g = grammar(0)
    tags, arcs, lengths = scores_for(g, 0, [3, 4], forbidden=0.0)
    rules = g.scores.repeat(2, 1)
    {"tags": tags, "arcs": arcs[:, 1], "rules": rules}[where][1, 2] = value
    with pytest.raises(ValueError, match=rf"^{where}\[1, .*\] is (nan|inf)"):
        gp.LexicalizedTrees(g, tags, arcs, lengths, rules=rules)
    p = gp.LexicalizedTrees(g, tags, arcs, lengths, rules=rules, validate_args=False)
    for x in (p.log_partition, p.tag_marginals, p.arc_marginals, p.rule_marginals, p.entropy()):
        assert bool(x[1].isnan().all()) and not bool(x[0].isnan().any())
    assert bool((p.argmax[1] == -1).all()) and bool((p.sample((2,))[:, 1] == -1).all())


def test_rows_that_are_no_tree() -> None:
    g = grammar(6, rules=32)
    p = gp.LexicalizedTrees(g, *scores_for(g, 6, [4], forbidden=0.0))
    tree = p.argmax
    assert bool((p.log_prob(tree) > NEG_INF).all())
    wrong = []
    for row in range(7):
        for column in range(5):
            for step in (-1, 1):
                other = tree.clone()
                other[0, row, column] += step
                wrong.append(other)
    wrong += [torch.full_like(tree, -1), torch.zeros_like(tree), tree.roll(1, -1)]
    found = p.log_prob(torch.stack(wrong))
    (want,) = sentences(p)
    for rows, value in zip(wrong, found, strict=True):
        same = (want.trees == rows[0]).flatten(1).all(1)
        expected = (want.scores - want.log_partition)[same]
        close(value[0], expected[0] if len(expected) else torch.tensor(NEG_INF))


def test_errors() -> None:
    g = grammar(0)
    tags, arcs, lengths = scores_for(g, 0, [3, 4])
    one = torch.tensor([2, 2])
    zeros = torch.zeros_like(one)
    twice = gp.Grammar(g.symbols, 2, one, zeros, zeros, zeros, g.scores[:2], g.roots)
    wrong: tuple[tuple[str, tuple[object, ...], dict[str, object]], ...] = (
        (r"grammar must be a gpuparse\.Grammar, got str", ("x", tags, arcs), {}),
        (r"tags must have shape \[B, n, T\].*T = 2", (g, tags[..., :1], arcs), {}),
        (r"arcs must have shape", (g, tags, arcs[:, 1:]), {}),
        (r"arcs must have the dtype", (g, tags, arcs.float()), {}),
        (r"grammar\.scores must have the dtype.*grammar\.to", (g, tags.float(), arcs.float()), {}),
        (r"rules must have shape \[R\] = \[12\]", (g, tags, arcs, lengths), {"rules": g.scores[1:]}),
        (r"lengths\[1\] is 5", (g, tags, arcs, [3, 5]), {}),
        (
            r"grammar must have every rule once, got s2 -> s0 s0 with the head on the left twice",
            (twice, tags, arcs),
            {},
        ),
    )
    for message, args, options in wrong:
        with pytest.raises(ValueError, match=f"^{message}"):
            gp.LexicalizedTrees(*args, **({"lengths": lengths} if len(args) < 4 else {}), **options)  # type: ignore[arg-type]
    p = gp.LexicalizedTrees(g, tags, arcs, lengths)
    with pytest.raises(ValueError, match=r"^trees must have shape"):
        p.log_prob(p.argmax[:, 1:])
    with pytest.raises(ValueError, match=r"^trees must be an integer tensor"):
        p.log_prob(p.argmax.double())


def test_copies_and_views() -> None:
    g = grammar(3)
    tags, arcs, lengths = scores_for(g, 4, [4, 2, 3])
    p = gp.LexicalizedTrees(g, tags, arcs, lengths)
    assert repr(p) == "LexicalizedTrees(sentences: 3, words: 4, Grammar(symbols: 4, tags: 2, rules: 12))"
    for q in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert torch.equal(q.log_partition, p.log_partition) and torch.equal(q.argmax, p.argmax)
    one = gp.LexicalizedTrees(g, tags[:1], arcs[:1], lengths[:1]).expand((3,))
    close(one.log_partition, p.log_partition[:1].expand(3))
    strided = gp.LexicalizedTrees(
        g, tags.transpose(0, 1).contiguous().transpose(0, 1), arcs.mT.contiguous().mT, lengths
    )
    assert torch.equal(strided.log_partition, p.log_partition)
    assert torch.equal(p.mode, p.argmax) and p.event_shape == p.argmax.shape[1:] and p.batch_shape == (3,)
    mirrored = gp.LexicalizedTrees(replace(g, heads=1 - g.heads), tags, arcs, lengths)  # shares the other tensors
    assert float(mirrored.log_partition[0]) > NEG_INF
    close(mirrored.log_partition[0], sentences(mirrored)[0].log_partition)
    other = grammar(3)
    with torch.inference_mode():
        assert torch.equal(gp.LexicalizedTrees(other, tags, arcs, lengths).argmax, p.argmax)
    leaf = tags.clone().requires_grad_()
    gp.LexicalizedTrees(other, leaf, arcs, lengths).log_partition[0].backward()
    assert torch.equal(leaf.grad[0], p.tag_marginals[0])  # type: ignore[index]
    with torch.inference_mode():
        assert torch.equal(gp.LexicalizedTrees(g, tags, arcs, lengths).entropy(), p.entropy())
    empty = gp.LexicalizedTrees(g, tags[:0], arcs[:0])
    assert (
        empty.log_partition.shape == (0,)
        and empty.argmax.shape == (0, 7, 5)
        and empty.sample((2,)).shape == (2, 0, 7, 5)
    )
