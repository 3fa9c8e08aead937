"""From what clients send to sentences, and from predictions to what they get."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from gpuparse.data.conllu import read_conllu
from gpuparse.data.partial import Partial
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import ConlluError, Sentence
from gpuparse.render.compare import notes_of, tags_of, text_of, tokens_of
from gpuparse.render.style import svg_style
from gpuparse.render.svg import tree_svg
from gpuparse.serve.messages import ParseRequest, SentenceIn
from gpuparse.serve.plain_text import sentences_of_text
from gpuparse.serve.settings import ParseOptions, Refused, ServerLimits

_SOURCE = "conllu"
_PLACE = re.compile(r"^<?(?:words|conllu)>?:\d+: ")


class AskedSentences(NamedTuple):
    """The sentences of a request: what messages call them, and what is known of their trees."""

    sentences: list[Sentence]
    names: list[str]
    known: list[Partial]

    def check(self, limits: ServerLimits) -> AskedSentences:
        limits.check(self.sentences, self.names)
        return self


def read_given(request: ParseRequest, limits: ServerLimits) -> AskedSentences:
    """The sentences of a request for parses; ``Refused`` where they are not as they must be."""
    forms = [name for name in ("sentences", "conllu", "text") if getattr(request, name) is not None]
    if len(forms) != 1:
        raise Refused(422, f"wanted one of sentences, conllu and text, not {' and '.join(forms) or 'none'}")
    if request.partial and forms != ["conllu"]:
        raise Refused(422, "partial: it is about conllu; of other forms required, forbidden and labels say the same")
    if request.sentences is None:
        sentences, names = read_text(request.conllu, request.text)
        known = _known_of_columns(sentences) if request.partial else [Partial.nothing(len(s)) for s in sentences]
        return AskedSentences(sentences, names, known).check(limits)
    if len(request.sentences) > limits.max_sentences:
        raise Refused(413, f"{len(request.sentences):,} sentences; at most {limits.max_sentences:,} a request")
    given = AskedSentences([], [], [])
    for number, one in enumerate(request.sentences, 1):
        name = f"sentence {number}"
        sentence = _sentence_of(one, name)
        limits.check([sentence], [name])
        given.sentences.append(sentence)
        given.names.append(name)
        given.known.append(_known_of(one, len(sentence), name))
    return given


def read_text(conllu: str | None, text: str | None) -> tuple[list[Sentence], list[str]]:
    """The sentences of CoNLL-U or of plain text, and what messages call them."""
    if (conllu is None) == (text is None):
        raise Refused(422, "wanted one of conllu and text")
    if conllu is None:
        assert text is not None
        try:
            sentences = sentences_of_text(text)
        except ValueError as error:
            raise Refused(422, f"text: {error}") from None
    else:
        sentences = sentences_of_conllu(conllu)
    return sentences, [f"sentence {number}" for number in range(1, len(sentences) + 1)]


def sentences_of_conllu(text: str) -> list[Sentence]:
    """Sentences with words; ``Refused`` names the line of what is malformed."""
    try:
        stream = io.BytesIO(text.encode())
        stream.name = _SOURCE
        return [sentence for sentence in read_conllu(stream) if len(sentence)]
    except ConlluError as error:
        raise Refused(422, str(error)) from None


def _sentence_of(one: SentenceIn, name: str) -> Sentence:
    if (one.words is None) == (one.conllu is None):
        raise Refused(422, f"{name}: wanted either words or conllu")
    if one.conllu is not None:
        if one.upos is not None or one.feats is not None or one.sent_id is not None:
            raise Refused(422, f"{name}: tags and sent_id stand in its conllu")
        found = sentences_of_conllu(one.conllu)
        if len(found) != 1:
            raise Refused(422, f"{name}: its conllu has {len(found)} sentences; wanted one")
        return found[0]
    assert one.words is not None
    comments = [] if one.sent_id is None else [f"# sent_id = {one.sent_id}"]
    try:
        return Sentence.from_words(one.words, one.upos, feats=one.feats, comments=comments)
    except ValueError as error:
        raise Refused(422, f"{name}: {error}") from None


def _known_of_columns(sentences: Sequence[Sentence]) -> list[Partial]:
    try:
        return [Partial.of(sentence) for sentence in sentences]
    except ConlluError as error:
        raise Refused(422, str(error)) from None


def _known_of(one: SentenceIn, words: int, name: str) -> Partial:
    """What is required and forbidden; heads required of one word twice are refused, as no tree has both."""
    required: dict[int, int] = {}
    forbidden: dict[int, set[int]] = {}
    for kind, arcs in (("required", one.required), ("forbidden", one.forbidden)):
        for head, word in arcs:
            if head > words or word > words or head == word:
                wanted = f"wanted another word (1 to {words}) or the root (0), and a word"
                raise Refused(422, f"{name}: {kind}: from {head} to {word} is no arc of {words} words; {wanted}")
    for head, word in one.required:
        if required.setdefault(word, head) != head:
            raise Refused(422, f"{name}: word {word}: heads {required[word]} and {head} are both required")
    for head, word in one.forbidden:
        if required.get(word) == head:
            raise Refused(422, f"{name}: word {word}: the arc from {head} is both required and forbidden")
        forbidden.setdefault(word, set()).add(head)
    labels = {int(number): label for number, label in one.labels.items()}
    if not all(1 <= word <= words for word in labels):
        raise Refused(422, f"{name}: labels: wanted numbers of words, 1 to {words}, not {max(labels)}")

    def heads(word: int) -> frozenset[int] | None:
        if word in required:
            return frozenset([required[word]])
        if word in forbidden:
            return frozenset(range(words + 1)) - forbidden[word] - {word}
        return None

    numbers = range(1, words + 1)
    return Partial(tuple(map(heads, numbers)), tuple(map(labels.get, numbers)))


def options_of(request: ParseRequest, tag: bool) -> ParseOptions:
    return ParseOptions(
        request.nbest,
        request.probabilities,
        request.marginals,
        tuple(sorted(set(request.constraints))),
        request.projective,
        tag,
    )


def answer_of(sentence: Sentence, found: Prediction, *, svg: bool, conllu: bool) -> dict[str, Any]:
    """What clients get of a sentence: a ``SentenceOut``."""
    sentence = found.tagged or sentence
    parsed = found.fill(sentence, found.confidence is not None) if conllu else None
    return {
        "words": sentence.words,
        "upos": sentence.upos,
        "sent_id": sentence.sent_id,
        "heads": found.heads,
        "deprels": found.deprels,
        "confidence": _rounded(found.confidence),
        "label_confidence": _rounded(found.label_confidence),
        "tree_probability": _finite(found.probability),
        "entropy": _finite(found.entropy),
        "certified": found.certified,
        "estimated": found.estimated,
        "alternatives": [
            {
                "heads": one.heads,
                "deprels": one.deprels,
                "probability": _finite(one.probability),
                "score": _finite(one.score),
            }
            for one in found.alternatives
        ],
        "marginals": None if found.marginals is None else [_rounded(row) for row in found.marginals],
        "constraints": found.constraints,
        "svg": draw(sentence, found.heads, found.deprels, found.confidence) if svg else None,
        "conllu": None if parsed is None else parsed.text,
    }


def as_read(sentence: Sentence) -> dict[str, Any]:
    """What clients get of a sentence that was only read: a ``ReadSentence``."""
    try:
        heads = sentence.given_heads
    except ConlluError as error:
        raise Refused(422, str(error)) from None
    deprels = [None if label == "_" else label for label in sentence.deprels]
    told = {"words": sentence.words, "text": text_of(sentence), "sent_id": sentence.sent_id}
    return {"conllu": sentence.text, **told, "heads": heads, "deprels": deprels}


def draw(
    sentence: Sentence,
    heads: Sequence[int],
    deprels: Sequence[str],
    confidence: Sequence[float | None] | None,
    standalone: bool = False,
) -> str:
    """A tree as SVG, in the look of ``gpuparse render``; standing alone, in light colours whatever surrounds it."""
    sure = None if confidence is None else [None if p is None else min(max(p, 0.0), 1.0) for p in confidence]
    drawn = tree_svg(
        [-1, *heads],
        sentence.words,
        ["" if label == "_" else label for label in deprels],
        tags=tags_of(sentence),
        confidence=sure,
        notes=notes_of(sentence),
        tokens=tokens_of(sentence),
        standalone=standalone,
    )
    return drawn.replace(svg_style(), svg_style(dark=False), 1) if standalone else drawn


def refusal(error: Exception, name: str) -> Refused:
    """What the parser said of a sentence, for clients."""
    text = str(error)
    bare = _PLACE.sub("", text)
    return Refused(422, f"{name}: {bare}" if bare != text else text)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _rounded(values: Iterable[float] | None) -> list[float] | None:
    """Probabilities, in few enough characters."""
    return None if values is None else [round(value, 6) for value in values]
