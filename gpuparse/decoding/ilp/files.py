"""Constraints in TOML files: a list of tables, each with the kind of a constraint and its settings."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from gpuparse.config import parse_toml
from gpuparse.decoding.ilp.constraints.arcs import Arc, Arcs, Span
from gpuparse.decoding.ilp.constraints.base import Constraint, Only, Soft, innermost, matching
from gpuparse.decoding.ilp.constraints.children import Children, LabelUnder, Leaf, Unique
from gpuparse.decoding.ilp.constraints.coordination import Coordination
from gpuparse.decoding.ilp.constraints.crossing import Projective
from gpuparse.system.defaults import READY, ready
from gpuparse.system.quote import quoted, shown

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
_LARGEST = 10**9  # of whole numbers
_MOST_BYTES = 8 << 20
_ARC = re.compile(r"\s*(\d{1,9}|\*)\s*->\s*(\d{1,9})(?:\s+(\S+))?\s*", re.ASCII)


def constraints_path(name: Path | str) -> Path:
    """Where a file of constraints is: one that comes with the package, by its name, or a path, of a pipe too."""
    path, stem = Path(name), str(name).removesuffix(".toml")
    if stem in ready() and (stem == str(name) or not path.exists()):
        path = READY / f"{stem}.toml"
    if not path.exists() or path.is_dir():
        raise ValueError(f"{path}: no such file of constraints; those that come along are {', '.join(ready())}")
    return path


def load_constraints(path: Path | str) -> list[Constraint]:
    """Read the constraints of a file, or of one that comes with the package, by its name (such as ``ud``).

    Every constraint may have, besides its own settings, a ``weight``, which makes it soft, and ``sentences``, the names
    (sent_id) of those it is about.

    Raises ValueError, in one line that names the file, the constraint and the setting, where it is not as it must be.

    Example:
        >>> from gpuparse import lp
        >>> len(lp.load_constraints("ud")) > 5
        True
    """
    path = constraints_path(path)
    return constraints_of(path.read_bytes(), path)


def constraints_of(text: bytes, path: Path) -> list[Constraint]:
    """The constraints that stand in a file's text."""
    tables = parse_toml(text, path, _MOST_BYTES)
    given = tables.pop("constraint", [])
    if tables or not isinstance(given, list) or not all(isinstance(entry, Mapping) for entry in given):
        raise ValueError(f"{path}: wanted [[constraint]] tables and nothing else")
    return [_constraint(entry, f"{path}: constraint {number}") for number, entry in enumerate(given, 1)]


def _constraint(entry: Mapping[str, Any], where: str) -> Constraint:
    settings = dict(entry)
    kind, weight, sentences = (settings.pop(name, None) for name in ("kind", "weight", "sentences"))
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{where}: kind is {quoted(kind)}; wanted one of {', '.join(KINDS)}")
    if kind == "children" and "exactly" in settings:
        if settings.keys() & {"at_least", "at_most"}:
            raise ValueError(f"{where}: exactly is at_least and at_most in one; leave these out")
        settings["at_least"] = settings["at_most"] = _value("int", settings.pop("exactly"), f"{where}: exactly")
    known = {each.name: each for each in fields(KINDS[kind])}
    values = {}
    for name, value in settings.items():
        if name not in known:
            raise ValueError(
                f"{where}: {kind} has no {shown(name)}; it has {', '.join([*known, 'weight', 'sentences'])}"
            )
        values[name] = _value(str(known[name].type), value, f"{where}: {name}")
        _check_names(name, values[name], f"{where}: {name}")
    try:
        made: Constraint = KINDS[kind](**values)
        if weight is not None:
            made = Soft(made, _number(weight, f"{where}: weight"))
        if sentences is not None:
            made = Only(made, _strings(sentences, f"{where}: sentences"))
    except TypeError:
        missing = [name for name, each in known.items() if each.default is MISSING and name not in values]
        raise ValueError(f"{where}: {kind} wants {' and '.join(missing)}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {str(error).removeprefix(f'{where}: ')}") from None
    if wanted := _wanted(innermost(made)):
        raise ValueError(f"{where}: {kind} asks for nothing; give {wanted}")
    return made


def _wanted(made: Constraint) -> str | None:
    """What to give to a constraint that asks for nothing."""
    if getattr(made, "labels", None) == frozenset():
        return "labels"
    if isinstance(made, Children) and not made.at_least and made.at_most is None:
        return "at_least, at_most or exactly"
    if isinstance(made, Arcs) and not (made.required or made.forbidden):
        return "required or forbidden"
    if isinstance(made, Coordination) and not (made.symmetric or made.asymmetric or (made.others and made.classes)):
        return "symmetric, asymmetric, or others with classes"
    return None


def labels_of(constraint: Constraint) -> frozenset[str]:
    """The names of labels, and their beginnings with ``*``, that a constraint of a file is about."""
    inner = innermost(constraint)
    if isinstance(inner, Arcs):
        return frozenset(label for _, _, label in (*inner.required, *inner.forbidden) if label is not None)
    if isinstance(inner, LabelUnder):
        return frozenset({inner.label})
    return getattr(inner, "labels", None) or frozenset()


def unknown_labels(constraints: Sequence[Constraint], known: Sequence[str]) -> dict[int, frozenset[str]]:
    """The labels of constraints, by their number in the file, of which none is known."""
    numbers = {name: number for number, name in enumerate(known)}
    named = {number: labels_of(constraint) for number, constraint in enumerate(constraints, 1)}
    return {number: labels for number, labels in named.items() if labels and not matching(labels, numbers)}


def _value(hint: str, value: Any, where: str) -> Any:
    """A setting as the constraint has it, by the text of its type."""
    if hint.startswith("int"):
        if type(value) is not int or not 0 <= value < _LARGEST:
            raise ValueError(f"{where} is {quoted(value)}; wanted a whole number below {_LARGEST:,}")
        return value
    for kind, text, wanted in ((str, "str", "a string"), (bool, "bool", "true or false")):
        if hint == text:
            if not isinstance(value, kind):
                raise ValueError(f"{where} is {quoted(value)}; wanted {wanted}")
            return value
    if hint == "tuple[Arc, ...]":
        return _arcs(value, where)
    if not hint.startswith("tuple"):
        return _strings(value, where)
    if not isinstance(value, list):
        raise ValueError(f"{where} is {quoted(value)}; wanted a list of lists of strings")
    return tuple(_strings(each, where, "a list of lists of strings") for each in value)


def _strings(value: Any, where: str, wanted: str = "a list of strings") -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"{where} is {quoted(value)}; wanted {wanted}")
    return frozenset(value)


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > sys.float_info.max:
        raise ValueError(f"{where} is {quoted(value)}; wanted a number above 0")
    return float(value)


def _arcs(value: Any, where: str) -> tuple[Arc, ...]:
    given = value if isinstance(value, list) else [value]
    found = [match for each in given if isinstance(each, str) and (match := _ARC.fullmatch(each))]
    if given is not value or len(found) < len(given):
        wanted = 'arcs such as ["2 -> 1", "2 -> 3 nsubj"], head first, * for any'
        raise ValueError(f"{where} is {quoted(value)}; wanted {wanted}")
    return tuple((None if match[1] == "*" else int(match[1]), int(match[2]), match[3]) for match in found)


def _check_names(name: str, value: Any, where: str) -> None:
    """``nsubj*`` is for labels, and has its star at the end."""
    if name in ("required", "forbidden"):
        labels = [arc[2] for arc in value if arc[2] is not None]
    elif name in ("labels", "allowed", "label"):
        labels = [value] if isinstance(value, str) else sorted(value or ())
    else:
        labels = []
        tags = value if name in ("tags", "heads", "except_tags") else ()
        tags = frozenset().union(*value) if name == "classes" else tags
        if bad := sorted(each for each in tags if "*" in each):
            raise ValueError(f"{where} has {quoted(bad[0])}; * is for labels, name each tag")
    if bad := [label for label in labels if "*" in label[:-1]]:
        raise ValueError(f"{where} has {quoted(bad[0])}; * stands at the end only, for all labels that begin so")
