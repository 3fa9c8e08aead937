"""Parser and tagger, constituents and dependencies, against all structures that agree; the example of Appendix A."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.decoding.dual.branch import TAGS, TREES, Groups, tighten
from gpuparse.decoding.dual.decomposition import DualDecomposition
from gpuparse.decoding.dual.joint import constituents_and_dependencies, parse_and_tag
from tests.decoding.instances import check_sound, normal
from tests.decoding.refusals import refuses
from tests.distributions.families import enumerate_all, phrases, some_grammar

LENGTHS = torch.tensor([4, 3, 1])


def tagging(seed: int, strength: float = 1.0) -> tuple[gp.Grammar, Tensor, Tensor, Tensor]:
    """A grammar of three tags, the parser's and the tagger's scores of tags, and trigrams."""
    g = torch.Generator().manual_seed(seed)
    grammar = some_grammar(seed, symbols=5, tags=3, rules=14)
    tags, unary = (torch.randn(3, 4, 3, generator=g, dtype=torch.float64) for _ in range(2))
    trigrams = strength * torch.randn(3, 3, 3, generator=g, dtype=torch.float64)
    tags[torch.rand(tags.shape, generator=g) < 0.1] = -math.inf
    for b, n in enumerate(LENGTHS.tolist()):
        tags[b, n:] = unary[b, n:] = math.nan
    return grammar, tags, unary, trigrams


def best_tagged(grammar: gp.Grammar, tags: Tensor, unary: Tensor, trigrams: Tensor) -> Tensor:
    scores = {"tags": tags, "rules": grammar.scores, "roots": grammar.roots}
    found = []
    for b, trees in enumerate(enumerate_all(phrases(gp.ConstituencyTrees, grammar, "rules"), scores, LENGTHS)):
        own = trees.parts["tags"][..., 1]
        total = trees.scores + unary[b, torch.arange(own.shape[1]), own].sum(1)
        found.append((total + trigrams[own[:, :-2], own[:, 1:-1], own[:, 2:]].sum(1)).max())
    return torch.stack(found)


def solved(decomposition: DualDecomposition, best: Tensor, groups: Groups) -> int:
    """How many sentences are certified without branching; with it all are that have a structure."""
    found = decomposition.run()
    check_sound(found, best)
    exact, *_ = tighten(decomposition, found, groups)
    assert torch.equal(exact.certified, best > -math.inf)
    torch.testing.assert_close(exact.score, best, rtol=0, atol=1e-7)
    return int(found.certified.sum())


def test_parse_and_tag() -> None:
    certified = possible = 0
    for seed in range(12):
        given = tagging(seed, 2.0)
        expected = best_tagged(*given)
        decomposition = parse_and_tag(*given, LENGTHS, iterations=60)
        certified += solved(decomposition, expected, TAGS)
        possible += int((expected > -math.inf).sum())
    assert certified > 0.7 * possible > 0


def appendix_a() -> tuple[gp.Grammar, Tensor, Tensor, Tensor, Tensor]:
    """Tags A and B, a symbol X, three words; scores of 0 where the paper has them, and -1 elsewhere."""
    rules = {("X", "A", "X"): 0.0, ("X", "A", "B"): 0.0, ("X", "B", "A"): 0.0}
    names = ("A", "B", "X")
    every = [(p, left, r) for p in "X" for left in names for r in names]
    index = {name: k for k, name in enumerate(names)}
    parents, lefts, rights = (torch.tensor([index[rule[k]] for rule in every]) for k in range(3))
    scores = torch.tensor([rules.get(rule, -1.0) for rule in every]).double()
    roots = torch.zeros(3, dtype=torch.float64)
    grammar = gp.Grammar(names, 2, parents, lefts, rights, torch.zeros_like(parents), scores, roots)
    trigrams = torch.full((2, 2, 2), -1.0, dtype=torch.float64)
    trigrams[0, 0, 0] = trigrams[0, 1, 1] = 0.0
    nothing = torch.zeros(1, 3, 2, dtype=torch.float64)
    return grammar, nothing, nothing, trigrams, torch.tensor([3])


def test_appendix_a() -> None:
    """The relaxation has value 0, every structure less; fixing tags comes to the best of them."""
    given = appendix_a()
    decomposition = parse_and_tag(*given, iterations=2000)
    found = decomposition.run()
    assert not bool(found.certified[0])
    assert -1e-9 <= float(found.bound[0]) < 0.01
    assert float(found.score[0]) == -1
    tags = [of_oracle["tags"][0] for of_oracle in found.indicators]  # as the paper has them: A; A or B; A or B
    for own in tags:
        torch.testing.assert_close(own, torch.tensor([[1, 0], [0.5, 0.5], [0.5, 0.5]]).double(), rtol=0, atol=0.1)
    exact, nodes, _ = tighten(decomposition, found, TAGS)
    assert bool(exact.certified[0]) and float(exact.score[0]) == float(exact.bound[0]) == -1
    assert int(nodes[0]) > 0


@pytest.mark.parametrize("parts", [(), ("siblings",), ("grandparents",)], ids=lambda p: "+".join(p) or "arcs")
def test_constituents_and_dependencies(parts: tuple[str, ...]) -> None:
    certified = possible = 0
    for seed in range(6):
        grammar = some_grammar(seed, rules=14, heads=True)
        family = phrases(gp.LexicalizedTrees, grammar, "arcs", "rules")
        given, lengths = family.scores(seed, forbidden=0.2, keep=False)
        grammar = replace(grammar, scores=given["rules"], roots=given["roots"])
        own, *of_parts = normal(seed, (3, 5, 5), *[(3, 5, 5, 5)] * len(parts))
        pairs = dict(zip(parts, of_parts, strict=True))
        scores = gp.Scores(own, lengths, **pairs)
        expected = []
        for b, trees in enumerate(enumerate_all(family, given, lengths)):
            index = trees.parts["arcs"]
            count, n = index.shape[:2]
            heads = torch.full((count, n + 1), -1).scatter_(1, index[..., 1], index[..., 0])
            some = {kind: x[b, : n + 1, : n + 1, : n + 1].expand(count, -1, -1, -1) for kind, x in pairs.items()}
            of_heads = gp.Scores(own[b, : n + 1, : n + 1].expand(count, -1, -1), torch.full((count,), n), **some)
            expected.append((trees.scores + 0.7 * of_heads.total(heads)).max())
        best = torch.stack(expected)
        decomposition = constituents_and_dependencies(
            grammar, given["tags"], given["arcs"], scores, weight=0.7, iterations=60
        )
        certified += solved(decomposition, best, TREES)
        possible += int((best > -math.inf).sum())
    assert certified > 0.7 * possible > 0


def test_errors() -> None:
    grammar, tags, unary, trigrams = tagging(0)
    refuses("unary must be numbers below", parse_and_tag, grammar, tags, unary.nan_to_num(0.0) / 0, trigrams, LENGTHS)
    refuses("tags must have shape", parse_and_tag, grammar, tags[..., :2], unary, trigrams, LENGTHS)
    refuses("trigrams must have shape", parse_and_tag, grammar, tags, unary, trigrams[:2], LENGTHS)
    with pytest.raises(ValueError, match=r"scores must be gpuparse\.Scores, got Tensor"):
        constituents_and_dependencies(grammar, tags, torch.zeros(3, 5, 5), torch.zeros(3, 5, 5))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="weight must be a number from 0 on, got -1"):
        constituents_and_dependencies(grammar, tags, torch.zeros(3, 5, 5), gp.Scores(torch.zeros(3, 5, 5)), weight=-1)


def test_no_chain_of_tags() -> None:
    """That is said by the bound, like a sentence that the grammar has no tree for."""
    grammar, tags, unary, trigrams = tagging(1)
    unary[1, 0] = -math.inf
    found = parse_and_tag(grammar, tags, unary, trigrams, LENGTHS).run()
    assert float(found.bound[1]) == -math.inf and not bool(found.certified[1])


def test_no_tree_of_the_grammar() -> None:
    """Two words are a sentence, three are not."""
    grammar = gp.Grammar(("T", "S"), 1, *(torch.tensor([x]) for x in (1, 0, 0, 0)), torch.zeros(1), torch.zeros(2))
    tags, arcs = torch.zeros(2, 3, 1), torch.zeros(2, 4, 4)
    found = constituents_and_dependencies(grammar, tags, arcs, gp.Scores(arcs, [2, 3])).run()
    assert found.score.tolist() == found.bound.tolist() == [0.0, -math.inf]
    assert found.certified.tolist() == [True, False] and bool((found.structures["heads"][1] == -1).all())
