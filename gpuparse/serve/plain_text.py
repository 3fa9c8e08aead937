"""Plain text cut into sentences and words, by simple rules: for what people type, not in place of a tokeniser.

A line end ends a sentence, and so does a full stop, a question or an exclamation mark before a space and a capital,
unless it follows a single letter or a short title. Punctuation at the ends of a word is a word of its own.
"""

from __future__ import annotations

import re

from gpuparse.data.sentence import Sentence

# All repetitions are bounded, so that time is linear.
_PARTS = re.compile(r"[.!?…]{1,4}[\"'”’»)\]]{0,3} (?=[\"'“‘«(\[¿¡]{0,3}[^\W\d_])")
_TITLE = re.compile(r"(?:^|\s)(?:\w|Mr|Mrs|Ms|Dr|St|Prof|No|vs|e\.g|i\.e|\w\.\w)\. ?$")
_BEFORE, _AFTER = "\"'“”‘’«»()[]{}¿¡„‚", "\"'“”‘’«»()[]{}.,;:!?…"
_LONGEST = 1000  # characters of a word


def sentences_of_text(text: str) -> list[Sentence]:
    """The sentences of a text.

    Example:
        >>> from gpuparse.serve.plain_text import sentences_of_text
        >>> [sentence.words for sentence in sentences_of_text("She saw Dr. Lee (twice). He did not.")]
        [['She', 'saw', 'Dr.', 'Lee', '(', 'twice', ')', '.'], ['He', 'did', 'not', '.']]
    """
    return [_sentence(piece) for line in text.splitlines() for piece in _pieces(" ".join(line.split())) if piece]


def _pieces(line: str) -> list[str]:
    found, begin = [], 0
    for match in _PARTS.finditer(line):
        if not (match[0].startswith(". ") and _TITLE.search(line[max(begin, match.start() - 20) : match.end()])):
            if line[match.end() : match.end() + 4].lstrip("\"'“‘«([¿¡")[:1].islower():
                continue
            found.append(line[begin : match.end()].strip())
            begin = match.end()
    return [*found, line[begin:].strip()]


def _sentence(text: str) -> Sentence:
    words: list[str] = []
    misc: list[str] = []
    for chunk in text.split(" "):
        parts = _split(chunk)
        words += parts
        misc += ["SpaceAfter=No"] * (len(parts) - 1) + ["_"]
    if _ends_sentence(words[-1]):
        words[-1:] = [words[-1][:-1], words[-1][-1]]
        misc[-1:] = ["SpaceAfter=No", "_"]
    return Sentence.from_words(words, misc=misc, comments=[f"# text = {text}"], source="<words>")


def _split(chunk: str) -> list[str]:
    """A word without the punctuation at its ends, and that."""
    if len(chunk) > _LONGEST:
        raise ValueError(f"a word of {len(chunk):,} characters; at most {_LONGEST:,}")
    begin, end = 0, len(chunk)
    after: list[str] = []
    while end - begin > 1 and chunk[begin] in _BEFORE:
        begin += 1
    while end - begin > 1 and chunk[end - 1] in _AFTER:
        start = end - 1
        while chunk[end - 1] == "." and start > begin + 1 and chunk[start - 1] == ".":  # dots are one word
            start -= 1
        if chunk[start:end] == "." and (_TITLE.search(chunk[begin:end]) or "." in chunk[begin:start]):
            break  # of an abbreviation
        after.append(chunk[start:end])
        end = start
    return [*chunk[:begin], chunk[begin:end], *reversed(after)]


def _ends_sentence(word: str) -> bool:
    """Whether the last word of a sentence is one with its full stop."""
    return len(word) > 1 and word[-1] == "." and "." not in word[:-1]
