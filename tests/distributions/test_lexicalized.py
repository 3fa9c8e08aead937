"""What is special about lexicalised trees: their heads, rows that are not a tree, sizes, and wrong arguments."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.distributions import kl_divergence

import gpuparse as gp
from gpuparse.structures.trees import is_tree
from tests.distributions.families import Enumerated, enumerate_all, leaves_of, phrases, some_grammar
from tests.distributions.numeric import F64, NEG_INF, close, normal

LENGTHS = torch.tensor([4, 2, 3])


def some(seed: int = 0) -> tuple[gp.Grammar, Tensor, Tensor, Tensor]:
    """A grammar, tags, arcs and lengths."""
    grammar = some_grammar(seed, rules=32, heads=True)
    return grammar, normal(3, 4, 2, seed=seed), normal(3, 5, 5, seed=seed + 1), LENGTHS


def listed(p: gp.LexicalizedTrees) -> list[Enumerated]:
    family = phrases(gp.LexicalizedTrees, p.grammar, "arcs", "rules")
    scores = {"tags": p.tags, "arcs": p.arcs, "rules": p.grammar.scores, "roots": p.grammar.roots}
    return enumerate_all(family, scores, p.lengths)


def test_heads_and_tags_of_trees() -> None:
    p = gp.LexicalizedTrees(*some())
    for b, o in enumerate(listed(p)):
        n, trees = int(LENGTHS[b]), p.argmax.repeat(len(o.padded), 1, 1, 1)
        trees[:, b] = o.padded
        arcs = torch.zeros(len(trees), n + 1, dtype=torch.int64)
        for row, pairs in zip(arcs, o.parts["arcs"].tolist(), strict=True):
            for h, m in pairs:
                row[m] = h
        assert torch.equal(p.heads_of(trees)[:, b, 1 : n + 1], arcs[:, 1:])
        assert bool(is_tree(p.heads_of(trees), LENGTHS, projective=True, single_root=True).all())
        assert bool((p.heads_of(trees)[:, b, n + 1 :] == -1).all()) and bool((p.heads_of(trees)[:, b, 0] == -1).all())
        assert torch.equal(p.tags_of(trees)[:, b, :n], o.parts["tags"][..., 1])
        assert bool((p.tags_of(trees)[:, b, n:] == -1).all())
        assert torch.equal(p.log_prob(trees.flip(-2)), p.log_prob(trees))  # rows in any order
    close(p.arc_marginals.sum((1, 2)), LENGTHS)
    close(p.rule_marginals.sum(1), LENGTHS - 1)
    nothing = torch.full_like(p.argmax, -1)
    assert bool((p.heads_of(nothing) == -1).all()) and bool((p.tags_of(nothing) == -1).all())


def test_roots_are_taken_in_the_dtype_of_the_scores() -> None:
    g, *scores = some(3)
    expected = gp.LexicalizedTrees(g, *scores).log_partition
    found = gp.LexicalizedTrees(g.to(torch.float32), *scores, rules=g.scores).log_partition
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_a_grammar_without_rules() -> None:
    """It has trees of one word alone."""
    nothing = torch.zeros(0, dtype=torch.int64)
    g = gp.Grammar(("x", "y"), 2, nothing, nothing, nothing, nothing, torch.zeros(0, dtype=F64), normal(2, seed=0))
    tags, arcs = normal(2, 3, 2, seed=1), normal(2, 4, 4, seed=2)
    p = gp.LexicalizedTrees(g, tags, arcs, [1, 3])
    close(p.log_partition[0], (tags[0, 0] + g.roots).logsumexp(0) + arcs[0, 0, 1])
    assert float(p.log_partition[1]) == float(p.log_prob(p.argmax)[1]) == float(p.max[1]) == NEG_INF
    assert bool((p.sample((2,))[:, 1] == -1).all()) and bool((p.argmax[1] == -1).all()) and float(p.entropy()[1]) == 0
    assert p.rule_marginals.shape == (2, 0)


def test_more_than_64_words() -> None:
    """Bits of spans in several words of memory; a chain to the right is the only tree."""
    names, one = ("x", "A"), torch.tensor([1, 1])
    pair = gp.Grammar(
        names, 1, one, torch.tensor([0, 0]), torch.tensor([0, 1]), torch.tensor([0, 1]), *torch.zeros(2, 2, dtype=F64)
    )
    n = 70
    arcs = normal(1, n + 1, n + 1, seed=1)
    p = gp.LexicalizedTrees(pair, torch.zeros(1, n, 1, dtype=F64), arcs)
    heads = torch.full((n + 1,), n - 1)
    heads[0], heads[n - 1] = -1, 0
    assert torch.equal(p.heads_of(p.argmax)[0], heads)
    close(p.log_partition, p.max)
    close(p.arc_marginals[0].argmax(0)[1:], heads[1:])


def test_rows_that_are_no_tree() -> None:
    p = gp.LexicalizedTrees(*(x[:1] if isinstance(x, Tensor) else x for x in some(6)))
    tree = p.argmax
    wrong = [torch.full_like(tree, -1), torch.zeros_like(tree), tree.roll(1, -1)]
    for row in range(7):
        for column in range(5):
            for step in (-1, 1):
                other = tree.clone()
                other[0, row, column] += step
                wrong.append(other)
    found = p.log_prob(torch.stack(wrong))
    (o,) = listed(p)
    for rows, value in zip(wrong, found, strict=True):
        same = (o.padded == rows[0]).flatten(1).all(1)
        expected = (o.scores - o.log_partition)[same]
        close(value[0], expected[0] if len(expected) else torch.tensor(NEG_INF))


def test_errors() -> None:
    g, tags, arcs, lengths = some()
    one = torch.tensor([2, 2])
    zeros = torch.zeros_like(one)
    twice = gp.Grammar(g.symbols, 2, one, zeros, zeros, zeros, g.scores[:2], g.roots)
    wrong: tuple[tuple[str, tuple[object, ...], dict[str, object]], ...] = (
        (r"grammar must be a gpuparse\.Grammar, got str", ("x", tags, arcs), {}),
        (r"tags must have shape \[B, n, T\].*T = 2", (g, tags[..., :1], arcs), {}),
        (r"arcs must have shape", (g, tags, arcs[:, 1:]), {}),
        (r"arcs must have the dtype", (g, tags, arcs.float()), {}),
        (r"grammar\.scores must have the dtype.*grammar\.to", (g, tags.float(), arcs.float()), {}),
        (r"rules must have shape \[R\] = \[32\]", (g, tags, arcs, lengths), {"rules": g.scores[1:]}),
        (r"lengths\[1\] is 5", (g, tags, arcs, [4, 5, 1]), {}),
        (
            r"grammar must have every rule once, got x2 -> x0 x0 with the head on the left twice",
            (twice, tags, arcs),
            {},
        ),
    )
    for message, args, options in wrong:
        with pytest.raises(ValueError, match=f"^{message}"):
            gp.LexicalizedTrees(*args, **({"lengths": lengths} if len(args) < 4 else {}), **options)  # type: ignore[arg-type]


def test_what_is_kept_of_a_grammar() -> None:
    """Tables made of its rules: not for one that only shares tensors with it, nor only in inference mode."""
    g, tags, arcs, lengths = some(3)
    p = gp.LexicalizedTrees(g, tags, arcs, lengths)
    assert repr(p) == "LexicalizedTrees(sentences: 3, words: 4, Grammar(symbols: 4, tags: 2, rules: 32))"
    mirrored = gp.LexicalizedTrees(replace(g, heads=1 - g.heads), tags, arcs, lengths)
    close(mirrored.log_partition, torch.stack([o.log_partition for o in listed(mirrored)]))
    other = replace(g, heads=g.heads.clone())
    with torch.inference_mode():
        assert torch.equal(gp.LexicalizedTrees(other, tags, arcs, lengths).argmax, p.argmax)
    leaves = leaves_of({"tags": tags})
    gp.LexicalizedTrees(other, leaves["tags"], arcs, lengths).log_partition.sum().backward()
    assert torch.equal(leaves["tags"].grad, p.tag_marginals)  # type: ignore[arg-type]


def test_kl_of_other_grammars() -> None:
    grammar, tags, arcs, lengths = some()
    p = gp.LexicalizedTrees(grammar, tags, arcs, lengths)
    fewer = gp.LexicalizedTrees(some_grammar(0, rules=31, heads=True), tags, arcs, lengths)
    others = gp.LexicalizedTrees(some_grammar(1, rules=32, heads=True), tags, arcs, lengths)
    for q, text in ((fewer, "over the same trees"), (others, "the same rules in the same order")):
        for x, y in ((p, q), (q, p)):
            with pytest.raises(ValueError, match=text):
                kl_divergence(x, y)
