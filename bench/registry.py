"""What a suite is: a name, what it shows, its parts and its options."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bench.bars import Bar
from bench.output import RESULTS, Problem
from bench.suites import NAMES

Args = argparse.Namespace
"""The options that were given, by their names; besides, ``out``, the directory of results, and ``trial``."""


class Measured(NamedTuple):
    """What a part found: anything that JSON can hold, and its bars."""

    data: Any
    bars: Sequence[Bar] = ()


@dataclass(frozen=True)
class Option:
    """An option of a suite.

    Attributes:
        kind: makes the value of its text; ``bool`` for a flag.
        many: several values with commas between; ``default`` is then a sequence.
        again: it may be given several times.
        choices: the values there are.
        trial: given, and not as by default, it makes the run a trial, whose results get names of their own.
    """

    name: str
    help: str
    default: Any = None
    kind: Callable[[str], Any] = str
    many: bool = False
    again: bool = False
    choices: Iterable[str] | None = None
    trial: bool = False

    @property
    def key(self) -> str:
        return self.name.replace("-", "_")

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        if self.kind is bool:
            parser.add_argument(f"--{self.name}", action="store_true", help=self.help)
            return
        shown = ",".join(map(str, self.default)) if self.many and self.default else self.default
        text = self.help + (f": {', '.join(self.choices)}" if self.choices else "")
        text += f"; default {shown}" if shown not in (None, "", []) and not isinstance(shown, Path) else ""
        action = "append" if self.again else "store"
        options: dict[str, Any] = {"default": self.default, "type": self._read, "action": action}
        parser.add_argument(f"--{self.name}", help=text.replace("%", "%%"), metavar="…", **options)

    def _read(self, text: str) -> Any:
        try:
            values = [self.kind(each) for each in (text.split(",") if self.many else [text])]
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error) or f"{text!r} is not understood") from None
        for value in values:
            if self.choices is not None and value not in self.choices:
                raise argparse.ArgumentTypeError(f"{value!r} is none of {', '.join(self.choices)}")
        return values if self.many else values[0]


@dataclass(frozen=True)
class Timed:
    """Something that is timed in turns with the same of another checkout; calls of one name are added up."""

    name: str
    run: Callable[[], Any]
    count: Callable[[Any], dict[str, int]] = field(default=lambda result: {})
    """What is counted of a call's result."""


@dataclass(frozen=True)
class Suite:
    """Measurements that belong together.

    Attributes:
        parts: by name; all are run, in this order, unless some are named.
        peers: packages whose versions matter; one that is missing is left out by the parts.
        notes: lines under the environment.
        timed: calls for ``python -m bench compare``.
    """

    name: str
    about: str
    parts: Mapping[str, Callable[[Args], Measured]]
    options: Sequence[Option] = ()
    peers: Sequence[str] = ()
    notes: Sequence[str] = ()
    timed: Callable[[Args], Iterable[Timed]] | None = None

    def result(self, part: str, trial: bool) -> str:
        """The name of the file of a part's results."""
        name = self.name if len(self.parts) == 1 else f"{self.name}_{part}"
        return f"{name}{'_trial' if trial else ''}.json"

    def is_trial(self, args: Args) -> bool:
        return any(option.trial and getattr(args, option.key) != option.default for option in self.options)


def find(name: str) -> Suite:
    """A suite by its name."""
    if name not in NAMES:
        raise Problem(f"{name!r} is no suite; there are {', '.join(NAMES)}", 2)
    suite: Suite = import_module(f"bench.suites.{name}").SUITE
    return suite


# Options that several suites have ----------------------------------------------------------------------------------


def at_least(least: int) -> Callable[[str], int]:
    """Whole numbers from ``least``."""

    def read(text: str) -> int:
        if not text.isdigit() or int(text) < least:
            raise ValueError(f"{text!r} is not a whole number from {least}")
        return int(text)

    return read


whole = at_least(1)


def seconds(text: str) -> float:
    """A number above 0."""
    if not float(text) > 0:
        raise ValueError(f"{text!r} is not above 0")
    return float(text)


TREEBANKS = Option("treebanks", "where treebanks are; default: GPUPARSE_TREEBANKS, ../shared/treebanks", kind=Path)
FIRST = Option("first", "only so many sentences of a parser: a trial; 0: all", 0, at_least(0), trial=True)
QUICK = Option("quick", "short repetitions: a trial, not a measurement", False, bool, trial=True)
BATCH_WORDS = Option("batch-words", "words of a batch, padding counted", 500, whole)
TIME_LIMIT = Option("time-limit", "seconds for a sentence", 60.0, seconds)


def models(default: str) -> Option:
    """Where trained parsers are, or are put."""
    return Option("models", f"trained parsers; default: bench/results/{default}", RESULTS / default, Path)


def languages(known: Iterable[str], default: Iterable[str] | None = None) -> Option:
    return Option("languages", "treebanks", list(default or known), many=True, choices=list(known))


def repeats(default: int | None, about: str = "repetitions, in turns") -> Option:
    return Option("repeats", about, default, whole)


def threads(default: int | None = 1) -> Option:
    return Option("threads", "threads of torch", default or torch.get_num_threads(), whole)


def effort(args: Args, repeats: int) -> dict[str, Any]:
    """How often and how long things are timed: what ``--repeats`` and ``--quick`` say."""
    return {"repeats": args.repeats or (3 if args.quick else repeats), "least": 0.01 if args.quick else 0.05}
