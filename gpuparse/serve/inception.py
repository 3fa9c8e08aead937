"""INCEpTION's external recommender for dependency relations: suggestions that keep to what has been annotated.

In INCEpTION the recommender's address is that of the server with ``/inception``. A relation that is annotated is an arc
that the tree has to have, and its label is kept; all other words get the best tree given these.
A word under the root is a relation from the word to itself, as in INCEpTION's dependency layer.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gpuparse.data.partial import Partial
from gpuparse.data.prediction import Prediction
from gpuparse.data.sentence import Sentence
from gpuparse.serve.api import as_json
from gpuparse.serve.messages import PROBLEMS
from gpuparse.serve.sentences import AskedSentences
from gpuparse.serve.service import Served, Service
from gpuparse.serve.settings import ParseOptions, Refused
from gpuparse.serve.xmi import CasAnnotation, CasDocument, CasTypes, XmiError
from gpuparse.system.quote import quoted

router = APIRouter(prefix="/inception")
_SEGMENT = "de.tudarmstadt.ukp.dkpro.core.api.segmentation.type"
_SENTENCE, _TOKEN = f"{_SEGMENT}.Sentence", f"{_SEGMENT}.Token"
_HEAD, _WORD, _PREDICTED = "Governor", "Dependent", "inception_internal_predicted"
_UPOS = frozenset(
    {"ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ"}
    | {"SYM", "VERB", "X"}
)


class LayerMetadata(BaseModel):
    layer: str = Field(max_length=1000)
    feature: str = Field(max_length=1000)
    projectId: int | None = None
    anchoringMode: str | None = None
    crossSentence: bool | None = None


class CasIn(BaseModel):
    xmi: str
    documentId: int | str | None = None
    userId: str | None = None


class RelationRequest(BaseModel):
    """A document to which relations are to be suggested."""

    metadata: LayerMetadata
    document: CasIn
    typeSystem: str


class RelationAnswer(BaseModel):
    document: str = Field(description="The document as XMI, with suggestions.")


class TrainingDocuments(BaseModel):
    metadata: LayerMetadata
    documents: list[CasIn]
    typeSystem: str


class _Words(NamedTuple):
    """A sentence of a document: what its relations hang on, in order, and what is known of them."""

    ends: list[CasAnnotation]
    sentence: Sentence
    known: Partial


@router.post("/predict", responses={**PROBLEMS, 200: {"model": RelationAnswer}})
async def predict(body: RelationRequest, request: Request, service: Served) -> Response:
    """Suggest the relations that are not annotated, given those that are."""
    try:
        document, found = await asyncio.to_thread(_read, body, service)
    except XmiError as error:
        raise Refused(422, str(error)) from None
    names = [f"sentence {number}" for number in range(1, len(found) + 1)]
    given = AskedSentences([one.sentence for one in found], names, [one.known for one in found]).check(service.limits)
    predictions = await service.parse(given, ParseOptions(probabilities=True))

    def answer() -> Response:
        for one, prediction in zip(found, predictions, strict=True):
            _suggest(document, body.metadata, one, prediction)
        return as_json({"document": document.to_xmi()})

    return await asyncio.to_thread(answer)


@router.post("/train", status_code=204, response_class=Response, responses=PROBLEMS)
async def train(body: TrainingDocuments) -> Response:
    """Taken and left alone: the parser is not trained here, it only keeps to what is annotated."""
    return Response(status_code=204)


def _read(body: RelationRequest, service: Service) -> tuple[CasDocument, list[_Words]]:
    """The document, and of it the sentences that a tree is possible for."""
    types = CasTypes.read(body.typeSystem)
    features = types.features(body.metadata.layer)
    for name, wanted in ((_HEAD, ""), (_WORD, ""), (body.metadata.feature, "uima.cas.String")):
        if name not in features or wanted not in ("", features[name]):
            kind = "feature of strings" if wanted else "feature"
            raise Refused(422, f"layer {quoted(body.metadata.layer, 100)} has no {kind} {quoted(name, 60)}")
    document = CasDocument.read(body.document.xmi, types)
    # Relations hang on tokens, or on annotations of another layer, of which a token has one.
    on = features[_HEAD]
    if on in ("uima.tcas.Annotation", _TOKEN):
        on = _TOKEN
    ends = document.of(on)
    tokens = {(token.begin, token.end): token for token in document.of(_TOKEN)}
    relations = defaultdict(list)
    for relation in document.of(body.metadata.layer):
        if relation.features.get(_PREDICTED) != "true":
            relations[relation.features.get(_WORD, "")].append(relation)
    found = [_words(document, body.metadata.feature, some, tokens, relations) for some in _by_sentence(document, ends)]
    trees = service.engine
    possible = {"single_root": trees.single_root, "projective": trees.projective}
    return document, [one for one in found if one.known.is_open or not one.known.impossible(**possible)]


def _by_sentence(document: CasDocument, ends: list[CasAnnotation]) -> Iterator[list[CasAnnotation]]:
    begins = [one.begin for one in ends]
    for sentence in document.of(_SENTENCE):
        some: dict[tuple[int, int], CasAnnotation] = {}
        for one in ends[bisect_left(begins, sentence.begin) : bisect_left(begins, sentence.end)]:
            if one.begin < one.end <= sentence.end:
                some.setdefault((one.begin, one.end), one)
        if some:
            yield [*some.values()]


def _words(
    document: CasDocument,
    feature: str,
    ends: list[CasAnnotation],
    tokens: dict[tuple[int, int], CasAnnotation],
    relations: dict[str, list[CasAnnotation]],
) -> _Words:
    numbers = {one.id: number for number, one in enumerate(ends, 1)}
    heads: list[frozenset[int] | None] = []
    labels: list[str | None] = []
    upos, feats = [], []
    for number, one in enumerate(ends, 1):
        given = [(numbers.get(r.features.get(_HEAD, "")), r.features.get(feature)) for r in relations[one.id]]
        some = frozenset(0 if head == number else head for head, _ in given if head is not None)
        named = {label for head, label in given if head is not None and label}
        heads.append(some or None)
        labels.append(named.pop() if len(named) == 1 and len(some) == 1 else None)
        token = tokens.get((one.begin, one.end))
        upos.append(_upos(document, token))
        feats.append(_value(document, token, "morph", "value"))
    words = [" ".join(document.text[one.begin : one.end].split()) or "_" for one in ends]
    return _Words(ends, Sentence.from_words(words, upos, feats=feats), Partial(tuple(heads), tuple(labels)))


def _upos(document: CasDocument, token: CasAnnotation | None) -> str:
    """The universal tag: that of its own feature, or the tag itself where it is one."""
    for feature in ("coarseValue", "PosValue"):
        tag = _value(document, token, "pos", feature)
        if tag in _UPOS:
            return tag
    return "_"


def _value(document: CasDocument, token: CasAnnotation | None, layer: str, feature: str) -> str:
    """What a token's annotation on another layer says; ``_`` where there is nothing."""
    number = "" if token is None else token.features.get(layer, "")
    return "".join(document.features_of(number).get(feature, "").split()) or "_"


def _suggest(document: CasDocument, metadata: LayerMetadata, words: _Words, found: Prediction) -> None:
    """Put in a relation for each word that has none, or none with a label."""
    features = document.types.features(metadata.layer)
    assert found.confidence is not None
    for number, (one, head, label, sure) in enumerate(
        zip(words.ends, found.heads, found.deprels, found.confidence, strict=True), 1
    ):
        known, named = words.known.heads[number - 1], words.known.labels[number - 1]
        if known is not None and named is not None:
            continue
        governor = words.ends[head - 1] if head else one
        made = {_HEAD: governor.id, _WORD: one.id, metadata.feature: label}
        extra = {
            _PREDICTED: "true",
            f"{metadata.feature}_score": f"{sure:.6f}",
            f"{metadata.feature}_score_explanation": "the probability of the arc, given what is annotated",
        }
        made |= {name: value for name, value in extra.items() if name in features}
        document.add(metadata.layer, one.begin, one.end, made)
