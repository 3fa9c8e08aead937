"""Documents of spaCy as sentences to parse, and trees as heads and labels of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from spacy.attrs import DEP, HEAD, SENT_START
from spacy.pipeline import Sentencizer
from spacy.tokens import Doc

from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import Sentence

_SPACE = "dep"  # the label of white space
_ROOT = {"root": "ROOT"}  # as spaCy's own models have it


@dataclass(frozen=True, eq=False)
class Piece:
    """A sentence of a document: its first token, the one after its last, and those that are no white space."""

    doc: Doc
    begin: int
    end: int
    words: list[int]

    def sentence(self, columns: Iterable[str]) -> Sentence:
        """Its words, with the columns that a parser reads."""
        tokens = [self.doc[index] for index in self.words]
        upos = [token.pos_ or "_" for token in tokens] if "upos" in columns else None
        feats = [str(token.morph) or "_" for token in tokens] if "feats" in columns else None
        # A token that was made by merging may have any white space within.
        forms = [" ".join(token.text.split()) for token in tokens]
        return Sentence.from_words(forms, upos, feats=feats, source="<Doc>")


def pieces_of(doc: Doc, rules: bool) -> list[Piece]:
    """The sentences of a document: by what is preset and, with ``rules``, by punctuation where nothing is."""
    if not len(doc):
        return []
    guessed = _sentencizer().predict([doc])[0] if rules else [False] * len(doc)
    starts, pending = [0], False
    for index in range(1, len(doc)):
        token = doc[index]
        preset = token.is_sent_start
        pending |= preset is None and guessed[index]
        # White space belongs to what is before it: a guess waits for the next word.
        if preset or (pending and preset is None and not token.is_space):
            starts.append(index)
        if not token.is_space:
            pending = False
    spans = zip(starts, [*starts[1:], len(doc)], strict=True)
    return [
        Piece(doc, begin, end, [index for index in range(begin, end) if not doc[index].is_space])
        for begin, end in spans
    ]


def set_trees(doc: Doc, found: Iterable[tuple[Piece, Prediction | None]]) -> None:
    """Heads, labels and sentence starts; a piece without words has no prediction."""
    heads, labels = list(range(len(doc))), [_SPACE] * len(doc)
    starts = [-1] * len(doc)
    for piece, prediction in found:
        starts[piece.begin] = 1
        words = piece.words
        # White space: of the word before it, of the first word, or of the first of the white space.
        before = words[0] if words else piece.begin
        for index in range(piece.begin, piece.end):
            heads[index] = before
            if words and not doc[index].is_space:
                before = index
        if prediction is None:
            labels[piece.begin] = "ROOT"
            continue
        for word, head, label in zip(words, prediction.heads, prediction.deprels, strict=True):
            heads[word] = words[head - 1] if head else word
            labels[word] = _ROOT.get(label, label)
    if not len(doc):
        return
    offsets = np.array(heads, dtype=np.int64) - np.arange(len(doc))
    known = {label: doc.vocab.strings.add(label) for label in set(labels)}
    rows: Any = np.stack([offsets.astype(np.uint64), np.array([known[label] for label in labels], dtype=np.uint64)], 1)
    doc.from_array([HEAD, DEP], rows)
    # spaCy has found sentence starts by the trees, and gives up where many arcs cross: they are known here.
    known_starts: Any = np.array(starts, dtype=np.int64).astype(np.uint64)
    doc.from_array([SENT_START], known_starts)


@cache
def _sentencizer() -> Any:
    return Sentencizer()
