"""What clients of the JSON API send, and what they get."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from gpuparse.serve.settings import MOST_TREES
from gpuparse.system.defaults import ready
from gpuparse.system.quote import quoted

_MOST_WORDS, _MOST_SENTENCES = 10_000, 100_000  # whatever the server's own limits are


def _field(text: str) -> str:
    if not text or set(text) & set("\t\r\n"):
        raise ValueError("a word or tag that is empty, or has a tab or a line end")
    return text


def _line(text: str) -> str:
    if set(text) & set("\r\n"):
        raise ValueError("more than one line")
    return text


def _constraint(name: str) -> str:
    if name not in ready():
        raise ValueError(f"{quoted(name, 60)} is none of {', '.join(ready())}")
    return name


Entry = Annotated[str, AfterValidator(_field), Field(min_length=1, max_length=1000, pattern=r"^[^\t\r\n]+$")]
Number = Annotated[int, Field(ge=0, le=_MOST_WORDS)]
ArcPair = Annotated[
    tuple[Number, Annotated[int, Field(ge=1, le=_MOST_WORDS)]], Field(description="A head (0: the root) and a word.")
]
Name = Annotated[str, AfterValidator(_constraint), Field(json_schema_extra={"enum": list(ready())})]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class SentenceIn(_Message):
    """A sentence, by its words or as CoNLL-U, and what is known of its tree."""

    words: list[Entry] | None = Field(None, max_length=_MOST_WORDS)
    upos: list[Entry] | None = Field(None, max_length=_MOST_WORDS, description="A tag for each word; _ is none.")
    feats: list[Entry] | None = Field(None, max_length=_MOST_WORDS, description="Features of each word; _ is none.")
    conllu: str | None = Field(None, description="One sentence as CoNLL-U, in place of words and tags.")
    required: list[ArcPair] = Field([], max_length=_MOST_SENTENCES, description="Arcs that the tree has to have.")
    forbidden: list[ArcPair] = Field([], max_length=_MOST_SENTENCES, description="Arcs that it must not have.")
    labels: dict[Annotated[str, Field(pattern=r"^[0-9]{1,5}$")], Entry] = Field(
        {}, description="Labels of words' arcs, by the word's number."
    )
    sent_id: Annotated[str, AfterValidator(_line), Field(max_length=1000)] | None = None


class ParseRequest(_Message):
    """Sentences in one of three forms, and what is wanted of them."""

    sentences: list[SentenceIn] | None = Field(None, max_length=_MOST_SENTENCES)
    conllu: str | None = Field(None, description="Sentences as CoNLL-U.")
    text: str | None = Field(None, description="Plain text, cut into sentences and words by simple rules.")
    partial: bool = Field(
        False, description="Of CoNLL-U: HEAD and DEPREL that are given stay, and Heads=2,5 in MISC is kept to."
    )
    nbest: int = Field(0, ge=0, le=MOST_TREES, description="So many of the best trees.")
    probabilities: bool = Field(True, description="Of arcs, of labels and of the tree.")
    marginals: bool = Field(False, description="The probability of every possible arc.")
    constraints: list[Name] = Field([], max_length=16, description="Included constraints that trees have to satisfy.")
    projective: bool | None = Field(None, description="Want projective trees; by default as the model was trained.")
    svg: bool = Field(False, description="Also draw the trees.")
    with_conllu: bool = Field(False, description="Also give the parsed sentences as CoNLL-U.")


class AlternativeOut(_Message):
    heads: list[int]
    deprels: list[str]
    probability: float | None
    score: float | None


class SentenceOut(_Message):
    """The parse of a sentence."""

    words: list[str]
    upos: list[str]
    sent_id: str | None
    heads: list[int] = Field(description="Of each word, the number of its head; 0 is the root.")
    deprels: list[str]
    confidence: list[float] | None = Field(description="The probability of each word's arc.")
    label_confidence: list[float] | None = Field(description="The probability of each label, given its arc.")
    tree_probability: float | None
    entropy: float | None = Field(description="Of the distribution over trees, in nats.")
    certified: bool = Field(description="Whether the tree is proven best.")
    estimated: str | None = Field(description="How probabilities were estimated; null where they are exact.")
    alternatives: list[AlternativeOut]
    marginals: list[list[float]] | None = Field(description="By head and word, 0 being the root.")
    constraints: str | None = Field(description="Which constraints could not be kept to, and why.")
    svg: str | None = None
    conllu: str | None = None


class ParseAnswer(_Message):
    model: str
    sentences: list[SentenceOut]


class ReadRequest(_Message):
    """Text or CoNLL-U to be cut into sentences."""

    conllu: str | None = None
    text: str | None = None


class ReadSentence(_Message):
    conllu: str
    words: list[str]
    text: str
    sent_id: str | None
    heads: list[int | None] = Field(description="HEAD of each word, where there is one.")
    deprels: list[str | None]


class ReadAnswer(_Message):
    sentences: list[ReadSentence]


class DrawRequest(_Message):
    """A parsed sentence to be drawn."""

    conllu: str = Field(description="One sentence as CoNLL-U, with heads; Confidence in MISC is drawn as opacity.")


class ModelAnswer(_Message):
    model: str
    version: str
    labels: list[str]
    columns: list[str] = Field(description="Columns that the parser reads, besides the words.")
    tagger: list[str] = Field(description="Columns that the tagger fills where a sentence has none of them.")
    projective: bool
    constraints: list[str] = Field(description="Names of the included constraints.")
    limits: dict[str, float]


class HealthAnswer(_Message):
    status: str
    waiting: int = Field(description="Requests that wait for the parser.")
    batches: int = Field(description="Batches that the parser was given so far.")
    sentences: int = Field(description="Sentences that were in them.")


class Problem(_Message):
    """Why a request was not answered."""

    detail: str = Field(description="One line.")


PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": Problem, "description": text}
    for code, text in (
        (400, "Not understood"),
        (413, "More than the server takes"),
        (422, "Not possible, or not in the form it should have"),
        (503, "Too busy, or not done in time"),
    )
}
