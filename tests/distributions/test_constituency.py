"""What is special about binary trees of grammars: ties, sentences that no rules make, rows, brackets, arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.autograd import grad
from torch.distributions import kl_divergence

import gpuparse as gp
from gpuparse.structures.constituents import rules_of, score_of, tags_of, to_brackets
from tests.distributions.families import FAMILIES, plainly, some_grammar
from tests.distributions.numeric import F64, NAN, NEG_INF, close


def test_ties_are_broken_alike() -> None:
    grammar = some_grammar(3, symbols=6, tags=3, rules=20)
    zeros = replace(grammar, scores=torch.zeros(20, dtype=F64), roots=torch.zeros(6, dtype=F64))
    best = gp.ConstituencyTrees(zeros, torch.zeros(2, 5, 3, dtype=F64), [5, 4]).argmax
    with plainly():
        assert torch.equal(gp.ConstituencyTrees(zeros, torch.zeros(2, 5, 3, dtype=F64), [5, 4]).argmax, best)


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


def test_derivatives_by_the_grammar() -> None:
    grammar = some_grammar(2, symbols=6, tags=3, rules=20)
    scores, roots = (x.clone().requires_grad_() for x in (grammar.scores, grammar.roots))
    grammar = replace(grammar, scores=scores, roots=roots)
    p = gp.ConstituencyTrees(grammar, torch.zeros(2, 4, 3, dtype=F64))
    by = grad(p.log_partition.sum(), (scores, roots))
    close(by[0], p.rule_marginals.sum(0))
    close(by[1], p.root_marginals.sum(0))
    close(p.rule_marginals.sum(1), torch.full((2,), 3.0))
    close(p.root_marginals.sum(1), torch.ones(2))


def test_kl_without_rules_and_spans() -> None:
    """Where only one of two has its own, the other's are the grammar's, or 0."""
    family = FAMILIES["phrases, spans"]
    scores, lengths = family.scores(7, forbidden=0.0, poison=False)
    p = family.make(scores, lengths)
    q = gp.ConstituencyTrees(replace(p.grammar, roots=scores["roots"]), 0.5 * scores["tags"], lengths)
    other = {**scores, "tags": 0.5 * scores["tags"], "rules": p.grammar.scores.expand(3, -1)}
    same = family.make({**other, "spans": torch.zeros_like(scores["spans"])}, lengths)
    close(kl_divergence(p, q), kl_divergence(p, same))
    strangers = gp.ConstituencyTrees(some_grammar(8), scores["tags"], lengths)
    with pytest.raises(ValueError, match="grammar of p and q must have the same rules"):
        kl_divergence(p, strangers)


def test_forty_words() -> None:
    """They need no wider numbers than doubles have."""
    grammar, tags = some_grammar(1, symbols=6, tags=3, rules=20), torch.zeros(1, 40, 3, dtype=F64)
    low, free = (gp.ConstituencyTrees(grammar, tags, rules=torch.full((20,), x, dtype=F64)) for x in (-700.0, 0.0))
    close(low.log_partition, free.log_partition - 700.0 * 39, 1e-12)


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
    grammar = some_grammar(9, symbols=6, tags=3, rules=20)
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
    grammar = some_grammar(1, symbols=6, tags=3, rules=20)
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
