"""Conditions: what is refused and in what words, which spans cross, what is seen of an impossible start."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import gpuparse as gp
from gpuparse.structures.conditions import _crossed, allowed_arcs, check_start
from gpuparse.structures.trees import is_tree
from tests.budget import budget
from tests.distributions.families import some_grammar
from tests.oracle import all_trees
from tests.refusals import refusal

LENGTHS = [5, 5, 5, 4]


def trees(kind: Any = gp.NonProjectiveTrees, **options: Any) -> Any:
    """Four sentences, the last of four words."""
    return kind(torch.zeros(4, 6, 6), LENGTHS, **options)


def heads(sentence: int = 3, **known: int) -> Tensor:
    """Required heads: w2=5 is the arc 5 -> 2."""
    found = torch.full((4, 6), -1)
    for name, head in known.items():
        found[sentence, int(name[1:])] = head
    return found


def arcs(*pairs: tuple[int, int], sentence: int = 3) -> Tensor:
    """Forbidden ones."""
    found = torch.zeros(4, 6, 6, dtype=torch.bool)
    for h, m in pairs:
        found[sentence, h, m] = True
    return found


def all_but(word: int, *keep: int, sentence: int = 3) -> Tensor:
    """All arcs to a word forbidden, but for those from some heads."""
    found = torch.zeros(4, 6, 6, dtype=torch.bool)
    found[sentence, :, word] = True
    found[sentence, list(keep), word] = False
    return found


def grammar_of(kind: Any, **options: Any) -> Any:
    """Of two tags and two other symbols, for four sentences."""
    grammar = some_grammar(2, heads=True)
    given = [torch.zeros(4, 5, 2, dtype=torch.float64)]
    if kind is gp.LexicalizedTrees:
        given.append(torch.zeros(4, 6, 6, dtype=torch.float64))
    else:
        grammar = grammar.merged()
    return kind(grammar, *given, lengths=LENGTHS, **options)


@pytest.mark.parametrize("kind", [gp.NonProjectiveTrees, gp.ProjectiveTrees, gp.SecondOrderTrees, gp.LexicalizedTrees])
def test_heads_that_cannot_be(kind: Any) -> None:
    p = grammar_of(kind) if kind is gp.LexicalizedTrees else trees(kind)
    for known, why in (
        ({"w2": 5}, "word 2 has head 5, not in -1..4"),
        ({"w2": -2}, "word 2 has head -2, not in -1..4"),
        ({"w4": 4}, "word 4 has itself as its head"),
        ({"w1": 3, "w3": 1}, "heads of words 1 and 3 make a cycle: 1 -> 3 -> 1"),
        ({"w2": 1, "w1": 4, "w4": 2}, "heads of words 1, 2 and 4 make a cycle: 1 -> 2 -> 4 -> 1"),
        ({"w3": 2, "w1": 4, "w4": 1}, "heads of words 1 and 4 make a cycle: 1 -> 4 -> 1"),
        ({"w2": 0, "w4": 0}, "words 2 and 4 both hang on the root, which has one word"),
    ):
        assert refusal(p.given, heads(**known)) == f"required: sentence 3: {why}"
    assert refusal(p.given, heads(w2=4), arcs((4, 2))) == "required: sentence 3: the arc 4 -> 2 is also forbidden"
    why = "forbidden: sentence 3: every head of word 2 is forbidden"
    assert refusal(p.given, None, all_but(2)) == refusal(p.given, heads(w1=2), all_but(2)) == why
    why = "sentence 3: heads of words 1 and 2 make a cycle: 1 -> 2 -> 1"
    assert refusal(p.given, None, all_but(2, 1) | all_but(1, 2)) == f"forbidden: {why}"
    assert refusal(p.given, heads(w1=2), all_but(2, 1)) == f"required and forbidden: {why}"
    if kind is not gp.NonProjectiveTrees:
        why = "required: sentence 3: the arcs 1 -> 3 and 4 -> 2 cross, as those of projective trees do not"
        assert refusal(p.given, heads(w3=1, w2=4)) == why
        why = "required: sentence 3: the arcs 0 -> 2 and 3 -> 1 cross, as those of projective trees do not"
        assert refusal(p.given, heads(w2=0, w1=3)) == why


def test_what_is_no_contradiction() -> None:
    """Several roots, crossing arcs, and whatever stands where nothing is read."""
    for kind in (gp.NonProjectiveTrees, gp.ProjectiveTrees):
        assert bool(trees(kind, single_root=False).given(heads(w2=0, w4=0)).log_partition.isfinite().all())
    assert bool(trees().given(heads(w3=1, w2=4)).log_partition.isfinite().all())
    unread = heads(w0=7, w5=-9)
    barred = arcs(*((h, 0) for h in range(6)), *((h, h) for h in range(6)), *((h, 5) for h in range(6)))
    assert torch.equal(trees().given(unread, barred).log_partition, trees().log_partition)


def test_other_things_that_leave_no_tree() -> None:
    """No head of words 1, 2 and 3 but each other; an arc that had no score; too far below all others."""
    barred = torch.zeros(4, 6, 6, dtype=torch.bool)
    barred[3, [0, 4]] = torch.tensor([False, True, True, True, False, False])
    line = refusal(trees().given, None, barred)
    assert line == "under forbidden, arcs of sentence 3 allow no tree with a single root under its -inf scores"
    scores = torch.zeros(4, 6, 6)
    scores[1, 2, 1] = -torch.inf
    line = refusal(gp.ProjectiveTrees(scores, LENGTHS).given, heads(1, w1=2), barred & False)
    why = "arcs of sentence 1 allow no projective tree with a single root: every head of word 1 scores -inf"
    assert line == f"under required and forbidden, {why}"
    unary = torch.zeros(2, 3, 2)
    unary[1, 2, 0] = -torch.inf
    line = refusal(gp.TagChains(unary, torch.zeros(2, 2)).given, torch.tensor([[-1] * 3, [-1, -1, 0]]))
    assert line == "under required, sentence 1 allows no chain of tags: every tag of word 2 scores -inf"
    far = torch.zeros(1, 4, 4, dtype=torch.float64)
    far[0, 3, 1] = far[0, 3, 2] = -1e15
    required = torch.tensor([[-1, 3, 3, -1]])  # masked arcs, which all trees share then
    assert float(gp.ProjectiveTrees(far).given(required).log_partition) == -2e15
    line = refusal(
        gp.NonProjectiveTrees(far).given, torch.tensor([[-1, -1, -1, 0]])
    )  # one of them, and who knows which
    assert line.startswith("under required, arcs of sentence 0 are too far apart")


def test_tags_that_cannot_be() -> None:
    unary, n = torch.zeros(3, 4, 3), [4, 4, 2]
    every = [gp.TagChains(unary, torch.zeros(3, 3), n), gp.TrigramChains(unary, torch.zeros(3, 3, 3), n)]
    tags, barred = torch.full((3, 4), -1), torch.zeros(3, 4, 3, dtype=torch.bool)
    for p in every:
        for value in (3, -2):
            line = refusal(p.given, tags.index_put((torch.tensor(2), torch.tensor(1)), torch.tensor(value)))
            assert line == f"required: sentence 2: word 1 has tag {value}, not in -1..2"
        barred[:] = False
        barred[2, 1, 2] = barred[2, 3] = True
        two = tags.clone()
        two[2, 1:3] = 2
        assert refusal(p.given, two, barred) == "required: sentence 2: tag 2 of word 1 is also forbidden"
        barred[2, 1] = True
        assert refusal(p.given, tags, barred) == "forbidden: sentence 2: every tag of word 1 is forbidden"
        two[2] = torch.tensor([-1, 0, 9, -9])
        assert bool((p.given(two).argmax[2] == torch.tensor([0, 0, -1, -1])).all())


def test_spans_that_cannot_be() -> None:
    p, barred = grammar_of(gp.ConstituencyTrees), torch.zeros(4, 5, 5, 4, dtype=torch.bool)

    def spans(**known: int) -> Tensor:
        found = torch.full((4, 5, 5), -1)
        for name, symbol in known.items():
            found[3, int(name[1]), int(name[2])] = symbol
        return found

    for given, why in (
        (spans(s12=4), "words 1..2: 4 is not -1, -2 or a symbol above tags, 2..3"),
        (spans(s12=1), "words 1..2: 1 is not -1, -2 or a symbol above tags, 2..3"),
        (spans(s12=-3), "words 1..2: -3 is not -1, -2 or a symbol above tags, 2..3"),
        (spans(s11=2), "word 1: 2 is not -1, -2 or a tag, 0..1"),
        (spans(s13=-2, s02=2), "words 0..2 and words 1..3 cross"),
        (spans(s03=2, s12=2, s23=3), "words 1..2 and words 2..3 cross"),
    ):
        assert refusal(p.given, given) == f"required: sentence 3: {why}"
    barred[3, 1, 2, 3] = barred[3, 1, 1, 1] = True
    for given, why in (
        (spans(s12=3), "words 1..2: symbol 3 is also forbidden"),
        (spans(s11=1), "word 1: symbol 1 is also forbidden"),
    ):
        assert refusal(p.given, given, barred) == f"required: sentence 3: {why}"
    barred[3, 1, 2] = True
    line = refusal(p.given, spans(s12=-2), barred)
    assert line == "required: sentence 3: words 1..2: every symbol is also forbidden"
    barred[3, 1, 1] = True
    line = refusal(p.given, spans(), barred)
    assert line == "forbidden: sentence 3: every tag of word 1 is forbidden"
    unread = spans(s21=9, s34=9, s44=-8, s11=-2)
    assert torch.equal(p.given(unread).log_partition, p.log_partition)
    nothing = p.given(None, torch.ones(4, 5, 5, 4, dtype=torch.bool) & ~torch.eye(5, dtype=torch.bool)[..., None])
    assert bool(nothing.log_partition.isneginf().all())  # which is no error here


@pytest.mark.parametrize("what", ["trees", "lexicalised", "chains", "phrases"])
def test_types_shapes_and_devices(what: str) -> None:
    p, names, shape = {
        "trees": (trees(), "[B, N]", [4, 6]),
        "lexicalised": (grammar_of(gp.LexicalizedTrees), "[B, N]", [4, 6]),
        "chains": (gp.TagChains(torch.zeros(4, 5, 3), torch.zeros(3, 3)), "[B, n]", [4, 5]),
        "phrases": (grammar_of(gp.ConstituencyTrees), "[B, n, n]", [4, 5, 5]),
    }[what]
    good = torch.full(shape, -1)
    for wrong in (None, good.double(), good > 0, [[1]], 3, good.to(torch.uint16)):
        if wrong is not None:
            assert refusal(p.given, wrong).startswith(f"required must be an integer tensor {names}, got ")
        if not isinstance(wrong, Tensor) or wrong.dtype != torch.bool:
            assert wrong is None or refusal(p.given, None, wrong).startswith("forbidden must be a bool tensor [B, ")
    assert refusal(p.given, good[:2]) == f"required must have shape {names} = {shape}, got {[2, *shape[1:]]}"
    assert refusal(p.given, good[..., None]).startswith(f"required must have shape {names}")
    assert refusal(p.given, None, good > 0).startswith("forbidden must have shape [B, ")
    for how in (lambda x: x.to("meta"), lambda x: x.to_sparse()):
        assert refusal(p.given, how(good)).startswith("required must ")
        assert refusal(p.given, None, how(good > 0)).startswith("forbidden must ")
    for dtype in (torch.int32, torch.int8):
        assert torch.equal(p.given(good.to(dtype)).log_partition, p.given().log_partition)


def test_where_nobody_looks() -> None:
    """Contradictions leave no structure."""
    p = trees(validate_args=False)
    for known in ({"w2": 5}, {"w2": -2}, {"w4": 4}, {"w1": 3, "w3": 1}, {"w2": 0, "w4": 0}):
        q = p.given(heads(**known))
        assert q.log_partition.isneginf().tolist() == [False] * 3 + [True] and bool((q.argmax[3] == -1).all())
        assert not any(bool(x.isnan().any()) for x in (q.marginals, q.entropy()))
    chains = gp.TagChains(torch.zeros(1, 2, 3), torch.zeros(3, 3), validate_args=False)
    assert bool(chains.given(torch.tensor([[7, -1]])).log_partition.isneginf())
    phrases = grammar_of(gp.ConstituencyTrees, validate_args=False)
    for symbol in (9, -5, 0):
        given = torch.full((4, 5, 5), -1).index_put(tuple(torch.tensor([[3], [1], [2]])), torch.tensor(symbol))
        assert phrases.given(given).log_partition.isneginf().tolist() == [False] * 3 + [True]


def test_long_messages() -> None:
    p = gp.NonProjectiveTrees(torch.zeros(1, 101, 101))
    required = torch.tensor([[-1, *range(2, 101), 1]])
    line = refusal(p.given, required)
    assert line.endswith("make a cycle: 1 -> 100 -> 99 -> 98 -> 97 -> 96 -> 95 -> 94 -> ...") and "92 more" in line


@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("single_root", [True, False])
def test_an_impossible_start_has_no_tree(projective: bool, single_root: bool) -> None:
    """Of random masks; of three words nearly all that are impossible are seen."""
    generator, lengths = torch.Generator().manual_seed(0), torch.tensor([3])
    every = all_trees(3, single_root=single_root, projective=projective)
    assert bool(is_tree(every[:, None], lengths, projective=projective, single_root=single_root).all())
    seen = impossible = 0
    for _ in range(400):
        allowed = torch.rand(1, 4, 4, generator=generator) < 0.5
        there = bool(allowed[0, every[:, 1:], torch.arange(1, 4)].all(1).any())
        impossible += not there
        try:
            check_start(allowed, lengths, projective=projective, single_root=single_root)
        except ValueError as error:
            assert not there and str(error).startswith("forbidden: sentence 0: ")
            seen += 1
    assert 0.8 * impossible < seen <= impossible < 400


def test_which_spans_cross() -> None:
    generator = torch.Generator().manual_seed(0)
    for n in range(1, 8):
        spans = (torch.rand(20, n, n, generator=generator) < 0.15).triu(1)
        found = _crossed(spans)
        for b in range(len(spans)):
            some = spans[b].nonzero().tolist()
            want = [[any(k < i <= m < j or i < k <= j < m for i, j in some) for m in range(n)] for k in range(n)]
            upper = torch.ones(n, n, dtype=torch.bool).triu(1)
            assert torch.equal(found[b] & upper, torch.tensor(want) & upper)


def test_what_is_asked_of_a_device() -> None:
    """Masks of a byte an arc, some ten of them, and the scores made anew."""
    p = gp.ProjectiveTrees(torch.zeros(8, 41, 41))
    required, barred = torch.full((8, 41), -1), torch.zeros(8, 41, 41, dtype=torch.bool)
    with budget() as found:
        p.given(required, barred)
    assert found.waits.total() == 0 and found.operations.total() <= 22, found.operations
    assert found.bytes.total() <= 17 * 8 * 41 * 41, found.bytes
    assert allowed_arcs(required, barred, p.arcs, p.lengths).dtype == torch.bool
