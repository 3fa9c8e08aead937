"""Constraints in TOML files: a list of tables, each with the kind of a constraint and its settings."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from gpuparse.lp.constraints import (
    Arcs,
    Children,
    Constraint,
    Coordination,
    LabelUnder,
    Leaf,
    Only,
    Projective,
    Soft,
    Span,
    Unique,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

READY = Path(__file__).parent / "ready"
KINDS: dict[str, Any] = {
    "unique": Unique,
    "children": Children,
    "leaf": Leaf,
    "label_under": LabelUnder,
    "projective": Projective,
    "coordination": Coordination,
    "arcs": Arcs,
    "span": Span,
}
_ARC = re.compile(r"\s*(\d+)\s*->\s*(\d+)(?:\s+(\S+))?\s*", re.ASCII)


def ready() -> list[str]:
    """The names of the files that come with the package."""
    return sorted(path.stem for path in READY.glob("*.toml"))


def constraints_path(name: Path | str) -> Path:
    """Where a file of constraints is: one that comes with the package, by its name, or a path."""
    path = READY / f"{name}.toml" if str(name) in ready() else Path(name)
    if not path.is_file():
        raise ValueError(f"{path}: no such file of constraints; those that come along are {', '.join(ready())}")
    return path


def load_constraints(path: Path | str) -> list[Constraint]:
    """Read the constraints of a file, or of one that comes with the package, by its name (such as ``ud``).

    Every constraint may have, besides its own settings, a ``weight``, which makes it soft, and ``sentences``, the names
    (sent_id) of those it is about.
    """
    path = constraints_path(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not TOML: {error}") from None
    given = tables.pop("constraint", [])
    if tables or not isinstance(given, list) or not all(isinstance(entry, Mapping) for entry in given):
        raise ValueError(f"{path}: wanted [[constraint]] tables and nothing else")
    return [_constraint(entry, f"{path}: constraint {number}") for number, entry in enumerate(given, 1)]


def _constraint(entry: Mapping[str, Any], where: str) -> Constraint:
    settings = dict(entry)
    kind, weight, sentences = (settings.pop(name, None) for name in ("kind", "weight", "sentences"))
    if kind not in KINDS:
        raise ValueError(f"{where}: kind is {kind!r}; wanted one of {', '.join(KINDS)}")
    if kind == "children" and "exactly" in settings:
        if settings.keys() & {"at_least", "at_most"}:
            raise ValueError(f"{where}: exactly is at_least and at_most in one; leave these out")
        settings["at_least"] = settings["at_most"] = settings.pop("exactly")
    known = {each.name: each for each in fields(KINDS[kind])}
    values = {}
    for name, value in settings.items():
        if name not in known:
            raise ValueError(f"{where}: {kind} has no {name}; it has {', '.join([*known, 'weight', 'sentences'])}")
        values[name] = _value(str(known[name].type), value, f"{where}: {name}")
        _check_names(name, values[name], f"{where}: {name}")
    try:
        made: Constraint = KINDS[kind](**values)
        if weight is not None:
            made = Soft(made, _number(weight, f"{where}: weight"))
    except TypeError:
        missing = [name for name, each in known.items() if each.default is MISSING and name not in values]
        raise ValueError(f"{where}: {kind} wants {' and '.join(missing)}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {str(error).removeprefix(f'{where}: ')}") from None
    return made if sentences is None else Only(made, _strings(sentences, f"{where}: sentences"))


def _value(hint: str, value: Any, where: str) -> Any:
    """A setting as the constraint has it, by the text of its type."""
    if hint.startswith("int"):
        if type(value) is not int or value < 0:
            raise ValueError(f"{where} is {value!r}; wanted a whole number")
        return value
    for kind, text, wanted in ((str, "str", "a string"), (bool, "bool", "true or false")):
        if hint == text:
            if not isinstance(value, kind):
                raise ValueError(f"{where} is {value!r}; wanted {wanted}")
            return value
    if hint == "tuple[Arc, ...]":
        return _arcs(value, where)
    if not hint.startswith("tuple"):
        return _strings(value, where)
    if not isinstance(value, list):
        raise ValueError(f"{where} is {value!r}; wanted a list of lists of strings")
    return tuple(_strings(each, where, "a list of lists of strings") for each in value)


def _strings(value: Any, where: str, wanted: str = "a list of strings") -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{where} is {value!r}; wanted {wanted}")
    return frozenset(value)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{where} is {value!r}; wanted a number above 0")
    return float(value)


def _arcs(value: Any, where: str) -> tuple[tuple[int, int, str | None], ...]:
    given = value if isinstance(value, list) else [value]
    found = [match for each in given if isinstance(each, str) and (match := _ARC.fullmatch(each))]
    if given is not value or len(found) < len(given):
        raise ValueError(f'{where} is {value!r}; wanted arcs such as ["2 -> 1", "2 -> 3 nsubj"], head first')
    return tuple((int(match[1]), int(match[2]), match[3]) for match in found)


def _check_names(name: str, value: Any, where: str) -> None:
    """``nsubj*`` is for labels, and has its star at the end."""
    if name in ("required", "forbidden"):
        labels = [arc[2] for arc in value if arc[2] is not None]
    elif name in ("labels", "allowed", "label"):
        labels = [value] if isinstance(value, str) else sorted(value or ())
    else:
        labels = []
        if name in ("tags", "heads", "except_tags") and (bad := sorted(each for each in value if "*" in each)):
            raise ValueError(f"{where} has {bad[0]!r}; * is for labels, name each tag")
    if bad := [label for label in labels if "*" in label[:-1]]:
        raise ValueError(f"{where} has {bad[0]!r}; * stands at the end only, for all labels that begin so")
