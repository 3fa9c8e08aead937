"""Which columns of CoNLL-U are tagged: XPOS, UPOS, or UPOS and FEATS as one label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuparse.data.sentence import Sentence
from gpuparse.system.quote import quoted

_COLUMNS = {"xpos": ("xpos",), "upos": ("upos",), "upos+feats": ("upos", "feats")}
TAG_SETS = tuple(_COLUMNS)


class TagSet:
    """A tag is the value of a column, or of several with a tab between them, which no column can hold."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or name not in _COLUMNS:
            raise ValueError(f"data.tags is {quoted(name)}; wanted one of {', '.join(map(repr, _COLUMNS))}")
        self.name = name
        self.columns = _COLUMNS[name]

    def tags(self, sentence: Sentence) -> list[str]:
        """The tag of every word."""
        return list(map("\t".join, zip(*(getattr(sentence, column) for column in self.columns), strict=True)))

    def fill(self, sentence: Sentence, tags: Sequence[str]) -> Sentence:
        """The sentence with its columns from these tags; all else is as it was."""
        values = zip(*(tag.split("\t") for tag in tags), strict=True) if tags else ((),) * len(self.columns)
        return sentence.with_tags(**dict(zip(self.columns, map(list, values), strict=True)))

    def check(self, sentences: Iterable[Sentence], name: str) -> None:
        """Raise ``ValueError`` where the first column is empty in all of a treebank."""
        column = self.columns[0]
        if not any(value != "_" for sentence in sentences for value in getattr(sentence, column)):
            others = " or ".join(other for other in _COLUMNS if other != self.name)
            raise ValueError(
                f"{name}: the {column.upper()} column is empty and data.tags is {self.name!r}; set it to {others}"
            )
