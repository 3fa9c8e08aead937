"""Proofs: those of certified answers are accepted, and whatever makes a claim false is refused."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import gpuparse as gp
from gpuparse.decoding.proofs import NAMES, Proof, ProofLeaf, path_of
from gpuparse.decoding.rows_paid import pay_rows

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz"))

import certificates
import proofs

from tests.decoding.instances import normal
from tests.decoding.instances import tensors as drawn
from tests.decoding.refusals import refuses

WAYS = [way for way in certificates.WAYS if way[0] in proofs.METHODS]


def _batch(seed: int, kinds: tuple[str, ...], labels: int = 0) -> gp.Scores:
    """A ragged batch with some forbidden parts."""
    g, found = torch.Generator().manual_seed(seed), drawn(seed, 6, 7, kinds, labels)
    lengths = torch.tensor([7, *torch.randint(1, 8, (5,), generator=g).tolist()])
    for name in kinds:
        found[name][torch.rand(found[name].shape, generator=g) < 0.02] = -math.inf
    return gp.Scores(found.pop("arcs"), lengths, **found)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way[0]} {way[1]}")
@pytest.mark.parametrize("single_root", (True, False))
def test_certified_answers_of_ragged_batches(way: Any, single_root: bool, tmp_path: Path) -> None:
    method, options, kinds, must = way
    trees: dict[str, Any] = {"single_root": single_root, "projective": method == "eisner"}
    trees |= {name: x for name, x in options.items() if name == "projective"}
    options = {name: x for name, x in options.items() if name != "projective"}
    certified = sentences = 0
    for seed, kind in enumerate(kinds * (4 // len(kinds))):
        scores = _batch(seed, kind, labels=seed % 3)
        found = gp.decode(scores, method, **trees, **options, proof=True)
        proven = gp.verify(scores, found, **trees)
        assert (proven < math.inf)[found.certified].all()
        size = 1e-12 * found.score.abs()  # sums of doubles
        assert (proven >= found.score - size)[found.certified].all()
        certified += int(found.certified.sum())
        sentences += len(found.certified)
        found.proof.save(tmp_path / "proof")
        loaded = Proof.load(tmp_path / "proof")
        assert torch.equal(gp.verify(scores, replace(found, proof=loaded), **trees), proven)
    assert certified == sentences if must else certified >= (0 if method == "bp" else 1)


def test_certified_answers_of_every_size_and_mask() -> None:
    """The instances of the fuzzing of certificates."""
    outcomes: Counter[str] = Counter()
    for number in range(300):
        case = proofs.case(random.Random(f"accepted:{number}"))
        if case is not None and bool(case.parse.certified[0]):
            gp.verify(case.scores, case.parse, **case.trees)
            outcomes["certified"] += 1
    assert outcomes["certified"] > 150, outcomes


def test_a_small_part_of_the_fuzzing(tmp_path: Path) -> None:
    outcomes = Counter(proofs.one(random.Random(f"{proofs.NAME}:{number}"), tmp_path) for number in range(150))
    assert outcomes["refused"] > 100, outcomes


@pytest.mark.parametrize("number", (418, 634))
def test_leaves_whose_own_numbers_are_loose(number: int, tmp_path: Path) -> None:
    assert proofs.one(random.Random(f"{proofs.NAME}:{number}"), tmp_path) == "refused"


def _proof(parse: gp.Parse) -> tuple[ProofLeaf, ...]:
    return parse.proof.leaves[0]


def _branched() -> tuple[gp.Scores, gp.Parse]:
    """A sentence whose proof has leaves, sets and cuts."""
    arcs, pairs = normal(1, (1, 7, 7), (1, 7, 7, 7))
    scores = gp.Scores(arcs, grandparents=2 * pairs)
    found = gp.decode(scores, "ppc", exact=True, proof=True)
    leaves = _proof(found)
    assert len(leaves) > 2 and all(any(len(getattr(x, name)) for x in leaves) for name in ("cuts", "sets"))
    return scores, found


SCORES, FOUND = _branched()


def _with(index: int, **arrays: Any) -> gp.Parse:
    leaves = list(_proof(FOUND))
    leaves[index] = replace(leaves[index], **arrays)
    return replace(FOUND, proof=Proof({0: tuple(leaves)}))


def _other() -> tuple[torch.Tensor, torch.Tensor]:
    """The best tree by arcs alone, or one beside it, and its score."""
    for number in range(1, 7):
        arcs = SCORES.arcs.clone()
        arcs[0, int(FOUND.heads[0, number]), number] = -math.inf
        heads = gp.mst(arcs)
        if not torch.equal(heads, FOUND.heads):
            return heads, SCORES.total(heads)
    raise AssertionError("no other tree")


def _refused(parse: Any, match: str, scores: gp.Scores = SCORES, **trees: Any) -> None:
    refuses(match, gp.verify, scores, parse, **trees)


def test_it_is_accepted_as_it_is() -> None:
    assert float(gp.verify(SCORES, FOUND)) >= float(FOUND.score) - 1e-12


def test_another_tree() -> None:
    heads, score = _other()
    _refused(replace(FOUND, heads=heads), "sentence 0: its tree scores")
    _refused(replace(FOUND, heads=heads, score=score), "sentence 0: it is certified, and its bound")
    _refused(replace(FOUND, heads=heads, score=score, bound=score), "sentence 0: what follows is that no tree")
    lowest = torch.tensor([-1e300], dtype=torch.float64)  # nothing that is off by so much may be let through
    _refused(replace(FOUND, heads=heads, score=score, bound=lowest), "sentence 0")


def test_certified_is_set_on_a_worse_tree() -> None:
    heads, score = _other()
    assert score < FOUND.score
    honest = replace(FOUND, heads=heads, score=score, certified=torch.tensor([False]))
    assert float(gp.verify(SCORES, honest)) >= float(FOUND.score) - 1e-12
    _refused(replace(honest, certified=torch.tensor([True])), "certified")
    _refused(replace(honest, certified=torch.tensor([True]), bound=score), "what follows")
    _refused(replace(honest, certified=torch.tensor([True]), proof=Proof({})), "certified")


@pytest.mark.parametrize("certified", (True, False))
@pytest.mark.parametrize("by", (1e-6, 1.0, 1e300, math.inf, math.nan))
def test_a_lower_bound(by: float, certified: bool) -> None:
    lower = replace(FOUND, bound=FOUND.bound - by, certified=torch.tensor([certified]))
    _refused(lower, "bound" if certified else "what follows")


def test_an_arc_is_raised_so_that_another_tree_is_better() -> None:
    heads, score = _other()
    m = int((heads != FOUND.heads)[0].nonzero()[0])
    arcs = SCORES.arcs.clone()
    arcs[0, int(heads[0, m]), m] += float(FOUND.score - score) + 1e-6
    _refused(FOUND, "what follows", gp.Scores(arcs, grandparents=SCORES.grandparents))


def test_no_tree_at_all_as_heads() -> None:
    cycle = FOUND.heads.clone()
    cycle[0, 1], cycle[0, 2] = 2, 1
    _refused(replace(FOUND, heads=cycle), "not a tree")
    for value in (-1, 7, 99):
        heads = FOUND.heads.clone()
        heads[0, 3] = value
        _refused(replace(FOUND, heads=heads), "not a tree")


@pytest.mark.parametrize("index", range(len(_proof(FOUND))))
def test_a_leaf_is_removed(index: int) -> None:
    leaves = _proof(FOUND)
    _refused(replace(FOUND, proof=Proof({0: leaves[:index] + leaves[index + 1 :]})), "a branch is left out")
    _refused(replace(FOUND, proof=Proof({0: ()})), "a branch is left out")
    _refused(replace(FOUND, proof=Proof({})), "what follows")


@pytest.mark.parametrize("column", range(4))
def test_a_path_is_changed(column: int) -> None:
    for index, leaf in enumerate(_proof(FOUND)):
        path = leaf.path.copy()
        path[-1, column] = (path[-1, column] + 1) % 2 if column == 3 else path[-1, column] + 1
        _refused(_with(index, path=path), "a branch is left out")


def _first_with(name: str) -> int:
    return next(k for k, leaf in enumerate(_proof(FOUND)) if len(getattr(leaf, name)))


@pytest.mark.parametrize("name", ("set_prices", "cut_prices"))
@pytest.mark.parametrize("price", (-1.0, math.nan, -math.inf, math.inf))
def test_prices_that_are_none(name: str, price: float) -> None:
    index = _first_with(name)
    prices = getattr(_proof(FOUND)[index], name).copy()
    prices[0] = price
    _refused(_with(index, **{name: prices}), "sentence 0: (a set of words|a cut|cut_prices)")


def _sets(*inside: tuple[int, ...], nodes: int = 7) -> np.ndarray[Any, Any]:
    found = np.zeros((len(inside), nodes), dtype=bool)
    for row, members in zip(found, inside, strict=True):
        row[list(members)] = True
    return found


@pytest.mark.parametrize("price", (1.0, 1e3, math.inf))
def test_sets_that_trees_need_not_enter(price: float) -> None:
    """The root is in none, and none is empty: every index is a word of the sentence."""
    for sets in (_sets((0, 1)), _sets((0,)), _sets(()), _sets((1,), nodes=6), _sets((1,)).astype(np.int64)):
        for index in range(len(_proof(FOUND))):
            _refused(_with(index, sets=sets, set_prices=np.array([price])), "a set of words has no such price|sets are")


@pytest.mark.parametrize("value", (math.nan, math.inf, -math.inf))
def test_what_is_not_finite(value: float) -> None:
    """In every leaf: the greatest of some bounds must not leave one out that is not a number."""
    for index in range(len(_proof(FOUND))):
        penalties = _proof(FOUND)[index].penalties.copy()
        penalties[1, 2] = value
        _refused(_with(index, penalties=penalties), "penalties are not finite")
        _refused(_with(index, root=np.array(value)), "root are not finite")


def test_sums_beyond_doubles_prove_nothing() -> None:
    for value in (1.2e308, -1.2e308):
        for index in range(len(_proof(FOUND))):
            _refused(_with(index, penalties=np.full((7, 7), value)), "no tree scores more than")


@pytest.mark.parametrize(
    "cut",
    ((0, 1, 1, 2), (0, 0, 1, 2), (1, 1, 2, 2), (1, -1, 2, 3), (1, 9, 2, 3), (2, 1, 2, 3), (-1, 1, 2, 3), (0, 3, 1, 2)),
)
def test_cuts_of_no_form(cut: tuple[int, ...]) -> None:
    index = _first_with("cuts")
    cuts = _proof(FOUND)[index].cuts.copy()
    cuts[0] = cut
    inside = _proof(FOUND)[index].cut_sets.copy()
    inside[0] = np.arange(7) == 3  # of the last triangle: its own word
    _refused(_with(index, cuts=cuts, cut_sets=inside), "a cut is of no known kind|out of bounds")


def test_cuts_of_pairs_that_there_are_not() -> None:
    scores = SCORES.first_order()
    found = gp.decode(scores, "mst", proof=True)
    leaf = replace(_proof(found)[0], **{name: getattr(_proof(FOUND)[_first_with("cuts")], name) for name in NAMES[2:5]})
    _refused(replace(found, proof=Proof({0: (leaf,)})), "a cut is of pairs that there are not", scores)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_kinds_of_arrays(name: str) -> None:
    for index, leaf in enumerate(_proof(FOUND)):
        x = getattr(leaf, name)
        changes: list[Callable[[Any], Any]] = [
            lambda x: x[None],
            lambda x: x.astype(np.float32),
            lambda x: x.astype(np.complex128),
            lambda x: x.tolist(),
            lambda x: None,
        ]
        if x.ndim and x.size:
            changes += [lambda x: x[..., :-1], lambda x: np.concatenate([x, x[:1]])]
        for change in changes:
            with np.errstate(over="ignore"):
                changed = change(x)
            _refused(_with(index, **{name: changed}), "sentence 0: ")


def _row(low: float, high: float, arcs: list[tuple[int, int]], price: float) -> ProofLeaf:
    heads, words = (np.array([np.arange(5) == arc[k] for arc in arcs]) for k in (0, 1))
    return ProofLeaf(
        path_of(()),
        np.zeros((5, 5)),
        rows=np.array([[low, high, math.inf, 0.0, price]]),
        box_row=np.zeros(len(arcs), dtype=np.int64),
        box_weight=np.ones(len(arcs)),
        box_heads=heads,
        box_words=words,
        box_labels=np.ones((len(arcs), 1), dtype=bool),
    )


@pytest.mark.parametrize(
    ("low", "high", "arcs", "right"),
    (
        (-math.inf, 1.0, [(1, 3), (2, 4)], True),  # they cross
        (-math.inf, 1.0, [(1, 3), (4, 2)], True),
        (-math.inf, 1.0, [(1, 2), (3, 4)], False),
        (-math.inf, 0.0, [(1, 3), (2, 4)], False),
        (1.0, 1.0, [(1, 3), (2, 4)], False),  # a tree may have neither
        (-math.inf, 1.0, [(1, 3), (1, 3)], False),  # one arc, counted twice
    ),
)
def test_rows_of_arcs_that_cross(low: float, high: float, arcs: list[tuple[int, int]], right: bool) -> None:
    table, terms = np.zeros((5, 5, 1)), list[float]()
    if right:
        pay_rows(table, terms, _row(low, high, arcs, 2.0), {}, True)
        assert terms[0] >= 2.0 and all(abs(table[h, m, 0] + 2.0) < 1e-12 for h, m in arcs)
    else:
        refuses("a row is none of the constraints", pay_rows, table, terms, _row(low, high, arcs, 2.0), {}, True)
    refuses("a row is none of the constraints", pay_rows, table, terms, _row(low, high, arcs, 2.0), {}, False)


def test_what_does_not_belong_together() -> None:
    _refused(gp.decode(SCORES, "ppc", exact=True), "a parse with a proof; decode with proof=True")
    _refused(None, "a parse with a proof")
    pairs = SCORES.grandparents.dense()
    two = gp.Scores(SCORES.arcs.expand(2, -1, -1), grandparents=pairs.expand(2, -1, -1, -1))
    _refused(FOUND, r"parse has heads \[1, 7\], scores are of \[2, 7\]", two)
    shorter = gp.Scores(SCORES.arcs[:, :6, :6])
    _refused(FOUND, r"heads \[1, 7\], scores are of \[1, 6\]", shorter)
    _refused(FOUND, "sentence 0: ", gp.Scores(SCORES.arcs))
    _refused(FOUND, "sentence 0: ", gp.Scores(SCORES.arcs, torch.tensor([5]), grandparents=pairs))


def test_another_family_of_trees() -> None:
    arcs = torch.zeros(1, 4, 4)
    arcs[0, 0] = 1.0  # best with every word under the root
    scores = gp.Scores(arcs)
    several, single = (gp.decode(scores, "mst", single_root=x, proof=True) for x in (False, True))
    _refused(several, "its heads are not a tree", scores)
    _refused(single, "what follows", scores, single_root=False)
    arcs = torch.zeros(1, 5, 5)
    arcs[0, [0, 1, 2, 1], [1, 3, 4, 2]] = 1.0  # 1 to 3 crosses 2 to 4
    scores = gp.Scores(arcs)
    crossing, projective = gp.decode(scores, "mst", proof=True), gp.decode(scores, "eisner", proof=True)
    _refused(crossing, "its arcs cross", scores, projective=True)
    _refused(projective, "what follows .*say projective=True", scores)
    assert gp.verify(scores, projective, projective=True) < math.inf


def test_labels_that_there_are_not() -> None:
    scores = gp.Scores(torch.randn(1, 4, 4), labels=torch.randn(1, 4, 4, 2))
    found = gp.decode(scores, "mst", proof=True)
    for value, match in ((2, "its labels"), (-1, "its labels"), (1 - int(found.labels[0, 2]), "its tree scores")):
        labels = found.labels.clone()
        labels[0, 2] = value
        _refused(replace(found, labels=labels), match, scores)


def test_a_tree_with_a_forbidden_part_has_no_other_score() -> None:
    arcs = torch.zeros(1, 3, 3)
    found = gp.decode(gp.Scores(arcs), "mst", proof=True)
    arcs[0, int(found.heads[0, 1]), 1] = -math.inf
    high = torch.tensor([9.0], dtype=torch.float64)
    _refused(replace(found, score=high, bound=high), "its tree scores -inf, not 9.0", gp.Scores(arcs))


@pytest.mark.parametrize("part", range(20))
def test_damaged_files(part: int, tmp_path: Path) -> None:
    """One line, or a proof that is not accepted for what it is not."""
    path = tmp_path / "proof"
    Proof({0: _proof(FOUND)}).save(path)
    good = path.read_bytes()
    rng = random.Random(part)
    for _ in range(10):
        data = bytearray(good)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        else:
            for _ in range(rng.randrange(1, 20)):
                data[rng.randrange(min(len(data), 3000))] = rng.randrange(256)
        path.write_bytes(bytes(data))
        try:
            loaded = Proof.load(path)
        except ValueError as error:
            assert "\n" not in str(error) and str(path) in str(error)
            continue
        try:
            proven = gp.verify(SCORES, replace(FOUND, proof=loaded))
        except ValueError as error:
            assert "\n" not in str(error)
        else:
            assert float(proven) >= float(FOUND.score) - 1e-12


def test_branches_that_share_what_they_are_made_of_can_be_saved(tmp_path: Path) -> None:
    (leaf, *_) = leaves = _proof(FOUND)
    Proof({0: [*leaves, leaf], 1: [leaf]}).save(tmp_path / "proof")
    loaded = Proof.load(tmp_path / "proof").leaves
    assert [len(loaded[b]) for b in (0, 1)] == [len(leaves) + 1, 1]
    assert all(np.array_equal(getattr(loaded[1][0], name), getattr(leaf, name)) for name in NAMES)


def test_files_that_are_no_proofs(tmp_path: Path) -> None:
    path = tmp_path / "proof"
    Proof({0: _proof(FOUND)}).save(path)
    tensors = load_file(path)
    for change, match in (
        ({"0.x.path": torch.zeros(1)}, "it has '0.x.path'"),
        ({"else": torch.zeros(1)}, "it has 'else'"),
        ({"0.99.path": torch.zeros(1)}, "sentence 0 is not whole"),
    ):
        save_file({**tensors, **change}, path)
        refuses(match, Proof.load, path)
    save_file({name: x for name, x in tensors.items() if name != "0.0.root"}, path)
    refuses("sentence 0 is not whole", Proof.load, path)
    for text in (b"", b"{}", b"x" * 100):
        path.write_bytes(text)
        refuses("no proof", Proof.load, path)
    save_file({f"{'9' * 5000}.0.root": torch.zeros(())}, tmp_path / "long")
    save_file({"0.0.root": torch.zeros((), dtype=torch.bfloat16)}, tmp_path / "half")
    for name in ("long", "half"):
        with pytest.raises(ValueError, match=f"{name}: no proof") as refused:
            gp.Proof.load(tmp_path / name)
        assert len(str(refused.value)) < 500
    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        gp.Proof({}).save(tmp_path)


def test_sums_that_leave_the_range_of_doubles() -> None:
    """Sums of huge prices would become -inf, below every tree."""
    arcs = torch.zeros(1, 3, 3, dtype=torch.float64)
    arcs[0, 0, 1], arcs[0, 1, 2] = 5.0, 5.0
    scores = gp.Scores(arcs)
    found = gp.decode(scores, "mst", proof=True)
    nothing = torch.zeros(1, dtype=torch.float64)
    worse = replace(found, heads=torch.tensor([[-1, 2, 0]]), score=nothing, bound=nothing)
    (leaf,) = _proof(found)
    penalties = leaf.penalties.copy()
    penalties[0] = -1.7e308
    huge = replace(leaf, penalties=penalties, root=np.array(1.7e308))
    _refused(replace(worse, proof=gp.Proof({0: (huge,)})), "no tree scores more than", scores)
    pairs = gp.Scores(arcs, grandparents=torch.zeros(1, 3, 3, 3, dtype=torch.float64))
    cuts = {"cuts": np.array([[1, 1, 2, 0]] * 2), "cut_sets": np.zeros((2, 3), dtype=bool)}
    dear = replace(leaf, **cuts, cut_prices=np.array([1.7e308, 1.7e308]))
    _refused(replace(worse, proof=gp.Proof({0: (dear,)})), "no tree scores more than", pairs)


def test_branches_of_any_depth() -> None:
    """A line, however many decisions there are."""
    scores = gp.Scores(torch.zeros(1, 3, 3, dtype=torch.float64))
    found = gp.decode(scores, "mst", proof=True)
    (leaf,) = _proof(found)
    step = np.array([[0, 1, -1, 0]] * 3000)
    leaves = tuple(replace(leaf, path=np.concatenate([step[:k], [[0, 1, -1, 1]]])) for k in range(3000))
    _refused(replace(found, proof=gp.Proof({0: leaves})), "proof of sentence 0", scores)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"constraints": 3}, "constraints must be a list"),
        ({"constraints": [3]}, "constraints must be a list"),
        ({"single_root": []}, "single_root"),
        ({"projective": "yes"}, "projective"),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], says: str) -> None:
    refuses(says, gp.verify, SCORES, FOUND, **wrong)
    refuses("wanted Scores", gp.verify, 3, FOUND)


def test_a_pair_that_a_penalty_takes_out_of_range() -> None:
    """Of two trees the worse one, with a penalty that would make the pair of the better one -inf."""
    least = float(np.finfo(np.float64).min)
    pairs = torch.zeros(1, 3, 3, 3, dtype=torch.float64)
    pairs[0, 0, 1, 2], pairs[0, 0, 2, 1] = least / 2, least
    scores = gp.Scores(torch.zeros(1, 3, 3, dtype=torch.float64), grandparents=pairs)
    found = gp.decode(scores, "ppc", exact=True, proof=True)
    assert found.heads.tolist() == [[-1, 0, 1]]
    one, other = np.zeros((3, 3)), np.zeros((3, 3))
    one[1, 2], other[2, 1], other[1, 2] = 1.6e308, least, -1e308
    leaves = (
        ProofLeaf(path_of([(0, 1, -1, 1), (0, 2, -1, 0)]), one),
        ProofLeaf(path_of([(0, 1, -1, 1), (0, 2, -1, 1)]), np.zeros((3, 3)), root=np.array(-least)),
        ProofLeaf(path_of([(0, 1, -1, 0)]), other),
    )
    worse = torch.tensor([least], dtype=torch.float64)
    forged = replace(found, heads=torch.tensor([[-1, 2, 0]]), score=worse, bound=worse, proof=gp.Proof({0: leaves}))
    _refused(forged, "no tree scores more than", scores)
