"""The one place that chooses among inference methods: from scores to parses.

A method is a function ``run(scores, *, projective, single_root, <its options>) -> Parse`` in ``METHODS``; everything
else (what it can do, its options, "auto", the messages) follows from its entry there.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float64, Int
from torch import Tensor

from gpuparse.bp.parsing import believe, best_trees
from gpuparse.distributions import SecondOrderTrees
from gpuparse.dual.fallback import decompose
from gpuparse.dual.steps import Step, check_step
from gpuparse.impossible import without_impossible
from gpuparse.lp import Constraint, Words
from gpuparse.lp.batch import Solved, hopeful_scores, solve_batch
from gpuparse.lp.brute import solve_all
from gpuparse.lp.check import as_constraints
from gpuparse.lp.grandparents import POLYTOPES, PRICED, Polytope
from gpuparse.lp.ppc_batch import parse_price_cut
from gpuparse.ops import EISNER, MATRIX_TREE, Structure
from gpuparse.parts import KINDS, Kind
from gpuparse.proofs import Proof
from gpuparse.proving import prove
from gpuparse.quote import quoted
from gpuparse.scores import Scores
from gpuparse.shifts import best_tree
from gpuparse.trees import as_flag, no_tree_error


@dataclass(frozen=True, eq=False)
class Parse:
    """What a decoder says of each sentence of a batch.

    Attributes:
        heads: [B, N]; -1 at node 0, past the end, and everywhere in a sentence for which there is no tree.
        labels: the best label of each word's arc [B, N], -1 where there is no arc; None if the scores have no labels.
        score: of the tree and its labels under all parts [B], float64; its gradient is the tree's parts. -inf where
            there is no tree.
        bound: no tree scores more [B], float64. +inf where nothing is known.
        certified: whether the answer is proven best [B]. Then ``bound`` equals ``score``.
        iterations: how many the method took [B]; 1 for one that needs no more.
        stats: what else the method counts, by name, each [B].
        remarks: what there is to say of sentences, by their index: why constraints cannot be satisfied, or why nothing
            was proven.
        proof: why certified answers are best, for ``gpuparse.verify``; None unless it was asked for.
    """

    heads: Int[Tensor, "B N"]
    labels: Int[Tensor, "B N"] | None
    score: Float64[Tensor, " B"]
    bound: Float64[Tensor, " B"]
    certified: Bool[Tensor, " B"]
    iterations: Int[Tensor, " B"]
    stats: dict[str, Tensor] = field(default_factory=dict)
    remarks: dict[int, str] = field(default_factory=dict)
    proof: Proof | None = None


@dataclass(frozen=True)
class Method:
    """An inference method and what it can do."""

    run: Callable[..., Parse]
    about: str
    projective: bool  # finds projective trees
    nonprojective: bool  # finds trees whose arcs may cross
    parts: tuple[Kind, ...] = ()  # kinds of pairs of arcs that it takes
    waits: bool = False  # looks at values, which waits for the device

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the options beyond those that every method has."""
        given = inspect.signature(self.run).parameters.values()
        names = [p.name for p in given if p.kind is inspect.Parameter.KEYWORD_ONLY]
        return tuple(name for name in names if name not in ("projective", "single_root", "proof"))


FLAGS = ("exact", "fallback", "grow", "lazy_rows")


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
        method: "mst" (non-projective, first order, exact), "eisner" (projective, first and second order, exact), "dd"
            (non-projective, second order, dual decomposition: see ``gpuparse.dual``), "ilp" (first and second order,
            exact, under constraints: see ``gpuparse.lp``; on the CPU), "ppc" (grandparents, parse, price and cut; on
            the CPU), "lp" (the same, every grandparent in one program), "bp" (first and second order, belief
            propagation: see ``gpuparse.bp``), or "auto": the first of these that takes the scores and the options,
            "dd" with its fallback.
        projective: only trees without crossing arcs. "eisner" finds no others in any case.
        single_root: one word hangs on the root (default), or any number.
        proof: say why certified answers are best, in ``Parse.proof``; see ``gpuparse.verify``. Waits for the device.
        options: of the method. Those of "ilp": ``constraints``; ``words``, what they see of each sentence; ``heads``
            and ``labels``, how many of each word's best to begin with; ``grow``, whether more join until the answer is
            proven; ``time_limit`` in seconds a sentence. Those of "dd": ``iterations`` at most, 500, or 100
            with a fallback; ``step``, how far to go;
            ``fallback``, to hand what they leave open to "ppc", if there are grandparents alone; ``exact``, to go on by
            branch and bound; ``nodes`` of that at most; ``time_limit`` for it; ``threads``. Those of "bp":
            ``iterations``, ``tolerance``, ``damping`` and ``schedule``, as of ``BeliefPropagation``; ``time_limit`` in
            seconds for each tree with a forbidden pair,
            which "ilp" replaces. Those of "ppc": ``exact``, to go on by branch and bound where the solution of the
            linear program is no tree; ``polytope``, "tight" (with cuts) or "all" (as in the paper); ``time_limit``;
            ``threads``. Those of "lp": ``polytope``, "arcgp", "onegp", "all" or "tight"; ``lazy_rows``, to add rows of
            pairs only where they are violated; ``time_limit``.

    Where the scores' values may be looked at (on a CPU, or if they were made with ``validate_args=True``), a sentence
    without a tree is a ValueError; elsewhere nothing waits for the device, and such a sentence gets heads of -1, a
    score of -inf and no certificate.
    """
    if not isinstance(scores, Scores):
        raise ValueError(f"scores must be gpuparse.Scores, got {type(scores).__name__}; use Scores(arcs, lengths)")
    projective, single_root = as_flag(projective, "projective"), as_flag(single_root, "single_root")
    proof = as_flag(proof, "proof")
    chosen = _choose(scores, method, projective, options)
    unknown = [name for name in options if name not in METHODS[chosen].options]
    if unknown:
        known = ", ".join(METHODS[chosen].options)
        raise ValueError(f'method "{chosen}" has no option {quoted(unknown[0])}; it has {known or "none"}')
    if method == "auto" and "fallback" in METHODS[chosen].options:
        options = {"fallback": True, **options}
    options |= {name: as_flag(options[name], name) for name in FLAGS if name in options}
    trees = {"projective": projective or chosen == "eisner", "single_root": single_root}
    asked: dict[str, Any] = {**trees, "every_tree": "constraints" not in options}
    near = without_impossible(scores, **asked)
    found = METHODS[chosen].run(near, **trees, proof=proof, **options)
    nearer = without_impossible(near, **asked, known=found.heads) if near.looks else near
    if nearer is not near:  # with the tree that is now known: once more, more finely
        near, found = nearer, METHODS[chosen].run(nearer, **trees, proof=proof, **options)
    leaves = {} if found.proof is None else found.proof.leaves
    return replace(found, proof=prove(scores, near, found, leaves, **trees) if proof else None)


def _choose(scores: Scores, method: str, projective: bool, options: Collection[str]) -> str:
    """The name of a method that can do what is asked for; of several the first that has the options."""
    if not isinstance(method, str):
        raise ValueError(f'method must be the name of one, such as "auto", got a {type(method).__name__}')
    parts = " and ".join(scores.second_order)
    leave_out = "pass scores.first_order() to leave these out"
    trees = [name for name, m in METHODS.items() if (m.projective if projective else m.nonprojective)]
    able = [name for name in trees if set(scores.second_order) <= set(METHODS[name].parts)]
    if method == "auto":
        if not able:
            kind = "projective" if projective else "non-projective"
            raise ValueError(
                f"no method finds {kind} trees under {parts}: those there are ({', '.join(trees)}) are first-order; "
                + leave_out
            )
        return next((name for name in able if set(options) <= set(METHODS[name].options)), able[0])
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(['auto', *METHODS])}, got {quoted(method)}")
    if projective and method not in trees:
        instead = " or ".join(f'"{name}"' for name in able or trees)
        raise ValueError(f'method "{method}" finds non-projective trees; for projective=True use {instead}')
    if method not in able and method in trees:
        takes = f"takes {' and '.join(METHODS[method].parts)}" if METHODS[method].parts else "is first-order"
        raise ValueError(f'method "{method}" {takes}, but scores have {parts}; {leave_out}')
    return method


def _first_order(
    scores: Scores, structure: Structure, *, projective: bool, single_root: bool, with_parts: Sequence[str] = ()
) -> Parse:
    """An exact best tree under arcs and labels: the best label of an arc depends on nothing else.

    ``with_parts``: whose best is added to the arcs, for the message where there is no tree.
    """
    folded = scores.fold_labels()
    arcs, lengths = folded.arcs.detach(), folded.lengths
    if scores.large:
        heads = best_tree(scores.of_each_arc(), lengths, structure, single_root)
    else:
        heads = structure.argmax(arcs, lengths, single_root)
    found = heads[:, 1] >= 0  # word 1 is in every sentence
    if scores.looks and not bool(found.all()):
        best = [*with_parts] if scores.labels is None else ["labels", *with_parts]
        name = f"arcs with their best {' and '.join(best)}" if best else "arcs"
        sentence = int((~found).nonzero()[0])
        raise no_tree_error(arcs, lengths, sentence, projective=projective, single_root=single_root, name=name)
    return _proven(scores, heads)


def _proven(scores: Scores, heads: Int[Tensor, "B N"]) -> Parse:
    """Best trees with the best labels of their arcs; -1 where there is none."""
    found = heads[:, 1] >= 0  # word 1 is in every sentence
    score = scores.total(heads)
    return Parse(
        heads=heads,
        labels=None if scores.labels is None else scores.best_labels(heads),
        score=score,
        bound=torch.where(found, score.detach(), torch.inf),
        certified=found,
        iterations=torch.ones_like(scores.lengths),
    )


def _second_order(scores: Scores, single_root: bool) -> Parse:
    """An exact best projective tree under arcs, labels, siblings and grandparents."""
    with torch.no_grad():
        folded = scores.less_shared(single_root) if scores.large else scores.fold_labels()
        trees = SecondOrderTrees(
            folded.arcs.to(folded.dtype),
            folded.lengths,
            siblings=folded.siblings,
            grandparents=folded.grandparents,
            single_root=single_root,
            validate_args=False,
        )
        heads = trees.argmax
        lost = heads[:, 1] < 0  # word 1 is in every sentence
        if scores.looks and bool(lost.any()):
            raise trees.no_tree_error(int(lost.nonzero()[0]), () if scores.labels is None else ("labels",))
    return _proven(scores, heads)


def _mst(scores: Scores, *, projective: bool, single_root: bool, proof: bool = False) -> Parse:
    return _first_order(scores, MATRIX_TREE, projective=projective, single_root=single_root)


def _eisner(scores: Scores, *, projective: bool, single_root: bool, proof: bool = False) -> Parse:
    if scores.second_order:
        return _second_order(scores, single_root)
    return _first_order(scores, EISNER, projective=True, single_root=single_root)


def _bp(
    scores: Scores,
    *,
    projective: bool,
    single_root: bool,
    proof: bool = False,
    iterations: int = 10,
    tolerance: float = 1e-6,
    damping: float = 0.0,
    schedule: Literal["parallel", "serial"] = "serial",
    time_limit: float = math.inf,
) -> Parse:
    """The tree with the most links that belief propagation believes in: of little risk, but rarely proven best.

    The bound is that of the best tree were every arc's pairs the best that it can have. A tree with a forbidden pair is
    replaced by the best one, by "ilp", which waits for the device, with its bound and certificate.
    """
    _check_seconds(time_limit)
    trees: dict[str, Any] = {"projective": projective, "single_root": single_root}
    structure = EISNER if projective else MATRIX_TREE
    easy = _first_order(hopeful_scores(scores), structure, **trees, with_parts=scores.second_order)
    folded = scores.fold_labels()
    with torch.no_grad():
        options: dict[str, Any] = {"tolerance": tolerance, "damping": damping, "schedule": schedule}
        beliefs = believe(folded, **trees, iterations=iterations, **options)
        heads = best_trees(beliefs, folded, **trees).masked_fill(~easy.certified[:, None], -1)
    labels = None if scores.labels is None else scores.best_labels(heads)
    score, found, limit = scores.total(heads, labels), easy.certified, easy.bound
    proven = torch.zeros_like(found)
    lost = found & score.isneginf()
    if scores.second_order and bool(lost.any()):
        first = Solved(easy.heads, easy.labels, easy.bound, lost, easy.iterations, {})  # the others are left alone
        words = [Words(("",) * (n + 1), ("",) * (n + 1)) for n in scores.lengths.tolist()]
        exact = solve_batch(scores, first, words, (), **trees, seconds=time_limit)
        heads = torch.where(lost[:, None], exact.heads, heads)
        if labels is not None and exact.labels is not None:
            labels = torch.where(lost[:, None], exact.labels, labels)
        score, found = scores.total(heads, labels), found & (heads[:, 1] >= 0)
        limit, proven = torch.where(lost, exact.bound, limit), lost & exact.certified
    certified = found & (proven | (score.detach() >= limit))
    bound = torch.where(certified, score.detach(), torch.maximum(limit, score.detach()))
    stats = {"residual": beliefs.residuals, "converged": beliefs.converged}
    return Parse(heads, labels, score, bound, certified, beliefs.iterations, stats)


def _ilp(
    scores: Scores,
    *,
    projective: bool,
    single_root: bool,
    proof: bool = False,
    constraints: Iterable[Constraint] = (),
    words: Sequence[Words] | None = None,
    heads: int = 5,
    labels: int = 3,
    grow: bool = True,
    time_limit: float = math.inf,
) -> Parse:
    """The best labelled tree that satisfies constraints; waits for the device, and solves on the CPU.

    Sentences whose best tree without them satisfies them are done with that. Where none does (``stats["infeasible"]``),
    or none was found in time, the answer is the best tree without them and is not certified. ``score`` is less what
    soft constraints cost, ``stats["penalty"]``.
    """
    asked = as_constraints(constraints)
    if words is not None and not isinstance(words, Sequence):
        raise ValueError(f"words must be a list, what constraints see of each sentence, got {quoted(words)}")
    if words is None or not all(isinstance(w, Words) and w.labels for w in words):
        _check_names(asked, scores)
    if words is None:
        words = [Words(("",) * (n + 1), ("",) * (n + 1)) for n in scores.lengths.tolist()]
    _check_words(words, scores)
    structure = EISNER if projective else MATRIX_TREE
    trees = {"projective": projective, "single_root": single_root}
    easy = _first_order(hopeful_scores(scores), structure, **trees, with_parts=scores.second_order)
    first = Solved(easy.heads, easy.labels, easy.bound, easy.certified, easy.iterations, {})
    columns: dict[str, Any] = {"heads": heads, "labels": labels, "grow": grow}
    found = solve_batch(scores, first, words, asked, **trees, **columns, seconds=time_limit, proof=proof)
    score = scores.total(found.heads, found.labels) - found.stats["penalty"]
    bound = torch.where(found.certified, score.detach(), torch.maximum(found.bound, score.detach()))
    knows = found.iterations, found.stats, found.remarks, Proof(found.leaves)
    return Parse(found.heads, found.labels, score, bound, found.certified, *knows)


def _dd(
    scores: Scores,
    *,
    projective: bool,
    single_root: bool,
    proof: bool = False,
    iterations: int | None = None,
    step: Step | None = None,
    exact: bool = False,
    fallback: bool = False,
    nodes: int = 1000,
    time_limit: float = math.inf,
    threads: int | None = None,
) -> Parse:
    """A spanning tree and head automata that must agree, by dual decomposition, on the device; waits for it.

    Where they do, the tree is proven best. What is left goes on by ``fallback`` to parse, price and cut, if there are
    grandparents alone, and by ``exact`` to branch and bound.
    """
    _check_seconds(time_limit)
    _check_threads(threads)
    check_step(step)
    for name, value, least in (("iterations", iterations, 1), ("nodes", nodes, 0)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ValueError(f"{name} must be a whole number from {least} on, got {quoted(value)}")
    easy = _first_order(scores.first_order(), MATRIX_TREE, projective=False, single_root=single_root)
    if not scores.second_order:
        return easy
    limits: dict[str, Any] = {"nodes": nodes, "seconds": time_limit, "threads": threads}
    wanted: dict[str, Any] = {"single_root": single_root, "exact": exact, "fallback": fallback, "proof": proof}
    found = decompose(scores, easy.certified, step=step, iterations=iterations, **wanted, **limits)
    return _relaxed(scores, found, easy.certified)


def _ppc(
    scores: Scores,
    *,
    projective: bool,
    single_root: bool,
    proof: bool = False,
    exact: bool = False,
    polytope: Polytope = "tight",
    time_limit: float = math.inf,
    threads: int | None = None,
) -> Parse:
    """The linear program of arcs and grandparents by parse, price and cut; waits for the device, and solves on the CPU.

    Where its solution is a tree, that is proven best. Elsewhere it is rounded to one, and ``bound`` is its value; or
    with ``exact`` branch and bound goes on to the best tree. ``remarks``: where the time was up, or the solver failed.
    """
    _check_seconds(time_limit)
    _check_threads(threads)
    if polytope not in PRICED:
        raise ValueError(
            f'polytope must be one of {", ".join(PRICED)} (others go with method "lp"), got {quoted(polytope)}'
        )
    parts = scores.grandparents
    easy = _first_order(scores.first_order(), MATRIX_TREE, projective=False, single_root=single_root)
    if parts is None:
        return easy
    arcs = scores.fold_labels().arcs.detach().double()
    limits: dict[str, Any] = {"seconds": time_limit, "threads": threads}
    found = parse_price_cut(arcs, parts, single_root=single_root, exact=exact, polytope=polytope, proof=proof, **limits)
    return _relaxed(scores, found, easy.certified)


def _lp(
    scores: Scores,
    *,
    projective: bool,
    single_root: bool,
    proof: bool = False,
    polytope: Polytope = "tight",
    lazy_rows: bool = False,
    time_limit: float = math.inf,
) -> Parse:
    """The same linear program with every grandparent in it, solved at once: what "ppc" is compared with."""
    _check_seconds(time_limit)
    if polytope not in POLYTOPES:
        raise ValueError(f"polytope must be one of {', '.join(POLYTOPES)}, got {quoted(polytope)}")
    if lazy_rows and polytope not in PRICED:
        raise ValueError(f"lazy_rows goes with polytope {' or '.join(PRICED)}, got {quoted(polytope)}")
    parts = scores.grandparents
    easy = _first_order(scores.first_order(), MATRIX_TREE, projective=False, single_root=single_root)
    if parts is None:
        return easy
    arcs = scores.fold_labels().arcs.detach().double()
    options: dict[str, Any] = {"polytope": polytope, "lazy_rows": lazy_rows, "seconds": time_limit}
    return _relaxed(scores, solve_all(arcs, parts, single_root=single_root, proof=proof, **options), easy.certified)


def _check_seconds(time_limit: float) -> None:
    if not isinstance(time_limit, (int, float)) or not time_limit >= 0:
        raise ValueError(f"time_limit must be a number of seconds from 0 on, got {quoted(time_limit)}")


def _check_threads(threads: int | None) -> None:
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ValueError(f"threads must be a whole number from 1 on, got {quoted(threads)}")


def _relaxed(scores: Scores, found: Solved, possible: Bool[Tensor, " B"]) -> Parse:
    """What linear programs found, with labels; sentences that are not ``possible`` have no tree by their arcs."""
    heads = found.heads.masked_fill(~possible[:, None], -1)
    there = heads[:, 1] >= 0
    score = scores.total(heads)
    there = there & ~score.detach().isneginf()
    heads = heads.masked_fill(~there[:, None], -1)
    none = possible & ~there & found.bound.isneginf()
    if scores.looks and bool(none.any()):
        b = int(none.nonzero()[0])
        kinds = " and ".join(scores.second_order)
        raise ValueError(f"{kinds} of sentence {b}: every tree has a forbidden part; allow more of them")
    certified = found.certified & there
    bound = torch.where(certified, score.detach(), torch.maximum(found.bound, score.detach()))
    bound = torch.where(there | (possible & ~none), bound, torch.inf)
    labels = None if scores.labels is None else scores.best_labels(heads)
    knows = found.iterations, found.stats, found.remarks, Proof(found.leaves)
    return Parse(heads, labels, score, bound, certified, *knows)


def _check_names(constraints: Sequence[Constraint], scores: Scores) -> None:
    """Constraints on labels need words that say what labels there are."""
    for place, constraint in enumerate(constraints):
        while hasattr(constraint, "constraint"):
            constraint = constraint.constraint
        if any(getattr(constraint, name, None) for name in ("labels", "label")):
            if scores.labels is None:
                raise ValueError(f"constraints[{place}] names labels, but scores have none; pass labels=... to Scores")
            raise ValueError(
                f"constraints[{place}] names labels, but words do not say what labels there are; "
                "pass words=[lp.Words.of(forms, tags, names of labels), ...]"
            )


def _check_words(words: Sequence[Words], scores: Scores) -> None:
    for b, given in enumerate(words):
        if not isinstance(given, Words):
            raise ValueError(f"words of sentence {b} must be lp.Words, got {type(given).__name__}; use lp.Words.of")
    if scores.labels is None and any(w.labels for w in words):
        raise ValueError("words have names of labels, but scores have no labels; pass labels=... to Scores")
    if len(words) != scores.arcs.shape[0]:
        raise ValueError(f"words: {len(words)} for {scores.arcs.shape[0]} sentences")
    for b, (given, n) in enumerate(zip(words, scores.lengths.tolist(), strict=True)):
        if len(given.forms) != n + 1 or len(given.tags) != n + 1:
            raise ValueError(f"words of sentence {b}: {len(given.forms) - 1}, and its length is {n}")
        L = 0 if scores.labels is None else scores.labels.shape[-1]
        if any(not 0 <= number < L for number in given.labels.values()):
            raise ValueError(f"words of sentence {b}: a label's number is not in 0..{L - 1}")


METHODS: dict[str, Method] = {  # "auto" takes the first that can
    "mst": Method(_mst, "maximum spanning arborescence, exact", projective=False, nonprojective=True),
    "eisner": Method(
        _eisner,
        "Eisner's algorithm, of both orders, exact",
        projective=True,
        nonprojective=False,
        parts=KINDS,
    ),
    "dd": Method(_dd, "dual decomposition", projective=False, nonprojective=True, parts=KINDS, waits=True),
    "ilp": Method(
        _ilp, "integer programs under constraints", projective=True, nonprojective=True, parts=KINDS, waits=True
    ),
    "ppc": Method(
        _ppc, "parse, price and cut", projective=False, nonprojective=True, parts=("grandparents",), waits=True
    ),
    "lp": Method(
        _lp, "the whole linear program", projective=False, nonprojective=True, parts=("grandparents",), waits=True
    ),
    "bp": Method(_bp, "belief propagation, minimum risk", projective=True, nonprojective=True, parts=KINDS, waits=True),
}
