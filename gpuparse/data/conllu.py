"""CoNLL-U, read and written as a stream, to the byte.

A file is a sequence of sentences whose texts, one after the other, are the file: comments, ranges (``1-2``), empty
nodes (``7.1``), line ends, blank lines and a missing last newline included. Blank lines at the start of a file belong
to its first sentence, others to the sentence before them.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Any, cast

from gpuparse.data.sentence import ConlluError, Sentence, check_tree
from gpuparse.system.files import replacing
from gpuparse.system.streams import STDIN, naming, standard_input, standard_output

__all__ = ["ConlluError", "Sentence", "check_tree", "read_conllu", "write_conllu"]

_BLOCK = 1 << 20
# A line end and the blank lines after it. Any other line end fails at its next character, so the search is linear.
_BOUNDARY = re.compile(rb"\n(?:[ \t\r]*\n)+")


def read_conllu(source: str | os.PathLike[str] | IO[Any], *, check: bool = True) -> Iterator[Sentence]:
    """Read sentences one at a time: from a path, ``-`` (stdin), ``*.gz``, or a file open for reading.

    With ``check`` off, malformed sentences are given out too and raise when a column is asked for.

    Example:
        >>> import io
        >>> from gpuparse.data import read_conllu
        >>> text = "1\\tRain\\train\\tNOUN\\t_\\t_\\t0\\troot\\t_\\t_\\n\\n"
        >>> [sentence.words for sentence in read_conllu(io.BytesIO(text.encode()))]
        [['Rain']]
    """
    with open_input(source) as stream:
        yield from split_sentences(stream, name_of(source), check=check)


def write_conllu(sentences: Iterable[Sentence], target: str | os.PathLike[str]) -> None:
    """Write sentences to a path, ``-`` (stdout) or ``*.gz``. A file appears under its name once it is complete.

    Example:
        >>> import tempfile
        >>> from gpuparse.data import Sentence, read_conllu, write_conllu
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     write_conllu([Sentence.from_words(["Rain"], heads=[0])], f"{directory}/rain.conllu")
        ...     [sentence.heads for sentence in read_conllu(f"{directory}/rain.conllu")]
        [[0]]
    """
    path = os.fspath(target)
    if path == "-":
        stream = standard_output()
        _write(sentences, stream)
        stream.flush()
        return
    with replacing(path) as raw:
        if path.endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
                _write(sentences, cast(IO[bytes], packed))
        else:
            _write(sentences, raw)


def encode(sentences: Iterable[Sentence]) -> bytes:
    """The bytes of sentences as they stand in a file."""
    return "".join([sentence.text for sentence in sentences]).encode("utf-8", "surrogateescape")


def name_of(source: str | os.PathLike[str] | IO[Any]) -> str:
    """What messages call a source."""
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        return STDIN if path == "-" else path
    return str(getattr(source, "name", "<file>"))


def open_input(source: str | os.PathLike[str] | IO[Any]) -> AbstractContextManager[IO[Any]]:
    """A source open for reading, unpacked where it is ``*.gz``; closed at the end unless it was open before."""
    if not isinstance(source, (str, os.PathLike)):
        return nullcontext(source)
    path = os.fspath(source)
    if path == "-":
        return nullcontext(standard_input())
    if path.endswith(".gz"):
        return cast(AbstractContextManager[IO[Any]], gzip.open(path, "rb"))
    return open(path, "rb")


def split_sentences(stream: IO[Any], source: str, *, line: int = 1, check: bool = True) -> Iterator[Sentence]:
    """The sentences of an open file from where it stands, which is line ``line`` of ``source``."""
    rest = b""
    while True:
        # A sentence that is longer than a block doubles what is read, so that time stays linear.
        block = read_block(stream, max(_BLOCK, len(rest)), source)
        data = rest + block
        start, last = 0, len(data.rstrip(b" \t\r\n"))
        for match in _BOUNDARY.finditer(data):
            end = match.end()
            if end > last:  # blank to the end of the block: what follows may be blank too
                break
            piece = data[start:end]
            if piece[0] in b" \t\r\n\xef" and not piece.strip(b" \t\r\n\xef\xbb\xbf"):
                continue  # blank lines at the start of a file go with its first sentence
            yield _decode(piece, source, line, check)
            line += piece.count(b"\n")
            start = end
        rest = data[start:]
        if not block:
            break
    if rest:
        yield _decode(rest, source, line, check)


def read_block(stream: IO[Any], size: int, source: str) -> bytes:
    """The next bytes of an open file, up to ``size`` of them; none at its end."""
    try:
        with naming(source):
            block = stream.read(size)
    except EOFError:
        raise ConlluError(f"{source}: the gzip data breaks off; copy the file again") from None
    except (gzip.BadGzipFile, zlib.error):
        raise ConlluError(f"{source}: not gzip data; take .gz off the name or pack the file") from None
    except UnicodeDecodeError:
        raise ConlluError(f"{source}: not UTF-8; convert the file to UTF-8") from None
    return block.encode("utf-8", "surrogateescape") if isinstance(block, str) else block


def _decode(piece: bytes, source: str, line: int, check: bool) -> Sentence:
    sentence = Sentence(piece.decode("utf-8", "surrogateescape"), source, line)
    if check:
        sentence.check()
    return sentence


def _write(sentences: Iterable[Sentence], stream: IO[bytes]) -> None:
    some: list[Sentence] = []
    for sentence in sentences:
        some.append(sentence)
        if len(some) == 1000:
            stream.write(encode(some))
            some.clear()
    stream.write(encode(some))
