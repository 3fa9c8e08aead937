"""Binary trees of grammars: against all trees of small grammars, plain torch, and finite differences."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import kl_divergence

import gpuparse as gp
from gpuparse.constituents import is_tree, rules_of, score_of, tags_of, to_brackets
from gpuparse.ops import cky as ops
from gpuparse.plain import cky as plain
from tests.distributions.families import F32, F64, NAN, NEG_INF, close

Row = tuple[int, int, int, int]


def some_grammar(seed: int, *, symbols: int = 6, tags: int = 3, rules: int = 20, magnitude: float = 1.0) -> gp.Grammar:
    """Random rules, among them some that make trees of any length; some symbols may not be at the root."""
    g = torch.Generator().manual_seed(seed)
    drawn = {(tags, 0, 0), (tags, 0, tags), (tags, tags, 1)}
    while len(drawn) < rules:
        a = int(torch.randint(tags, symbols, (), generator=g))
        drawn.add((a, *torch.randint(symbols, (2,), generator=g).tolist()))
    parents, lefts, rights = torch.tensor(sorted(drawn))[torch.randperm(rules, generator=g)].T.contiguous()
    roots = magnitude * torch.randn(symbols, generator=g, dtype=F64)
    roots[tags + 1 :: 2] = NEG_INF
    return gp.Grammar(
        tuple(f"x{s}" for s in range(symbols)),
        tags,
        parents,
        lefts,
        rights,
        torch.zeros_like(parents),
        magnitude * torch.randn(rules, generator=g, dtype=F64),
        roots,
    )


def instance(
    seed: int, grammar: gp.Grammar, *, words: int = 5, forbidden: float = 0.15, magnitude: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """tags, rules, spans and lengths of a ragged batch; what is never read is NaN."""
    g = torch.Generator().manual_seed(100 + seed)
    B, T, R, S = 3, grammar.tags, len(grammar.parents), len(grammar.symbols)
    lengths = torch.tensor([words, max(1, words - 1), max(1, words - 3)])
    found = []
    for shape in ((B, words, T), (B, R), (B, words, words, S)):
        x = magnitude * torch.randn(shape, generator=g, dtype=F64)
        found.append(x.masked_fill(torch.rand(shape, generator=g) < forbidden, NEG_INF))
    scores = (found[0], found[1], grammar.roots.expand(B, -1), found[2])
    read = plain.masks(scores, lengths)
    tags, rules, _, spans = (torch.where(m, x, NAN) for x, m in zip(scores, read, strict=True) if m is not None)
    return tags, rules, spans, lengths


class Enumerated:
    """The distribution over all trees of one sentence, listed one by one; scores in float64."""

    def __init__(self, grammar: gp.Grammar, tags: Tensor, rules: Tensor, spans: Tensor | None, n: int) -> None:
        self.rules = list(zip(*(x.tolist() for x in (grammar.parents, grammar.lefts, grammar.rights)), strict=True))
        self.known: dict[tuple[int, int, int], list[tuple[list[Row], list[int]]]] = {}
        S, T = len(grammar.symbols), grammar.tags
        self.n, self.T = n, T
        self.trees, rows, scores = [], [], []
        self.marginals = [torch.zeros(tags.shape, dtype=F64), torch.zeros(rules.shape, dtype=F64)]
        self.marginals += [torch.zeros(S, dtype=F64), torch.zeros(*tags.shape[:1], *tags.shape[:1], S, dtype=F64)]
        for root in range(S):
            for tree, used in self.over(root, 0, n - 1):
                total = float(grammar.roots[root]) + sum(float(rules[r]) for r in used)
                for i, j, s, _ in tree:
                    total += float(tags[i, s]) if i == j else 0.0 if spans is None else float(spans[i, j, s])
                self.trees.append(tree)
                rows.append(used)
                scores.append(total)
        self.scores = torch.tensor(scores, dtype=F64)
        possible = bool(scores) and float(self.scores.max()) > NEG_INF
        self.log_partition = self.scores.logsumexp(0) if possible else torch.tensor(NEG_INF, dtype=F64)
        self.probs = (self.scores - self.log_partition).exp() if possible else self.scores * 0
        for tree, used, p in zip(self.trees, rows, self.probs.nan_to_num(0.0).tolist(), strict=True):
            self.marginals[2][tree[0][2]] += p
            for r in used:
                self.marginals[1][r] += p
            for i, j, s, _ in tree:
                (self.marginals[0][i] if i == j else self.marginals[3][i, j])[s] += p

    def over(self, s: int, i: int, j: int) -> list[tuple[list[Row], list[int]]]:
        """All trees of symbol s over words i..j: their rows and rules."""
        if i == j:
            return [([(i, i, s, -1)], [])] if s < self.T else []
        if (s, i, j) not in self.known:
            self.known[s, i, j] = [
                ([(i, j, s, k), *left, *right], [r, *one, *other])
                for r, (a, b, c) in enumerate(self.rules)
                if a == s
                for k in range(i, j)
                for left, one in self.over(b, i, k)
                for right, other in self.over(c, k + 1, j)
            ]
        return self.known[s, i, j]


@pytest.mark.parametrize("dtype", (F64, F32), ids=("float64", "float32"))
def test_kernels_equal_plain_torch(dtype: torch.dtype) -> None:
    """Longer sentences than can be listed, and more symbols than a pack has lanes."""
    grammar = some_grammar(5, symbols=19, tags=9, rules=150).to(dtype)
    some = instance(1, grammar, words=13, forbidden=0.05)
    tags, rules, spans = (x.to(dtype) for x in some[:3])
    lengths, index = some[3], gp.ConstituencyTrees(grammar, tags, some[3])._index
    for scale in (1.0, 200.0):
        for with_spans in (scale * spans, None):
            scores = (scale * tags, scale * rules, grammar.roots.expand(3, -1), with_spans)
            logz, *parts = ops.marginals(scores, index, lengths)
            tolerance = 1e-10 if dtype == F64 else 1e-6
            close(logz, plain.log_partition(scores, index, lengths), tolerance)
            close(ops.log_partition(scores, index, lengths), logz, 1e-12)
            for found, expected in zip(parts, ops.CKY.derivative(scores, (index, lengths)), strict=True):
                assert (found is None) == (expected is None)
                if found is not None and expected is not None:
                    close(found, expected, tolerance)
            assert torch.equal(ops.argmax(scores, index, lengths), plain.argmax(scores, index, lengths))


def test_ties_are_broken_alike() -> None:
    grammar = some_grammar(3)
    tags, lengths = torch.zeros(2, 5, 3, dtype=F64), torch.tensor([5, 4])
    scores = (tags, torch.zeros(2, 20, dtype=F64), torch.zeros(2, 6, dtype=F64), None)
    index = gp.ConstituencyTrees(grammar, tags)._index
    assert torch.equal(ops.argmax(scores, index, lengths), plain.argmax(scores, index, lengths))


def test_no_tree_at_all() -> None:
    """No rule makes three words: nothing is NaN, nothing raises, and neighbours in the batch are as ever."""
    one, zero = torch.tensor([1]), torch.tensor([0])
    score = torch.tensor([-0.5], dtype=F64)
    grammar = gp.Grammar(("t", "A"), 1, one, zero, zero, zero, score, torch.zeros(2, dtype=F64))
    tags = torch.ones(3, 3, 1, dtype=F64).requires_grad_()
    p = gp.ConstituencyTrees(grammar, tags, [3, 2, 1])
    assert p.log_partition.tolist() == [NEG_INF, pytest.approx(1.5, rel=1e-15), 1.0]
    assert bool((p.argmax[0] == -1).all()) and bool((p.sample((4,))[:, 0] == -1).all())
    assert p.max.tolist() == [NEG_INF, 1.5, 1.0]
    assert p.log_prob(p.argmax).tolist() == [NEG_INF, pytest.approx(0.0, abs=1e-15), 0.0]
    (g,) = grad(p.log_partition.sum(), tags)
    close(g[..., 0], torch.tensor([[0, 0, 0], [1, 1, 0], [1, 0, 0]]), 1e-15)
    assert p.argmax[2].tolist() == [[0, 0, 0, -1]] + [[-1] * 4] * 4


def test_unchecked_bad_scores_are_poison() -> None:
    grammar = some_grammar(1)
    tags, rules, spans, lengths = instance(4, grammar, forbidden=0.0)
    tags[0, 1, 1] = NAN
    spans[1, 0, 1, 5] = torch.inf
    with pytest.raises(ValueError, match=r"tags\[0, 1, 1\] is nan \(sentence 0\); scores must be finite"):
        gp.ConstituencyTrees(grammar, tags, lengths)
    with pytest.raises(ValueError, match=r"spans\[0, 0, 1, 5\] is inf \(sentence 0\)"):
        gp.ConstituencyTrees(grammar, tags[1:], lengths[1:], spans=spans[1:])
    p = gp.ConstituencyTrees(grammar, tags, lengths, rules=rules, spans=spans, validate_args=False)
    assert p.log_partition.isnan().tolist() == [True, True, False]
    assert bool(p.tag_marginals[:2].isnan().all()) and not p.tag_marginals[2].isnan().any()
    assert bool((p.argmax[:2] == -1).all()) and bool((p.sample()[:2] == -1).all())


def test_derivatives_by_the_grammar() -> None:
    grammar = some_grammar(2)
    scores, roots = (x.clone().requires_grad_() for x in (grammar.scores, grammar.roots))
    grammar = gp.Grammar(
        grammar.symbols, 3, grammar.parents, grammar.lefts, grammar.rights, grammar.heads, scores, roots
    )
    p = gp.ConstituencyTrees(grammar, torch.zeros(2, 4, 3, dtype=F64))
    by = grad(p.log_partition.sum(), (scores, roots))
    close(by[0], p.rule_marginals.sum(0))
    close(by[1], p.root_marginals.sum(0))
    close(p.rule_marginals.sum(1), torch.full((2,), 3.0))
    close(p.root_marginals.sum(1), torch.ones(2))


def test_samples() -> None:
    """Frequencies among 4000 draws: five standard deviations; in plain torch, too."""
    grammar = some_grammar(6)
    tags, rules, spans, lengths = instance(6, grammar, words=4, forbidden=0.05)
    p = gp.ConstituencyTrees(grammar, tags, lengths, rules=rules, spans=spans)
    torch.manual_seed(0)
    for trees in (p.sample((4000,)), plain.sample(p.scores, p._index, lengths, 4000)):
        assert bool(is_tree(trees, lengths, 3).all()) and bool((p.log_prob(trees) > NEG_INF).all())
        drawn = tags_of(trees)
        share = torch.stack([(drawn == t).double().mean(0) for t in range(3)], -1)
        assert float((share - p.tag_marginals).abs().max()) < 0.04
        used = rules_of(trees, grammar)
        counts = torch.stack([(used == r).double().sum(-1).mean(0) for r in range(len(grammar.parents))], -1)
        assert float((counts - p.rule_marginals).abs().max()) < 0.08
    assert p.sample((2, 3)).shape == (2, 3, 3, 7, 4) and p.sample((0,)).shape == (0, 3, 7, 4)


def test_kl() -> None:
    grammar = some_grammar(7, rules=12)
    tags, rules, spans, lengths = instance(7, grammar, words=4, forbidden=0.0)
    p = gp.ConstituencyTrees(grammar, tags, lengths, rules=rules, spans=spans)
    q = gp.ConstituencyTrees(grammar, 0.5 * tags, lengths)
    found = kl_divergence(p, q)
    for b, n in enumerate(lengths.tolist()):
        a = Enumerated(grammar, tags[b], rules[b], spans[b], n)
        c = Enumerated(grammar, 0.5 * tags[b], grammar.scores, None, n)
        close(found[b], torch.where(a.probs > 0, a.probs * (a.probs / c.probs).log(), 0.0).sum())
    barred = rules.clone()
    barred[1, p.rule_marginals[1].argmax()] = NEG_INF
    r = gp.ConstituencyTrees(grammar, tags, lengths, rules=barred, spans=spans)
    assert kl_divergence(p, r).isinf().tolist() == [False, True, False]
    close(kl_divergence(p, p), torch.zeros(3))
    with pytest.raises(ValueError, match="grammar of p and q must have the same rules"):
        kl_divergence(p, gp.ConstituencyTrees(some_grammar(8, rules=12), tags, lengths))


def test_large_scores_and_their_range() -> None:
    """Constants that all trees have in common change nothing; forty words need no wider numbers than doubles have."""
    grammar = some_grammar(1)
    tags, rules, _, lengths = instance(1, grammar, forbidden=0.0)
    p = gp.ConstituencyTrees(grammar, tags, lengths, rules=rules)
    q = gp.ConstituencyTrees(grammar, tags + 1e6, lengths, rules=rules - 1e5)
    close(q.tag_marginals, p.tag_marginals, 1e-8)
    close(q.entropy(), p.entropy(), 1e-8)
    close(q.log_partition, p.log_partition + 1e6 * lengths - 1e5 * (lengths - 1), 1e-12)
    long = gp.ConstituencyTrees(grammar, torch.zeros(1, 40, 3, dtype=F64), rules=torch.full((20,), -700.0, dtype=F64))
    free = gp.ConstituencyTrees(grammar, torch.zeros(1, 40, 3, dtype=F64), rules=torch.zeros(20, dtype=F64))
    close(long.log_partition, free.log_partition - 700.0 * 39, 1e-12)


def test_trees_and_brackets() -> None:
    symbols = ("D", "N", "V", "NP", "S")
    parents, lefts, rights = torch.tensor([[3, 0, 1], [4, 3, 2]]).T.contiguous()
    scores, roots = torch.tensor([0.5, 0.25]), torch.zeros(5)
    grammar = gp.Grammar(symbols, 3, parents, lefts, rights, torch.zeros(2, dtype=torch.int64), scores, roots)
    tags = torch.eye(3)[None]
    p = gp.ConstituencyTrees(grammar, tags)
    tree = p.argmax[0]
    assert tree.tolist() == [[0, 2, 4, 1], [0, 1, 3, 0], [0, 0, 0, -1], [1, 1, 1, -1], [2, 2, 2, -1]]
    assert to_brackets(tree, grammar, ["the", "dog", "barks"]) == "(S (NP (D the) (N dog)) (V barks))"
    assert to_brackets(tree, grammar) == "(S (NP D N) V)"
    assert to_brackets(torch.full_like(tree, -1), grammar) == ""
    assert tags_of(tree[None]).tolist() == [[0, 1, 2]]
    assert rules_of(tree[None], grammar).tolist() == [[1, 0, -1, -1, -1]]
    assert score_of(tree[None], grammar, tags, p.lengths).tolist() == [3.75]
    assert p.max.tolist() == [3.75] and p.log_partition.tolist() == [3.75]


def test_what_is_no_tree_has_no_probability() -> None:
    grammar = some_grammar(9)
    p = gp.ConstituencyTrees(grammar, torch.zeros(1, 4, 3, dtype=F64))
    tree = p.argmax
    assert float(p.log_prob(tree)) > NEG_INF
    for row in range(7):
        for column in range(4):
            for value in (-1, 0, 1, 2, 3, 4, 9, 10**9):
                other = tree.clone()
                other[0, row, column] = value
                same = torch.equal(other, tree)
                if column != 2 and not same:
                    assert float(p.log_prob(other)) == NEG_INF
    assert float(p.log_prob(torch.full_like(tree, -1))) == NEG_INF


def test_wrong_arguments() -> None:
    grammar = some_grammar(1)
    tags = torch.zeros(2, 4, 3, dtype=F64)
    cases: list[tuple[dict[str, Tensor], str]] = [
        ({"tags": torch.zeros(2, 4, 2)}, r"tags must have shape \[B, n, T\] .* T = 3"),
        ({"tags": torch.zeros(2, 4, 3, dtype=torch.int64)}, "tags must be float32 or float64"),
        ({"rules": torch.zeros(3)}, r"rules must have shape \[20\] or \[2, 20\]"),
        ({"spans": torch.zeros(2, 4, 4, 5)}, r"spans must have shape \[2, 4, 4, 6\]"),
        ({"lengths": torch.tensor([1, 5])}, r"lengths\[1\] is 5"),
        ({"rules": torch.full((20,), NAN)}, "rules.* is nan"),
    ]
    for change, message in cases:
        with pytest.raises(ValueError, match=message):
            gp.ConstituencyTrees(grammar, **{"tags": tags, **change})
    with pytest.raises(ValueError, match=r"trees must have shape \[..., B, 2n - 1, 4\]"):
        gp.ConstituencyTrees(grammar, tags).log_prob(torch.zeros(2, 4, 4, dtype=torch.int64))
    names = {x: getattr(grammar, x)[[0, *range(20)]] for x in ("parents", "lefts", "rights", "heads", "scores")}
    with pytest.raises(ValueError, match="grammar must have a rule once, got x"):
        gp.ConstituencyTrees(gp.Grammar(grammar.symbols, 3, **names, roots=grammar.roots), tags)


def test_the_plain_path_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    grammar = some_grammar(1)
    tags, rules, spans, lengths = instance(1, grammar, forbidden=0.02)
    p = gp.ConstituencyTrees(grammar, tags, lengths, rules=rules, spans=spans)
    values = p.log_partition, p.tag_marginals, p.span_marginals, p.max, p.entropy()
    best = p.argmax
    monkeypatch.setattr(ops, "takes_kernels", lambda *_: False)
    q = gp.ConstituencyTrees(grammar, tags, lengths, rules=rules, spans=spans)
    for found, expected in zip(
        (q.log_partition, q.tag_marginals, q.span_marginals, q.max, q.entropy()), values, strict=True
    ):
        close(found, expected)
    assert torch.equal(q.argmax, best) and q.sample((2,)).shape == (2, 3, 9, 4)
