"""The sentences of several files, one file after the other, from any place on."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import IO, Any, NamedTuple

from gpuparse.data.conllu import name_of, open_input, read_block, split_sentences
from gpuparse.data.sentence import Sentence

_BLOCK = 1 << 20


@dataclass
class Place:
    """How far the inputs have been read."""

    file: int = 0
    """Which of the inputs."""
    offset: int = 0
    """Bytes of it, unpacked."""
    line: int = 1
    """The number of the next line."""
    digest: str = ""
    """Of everything read."""


class Item(NamedTuple):
    """A sentence to parse and the text it was read as."""

    sentence: Sentence
    raw: str
    file: int


class Inputs:
    """The sentences of ``paths`` from ``place`` on; what comes before is read again and must be what it was."""

    def __init__(self, paths: Sequence[str], place: Place) -> None:
        self.paths = paths
        self.place = place
        self.bytes = 0  # read so far, unpacked
        self._hash = hashlib.blake2b(digest_size=16)

    def __iter__(self) -> Iterator[Item]:
        begin = self.place
        for number, path in enumerate(self.paths):
            with open_input(path) as stream:
                name = name_of(path)
                if number < begin.file:
                    self._skip(stream, name, None)
                    continue
                if number == begin.file:
                    self._skip(stream, name, begin.offset)
                    if begin.digest and self._hash.hexdigest() != begin.digest:
                        raise ValueError(
                            f"{name}: not what the interrupted run had read; give the same input, or --overwrite to "
                            "start anew"
                        )
                line = begin.line if number == begin.file else 1
                last: Sentence | None = None
                for sentence in split_sentences(stream, name, line=line, check=False):
                    if last is not None:
                        yield Item(_joined(last, number), last.text, number)
                    last = sentence
                if last is not None:
                    more = number + 1 < len(self.paths)
                    yield Item(_joined(last, number, ends=more), last.text, number)

    def _skip(self, stream: IO[Any], name: str, size: int | None) -> None:
        """Read over ``size`` bytes, or all. Their digest costs a thousandth of what it cost to parse them."""
        while size is None or size > 0:
            block = read_block(stream, _BLOCK if size is None else min(_BLOCK, size), name)
            if not block:
                return
            self._hash.update(block)
            self.bytes += len(block)
            size = None if size is None else size - len(block)

    def advance(self, items: Sequence[Item]) -> Place:
        """The place after ``items``, which follow what came before."""
        file, offset = self.place.file, self.place.offset
        for number, group in groupby(items, key=lambda item: item.file):
            raw = "".join([item.raw for item in group]).encode("utf-8", "surrogateescape")
            self._hash.update(raw)
            self.bytes += len(raw)
            file, offset = number, len(raw) + (offset if number == file else 0)
        last = items[-1]
        line = last.sentence.line + last.raw.count("\n")
        self.place = Place(file, offset, line, self._hash.hexdigest())
        return self.place


def sizes(paths: Sequence[str]) -> list[int | None]:
    """The size of each input, None where it is no regular file; ``OSError`` where it cannot be read."""
    found = [None if path == "-" else os.stat(path) for path in paths]
    return [about.st_size if about is not None and stat.S_ISREG(about.st_mode) else None for about in found]


def _joined(sentence: Sentence, number: int, *, ends: bool = False) -> Sentence:
    """The sentence fit to stand among those of other files: ended by a blank line, no byte order mark inside."""
    text = sentence.text
    if number > 0 and text.startswith("\ufeff"):
        text = text[1:]
    if ends:
        end = "\r\n" if "\r\n" in text else "\n"
        if not text.endswith("\n"):
            text += end
        if text[:-1].rstrip(" \t\r")[-1:] not in {"\n", ""}:
            text += end
    return sentence if text is sentence.text else Sentence(text, sentence.source, sentence.line)
