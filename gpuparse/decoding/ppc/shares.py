"""What an arc has for its pairs, where there are two kinds, shared out between them.

The duals of an arc leave a budget for those of its rows One, of which each kind has one: no more than the budget
together. If each kind's is not below what any of its pairs is worth, no pair can improve the program.

Of an arc that is a column the solution says what each kind needs, and the rest is divided. Of others it is known what
each kind needs at most. If that is not more than the budget, nothing is to be asked. Else each kind gets what the other
leaves it in the worst case: what is above is scored, and only then it is known whether the arc is short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpuparse.decoding.parts import Kind
from gpuparse.decoding.ppc.pairs import Doubles, Ints, PairDuals

Upper = Callable[[Ints, Sequence[PairDuals]], list[Doubles]]
"""For arcs [K, 2] and duals what each kind of pairs needs at most, in costs: [K] of each."""


def share_out(
    kinds: Sequence[Kind], budget: Doubles, duals: Sequence[PairDuals], upper: Upper | None
) -> tuple[list[Doubles], Doubles]:
    """The share of each kind [N, N] in the budgets, +inf where there is no arc; and what no kind has got [N, N].

    Shares are never more than the budget together, whatever rounding does. Only of arcs that are open something is left
    over; their budgets and needs are below 0 and no larger than the duals, whose rounding is in the bound.
    """
    if len(kinds) == 1:
        return [budget], np.zeros(budget.shape)
    assert upper is not None
    here, inside = np.isfinite(budget), duals[kinds.index("siblings")].one > -np.inf
    needs = [np.where(own.one > -np.inf, own.one, 0.0) for own in duals]  # no pair costs more than 0
    arcs = np.argwhere(here & ~inside & (budget < 0))
    for need, most in zip(needs, upper(arcs, duals), strict=True):
        need[tuple(arcs.T)] = most
    left = np.where(here, budget, 0.0) - needs[0] - needs[1]
    # what is left goes by halves; of arcs that are open each kind bears all of what is lacking
    open_ = here & ~inside & (left < 0)
    first = np.where(here, needs[0] + np.where(open_, left, 0.5 * left), np.inf)
    rest = np.nextafter(np.where(here, budget, 0.0) - np.where(here, first, 0.0), -np.inf)
    second = np.where(here, np.where(open_, needs[1] + left, rest), np.inf)
    return [first, second], np.where(open_, -left, 0.0)
