"""Branch and bound where the linear program of parse, price and cut has no tree for a solution.

One branch demands an arc (forbids the other heads of its word), the other forbids it. The program goes on with the
columns and rows that there are, and prices and cuts at every node; bounds are those of ``ppc.PricedSentence``. All
this is work that asks (``asking.Work``), so that those who answer can answer many sentences at once.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count

import numpy as np

from gpuparse.decoding.ppc.asking import Lists, Work
from gpuparse.decoding.ppc.ppc import PricedSentence
from gpuparse.decoding.ppc.program import Bools, Doubles, Ints
from gpuparse.decoding.ppc.witness import Taken, Witness
from gpuparse.decoding.solver import Status

Score = Callable[[Lists], Work[list[Doubles]]]
Path = tuple[tuple[int, int, int, int], ...]  # decisions, as a proof has them


def run(sentence: PricedSentence, score: Score) -> Work[None]:
    """Rounds of parse, price and cut until the program is solved, or the best tree is proven best."""
    while not sentence.done:
        question = sentence.solve()
        if question is None:
            return
        wanted = sentence.update((yield question))
        sentence.extend(wanted, (yield from score(wanted)))


def branch_and_bound(
    sentence: PricedSentence,
    score: Score,
    round_: Callable[[Doubles], Ints],
    *,
    any_tree: bool = False,
) -> Work[tuple[float, int, Status, list[tuple[Path, Witness | Taken | None]]]]:
    """Go on from a solved program without a proof. Returns a bound on all trees, how many nodes were solved, why there
    are some left, if there are, and the branches with what bounds them.

    Args:
        round_: a tree from the weights of the arcs.
        any_tree: stop at the first tree without a forbidden part.
    """
    order = count()
    open_: list[tuple[float, int, Bools, Path, Witness | Taken | None]] = []
    leaves: list[tuple[Path, Witness | Taken | None]] = []
    solved, left = 0, -math.inf  # left: the bound of nodes that nothing came of
    status = Status.OPTIMAL

    def split(bound: float, path: Path, witness: Witness | Taken | None) -> Work[None]:
        """The two branches of the node that was solved last; none if there is only one tree in it."""
        assert sentence.z is not None
        yield from offer_tree(sentence, score, round_(sentence.z))
        open_arcs = (sentence.arcs > -np.inf) & ~sentence.forbidden
        open_arcs &= open_arcs.sum(0) > 1
        if not open_arcs.any():
            leaves.append((path, witness))
            return
        # Half of an arc where there is one. Else the solution is a tree, and smaller nodes have to prove it.
        h, m = np.unravel_index(int(np.where(open_arcs, np.abs(sentence.z - 0.5), 1.0).argmin()), sentence.z.shape)
        without, only = sentence.forbidden.copy(), sentence.forbidden.copy()
        without[h, m] = True
        only[:, m] = True
        only[h, m] = False
        for has, forbidden in ((1, only), (0, without)):
            step = (int(h), int(m), -1, has)
            heapq.heappush(open_, (-bound, next(order), forbidden, (*path, step), witness))

    yield from split(sentence.bound, (), sentence.witness)
    while open_:
        top = -open_[0][0]
        if _reached(sentence, top) or sentence.outgrown or (any_tree and sentence.tree is not None):
            break
        if sentence.seconds <= 0 or sentence.spent:
            status = Status.STOPPED if sentence.seconds <= 0 else Status.LEFT
            break
        bound, _, forbidden, path, witness = heapq.heappop(open_)
        sentence.restrict(forbidden)
        yield from run(sentence, score)
        solved += 1
        own = min(-bound, sentence.bound)
        witness = sentence.witness if sentence.bound < -bound else witness
        if _reached(sentence, own):
            leaves.append((path, witness))
        elif sentence.status is Status.OPTIMAL:
            yield from split(own, path, witness)
        else:
            leaves.append((path, witness))
            left, status = max(left, own), sentence.status
    leaves += [(path, witness) for *_, path, witness in open_]
    return max(sentence.score, left, -open_[0][0] if open_ else -math.inf), solved, status, leaves


def _reached(sentence: PricedSentence, bound: float) -> bool:
    """Whether no tree can be better than the best one, if none scores more than a bound."""
    sentence.bound = bound
    return sentence.certified or sentence.impossible


def offer_tree(sentence: PricedSentence, score: Score, heads: Ints) -> Work[None]:
    """Keep a tree if it is better."""
    if len(heads) < 2 or heads[1] < 0:
        return
    word = np.arange(1, len(heads))
    of_pairs = yield from score(tuple(pairs.of_tree(heads) for pairs in sentence.program.pairs))
    sentence.offer(heads, float(sentence.arcs[heads[1:], word].sum()) + float(sum(x.sum() for x in of_pairs)))
