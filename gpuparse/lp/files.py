"""Constraints in TOML files: a list of tables, each with the kind of a constraint and its settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from gpuparse.lp.constraints import Children, Constraint, Coordination, LabelUnder, Projective, Unique

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

READY = Path(__file__).parent / "ready"
KINDS: dict[str, Any] = {
    "unique": Unique,
    "children": Children,
    "projective": Projective,
    "coordination": Coordination,
    "label_under": LabelUnder,
}


def ready() -> list[str]:
    """The names of the files that come with the package."""
    return sorted(path.stem for path in READY.glob("*.toml"))


def load_constraints(path: Path | str) -> list[Constraint]:
    """Read the constraints of a file, or of one that comes with the package, by its name (such as ``ud``)."""
    path = READY / f"{path}.toml" if str(path) in ready() else Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file of constraints; those that come along are {', '.join(ready())}")
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
    kind = settings.pop("kind", None)
    if kind not in KINDS:
        raise ValueError(f"{where}: kind is {kind!r}; wanted one of {', '.join(KINDS)}")
    known = {each.name: each for each in fields(KINDS[kind])}
    values = {}
    for name, value in settings.items():
        if name not in known:
            raise ValueError(f"{where}: {kind} has no {name}; it has {', '.join(known)}")
        values[name] = _value(str(known[name].type), value, f"{where}: {name}")
    try:
        return KINDS[kind](**values)
    except TypeError:
        missing = [name for name in known if name not in values]
        raise ValueError(f"{where}: {kind} wants {' and '.join(missing)}") from None


def _value(hint: str, value: Any, where: str) -> Any:
    """A setting as the constraint has it, by the text of its type."""
    if hint.startswith("int"):
        if type(value) is not int or value < 0:
            raise ValueError(f"{where} is {value!r}; wanted a whole number")
        return value
    if hint == "str":
        if not isinstance(value, str):
            raise ValueError(f"{where} is {value!r}; wanted a string")
        return value
    sets = value if hint.startswith("tuple") else [value]
    if not isinstance(sets, list) or not all(isinstance(s, list) and all(isinstance(x, str) for x in s) for s in sets):
        wanted = "a list of lists of strings" if hint.startswith("tuple") else "a list of strings"
        raise ValueError(f"{where} is {value!r}; wanted {wanted}")
    return tuple(map(frozenset, sets)) if hint.startswith("tuple") else frozenset(value)
