"""Constituent trees, and Penn brackets read and written: ``(S (NP (DT the) (NN cat)) (VP (VBZ sleeps)))``."""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, TypeVar

from gpuparse.data.conllu import name_of, open_input
from gpuparse.system.files import write_bytes
from gpuparse.system.quote import quoted, shown
from gpuparse.system.streams import naming

TRACE = "-NONE-"
_TOKEN = re.compile(r"[()]|[^() \t\r\n\f\v]+")  # a no-break space is part of a word
_FUNCTION = re.compile(r"(?<=.)[-=].*")
_UNFIT = re.compile(r"[() \t\r\n\f\v]")
_ESCAPED = {"(": "-LRB-", ")": "-RRB-"}

Result = TypeVar("Result")


class BracketError(ValueError):
    """Something is wrong with brackets; the message is one line, ``file:line: what; what to do``."""


@dataclass(frozen=True)
class Constituent:
    """A tree: a word under its tag, or a phrase with its children."""

    label: str
    children: tuple[Constituent, ...] = ()
    word: str | None = None
    """The form, where the label is the tag of a word."""
    head: int | None = field(default=None, compare=False)
    """Which child has the head word, where it is known. It is not part of what brackets say, nor of equality."""

    def __str__(self) -> str:
        """In brackets, on one line; those in words as ``-LRB-`` and ``-RRB-``, spaces in words as no-break spaces."""
        text: list[str] = []
        todo: list[Constituent | None] = [self]
        while todo:
            node = todo.pop()
            if node is None:
                text.append(")")
                continue
            if not node.label or _UNFIT.search(node.label):
                raise ValueError(
                    f"label: {quoted(node.label)} is empty or has a bracket or a space; give it another name"
                )
            text.append(f" ({node.label}" if text else f"({node.label}")
            if node.word is not None:
                text.append(f" {_UNFIT.sub(lambda found: _ESCAPED.get(found[0], chr(0xA0)), node.word)}")
            todo.append(None)
            todo.extend(reversed(node.children))
        return "".join(text)

    def leaves(self) -> Iterator[Constituent]:
        """The words with their tags, from left to right."""
        todo = [self]
        while todo:
            node = todo.pop()
            if node.word is not None:
                yield node
            todo.extend(reversed(node.children))

    @property
    def words(self) -> list[str]:
        return [str(leaf.word) for leaf in self.leaves()]

    @property
    def tags(self) -> list[str]:
        return [leaf.label for leaf in self.leaves()]

    def fold(self, make: Callable[[Constituent, Sequence[Result]], Result]) -> Result:
        """``make(node, results of its children)``, from the words up, for trees of any depth."""
        order, todo = [], [self]
        while todo:
            node = todo.pop()
            order.append(node)
            todo.extend(node.children)
        done: list[Result] = []  # of nodes whose parents are still to come, from left to right
        for node in reversed(order):  # children before their parents, from left to right
            size = len(node.children)
            some = done[len(done) - size :]
            del done[len(done) - size :]
            done.append(make(node, some))
        return done[0]


def read_brackets(
    source: str | os.PathLike[str] | IO[Any], *, traces: bool = False, functions: bool = False
) -> Iterator[Constituent]:
    """Read trees one at a time: from a path, ``-`` (stdin), ``*.gz``, or a file open for reading.

    A tree may take any number of lines, a line hold several trees, and an outer bracket without a label is left out.

    Args:
        traces: keep empty words (``-NONE-``); otherwise they go, and with them phrases of nothing else.
        functions: keep what follows a phrase's name: ``NP-SBJ-1`` is ``NP`` otherwise. Tags such as ``-LRB-`` stay.

    Raises ``BracketError``, a ``ValueError``, naming file and line, where the brackets are not those of trees.
    """
    name = name_of(source)
    with open_input(source) as stream:
        for tree in _trees(_tokens(stream, name), name):
            kept = tree if traces else _without_traces(tree)
            if kept is not None:
                yield kept if functions else kept.fold(_without_functions)


def write_brackets(trees: Iterable[Constituent], path: str | os.PathLike[str]) -> None:
    """Write trees, one a line. The file appears under its name once it is complete."""
    write_bytes(Path(path), "".join(f"{tree}\n" for tree in trees).encode())


def _tokens(stream: IO[Any], name: str) -> Iterator[tuple[str, int]]:
    """Brackets and what is between them, each with its line."""
    number = 0
    try:
        with naming(name):
            for number, line in enumerate(stream, 1):
                text = line if isinstance(line, str) else line.decode("utf-8-sig" if number == 1 else "utf-8")
                for token in _TOKEN.findall(text):
                    yield token, number
    except UnicodeDecodeError:
        raise BracketError(f"{name}:{number}: not UTF-8; convert the file to UTF-8") from None
    except EOFError:
        raise BracketError(f"{name}:{number + 1}: the gzip data breaks off; copy the file again") from None
    except (gzip.BadGzipFile, zlib.error):
        raise BracketError(f"{name}:{number + 1}: not gzip data; take .gz off the name or pack the file") from None


@dataclass
class _OpenBracket:
    """A bracket that is not closed yet."""

    line: int
    label: str = ""
    children: list[Constituent] = field(default_factory=list)
    word: str | None = None


def _trees(tokens: Iterator[tuple[str, int]], name: str) -> Iterator[Constituent]:
    stack: list[_OpenBracket] = []
    fresh = False  # right after "("
    for token, line in tokens:
        if token == "(":
            if stack and stack[-1].word is not None:
                raise BracketError(
                    f"{name}:{line}: a phrase beside the word {quoted(stack[-1].word)}; give the word a tag"
                )
            stack.append(_OpenBracket(line))
            fresh = True
            continue
        if not stack:
            what = (
                "a bracket closes that was not opened"
                if token == ")"
                else f"{quoted(token)} is outside of all brackets"
            )
            raise BracketError(f"{name}:{line}: {what}; correct the tree before it")
        top = stack[-1]
        if token == ")":
            stack.pop()
            tree = _close(top, outer=not stack, where=f"{name}:{line}")
            if stack:
                stack[-1].children.append(tree)
            else:
                yield tree
        elif fresh:
            top.label = token
        elif top.children or top.word is not None or not top.label:
            beside = f"the word {quoted(top.word)}" if top.word is not None else "a phrase"
            raise BracketError(
                f"{name}:{line}: {quoted(token)} beside {beside}; a word has a bracket of its own, with its tag"
            )
        else:
            top.word = token
        fresh = False
    if stack:
        raise BracketError(
            f"{name}:{stack[0].line}: the tree that begins here lacks {len(stack)} closing brackets; add them"
        )


def _close(top: _OpenBracket, outer: bool, where: str) -> Constituent:
    if not top.label:
        if outer and len(top.children) == 1:
            return top.children[0]
        what = f"has {len(top.children)} trees" if outer and top.children else "is no phrase"
        raise BracketError(f"{where}: a bracket without a label {what}; only one around a whole tree needs no label")
    if top.word is None and not top.children:
        raise BracketError(f"{where}: ({shown(top.label)}) has neither words nor phrases; leave it out")
    return Constituent(top.label, tuple(top.children), top.word)


def _without_traces(tree: Constituent) -> Constituent | None:
    def make(node: Constituent, some: Sequence[Constituent | None]) -> Constituent | None:
        if node.word is not None:
            return None if node.label == TRACE else node
        left = tuple(child for child in some if child is not None)
        return replace(node, children=left) if left else None

    return tree.fold(make)


def _without_functions(node: Constituent, some: Sequence[Constituent]) -> Constituent:
    label = node.label if node.label.startswith("-") else _FUNCTION.sub("", node.label, count=1)
    return replace(node, label=label, children=tuple(some))
