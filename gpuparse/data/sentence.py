"""A sentence of CoNLL-U: its text to the byte, its columns on demand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpuparse.data import looks
from gpuparse.data.lines import BLANK, COLUMNS, first_line_of_words, numbers_to, rows_of_words
from gpuparse.system.quote import quoted

_STEP = COLUMNS + 1  # ten fields and the line end
_HEAD = re.compile(r"0|[1-9][0-9]{0,8}")


class ConlluError(ValueError):
    """Something is wrong with CoNLL-U data; the message is one line, ``file:line: what; what to do``."""


class _Column:
    """A column of a sentence."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.__doc__ = number, f"{name} of every word."

    def __get__(self, sentence: Sentence, _: type[Sentence] | None = None) -> list[str]:
        return sentence._column(self.number)


class Sentence:
    """One sentence of a CoNLL-U file, its text kept exactly as it was read.

    The text is taken apart when a column is asked for first, and only once. ``len(sentence)`` is the number of words:
    ranges and empty nodes do not count. A block of comments without words is a sentence of length 0.

    Example:
        >>> from gpuparse.data import Sentence
        >>> sentence = Sentence.from_words(["She", "sleeps"], heads=[2, 0], deprels=["nsubj", "root"])
        >>> len(sentence), sentence.heads, sentence.deprels
        (2, [2, 0], ['nsubj', 'root'])
        >>> sentence
        Sentence(1 She ← 2, 2 sleeps ← 0)
    """

    __slots__ = ("_fields", "_parts", "_rows", "line", "source", "text")

    def __init__(self, text: str, source: str = "<text>", line: int = 1) -> None:
        self.text = text
        """Every character, with comments, line ends and the blank lines that follow."""
        self.source = source
        """The file's name."""
        self.line = line
        """The number of the text's first line in its file, from 1."""
        self._fields: list[str] | None = None
        self._rows: list[int] | None = None
        self._parts = ("", "")

    @classmethod
    def from_words(
        cls,
        words: Sequence[str],
        upos: Sequence[str] | None = None,
        *,
        lemmas: Sequence[str] | None = None,
        xpos: Sequence[str] | None = None,
        feats: Sequence[str] | None = None,
        heads: Sequence[int | None] | None = None,
        deprels: Sequence[str] | None = None,
        misc: Sequence[str] | None = None,
        comments: Sequence[str] = (),
        source: str = "<words>",
        line: int = 1,
    ) -> Sentence:
        """Build a sentence of plain words; a column that is not given is ``_``, and so is a head that is None."""
        count = len(words)
        columns: list[Sequence[str]] = [[str(number) for number in range(1, count + 1)]]
        given = {"words": words, "lemmas": lemmas, "upos": upos, "xpos": xpos, "feats": feats}
        given |= {"heads": None if heads is None else ["_" if head is None else str(head) for head in heads]}
        given |= {"deprels": deprels, "deps": None, "misc": misc}
        for name, column in given.items():
            if column is None:
                column = ["_"] * count
            _check_values(name, column, count)
            columns.append(column)
        for comment in comments:
            if not comment.startswith("#") or "\n" in comment or "\r" in comment:
                raise ValueError(f"comments: {quoted(comment)} is not one line that begins with '#'")
        lines = [*comments, *map("\t".join, zip(*columns, strict=True)), "", ""]
        return cls("\n".join(lines), source, line)

    def __repr__(self) -> str:
        return looks.in_one_line(self)

    def _repr_svg_(self) -> str | None:
        """The tree, as notebooks show it."""
        return looks.drawn(self)

    def __len__(self) -> int:
        fields = self._split()
        return (len(fields) + 1) // _STEP if self._rows is None else len(self._rows)

    words = _Column(1, "FORM")
    lemmas = _Column(2, "LEMMA")
    upos = _Column(3, "UPOS")
    xpos = _Column(4, "XPOS")
    feats = _Column(5, "FEATS")
    deprels = _Column(7, "DEPREL")

    @property
    def heads(self) -> list[int]:
        """HEAD of every word; a :class:`ConlluError` where one is missing, no number or no word of the sentence."""
        column = self._column(6)
        try:
            heads = list(map(int, column))
        except ValueError:
            heads = []
        if list(map(str, heads)) != column or (heads and not 0 <= min(heads) <= max(heads) <= len(heads)):
            self._explain_heads(column)
        return heads

    @property
    def given_heads(self) -> list[int | None]:
        """HEAD of every word, None where it is open (``_``); else a :class:`ConlluError` as of ``heads``."""
        column = self._column(6)
        self._explain_heads(["0" if text == "_" else text for text in column])
        return [None if text == "_" else int(text) for text in column]

    @property
    def confidence(self) -> list[float | None]:
        """The probability of every word's arc, which ``Confidence=`` in MISC says; None where it does not."""
        return looks.probabilities(self)

    @property
    def misc(self) -> list[str]:
        """MISC of every word."""
        return [value.rstrip("\r") for value in self._column(9)]

    @property
    def comments(self) -> list[str]:
        """The comment lines, with their ``#``; of a malformed sentence too."""
        head = self.text[: first_line_of_words(self.text)].lstrip("\ufeff")
        return [line.rstrip("\r") for line in head.split("\n") if line.startswith("#")]

    @property
    def sent_id(self) -> str | None:
        """What the comment ``# sent_id = ...`` says."""
        return self.comment("sent_id")

    def comment(self, key: str) -> str | None:
        """What the first comment ``# key = ...`` says."""
        pairs = (comment[1:].partition("=") for comment in self.comments)
        return next((value.strip() for name, equals, value in pairs if equals and name.strip() == key), None)

    def line_of(self, word: int) -> int:
        """The line number, in the file, of a word (from 1)."""
        if not 1 <= word <= len(self):
            raise ValueError(f"word: {word} is not between 1 and {len(self)}")
        row = word - 1 if self._rows is None else self._rows[word - 1]
        return self._line_of_row(row)

    def error(self, word: int, what: str) -> ConlluError:
        """What is wrong with a word (from 1), as an error that names its file and line."""
        return ConlluError(f"{self.source}:{self.line_of(word)}: {what}")

    def with_parse(
        self,
        heads: Sequence[int],
        deprels: Sequence[str] | None = None,
        misc: Mapping[str, Sequence[str]] | None = None,
    ) -> Sentence:
        """The same sentence with other heads and, where given, labels; all else is as it was, to the byte.

        ``misc`` adds ``Key=value`` to each word's MISC, last, in place of an earlier value of that key.
        """
        fields = self._split().copy()
        count = len(self)
        if len(heads) != count:
            raise ValueError(f"heads: {len(heads)} for {count} words ({self.source}:{self.line})")
        if count == 0:
            return Sentence(self.text, self.source, self.line)
        if not 0 <= min(heads) <= max(heads) <= count:
            raise ValueError(f"heads: not between 0 and {count} everywhere ({self.source}:{self.line})")
        names = ["0", *numbers_to(count)]
        self._replace(fields, 6, [names[head] for head in heads])
        if deprels is not None:
            _check_values("deprels", deprels, count)
            self._replace(fields, 7, deprels)
        for key, values in (misc or {}).items():
            _check_values(f"misc[{quoted(key)}]", values, count)
            new = [_with_key(old, key, value) for old, value in zip(self._pick(fields, 9), values, strict=True)]
            self._replace(fields, 9, new)
        return self._of(fields)

    def with_comment(self, key: str, value: str | None) -> Sentence:
        """The same sentence with the comment ``# key = value`` as its last, in place of an earlier one; None: without.

        All else is as it was, to the byte.
        """
        fields = self._split()
        before, after = self._parts
        mark = f"# {key} ="
        if value is None and mark not in before:
            return self
        if value is not None and set(value) & set("\r\n"):
            raise ValueError(f"{key}: {quoted(value)} has a line end")
        top = "\ufeff" if before.startswith("\ufeff") else ""
        lines = before[len(top) :].split("\n")
        kept = [line for line in lines if not line.startswith(mark)]
        if value is not None:
            end = "\r" if "\r\n" in self.text else ""
            # After the last comment; a sentence without words has blank lines there.
            places = [place for place, line in enumerate(kept, 1) if line.startswith("#")]
            kept.insert(places[-1] if places else len(kept) - 1, f"{mark} {value}{end}")
        changed = Sentence(self.text, self.source, self.line)
        changed._fields, changed._rows, changed._parts = fields, self._rows, (top + "\n".join(kept), after)
        return changed._of(fields)

    def with_tags(
        self,
        *,
        upos: Sequence[str] | None = None,
        xpos: Sequence[str] | None = None,
        feats: Sequence[str] | None = None,
    ) -> Sentence:
        """The same sentence with other tags in the columns that are given; all else is as it was, to the byte."""
        fields = self._split().copy()
        for index, name, values in ((3, "upos", upos), (4, "xpos", xpos), (5, "feats", feats)):
            if values is not None:
                _check_values(name, values, len(self))
                self._replace(fields, index, values)
        return self._of(fields) if fields else Sentence(self.text, self.source, self.line)

    def _of(self, fields: list[str]) -> Sentence:
        """A sentence with other fields in the same lines."""
        before, after = self._parts
        text = "\t".join(fields).replace("\t\n\t", "\n")
        changed = Sentence(f"{before}{text}{after}", self.source, self.line)
        changed._fields, changed._rows, changed._parts = fields, self._rows, self._parts
        return changed

    def check(self) -> None:
        """Raise :class:`ConlluError` unless every line has ten columns and the IDs count the words from 1."""
        self._split()

    def _column(self, index: int) -> list[str]:
        return self._pick(self._split(), index)

    def _pick(self, fields: list[str], index: int) -> list[str]:
        column = fields[index::_STEP]
        return column if self._rows is None else [column[row] for row in self._rows]

    def _replace(self, fields: list[str], index: int, values: Sequence[str]) -> None:
        if self._rows is None:
            fields[index::_STEP] = values
        else:
            for row, value in zip(self._rows, values, strict=True):
                fields[row * _STEP + index] = value

    def _split(self) -> list[str]:
        """The fields of the word lines, ten and a line end for each line."""
        if self._fields is not None:
            return self._fields
        text = self.text
        if not text.isascii():
            self._check_encoding()
        begin = first_line_of_words(text)
        end = text.find("\n", max(begin, len(text.rstrip(BLANK))))
        if end < 0:
            end = len(text)
        self._parts = (text[:begin], text[end:])
        if begin == end:
            self._fields = []
            return self._fields
        # A line end becomes a field by itself, so that one split does all, and what is no line end stays in its field.
        fields = text[begin:end].replace("\n", "\t\n\t").split("\t")
        lines, left = divmod(len(fields) + 1, _STEP)
        ids = fields[::_STEP]
        ends = fields[COLUMNS::_STEP].count("\n")  # line ends where they should be: all of them
        if left or ends != lines - 1 or fields.count("\n") != ends or ids != numbers_to(lines):
            self._rows = rows_of_words(text[begin:end].split("\n"), self._error)
        if "" in fields[1::_STEP]:
            row = fields[1::_STEP].index("")
            raise self._error(row, "the FORM (column 2) is empty; write _ where there is none")
        self._fields = fields
        return fields

    def _check_encoding(self) -> None:
        try:
            self.text.encode()
        except UnicodeEncodeError as error:
            line = self.line + self.text.count("\n", 0, error.start)
            raise ConlluError(f"{self.source}:{line}: not UTF-8; convert the file to UTF-8") from None

    def _explain_heads(self, column: list[str]) -> None:
        for word, text in enumerate(column, 1):
            where = f"{self.source}:{self.line_of(word)}: word {word}"
            if text in {"_", ""}:
                raise ConlluError(f"{where} has no HEAD; parse the sentence first or leave it out")
            if not _HEAD.fullmatch(text):
                raise ConlluError(f"{where} has HEAD {quoted(text, 40)}, no integer; write the number of a word or 0")
            if int(text) > len(column):
                raise ConlluError(f"{where} has HEAD {text} in a sentence of {len(column)}; write 0 to {len(column)}")

    def _line_of_row(self, row: int) -> int:
        return self.line + self._parts[0].count("\n") + row

    def _error(self, row: int, what: str) -> ConlluError:
        return ConlluError(f"{self.source}:{self._line_of_row(row)}: {what}")


def check_tree(sentence: Sentence, *, single_root: bool = True) -> None:
    """Raise :class:`ConlluError`, naming file and line, unless the sentence's heads are a tree.

    Example:
        >>> from gpuparse.data import Sentence, check_tree
        >>> check_tree(Sentence.from_words(["She", "sleeps"], heads=[2, 0]))
        >>> check_tree(Sentence.from_words(["She", "sleeps"], heads=[0, 0]))
        Traceback (most recent call last):
        ...
        gpuparse.data.sentence.ConlluError: <words>:2: word 2 is a second root after word 1; ...
    """
    heads = sentence.heads
    roots = [word for word, head in enumerate(heads, 1) if head == 0]
    if heads and not roots:
        raise _no_tree(sentence, 1, "no word has HEAD 0")
    if single_root and len(roots) > 1:
        raise _no_tree(sentence, roots[1], f"word {roots[1]} is a second root after word {roots[0]}")
    walk = [0] * (len(heads) + 1)  # which walk towards the root came by first
    walk[0] = -1
    for start in range(1, len(heads) + 1):
        word = start
        while not walk[word]:
            walk[word] = start
            word = heads[word - 1]
        if walk[word] == start:
            raise _no_tree(sentence, word, f"a cycle of heads: {_cycle(heads, word)}")


def _cycle(heads: Sequence[int], word: int) -> str:
    """The cycle that a word is in, ``3 → 5 → 3``; a long one is shortened."""
    cycle = [word]
    while (head := heads[cycle[-1] - 1]) != word:
        cycle.append(head)
    shown = [str(node) for node in cycle]
    if len(shown) > 8:
        shown[4:-3] = ["…"]
    return " → ".join([*shown, str(word)])


def _no_tree(sentence: Sentence, word: int, what: str) -> ConlluError:
    where = f"{sentence.source}:{sentence.line_of(word)}"
    return ConlluError(f"{where}: {what}; correct HEAD or leave the sentence out")


def _check_values(name: str, values: Sequence[str], count: int) -> None:
    """Values that can stand in a column: as many as words, none empty, none with a tab or a line end."""
    if len(values) != count:
        raise ValueError(f"{name}: {len(values)} for {count} words")
    joined = "\t".join(values)
    if "\n" in joined or "\r" in joined or joined.count("\t") != max(count - 1, 0) or "" in values:
        for number, value in enumerate(values, 1):
            if not value or set(value) & set("\t\r\n"):
                raise ValueError(f"{name}: {quoted(value)} of word {number} is empty or has a tab or a line end")


def _with_key(misc: str, key: str, value: str) -> str:
    """A MISC field, with its line's CR if it has one, and ``key=value`` in it."""
    end = "\r" if misc.endswith("\r") else ""
    old = misc[: len(misc) - len(end)]
    pair = f"{key}={value}"
    if old in {"_", ""}:
        return pair + end
    if f"{key}=" in old:
        kept = [part for part in old.split("|") if not part.startswith(f"{key}=")]
        return "|".join([*kept, pair]) + end
    return f"{old}|{pair}{end}"
