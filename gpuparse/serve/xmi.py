"""UIMA's documents as XMI, so far as INCEpTION's relations need them: annotations by type, and new ones put in.

A document is read as XML and written back with what was put in; nothing else in it is changed. Types are known by their
names; what inherits from what, and which features there are, the type system says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, ParseError, TreeBuilder, XMLParser

from gpuparse.system.quote import quoted

_XMI = "http://www.omg.org/XMI"
_CAS = "http:///uima/cas.ecore"
_ID = f"{{{_XMI}}}id"
_SPACE = re.compile(r"http:///(.*)\.ecore")
_DEEP = 100  # elements in elements


class XmiError(ValueError):
    """A document or a type system that is not as it must be; one line."""


@dataclass(eq=False)
class CasAnnotation:
    """An annotation: its number, where it stands, in characters, and its features as text."""

    id: str
    begin: int
    end: int
    features: Mapping[str, str]


@dataclass(frozen=True)
class CasTypes:
    """Types, with the types that they inherit from and their own features."""

    above: Mapping[str, str]
    own: Mapping[str, Mapping[str, str]]

    @classmethod
    def read(cls, text: str) -> CasTypes:
        """The types of a type system's XML."""
        above: dict[str, str] = {}
        own: dict[str, dict[str, str]] = {}
        for each in _parsed(text, "typeSystem").findall(".//{*}typeDescription"):
            name = (each.findtext("{*}name") or "").strip()
            above[name] = (each.findtext("{*}supertypeName") or "").strip()
            own[name] = {
                (one.findtext("{*}name") or "").strip(): (one.findtext("{*}rangeTypeName") or "").strip()
                for one in each.findall(".//{*}featureDescription")
            }
        return cls(above, own)

    def line(self, name: str) -> Iterator[str]:
        """A type and those that it inherits from."""
        seen: set[str] = set()
        while name and name not in seen:
            seen.add(name)
            yield name
            name = self.above.get(name, "")

    def features(self, name: str) -> dict[str, str]:
        """The features of a type, those that it inherits included, with the types of their values."""
        found: dict[str, str] = {}
        for each in self.line(name):
            found = {**self.own.get(each, {}), **found}
        return found


@dataclass(eq=False)
class CasDocument:
    """A document: its text, its annotations by type, and all of its XML."""

    text: str
    root: Element
    types: CasTypes
    annotations: dict[str, list[CasAnnotation]] = field(default_factory=dict)
    _sofa: str = ""
    _places: list[int] = field(default_factory=list)
    _last: int = 0
    _by_id: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, xmi: str, types: CasTypes) -> CasDocument:
        """A document of its XMI."""
        root = _parsed(xmi, "xmi")
        sofas = root.findall(f"{{{_CAS}}}Sofa")
        if not sofas:
            raise XmiError("xmi: there is no Sofa with a text")
        chosen = next((each for each in sofas if each.get("sofaID") == "_InitialView"), sofas[0])
        document = cls(chosen.get("sofaString", ""), root, types, _sofa=chosen.get(_ID, ""))
        document._by_id = {each.get(_ID, ""): each.attrib for each in root}
        # UIMA counts in units of UTF-16.
        document._places = [0, *accumulate(1 + (ord(char) > 0xFFFF) for char in document.text)]
        at = {place: index for index, place in enumerate(document._places)}
        for each in root:
            number, begin, end = each.get(_ID, ""), each.get("begin", ""), each.get("end", "")
            if number.isdigit():
                document._last = max(document._last, int(number[:12]))
            if each.get("sofa") != document._sofa or not (begin.isdigit() and end.isdigit()):
                continue
            first, last = at.get(int(begin[:12])), at.get(int(end[:12]))
            if first is None or last is None or first > last:
                raise XmiError(f"xmi: annotation {quoted(number, 40)} is not within the text")
            document.annotations.setdefault(_type_of(each), []).append(CasAnnotation(number, first, last, each.attrib))
        return document

    def of(self, name: str) -> list[CasAnnotation]:
        """The annotations of a type and of those that inherit from it, in the order of the text."""
        kinds = [kind for kind in self.annotations if kind == name or name in self.types.line(kind)]
        found = [one for kind in kinds for one in self.annotations[kind]]
        return sorted(found, key=lambda one: (one.begin, one.end))

    def features_of(self, number: str) -> Mapping[str, str]:
        """The features of any structure, by its number."""
        return self._by_id.get(number, {})

    def add(self, name: str, begin: int, end: int, features: Mapping[str, str]) -> None:
        """Put in an annotation."""
        self._last += 1
        package, _, local = name.rpartition(".")
        space = f"http:///{package.replace('.', '/')}.ecore" if package else "http:///uima/noNamespace.ecore"
        place = {"begin": str(self._places[begin]), "end": str(self._places[end])}
        made = Element(f"{{{space}}}{local}", {_ID: str(self._last), "sofa": self._sofa, **place, **features})
        views = [each for each in self.root.findall(f"{{{_CAS}}}View") if each.get("sofa") == self._sofa]
        self.root.insert(next((i for i, each in enumerate(self.root) if each in views), len(self.root)), made)
        for view in views[:1]:
            view.set("members", f"{view.get('members', '')} {self._last}".strip())

    def to_xmi(self) -> str:
        """The document as XMI."""
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(self.root, encoding="unicode")


def _type_of(element: Element) -> str:
    space, _, local = element.tag.removeprefix("{").rpartition("}")
    match = _SPACE.fullmatch(space)
    if match is None or match[1] == "uima/noNamespace":
        return local
    return f"{match[1].replace('/', '.')}.{local}"


class _Builder(TreeBuilder):
    """Builds a tree of moderate depth."""

    deep = 0

    def start(self, tag: Any, attrs: Any, /) -> Element:
        self.deep += 1
        if self.deep > _DEEP:
            raise XmiError(f"elements in elements, more than {_DEEP} deep")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self.deep -= 1
        return super().end(tag)

    def doctype(self, *_: object) -> None:
        raise XmiError("a document type: entities are not taken")


def _parsed(text: str, name: str) -> Element:
    """The root of XML from anybody: without entities of its own, and not too deep."""
    parser = XMLParser(target=_Builder())
    try:
        parser.feed(text.encode())
        root: Element = parser.close()
    except (ParseError, ValueError) as error:
        raise XmiError(f"{name}: {error}") from None
    return root
