"""What belief propagation is given, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

from gpuparse.decoding.bp.graph import Factors
from gpuparse.system.quote import quoted


def is_a(value: object, kind: type) -> bool:
    """Whether it is, whatever its annotation says."""
    return isinstance(value, kind)


def as_factors(factors: Sequence[Factors]) -> list[Factors]:
    """Families of factors, at least one, or a ValueError."""
    if isinstance(factors, Factors | type) or not hasattr(factors, "__iter__"):
        got = factors if isinstance(factors, type) else type(factors)
        raise ValueError(f"factors must be a list of families of factors, got {got.__name__}; put it into [...]")
    families = list(factors)
    if not families:
        raise ValueError("factors must have one family at least")
    for i, family in enumerate(families):
        if isinstance(family, type):
            raise ValueError(f"factors[{i}] is the class {family.__name__}; make one: {family.__name__}(...)")
        if not isinstance(family, Factors):
            raise ValueError(f"factors[{i}] must be a family of factors (bp.Factors), got {type(family).__name__}")
    return families


def as_share(value: float, name: str) -> float:
    """A number above 0 and up to 1, or a ValueError."""
    if not is_a(value, Real) or not 0 < value <= 1:
        raise ValueError(f"{name} must be a number above 0 and up to 1, got {quoted(value)}")
    return float(value)


def as_temperatures(temperatures: Sequence[float]) -> list[float]:
    """Finite numbers above 0, at least one, or a ValueError."""
    each = list(temperatures) if is_a(temperatures, Sequence) else []
    if not each or not all(is_a(t, Real) and 0 < t < math.inf and 1 / float(t) < math.inf for t in each):
        raise ValueError(f"temperatures must be a list of finite numbers above 0, got {temperatures!r}")
    return [float(t) for t in each]
