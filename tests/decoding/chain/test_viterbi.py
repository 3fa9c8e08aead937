"""Every way to decode a chain: against enumeration, against one another, and what it says of itself."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gpuparse.decoding.viterbi import Transitions, viterbi
from gpuparse.ops.backend import choose
from gpuparse.structures.tags import as_transitions, chain_scores
from tests.decoding.refusals import refuses
from tests.oracle import all_chains

pytestmark = pytest.mark.usefixtures("one_thread")

INF, NAN = math.inf, math.nan
LEAN = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
EXACT: tuple[dict[str, Any], ...] = (
    {"method": "auto"},
    {"method": "dense"},
    {"method": "column_generation"},
    {"method": "column_generation", "pricing": "averaged"},
    {"method": "column_generation", "pricing": "averaged", "initial": 3},
)
METHODS = (*EXACT, {"method": "beam", "beam": 1}, {"method": "beam", "beam": 2}, {"method": "beam", "beam": 99})


@pytest.fixture(params=["kernels", "torch"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The compiled kernels, and the plain torch path in their place."""
    if request.param == "torch":
        monkeypatch.setattr(choose, "_prepared", lambda *_: (None, "GPUPARSE_BACKEND=torch"))
    return str(request.param)


def random_batch(
    seed: int,
    *,
    B: int = 6,
    n: int = 5,
    T: int = 4,
    own: bool = False,
    dtype: torch.dtype = torch.float64,
    forbidden: float = 0.0,
    unary: float = 1.0,
    transitions: float = 1.0,
    rounded: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores with a share of -inf but tag 0 always possible, and NaN where nothing is read."""
    generator = torch.Generator().manual_seed(seed)
    theta = unary * torch.randn(B, n, T, generator=generator, dtype=torch.float64)
    tau = transitions * torch.randn(*((B, n - 1) if own else ()), T, T, generator=generator, dtype=torch.float64)
    if rounded:
        theta, tau = theta.round(), tau.round()
    theta[..., 1:][torch.rand(B, n, T - 1, generator=generator) < forbidden] = -INF
    mask = torch.rand(tau.shape, generator=generator) < forbidden
    mask[..., 0, 0] = False
    tau[mask] = -INF
    lengths = torch.randint(1, n + 1, (B,), generator=generator)
    past = torch.arange(n) >= lengths[:, None]
    theta[past] = NAN
    if own:
        tau[past[:, 1:]] = NAN
    return theta.to(dtype), tau.to(dtype), lengths


def enumerated(unary: Tensor, transitions: Tensor, lengths: Tensor) -> Tensor:
    """The best score of each sentence, by looking at every chain."""
    best = []
    for b, n in enumerate(lengths.tolist()):
        chains = all_chains(n, unary.shape[2])
        theta = unary[b : b + 1, :n].double()
        tau = transitions if transitions.dim() == 2 else transitions[b : b + 1, : n - 1]
        tau = as_transitions(tau.double(), theta)
        best.append(chain_scores(theta, tau, chains[:, None], torch.tensor([n])).max())
    return torch.stack(best)


@pytest.mark.parametrize("options", METHODS, ids=str)
@pytest.mark.parametrize("own", (False, True))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("forbidden", (0.0, 0.5))
def test_against_enumeration(
    options: dict[str, Any], own: bool, dtype: torch.dtype, forbidden: float, backend: str
) -> None:
    """Certified means best; no bound is below the best; the exact methods certify everything."""
    for seed in range(8):
        scale, rounded = (0.2, 1.0, 5.0)[seed % 3], seed % 4 == 0
        given = random_batch(seed, own=own, dtype=dtype, forbidden=forbidden, transitions=scale, rounded=rounded)
        unary, transitions, lengths = given
        best = enumerated(unary, transitions, lengths)
        try:
            found = viterbi(unary, transitions, lengths, **options)
        except ValueError as error:
            assert options["method"] == "beam" and forbidden and "widen it" in str(error)
            continue
        assert (found.tags >= 0).equal(torch.arange(5) < lengths[:, None])
        scores = chain_scores(unary, as_transitions(transitions, unary), found.tags, lengths)
        torch.testing.assert_close(found.score, scores)
        assert (found.score <= best + 1e-9).all() and (found.bound >= best - 1e-9).all()
        torch.testing.assert_close(found.score[found.certified], best[found.certified], rtol=0, atol=1e-9)
        torch.testing.assert_close(found.bound[found.certified], found.score[found.certified], rtol=0, atol=0)
        if options["method"] != "beam" or options["beam"] >= unary.shape[2]:
            assert found.certified.all()
        assert (found.iterations >= 1).all()
        assert set(found.stats) == {"states", "transitions", "switched"}
        assert all(value.shape == lengths.shape for value in found.stats.values())


@pytest.mark.parametrize("pricing", ("forward", "averaged"))
def test_ten_thousand_instances(pricing: str) -> None:
    """Column generation finds the dense program's score; the sweep finds its tags, among ties too."""
    different = 0
    for seed in range(100):
        unary, transitions, lengths = random_batch(
            seed,
            B=100,
            n=1 + seed % 12,
            T=1 + (seed * 7) % 60,
            own=seed % 5 == 4 and seed % 12 > 0,
            dtype=(torch.float32, torch.float64)[seed % 2],
            forbidden=(0.0, 0.0, 0.0, 0.4)[seed % 4],
            unary=(0.3, 1.0, 4.0, 1e4)[seed % 4],
            transitions=(0.1, 1.0, 3.0)[seed % 3],
            rounded=seed % 7 == 0,
        )
        dense = viterbi(unary, transitions, lengths, method="dense")
        found = viterbi(unary, transitions, lengths, method="column_generation", pricing=pricing)  # type: ignore[arg-type]
        if pricing == "forward":
            assert torch.equal(found.tags, dense.tags)
        assert found.certified.all()
        scale = dense.score.abs().clamp(min=1.0)
        different += int(((found.score - dense.score).abs() > 1e-12 * scale).sum())
    assert different == 0


def test_rounds_that_end_by_themselves() -> None:
    """Averaged pricing where it is not left to the dense program: several rounds in many sentences, always the best.
    Of so many tags the sweep finds the same."""
    own = several = count = 0
    for seed in range(100):
        size = {"B": 30, "n": 2 + seed % 11, "T": 150 + seed % 30}
        scale, rounded = (6.0, 10.0)[seed % 2], seed % 5 == 0
        unary, transitions, lengths = random_batch(seed, **size, unary=scale, transitions=0.5, rounded=rounded)
        dense = viterbi(unary, transitions, lengths, method="dense")
        found = viterbi(unary, transitions, lengths, **EXACT[3], initial=1 + seed % 2)
        torch.testing.assert_close(found.score, dense.score, rtol=1e-13, atol=1e-13)
        swept = viterbi(unary, transitions, lengths, method="column_generation")
        assert torch.equal(swept.tags, dense.tags) and swept.certified.all()
        alone = (found.stats["switched"] == 0) & (lengths > 1)
        own, several = own + int(alone.sum()), several + int((alone & (found.iterations > 1)).sum())
        count += int((lengths > 1).sum())
    assert own > 0.9 * count and several > 0.2 * count


@pytest.mark.parametrize("pricing", ("forward", "averaged"))
def test_little_is_looked_at_where_words_decide(pricing: str) -> None:
    unary, transitions, lengths = random_batch(0, B=20, n=12, T=60, unary=1.0, transitions=0.01)
    found = viterbi(unary, transitions, lengths, method="column_generation", pricing=pricing)  # type: ignore[arg-type]
    dense = viterbi(unary, transitions, lengths, method="dense")
    assert torch.equal(dense.stats["transitions"], 60 * 60 * (lengths - 1))
    assert (found.stats["transitions"].sum() * 4 < dense.stats["transitions"].sum()).item()
    assert (found.stats["switched"] > 0).double().mean() <= 0.1


@pytest.mark.parametrize("pricing", ("forward", "averaged"))
def test_the_worst_case_goes_over_to_the_dense_program(pricing: str) -> None:
    """Transitions that decide everything: hardly a state can be left out, and the work stays near the dense one's."""
    unary, transitions, lengths = random_batch(0, B=20, n=30, T=40, unary=0.01, transitions=10.0)
    found = viterbi(unary, transitions, lengths, method="column_generation", pricing=pricing)  # type: ignore[arg-type]
    long = lengths > 8
    assert (found.stats["switched"][long] > 0).all()
    assert (found.stats["transitions"][long] <= 1.5 * 40 * 40 * (lengths[long] - 1)).all()
    torch.testing.assert_close(found.score, viterbi(unary, transitions, lengths, method="dense").score)


@LEAN
@given(
    st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 9), st.sampled_from([1e-3, 1.0, 50.0, 1e4]), st.booleans()
)
def test_any_shape_and_magnitude(seed: int, n: int, T: int, magnitude: float, own: bool) -> None:
    scale, forbidden = (seed % 5) * magnitude / 2, (seed % 3) * 0.3
    given = random_batch(seed, B=3, n=n, T=T, own=own, forbidden=forbidden, unary=magnitude, transitions=scale)
    unary, transitions, lengths = given
    dense, *others = [viterbi(unary, transitions, lengths, **options) for options in EXACT[1:]]
    for other in others:
        torch.testing.assert_close(other.score, dense.score, rtol=1e-13, atol=1e-13)


def test_forbidden_transitions_still_leave_states_out() -> None:
    """Where a tag cannot be followed by every other, no single state bounds the rest; a few of them together do."""
    unary, transitions, lengths = random_batch(3, B=30, n=20, T=40, unary=8.0, transitions=0.5)
    transitions[torch.rand(40, 40, generator=torch.Generator().manual_seed(1)) < 0.3] = -INF
    found = viterbi(unary, transitions, lengths, method="column_generation")
    assert torch.equal(found.tags, viterbi(unary, transitions, lengths, method="dense").tags)
    assert found.stats["transitions"].sum() * 2 < 40 * 40 * (lengths - 1).sum()


@pytest.mark.parametrize("options", EXACT, ids=str)
def test_gradient_is_the_chain(options: dict[str, Any], backend: str) -> None:
    unary, transitions, lengths = random_batch(5, forbidden=0.2)
    unary.nan_to_num_(nan=0.0, neginf=-INF).requires_grad_()
    transitions.requires_grad_()
    found = viterbi(unary, transitions, lengths, **options)
    found.score.sum().backward()
    word = torch.arange(5) < lengths[:, None]
    chosen = torch.nn.functional.one_hot(found.tags.clamp(min=0), 4) * word[..., None]
    torch.testing.assert_close(unary.grad, chosen.double())
    assert transitions.grad.sum() == (lengths - 1).sum()


def test_prepared_transitions_are_the_same() -> None:
    unary, transitions, lengths = random_batch(1, T=20)
    prepared = Transitions(transitions)
    for options in METHODS:
        a, b = viterbi(unary, transitions, lengths, **options), viterbi(unary, prepared, lengths, **options)
        assert torch.equal(a.tags, b.tags) and torch.equal(a.score, b.score) and torch.equal(a.bound, b.bound)
    assert repr(prepared) == "Transitions(tags: 20)"


def test_auto_is_dense_for_transitions_of_each_place() -> None:
    unary, transitions, lengths = random_batch(1, T=30, own=True)
    counted = viterbi(unary, transitions, lengths).stats["transitions"]
    assert torch.equal(counted, 900 * (lengths - 1))


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_without_looking_bad_sentences_get_no_tags(options: dict[str, Any], backend: str) -> None:
    unary, transitions, lengths = random_batch(2)
    unary.nan_to_num_(nan=0.0)
    lengths[:] = 5
    unary[0, 1, 2] = NAN
    unary[1, 0, 0] = INF
    unary[2, 3] = -INF
    found = viterbi(unary, transitions, lengths, validate_args=False, **options)
    assert (found.tags[:3] == -1).all() and (found.tags[3:] >= 0).all()
    assert found.score[:3].isneginf().all() and not found.certified[:3].any()
    transitions[1, 1] = NAN
    found = viterbi(unary, transitions, torch.tensor([5, 5, 5, 5, 1, 5]), validate_args=False, **options)
    assert (found.tags[:4] == -1).all() and found.tags[4, 0] >= 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unary": torch.zeros(2, 3)}, r"unary must have shape \[B, n, T\]"),
        ({"unary": torch.zeros(2, 3, 4, dtype=torch.int64)}, "unary must be float32 or float64, got int64"),
        ({"unary": [[1.0]]}, "unary must be a tensor, got list"),
        ({"transitions": torch.zeros(4, 5)}, r"transitions must have shape \[T, T\] = \[4, 4\] or"),
        (
            {"transitions": torch.zeros(4, 4, dtype=torch.float64)},
            "transitions must have the dtype and device of unary",
        ),
        ({"lengths": [3]}, r"lengths must have shape \[B\] = \[2\] like unary, got \[1\]"),
        ({"lengths": [3, 4]}, r"lengths\[1\] is 4, but sentence 1 must have 1 to 3 words"),
        ({"lengths": [0, 3]}, r"lengths\[0\] is 0"),
        ({"method": "fast"}, "method is 'fast'; wanted one of 'auto', 'dense', 'column_generation', 'beam'"),
        ({"pricing": "backward"}, "pricing is 'backward'; wanted one of 'forward', 'averaged'"),
        ({"beam": 0}, "beam is 0; wanted a whole number, 1 or more"),
        ({"beam": 2.5}, "beam is 2.5; wanted"),
        ({"initial": True}, "initial is True; wanted"),
    ],
)
def test_errors(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"unary": torch.zeros(2, 3, 4), "transitions": torch.zeros(4, 4), **change}
    refuses(message, viterbi, given.pop("unary"), given.pop("transitions"), given.pop("lengths", None), **given)


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_errors_of_values(options: dict[str, Any], backend: str) -> None:
    unary, transitions = torch.zeros(2, 3, 4), torch.zeros(4, 4)
    unary[1, 2, 3] = NAN
    refuses(r"unary\[1, 2, 3\] is nan \(sentence 1, word 2, tag 3\)", viterbi, unary, transitions, **options)
    viterbi(unary, transitions, [3, 2], **options)  # not read
    unary[1, 2] = -INF
    with pytest.raises(ValueError, match="sentence 1 allows no chain of tags: every tag of word 2 scores -inf"):
        viterbi(unary, transitions, **options)
    transitions[0, 2] = INF
    refuses(r"transitions\[0, 2\] is inf", viterbi, torch.zeros(2, 3, 4), transitions, **options)
    with pytest.raises(ValueError, match="sentence 0 allows no chain of tags under the -inf scores"):
        viterbi(torch.zeros(2, 3, 4), torch.full((4, 4), -INF), **options)
    own = torch.zeros(2, 2, 4, 4)
    own[1, 1, 3, 0] = NAN
    if options.get("beam", 9) < 4 and backend == "kernels":
        return  # the beam does not read it
    refuses(r"transitions\[1, 1, 3, 0\] is nan", viterbi, torch.zeros(2, 3, 4), own, **options)


def test_a_beam_that_finds_nothing_says_so(backend: str) -> None:
    unary, transitions = torch.zeros(1, 2, 3), torch.full((3, 3), -INF)
    unary[0, 0, 0] = 5.0
    transitions[1, 1] = 0.0
    with pytest.raises(ValueError, match="beam of 1 finds no chain of tags for sentence 0, though there is one; widen"):
        viterbi(unary, transitions, method="beam", beam=1)
    assert viterbi(unary, transitions, method="beam", beam=3).tags.tolist() == [[1, 1]]


def test_no_sentences() -> None:
    for options in METHODS:
        found = viterbi(torch.zeros(0, 3, 20), torch.zeros(20, 20), **options)
        assert found.tags.shape == (0, 3) and found.score.shape == (0,)


@pytest.mark.parametrize("options", METHODS, ids=str)
def test_opcheck_and_compile(options: dict[str, Any]) -> None:
    """One graph without a break."""
    unary, transitions, lengths = random_batch(4, T=15)

    def score(theta: Tensor) -> Tensor:
        return viterbi(theta, transitions, lengths, **options).score.sum()

    unary = unary.nan_to_num(nan=0.0)
    compiled = torch.compile(score, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(unary), score(unary))


def test_prepared_transitions_in_a_compiled_function() -> None:
    """Where torch does not count changes, nothing is taken for stale."""
    unary, transitions, lengths = random_batch(4, T=15)
    unary, prepared = unary.nan_to_num(nan=0.0), Transitions(transitions)
    torch._dynamo.reset()
    compiled = torch.compile(lambda theta: viterbi(theta, prepared, lengths).score.sum(), backend="aot_eager")
    torch.testing.assert_close(compiled(unary), viterbi(unary, transitions, lengths).score.sum())


def test_what_transitions_can_be_made_of() -> None:
    refuses(r"transitions must have shape \[T, T\], got \[2, 3\]", Transitions, torch.zeros(2, 3))
    refuses("got list", Transitions, [[0.0]])
    refuses("must be float32 or float64, got int64", Transitions, torch.zeros(2, 2, dtype=torch.int64))


def test_stale_transitions_are_refused() -> None:
    unary, transitions, lengths = random_batch(1, T=20)
    prepared = Transitions(transitions)
    viterbi(unary, prepared, lengths)
    transitions += 1.0
    refuses("transitions were changed after", viterbi, unary, prepared, lengths)


@pytest.mark.parametrize("options", EXACT[2:], ids=str)
@pytest.mark.parametrize("mask", (-1e5, -1e9, -1e13, -1e16, -1e30))
def test_soft_masks_cost_no_certificate(options: dict[str, Any], mask: float) -> None:
    """Scores so low that nothing beside them keeps its digits."""
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        unary, transitions = torch.randn(8, 3, 44, generator=generator), torch.randn(44, 44, generator=generator)
        transitions[:, seed % 44] = mask
        transitions[(seed * 7) % 44] = mask
        unary[:, :, seed % 44] = 10.0
        unary[:, 1, (seed * 5) % 44] = mask
        dense = viterbi(unary, transitions, method="dense")
        found = viterbi(unary, transitions, **options)
        torch.testing.assert_close(found.score[found.certified], dense.score[found.certified], rtol=1e-12, atol=1e-12)


def test_a_certified_bound_is_the_score_with_a_gradient_too() -> None:
    unary, transitions, _ = random_batch(7, B=50, n=20, T=30)
    unary.nan_to_num_().requires_grad_()
    for options in METHODS:
        found = viterbi(unary, transitions, **options)
        assert torch.equal(found.bound[found.certified], found.score.detach()[found.certified])
        assert (found.bound >= found.score.detach()).all()


def test_numbers_beyond_reason() -> None:
    unary, transitions, lengths = random_batch(1, T=50)
    for options in ({"method": "beam", "beam": 2**40}, {**EXACT[3], "initial": 2**40}):
        assert viterbi(unary, transitions, lengths, **options).certified.all()
    counted = viterbi(unary, transitions, torch.zeros_like(lengths), method="dense", validate_args=False)
    assert not counted.stats["transitions"].any() and (counted.tags == -1).all()
