"""What must be reached, what is aimed at, and whether it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.output import figure, show

UNSTEADY = 1.25


@dataclass(frozen=True)
class Bar:
    """A figure, and what it must be and is aimed to be: at least, or at most where ``most``.

    Attributes:
        must: None for a figure that is only shown.
        fastest: the same from the fastest repetition of each side, which a busy machine disturbs least.
        digits: after the point; None for three in all.
    """

    name: str
    measured: float | None
    must: float | None = None
    aim: float | None = None
    most: bool = False
    unit: str = ""
    digits: int | None = 1
    fastest: float | None = None

    def reaches(self, bar: float | None) -> bool:
        """Whether the figure is as good as a bar."""
        if bar is None or self.measured is None:
            return False
        return self.measured <= bar if self.most else self.measured >= bar

    @property
    def missed(self) -> bool:
        """Whether there is a bar that is not reached; what was not measured does not reach it."""
        return self.must is not None and not self.reaches(self.must)

    @property
    def verdict(self) -> str:
        if self.must is None:
            return ""
        if self.measured is None:
            return "not measured"
        verdict = "FAIL" if self.missed else "aim" if self.reaches(self.aim) else "pass"
        low, high = sorted((self.measured, self.measured if self.fastest is None else self.fastest))
        return verdict + (" (unsteady)" if high > UNSTEADY * low else "")

    def text(self, value: float | None) -> str:
        if value is None or self.digits is None:
            return figure(value, self.unit)
        return f"{value:,.{self.digits}f}{self.unit}"

    def row(self) -> list[str]:
        """Name, measured, fastest, must, aim, verdict."""
        sign = "≤" if self.most else "≥"
        bars = ("" if bar is None else f"{sign} {bar:g}{self.unit}" for bar in (self.must, self.aim))
        fastest = "" if self.fastest is None else self.text(self.fastest)
        return [self.name, self.text(self.measured), fastest, *bars, self.verdict]

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"verdict": self.verdict}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Bar:
        return cls(**{name: value for name, value in record.items() if name != "verdict"})


def none_of(what: str, count: int) -> Bar:
    """A bar on something that must never be."""
    return Bar(what, count, 0, most=True, digits=0)


def show_bars(title: str, bars: Sequence[Bar]) -> bool:
    """Print the table; whether a must is missed."""
    if bars:
        columns = ("bar", ">measured", ">fastest/fastest", ">must", ">aim", "verdict")
        show(title, columns, [bar.row() for bar in bars])
    return any(bar.missed for bar in bars)
