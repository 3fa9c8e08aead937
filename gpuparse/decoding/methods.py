"""The one place that chooses among inference methods: from scores to parses.

A method is a function ``run(scores, *, projective, single_root, proof, <its options>) -> Parse`` with an entry in
``METHODS``; everything else (what it can do, its options and their checks, "auto", the messages, what ``help(decode)``
says of it) follows from its entry there.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from gpuparse.decoding import exact
from gpuparse.decoding.bp.options import as_share
from gpuparse.decoding.bp.parsing import beliefs_of, best_trees
from gpuparse.decoding.dual.fallback import FEW, MANY, NODES, SPLITS, decompose
from gpuparse.decoding.dual.steps import check_step
from gpuparse.decoding.ilp.batch import easy_trees, no_words, solve_batch, under_constraints
from gpuparse.decoding.impossible import Bounds, without_impossible
from gpuparse.decoding.parse import Parse
from gpuparse.decoding.parts import KINDS
from gpuparse.decoding.ppc.batch import parse_price_cut
from gpuparse.decoding.ppc.brute import solve_all
from gpuparse.decoding.ppc.program import POLYTOPES, PRICED
from gpuparse.decoding.priced import check_pricing
from gpuparse.decoding.proving import prove
from gpuparse.decoding.scores import Scores
from gpuparse.structures.trees import as_flag
from gpuparse.system.quote import quoted

__all__ = ["METHODS", "Method", "Option", "Parse", "decode"]

Check = Callable[[Any, str], object]


@dataclass(frozen=True)
class Option:
    """An option of a method."""

    about: str
    check: Check | None = None  # of a value and the option's name, a ValueError; None: the method looks at it itself


@dataclass(frozen=True)
class Method:
    """An inference method and what it can do."""

    run: Callable[..., Parse]
    about: str
    projective: bool = False  # finds projective trees
    nonprojective: bool = True  # finds trees whose arcs may cross
    parts: tuple[str, ...] = ()  # kinds of parts of several arcs that it takes
    waits: bool = True  # looks at values, which waits for the device
    exact: bool = False  # finds the best tree in any case
    options: Mapping[str, Option] = field(default_factory=dict)  # beyond those that every method has


def decode(
    scores: Scores,
    method: str = "auto",
    *,
    projective: bool = False,
    single_root: bool = True,
    proof: bool = False,
    **options: Any,
) -> Parse:
    """Best trees, with their labels, under the scores.

    Args:
        scores: of arcs and, if wanted, labels and pairs of arcs.
        method: one of those below, or "auto": the first of them that takes the scores and the options, "dd" with its
            fallback. ``exact`` is no option of those that are exact in any case, but "auto" takes it for them too.
        projective: only trees without crossing arcs. "eisner" finds no others in any case.
        single_root: one word hangs on the root (default), or any number.
        proof: say why certified answers are best, in ``Parse.proof``; see ``gpuparse.verify``. Waits for the device.
        options: of the method.

    Where the scores' values may be looked at (on a CPU, or if they were made with ``validate_args=True``), a sentence
    without a tree is a ValueError; elsewhere nothing waits for the device, and such a sentence gets heads of -1, a
    score of -inf and no certificate.

    Example:
        >>> import torch, gpuparse as gp
        >>> generator = torch.Generator().manual_seed(0)
        >>> arcs, pairs = torch.randn(2, 5, 5, generator=generator), torch.randn(2, 5, 5, 5, generator=generator)
        >>> scores = gp.Scores(arcs, lengths=[4, 3], grandparents=pairs)
        >>> parse = gp.decode(scores, "ppc", exact=True)
        >>> parse.heads.shape, parse.certified
        (torch.Size([2, 5]), tensor([True, True]))
        >>> gp.decode(scores.first_order(), projective=True).heads.shape
        torch.Size([2, 5])
    """
    if not isinstance(scores, Scores):
        raise ValueError(f"scores must be gpuparse.Scores, got {type(scores).__name__}; use Scores(arcs, lengths)")
    projective, single_root = as_flag(projective, "projective"), as_flag(single_root, "single_root")
    proof = as_flag(proof, "proof")
    chosen = _choose(scores, method, projective, options)
    if method == "auto" and METHODS[chosen].exact and "exact" in options:
        as_flag(options.pop("exact"), "exact")
    known = METHODS[chosen].options
    for name in options:
        if name not in known:
            raise ValueError(f'method "{chosen}" has no option {quoted(name)}; it has {", ".join(known) or "none"}')
    for name, value in options.items():
        if (check := known[name].check) is not None:
            check(value, name)
    if method == "auto" and "fallback" in known:
        options = {"fallback": True, **options}
    trees = {"projective": projective or chosen == "eisner", "single_root": single_root}
    asked: dict[str, Any] = {**trees, "every_tree": "constraints" not in options}
    asked["bounds"] = Bounds()
    if proof:
        scores.check_pairs("proof=True")
    near = without_impossible(scores, **asked)
    found = METHODS[chosen].run(near, **trees, proof=proof, **options)
    nearer = without_impossible(near, **asked, known=found.heads) if near.validates else near
    if nearer is not near:  # with the tree that is now known: once more, more finely
        near, found = nearer, METHODS[chosen].run(nearer, **trees, proof=proof, **options)
    leaves = {} if found.proof is None else found.proof.leaves
    return replace(found, proof=prove(scores, near, found, leaves, **trees) if proof else None)


def _choose(scores: Scores, method: str, projective: bool, options: Collection[str]) -> str:
    """The name of a method that can do what is asked for; of several the first that has the options."""
    if not isinstance(method, str):
        raise ValueError(f'method must be the name of one, such as "auto", got a {type(method).__name__}')
    parts = " and ".join(scores.kinds)
    leave_out = "pass scores.first_order() to leave these out"
    trees = [name for name, m in METHODS.items() if (m.projective if projective else m.nonprojective)]
    able = [name for name in trees if set(scores.kinds) <= set(METHODS[name].parts)]
    if method == "auto":
        if not able:
            kind = "projective" if projective else "non-projective"
            raise ValueError(
                f"no method finds {kind} trees under {parts}: those there are ({', '.join(trees)}) are first-order; "
                + leave_out
            )
        return next((name for name in able if _takes(METHODS[name], options)), able[0])
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(['auto', *METHODS])}, got {quoted(method)}")
    if projective and method not in trees:
        instead = " or ".join(f'"{name}"' for name in able or trees)
        raise ValueError(f'method "{method}" finds non-projective trees; for projective=True use {instead}')
    if method not in able and method in trees:
        takes = f"takes {' and '.join(METHODS[method].parts)}" if METHODS[method].parts else "is first-order"
        raise ValueError(f'method "{method}" {takes}, but scores have {parts}; {leave_out}')
    return method


def _takes(method: Method, options: Collection[str]) -> bool:
    return set(options) <= {*method.options, *(["exact"] if method.exact else [])}


def _mst(scores: Scores, *, projective: bool, single_root: bool, proof: bool) -> Parse:
    return exact.first_order(scores, projective=projective, single_root=single_root)


def _eisner(scores: Scores, *, projective: bool, single_root: bool, proof: bool, pricing: bool | str = "auto") -> Parse:
    """Eisner's algorithm, or with pairs of arcs that of Koo and Collins; ``pricing`` leaves most pairs unscored."""
    if scores.kinds:
        return exact.second_order(scores, single_root=single_root, pricing=pricing)
    return exact.first_order(scores, projective=True, single_root=single_root)


def _bp(
    scores: Scores,
    *,
    projective: bool,
    single_root: bool,
    proof: bool,
    time_limit: float = math.inf,
    schedule: str = "serial",
    variables: str = "heads",
    **options: Any,
) -> Parse:
    """The tree with the most links that belief propagation believes in: of little risk, but rarely proven best.

    The bound is that of the best tree were every arc's pairs the best that it can have. A tree with a forbidden pair is
    replaced by the best one, by "ilp", which waits for the device, with its bound and certificate.
    """
    trees: dict[str, Any] = {"projective": projective, "single_root": single_root}
    easy = easy_trees(scores, **trees)
    folded = scores.fold_labels()
    with torch.no_grad():
        beliefs = beliefs_of(folded, **trees, schedule=schedule, variables=variables, **options)
        heads = best_trees(beliefs, folded, **trees).masked_fill(~easy.certified[:, None], -1)
    stats = {"residual": beliefs.residuals, "converged": beliefs.converged}
    none = torch.zeros_like(easy.certified)
    found = Parse.of(scores, heads, bound=easy.bound, certified=none, iterations=beliefs.iterations, stats=stats)
    lost = easy.certified & found.score.isneginf()
    if scores.second_order and bool(lost.any()):
        first = replace(easy, certified=lost)  # the others are left alone
        rows = lost.nonzero()[:, 0]
        best = solve_batch(scores, first, no_words(scores), (), **trees, time_limit=time_limit).take(rows)
        kept = {name: x[rows] for name, x in stats.items()}
        found = found.put(rows, replace(best, iterations=beliefs.iterations[rows], stats=kept, remarks={}))
    score, there = found.score.detach(), found.heads[:, 1] >= 0
    certified = there & (found.certified | (score >= found.bound))
    return replace(found, certified=certified)


def _dd(scores: Scores, *, projective: bool, single_root: bool, proof: bool, **options: Any) -> Parse:
    """A spanning tree and head automata that must agree, by dual decomposition, on the device; waits for it.

    Where they do, the tree is proven best. What is left goes on by ``fallback`` to parse, price and cut, and by
    ``exact`` to branch and bound.
    """

    def solve(possible: Bool[Tensor, " B"]) -> Parse:
        return decompose(scores, possible, single_root=single_root, proof=proof, **options)

    return _relaxed(scores, {"projective": projective, "single_root": single_root}, solve)


def _ppc(scores: Scores, *, projective: bool, single_root: bool, proof: bool, **options: Any) -> Parse:
    """The linear program of arcs and pairs by parse, price and cut; waits for the device, and solves on the CPU.

    Where its solution is a tree, that is proven best. Elsewhere it is rounded to one, and ``bound`` is its value; or
    with ``exact`` branch and bound goes on to the best tree. ``remarks``: where the time was up, or the solver failed.
    """
    trees: dict[str, Any] = {"projective": projective, "single_root": single_root}
    return _relaxed(
        scores, trees, lambda _: parse_price_cut(scores, **trees, proof=proof and not projective, **options)
    )


def _lp(scores: Scores, *, projective: bool, single_root: bool, proof: bool, **options: Any) -> Parse:
    """The same linear program with every pair in it, solved at once: what "ppc" is compared with."""
    trees: dict[str, Any] = {"projective": projective, "single_root": single_root}
    return _relaxed(scores, trees, lambda _: solve_all(scores, **trees, proof=proof and not projective, **options))


def _relaxed(scores: Scores, trees: dict[str, Any], solve: Callable[[Bool[Tensor, " B"]], Parse]) -> Parse:
    """What a method for second-order scores finds, given which sentences have a tree by their
    arcs; where it knows that there is none, that is said."""
    possible = exact.first_order(scores.first_order(), **trees)
    if not scores.kinds:
        return possible
    by_arcs = possible.certified
    found = solve(by_arcs)
    there = by_arcs & (found.heads[:, 1] >= 0) & ~found.score.detach().isneginf()
    none = by_arcs & ~there & found.bound.isneginf()
    if scores.validates and bool(none.any()):
        b = int(none.nonzero()[0])
        kinds = " and ".join(scores.kinds)
        raise ValueError(f"{kinds} of sentence {b}: every tree has a forbidden part; allow more of them")
    return replace(
        found,
        heads=found.heads.masked_fill(~there[:, None], -1),
        labels=None if found.labels is None else found.labels.masked_fill(~there[:, None], -1),
        score=torch.where(by_arcs, found.score, -torch.inf),
        bound=torch.where(there | (by_arcs & ~none), found.bound, torch.inf),
        certified=found.certified & there,
    )


def _seconds(value: Any, name: str) -> None:
    if not isinstance(value, (int, float)) or not value >= 0:
        raise ValueError(f"{name} must be a number of seconds from 0 on, got {quoted(value)}")


def _whole(least: int, or_none: bool = False) -> Check:
    """A check of whole numbers from ``least`` on."""

    def check(value: Any, name: str) -> None:
        if or_none and value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number from {least} on, got {quoted(value)}")

    return check


def _one_of(names: Collection[str], others: str = "") -> Check:
    """A check of names; ``others`` says what those go with that are not among them."""

    def check(value: Any, name: str) -> None:
        if value not in names:
            raise ValueError(f"{name} must be one of {', '.join(names)}{others}, got {quoted(value)}")

    return check


def _start(value: Any, name: str) -> None:
    if value is not None and not isinstance(value, Parse):
        raise ValueError(f"{name} must be a gpuparse.Parse, got {type(value).__name__}")


THIRD = (*KINDS, "grandsiblings")
_THREADS = Option("that solve programs side by side; by default as many as there are processors", _whole(1, True))
_EXACT = Option("go on by branch and bound where the best tree is not yet proven", as_flag)
METHODS: dict[str, Method] = {  # "auto" takes the first that can
    "mst": Method(
        _mst,
        "maximum spanning arborescence: non-projective, first order, exact",
        waits=False,
        exact=True,
    ),
    "eisner": Method(
        _eisner,
        "Eisner's algorithm: projective, first, second and third order, exact",
        projective=True,
        nonprojective=False,
        parts=THIRD,
        waits=False,
        exact=True,
        options={
            "pricing": Option(
                'score pairs of arcs only where they could matter: True, which waits for the device, False, or "auto": '
                "on a CPU, if they are scored lazily",
                check_pricing,
            ),
        },
    ),
    "dd": Method(
        _dd,
        "dual decomposition (gpuparse.decoding.dual): non-projective, second and third order",
        parts=THIRD,
        options={
            "iterations": Option(f"at most; by default {MANY}, or {FEW} with a fallback", _whole(1, True)),
            "step": Option("how far to go, a rule of gpuparse.decoding.dual", lambda value, _: check_step(value)),
            "exact": _EXACT,
            "fallback": Option('hand what is left open to "ppc"', as_flag),
            "nodes": Option(f"of branch and bound; by default {SPLITS}, {NODES} if exact", _whole(0, True)),
            "time_limit": Option("seconds for each sentence", _seconds),
            "threads": _THREADS,
        },
    ),
    "ilp": Method(
        under_constraints,
        "integer programs (gpuparse.decoding.ilp): first and second order, exact, under constraints; on the CPU",
        projective=True,
        parts=KINDS,
        options={
            "constraints": Option("what trees must look like, or should"),
            "words": Option("what constraints see of each sentence, lp.Words"),
            "heads": Option("how many of each word's best heads to begin with", _whole(1)),
            "labels": Option("how many of each arc's best labels", _whole(1)),
            "grow": Option("whether more of both join until the answer is proven", as_flag),
            "time_limit": Option("seconds for each sentence", _seconds),
            "start": Option("a Parse without constraints, whose trees stay where they can", _start),
        },
    ),
    "ppc": Method(
        _ppc,
        "parse, price and cut: second order; on the CPU",
        projective=True,
        parts=KINDS,
        options={
            "exact": _EXACT,
            "polytope": Option(
                '"tight" (with cuts) or "all" (as in the paper)', _one_of(PRICED, ' (others go with method "lp")')
            ),
            "time_limit": Option("seconds for each sentence", _seconds),
            "threads": _THREADS,
        },
    ),
    "lp": Method(
        _lp,
        'the same, every pair in one program: what "ppc" is compared with',
        projective=True,
        parts=KINDS,
        options={
            "polytope": Option('"arcgp", "onegp", "all" or "tight"', _one_of(POLYTOPES)),
            "lazy_rows": Option("add rows of pairs only where they are violated", as_flag),
            "time_limit": Option("seconds for each sentence", _seconds),
        },
    ),
    "bp": Method(
        _bp,
        "belief propagation (gpuparse.decoding.bp): first and second order, minimum risk",
        projective=True,
        parts=KINDS,
        options={
            **dict.fromkeys(
                ("iterations", "tolerance", "damping", "schedule", "variables"), Option("as of BeliefPropagation")
            ),
            "counted": Option("how much of GRAND's entropy counts where heads are variables, up to 1", as_share),
            "time_limit": Option('seconds for each tree with a forbidden pair, which "ilp" replaces', _seconds),
        },
    ),
}


def _described() -> str:
    """The methods and their options, for the docstring."""
    lines = ["", "Methods and their options:"]
    for name, method in METHODS.items():
        lines.append(f"    {name}: {method.about}.")
        for option, each in method.options.items():
            lines += textwrap.wrap(f"{option}: {each.about}.", 112, initial_indent=" " * 8, subsequent_indent=" " * 12)
    return textwrap.indent("\n".join(lines) + "\n", "    ")


if decode.__doc__ is not None:  # python -OO has none
    decode.__doc__ += _described()
