"""When an answer is proven best: one rule for all methods.

A method knows a tree with its score, and a number that no tree scores more than. Both are sums of doubles, and each may
be off by what rounding does to it. The answer is proven best if no tree can be better by more than rounding does to
sums of the parts that can still matter:

    bound <= score + rounding                                                                         (``is_proven``)

A part can matter if a tree with it could be as good as the one that is known: a first-order bound tells. A mask, -inf
or -1e30, cannot, so it says nothing about what is proven; nor does anything that all trees share, as far as doubles
keep the differences. There is no absolute tolerance: scores times any power of two have the same certificates.
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from jaxtyping import Float64
from torch import Tensor

UNIT = 2.0**-53  # what one operation on doubles may be off, by the size of its result
STEPS = 8  # operations on the way to one term of a bound

Number = TypeVar("Number", float, Float64[Tensor, " B"], npt.NDArray[np.float64])


def rounding(terms: int, size: Number) -> Number:
    """What a sum of so many terms may be off, if the sizes of all of them come to ``size``."""
    return 4 * UNIT * (terms + STEPS) * size  # in an order in which nothing overflows


def is_proven(score: Number, bound: Number, rounding: Number) -> Any:
    """Whether a tree of this score is best, if no tree scores more than the bound; of tensors, each.

    Where rounding is not known, because sums end beyond the range of doubles, nothing is.
    """
    return (rounding < math.inf) & (bound <= score + rounding)
