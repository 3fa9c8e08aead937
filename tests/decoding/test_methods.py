"""One test that every decoder passes: a certified answer is the enumerated best, a bound is never below it."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gpuparse.decoding.methods import METHODS, Parse, decode
from gpuparse.decoding.scores import Scores
from gpuparse.nn.trilinear import TrilinearParts
from gpuparse.ops import second_order
from gpuparse.train.objectives import structured_hinge
from tests.decoding.instances import best as best_scores
from tests.decoding.instances import check_best, instance
from tests.decoding.refusals import refuses
from tests.oracle import has_crossing, is_tree, never_read, random_instance
from tests.scores_oracle import random_scores

NAN, NEG_INF = math.nan, -math.inf
CASES = [
    (name, projective)
    for name, method in METHODS.items()
    for projective in (True, False)
    if (method.projective if projective else method.nonprojective)
]
methods = pytest.mark.parametrize(("method", "projective"), CASES, ids=[f"{m}-{p}" for m, p in CASES])
roots = pytest.mark.parametrize("single_root", [True, False], ids=["single", "multi"])
exact = pytest.mark.parametrize("method", ["mst", "eisner"])


def check_decoder(scores: Scores, method: str, *, projective: bool, single_root: bool) -> Parse:
    """What every decoder promises. Scores have been made so that values are not looked at."""
    projective = projective or not METHODS[method].nonprojective
    parse = decode(scores, method, projective=projective, single_root=single_root)
    B, N = scores.arcs.shape[:2]
    assert (parse.heads.shape, parse.heads.dtype) == ((B, N), torch.int64)
    assert (parse.score.dtype, parse.bound.dtype) == (torch.float64, torch.float64)
    assert (parse.certified.dtype, parse.iterations.dtype) == (torch.bool, torch.int64)
    for value in (parse.score, parse.bound, parse.certified, parse.iterations, *parse.stats.values()):
        assert value.shape == (B,)
    assert (parse.labels is None) == (scores.labels is None)
    every = best_scores(scores, single_root, projective).tolist()
    for b, (n, best) in enumerate(zip(scores.lengths.tolist(), every, strict=True)):
        heads = parse.heads[b]
        if best == NEG_INF:
            assert bool((heads == -1).all())
            assert float(parse.score[b]) == NEG_INF
            assert not bool(parse.certified[b])
            assert parse.labels is None or bool((parse.labels[b] == -1).all())
            continue
        near = 1e-12 * max(1.0, abs(best))  # the same sum in another order
        assert float(parse.bound[b]) >= best - near
        assert float(parse.score[b]) <= best + near
        if bool(parse.certified[b]):
            assert float(parse.bound[b]) == float(parse.score[b])
            assert float(parse.score[b]) >= best - near
        word = (torch.arange(N) >= 1) & (torch.arange(N) <= n)
        assert torch.equal(heads >= 0, word)
        tree = heads[None, : n + 1]
        assert bool(is_tree(tree))
        assert not projective or not bool(has_crossing(tree))
        assert not single_root or int((heads == 0).sum()) == 1
        if parse.labels is not None:
            assert torch.equal(parse.labels[b] >= 0, word)
    filled = torch.where(parse.heads >= 0, parse.heads, 0)
    found = parse.certified | parse.score.isfinite()
    again = scores.tree_score(filled, parse.labels)
    assert torch.equal(again[found], parse.score[found])
    return parse


# ------------------------------------------------------------------------------------------- every decoder


@methods
@roots
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("labels", [0, 1, 3])
def test_small(labels: int, dtype: torch.dtype, method: str, projective: bool, single_root: bool) -> None:
    """Ragged batches, -inf among all parts, NaN wherever nothing is read; second-order parts where they are taken."""
    for words in range(1, 6):
        scores = random_scores(words, words=words, batch=6, labels=max(labels, 1), dtype=dtype)
        chosen = Scores(
            scores.arcs,
            scores.lengths,
            labels=scores.labels if labels else None,
            **{kind: getattr(scores, kind) for kind in METHODS[method].parts},
            validate_args=False,
        )
        parse = check_decoder(chosen, method, projective=projective, single_root=single_root)
        if method in ("mst", "eisner"):
            assert torch.equal(parse.certified, parse.score > NEG_INF)


@methods
@roots
@pytest.mark.parametrize("forbidden", [0.4, 0.7])
def test_some_without_a_tree(forbidden: float, method: str, projective: bool, single_root: bool) -> None:
    g = torch.Generator().manual_seed(int(10 * forbidden))
    lengths = torch.randint(1, 5, (40,), generator=g)
    arcs = torch.randint(-2, 3, (40, 5, 5), generator=g).double()
    arcs = arcs.masked_fill(torch.rand(arcs.shape, generator=g) < forbidden, NEG_INF)
    arcs = arcs.masked_fill(never_read(lengths, 5), NAN)
    scores = Scores(arcs, lengths, validate_args=False)
    parse = check_decoder(scores, method, projective=projective, single_root=single_root)
    assert 0 < int(parse.certified.sum()) < 40


@methods
@roots
@settings(max_examples=25, deadline=None)
@given(data=st.data(), words=st.integers(1, 4), labels=st.integers(1, 2))
def test_any(data: st.DataObject, words: int, labels: int, method: str, projective: bool, single_root: bool) -> None:
    N = words + 1
    values = st.one_of(st.just(NEG_INF), st.integers(-2, 2).map(float), st.floats(-1e4, 1e4, width=32))

    def draw(*shape: int) -> Tensor:
        size = math.prod(shape)
        return torch.tensor(data.draw(st.lists(values, min_size=size, max_size=size)), dtype=torch.float64).view(shape)

    scores = Scores(draw(1, N, N), labels=draw(1, N, N, labels), validate_args=False)
    check_decoder(scores, method, projective=projective, single_root=single_root)


def test_labels_decide_the_tree() -> None:
    """Best arcs and best labels apart are not the best together; rounding in float32 would hide the difference."""
    arcs, labels = torch.zeros(1, 3, 3), torch.zeros(1, 3, 3, 2)
    arcs[0, 0, 1] = 1.0
    labels[0, 0, 2, 1] = 3.0
    parse = decode(Scores(arcs, labels=labels))
    assert parse.heads.tolist() == [[-1, 2, 0]]
    assert parse.labels is not None and int(parse.labels[0, 2]) == 1
    assert float(parse.score) == 3.0
    arcs[0, 0, 1] = arcs[0, 0, 2] = 2.0**24
    labels = torch.zeros(1, 3, 3, 2)
    labels[0, 0, 2, 1] = 1.0
    parse = decode(Scores(arcs, labels=labels))
    assert parse.heads.tolist() == [[-1, 2, 0]]
    assert float(parse.score) == 2.0**24 + 1


@pytest.mark.parametrize("kind", ["siblings", "grandparents"])
def test_pairs_are_not_rounded_to_the_arcs(kind: str) -> None:
    """A difference of 3 that float32 does not have decides the tree, in decoding, in probabilities and in the hinge."""
    pairs = torch.zeros(1, 3, 3, 3, dtype=torch.float64)
    one, other = ((0, 0, 0, 1), (0, 0, 0, 2)) if kind == "siblings" else ((0, 0, 1, 2), (0, 0, 2, 1))
    pairs[one], pairs[other] = 1e8, 1e8 + 3  # of the heads 0, 1 and 2, 0
    scores = Scores(torch.zeros(1, 3, 3), **{kind: pairs})
    parse = decode(scores, "eisner")
    assert parse.heads.tolist() == [[-1, 2, 0]] and bool(parse.certified.all())
    assert float(parse.score) == float(parse.bound) == 1e8 + 3
    trees = scores.trees(projective=True, single_root=True)
    assert scores.dtype == trees.marginals.dtype == torch.float64
    assert float(trees.marginals[0, 0, 2]) == pytest.approx(1 / (1 + math.exp(-3)))
    hinge = structured_hinge(scores, torch.tensor([[-1, 0, 1]]), projective=True, single_root=True, margin=0.0)
    assert float(hinge) == 3.0


def test_second_order_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sum over trees is computed for it, whatever is forbidden and whoever wants a gradient."""

    def never(*_: object) -> None:
        raise AssertionError("a sum over trees")

    monkeypatch.setattr(second_order, "log_partition", never)
    monkeypatch.setattr(second_order, "marginals", never)
    pairs = torch.zeros(1, 4, 4, 4)
    pairs[0, 1, 1, 2] = NEG_INF
    pairs.requires_grad_()
    parse = decode(Scores(torch.zeros(1, 4, 4), siblings=pairs), "eisner")
    parse.score.sum().backward()
    assert pairs.grad is not None and float(pairs.grad.sum()) == 3.0


@exact
def test_score_has_the_gradient_of_its_parts(method: str) -> None:
    scores = random_scores(3).first_order()
    arcs = scores.arcs.clone().requires_grad_()
    parse = decode(Scores(arcs, scores.lengths, labels=scores.labels), method)
    parse.score.sum().backward()
    want = torch.zeros_like(arcs)
    for b, n in enumerate(scores.lengths.tolist()):
        want[b, parse.heads[b, 1 : n + 1], torch.arange(1, n + 1)] = 1.0
    assert torch.equal(arcs.grad, want)
    assert not parse.bound.requires_grad and not parse.heads.requires_grad
    with torch.inference_mode():
        again = decode(Scores(arcs.detach(), scores.lengths, labels=scores.labels), method)
    assert torch.equal(again.heads, parse.heads)


# ------------------------------------------------------------------------------------------- the choice


def test_auto() -> None:
    arcs = torch.full((1, 5, 5), -1.0)
    for h, m in ((0, 2), (2, 4), (4, 1), (1, 3)):  # crossing
        arcs[0, h, m] = 1.0
    scores = Scores(arcs)
    assert decode(scores).heads.tolist() == decode(scores, "mst").heads.tolist() == [[-1, 4, 0, 1, 2]]
    projective = decode(scores, projective=True)
    assert projective.heads.tolist() == decode(scores, "eisner").heads.tolist()
    assert projective.heads.tolist() == decode(scores, "eisner", projective=True).heads.tolist()
    assert float(projective.score) < 4.0
    assert bool(projective.certified.all())


@pytest.mark.parametrize("projective", [True, False])
@pytest.mark.parametrize("parts", [(), ("siblings",), ("grandparents",), ("siblings", "grandparents")])
def test_auto_takes_exact(parts: tuple[str, ...], projective: bool) -> None:
    """Also for methods that find the best tree in any case."""
    scores = instance(0, parts, strength=3.0)
    found = decode(scores, projective=projective, exact=True)
    check_best(found, best_scores(scores, projective=projective))
    assert torch.equal(found.heads, decode(scores, projective=projective, exact=True, proof=True).heads)
    refuses("exact must be", decode, scores, projective=projective, exact=3)
    if projective or not parts:
        name = "eisner" if projective else "mst"
        refuses(f"^method \"{name}\" has no option 'exact'", decode, scores, name, exact=True)


def test_single_root_is_the_default() -> None:
    arcs = torch.zeros(1, 4, 4)
    arcs[0, 0] = 5.0
    for method in ("mst", "eisner"):
        assert int((decode(Scores(arcs), method).heads == 0).sum()) == 1
        assert int((decode(Scores(arcs), method, single_root=False).heads == 0).sum()) == 3
    with pytest.raises(TypeError):
        decode(Scores(arcs), "mst", False)  # type: ignore[misc]


def test_what_cannot_be_done() -> None:
    scores = Scores(torch.zeros(1, 4, 4))
    message = '"mst" finds non-projective trees; for projective=True use "eisner" or "ilp" or "ppc" or "lp"'
    refuses(message, decode, scores, "mst", projective=True)
    refuses(r"^method must be one of auto, mst, eisner.*, got 'cky'$", decode, scores, "cky")
    refuses(r"^method \"mst\" has no option 'steps'; it has none$", decode, scores, "mst", steps=3)
    refuses(r"^method \"mst\" has no option 'steps'", decode, scores, steps=3)
    refuses(r"^scores must be gpuparse.Scores, got Tensor", decode, scores.arcs)


VALUES = {
    "constraints": [],
    "counted": 0.7,
    "damping": 0.1,
    "exact": True,
    "fallback": True,
    "grow": True,
    "iterations": 20,
    "lazy_rows": True,
    "polytope": "all",
    "pricing": True,
    "schedule": "parallel",
    "start": None,
    "step": None,
    "time_limit": 5.0,
    "tolerance": 1e-3,
    "variables": "links",
    "words": None,
}


@pytest.mark.parametrize("method", METHODS)
def test_options_are_taken_checked_and_told(method: str) -> None:
    scores = Scores(*random_instance(0, words=3, forbidden=0.0, poison=False))
    for name in METHODS[method].options:
        assert bool(decode(scores, method, **{name: VALUES.get(name, 3)}).score.isfinite().all())
        for wrong in ("no such value", *([3] if VALUES.get(name) is True else [])):  # a flag is no number
            refuses(rf"\b{name}\b", decode, scores, method, **{name: wrong})
        assert decode.__doc__ is not None and f"{name}: {METHODS[method].options[name].about}"[:60] in decode.__doc__


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if not method.parts])
@pytest.mark.parametrize("kind", ["siblings", "grandparents"])
def test_first_order_methods_refuse_pairs(kind: str, method: str) -> None:
    scores = Scores(torch.zeros(1, 4, 4), **{kind: torch.zeros(1, 4, 4, 4)})
    message = rf'^method "{method}" is first-order, but scores have {kind}; pass scores.first_order\(\)'
    refuses(message, decode, scores, method)
    assert bool(decode(scores.first_order(), method).certified.all())
    for projective in (True, False):
        name = "projective" if projective else "non-projective"
        if any(kind in m.parts and (m.projective if projective else m.nonprojective) for m in METHODS.values()):
            continue
        message = f"^no method finds {name} trees under {kind}: .* first-order; pass scores"
        refuses(message, decode, scores, projective=projective)


@exact
def test_no_tree(method: str) -> None:
    arcs, lengths = random_instance(0, words=4, forbidden=0.0, poison=False)
    arcs[2, :, 1] = NEG_INF
    kind = "projective tree" if method == "eisner" else "tree"
    with pytest.raises(ValueError, match=rf"^arcs of sentence 2 allow no {kind} with .*: every head of word 1 scores"):
        decode(Scores(arcs, lengths), method)
    parse = decode(Scores(arcs, lengths, validate_args=False), method)
    assert parse.certified.tolist() == [True, True, False, True]
    assert parse.score[2] == NEG_INF and parse.bound[2] == math.inf
    labels = torch.zeros(4, 5, 5, 2)
    labels[1, :, 1] = NEG_INF
    arcs[2] = 0.0
    message = "^arcs with their best labels of sentence 1 allow no .*head of word 1 scores"
    refuses(message, decode, Scores(arcs, lengths, labels=labels), method)


def test_no_tree_of_second_order() -> None:
    arcs, labels, pairs = torch.zeros(2, 4, 4), torch.zeros(2, 4, 4, 2), torch.zeros(2, 4, 4, 4)
    labels[1, :, 1] = NEG_INF
    why = "of sentence 1 allow no projective tree with a single root: every head of word"
    with pytest.raises(ValueError, match=rf"^arcs with their best labels {why} 1 scores -inf$"):
        decode(Scores(arcs, labels=labels, siblings=pairs), "eisner")
    pairs[1, :, :, 2] = NEG_INF
    refuses(rf"^arcs with their best siblings {why} 2 scores -inf$", decode, Scores(arcs, siblings=pairs), "eisner")
    labels[1] = 0.0
    with pytest.raises(ValueError, match=rf"^arcs with their best labels and siblings {why} 2 scores -inf$"):
        decode(Scores(arcs, labels=labels, siblings=pairs), "eisner")
    parse = decode(Scores(arcs, labels=labels, siblings=pairs, validate_args=False), "eisner")
    assert parse.certified.tolist() == [True, False] and parse.heads[1].tolist() == [-1] * 4
    huge = [torch.full((1, 4, 1), 1e20) for _ in range(3)]
    with pytest.raises(ValueError, match=r"^siblings\[0, .*\] is inf"):  # a product that float32 cannot hold
        decode(Scores(arcs[:1], siblings=TrilinearParts(*huge, kind="siblings")), "eisner")


@exact
def test_bad_values_that_nobody_looked_at(method: str) -> None:
    arcs, lengths = random_instance(1, words=4, forbidden=0.0)
    want = decode(Scores(arcs, lengths), method).heads
    arcs[1, 0, 1] = NAN
    parse = decode(Scores(arcs, lengths, validate_args=False), method)
    assert parse.heads[1].tolist() == [-1] * 5
    assert parse.certified.tolist() == [True, False, True, True]
    assert parse.score[1] == NEG_INF
    assert torch.equal(parse.heads[[0, 2, 3]], want[[0, 2, 3]])


def test_parse_is_fixed_and_empty_batches() -> None:
    for method in METHODS:
        parse = decode(Scores(torch.empty(0, 4, 4), labels=torch.empty(0, 4, 4, 2)), method)
        assert parse.heads.shape == (0, 4) and parse.score.shape == (0,)
    with pytest.raises(FrozenInstanceError):
        parse.score = parse.bound  # type: ignore[misc]


def test_messages_quote_little() -> None:
    scores = Scores(torch.zeros(1, 3, 3), grandparents=torch.zeros(1, 3, 3, 3))
    wrong: tuple[tuple[str, dict[str, Any]], ...] = (
        ("x" * 5000, {}),
        ("ppc", {"polytope": "x\x1b[31m" * 1000}),
        ("dd", {"y" * 5000: 1}),
    )
    for method, options in wrong:
        with pytest.raises(ValueError, match=r"method|polytope") as refused:
            decode(scores, method, **options)
        assert len(str(refused.value)) < 500 and "\x1b" not in str(refused.value)
    refuses("words must be a list", decode, Scores(torch.zeros(1, 3, 3)), "ilp", words=3)
