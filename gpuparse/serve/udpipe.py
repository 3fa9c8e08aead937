"""The service of UDPipe 2, so that its clients work with this parser: /models and /process."""

from __future__ import annotations

import email.parser
import email.policy
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from email.message import Message
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from gpuparse.data.partial import Partial
from gpuparse.data.sentence import Sentence
from gpuparse.serve.api import as_json
from gpuparse.serve.plain_text import sentences_of_text
from gpuparse.serve.sentences import AskedSentences, sentences_of_conllu
from gpuparse.serve.service import Served, Service, version
from gpuparse.serve.settings import ParseOptions, Refused
from gpuparse.system.quote import quoted

router = APIRouter()
_ANYWHERE = {"Access-Control-Allow-Origin": "*"}  # as the original: it serves pages of others
_PARAMETERS = {
    "data": "The text.",
    "model": "The model's name; there is one.",
    "input": "conllu (the default), horizontal or vertical.",
    "tokenizer": "The data is plain text. It is cut by simple rules, not by a trained tokeniser.",
    "tagger": "Tag the words, where the server has a tagger; else their tags stay.",
    "parser": "Parse the sentences.",
    "output": "conllu (the default), horizontal or vertical.",
}
_FORM = {"type": "object", "properties": {name: {"type": "string"} for name in _PARAMETERS}, "required": ["data"]}
_ANSWER = {
    "type": "object",
    "properties": {
        "model": {"type": "string"},
        "acknowledgements": {"type": "array", "items": {"type": "string"}},
        "result": {"type": "string"},
    },
    "required": ["model", "acknowledgements", "result"],
}
_SAID: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": _ANSWER}}, "description": "The result"},
    **{
        code: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": text}
        for code, text in ((400, "Not understood"), (413, "Too much"), (422, "Not possible"), (503, "Too busy"))
    },
}
_QUERY = [
    {"name": name, "in": "query", "required": name == "data", "description": text, "schema": {"type": "string"}}
    for name, text in _PARAMETERS.items()
]
_BODY = {"required": True, "content": {f"application/{kind}": {"schema": _FORM} for kind in ("x-www-form-urlencoded",)}}
_BODY["content"]["multipart/form-data"] = {"schema": _FORM}  # type: ignore[index]


@router.get("/models", responses={200: {"description": "The models"}})
async def models(service: Served) -> Response:
    """The models, with what each can do."""
    does = ["tokenizer", *(["tagger"] if service.engine.tagger_columns else []), "parser"]
    return as_json({"models": {service.engine.name: does}, "default_model": service.engine.name}, _ANYWHERE)


@router.get("/process", responses=_SAID, openapi_extra={"parameters": _QUERY}, operation_id="process_get")
@router.post("/process", responses=_SAID, openapi_extra={"requestBody": _BODY}, operation_id="process_post")
async def process(request: Request, service: Served) -> Response:
    """Tag and parse text, as UDPipe's service does."""
    try:
        parameters = await _parameters(request)
        return as_json(await _process(parameters, service), _ANYWHERE)
    except Refused as error:
        return PlainTextResponse(f"{error.detail}\n", error.status, {**_ANYWHERE, **error.headers})


async def _process(parameters: Mapping[str, str], service: Service) -> dict[str, Any]:
    engine = service.engine
    if "data" not in parameters:
        raise Refused(400, "The parameter 'data' is required.")
    model = parameters.get("model", engine.name)
    if model != engine.name:
        raise Refused(400, f"The requested model {quoted(model, 60)} does not exist; there is {engine.name}.")
    write = _WRITERS.get(parameters.get("output") or "conllu")
    if write is None:
        wanted = quoted(parameters["output"], 60)
        raise Refused(400, f"Unknown output format {wanted}; there are {', '.join(_WRITERS)}.")
    sentences = _read(parameters)
    names = [f"sentence {number}" for number in range(1, len(sentences) + 1)]
    service.limits.check(sentences, names)
    said = [f"gpuparse {version()}"]
    if "tokenizer" in parameters:
        said.append("cut into sentences and words by simple rules, not by a trained tokeniser")
    tag = "tagger" in parameters and bool(engine.tagger_columns)
    if "tagger" in parameters and not tag:
        said.append("there is no tagger: tags are those of the data")
    if "parser" in parameters or tag:
        known = [Partial.nothing(len(sentence)) for sentence in sentences]
        found = await service.parse(AskedSentences(sentences, names, known), ParseOptions(), tag)
        pairs = zip(found, sentences, strict=True)
        sentences = [one.fill(given) if "parser" in parameters else one.tagged or given for one, given in pairs]
    result = write(sentences)
    if write is _conllu:
        result = f"# generator = gpuparse {version()}\n# udpipe_model = {engine.name}\n{result}"
    return {"model": engine.name, "acknowledgements": said, "result": result}


def _read(given: Mapping[str, str]) -> list[Sentence]:
    data = unicodedata.normalize("NFC", given["data"]).replace("\r\n", "\n")
    kind = given.get("input") or "conllu"
    try:
        if "tokenizer" in given:
            return sentences_of_text(data)
        reader = _READERS.get(kind)
        if reader is None:
            raise Refused(400, f"Unknown input format {quoted(kind, 60)}; there are {', '.join(_READERS)}.")
        return reader(data)
    except Refused as error:
        raise Refused(400, error.detail) from None
    except ValueError as error:
        raise Refused(400, f"data: {error}") from None


def _horizontal_in(text: str) -> list[Sentence]:
    return [Sentence.from_words(words) for line in text.splitlines() if (words := line.split())]


def _vertical_in(text: str) -> list[Sentence]:
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        word = line.split("\t")[0].strip()
        if word:
            blocks[-1].append(word)
        elif blocks[-1]:
            blocks.append([])
    return [Sentence.from_words(words) for words in blocks if words]


def _conllu(sentences: Sequence[Sentence]) -> str:
    return "".join(f"{sentence.text.rstrip()}\n\n" for sentence in sentences)


def _horizontal(sentences: Sequence[Sentence]) -> str:
    return "".join(" ".join(word.replace(" ", "\xa0") for word in sentence.words) + "\n" for sentence in sentences)


def _vertical(sentences: Sequence[Sentence]) -> str:
    return "".join("\n".join(sentence.words) + "\n\n" for sentence in sentences)


_READERS: Mapping[str, Callable[[str], list[Sentence]]] = {
    "conllu": sentences_of_conllu,
    "horizontal": _horizontal_in,
    "vertical": _vertical_in,
}
_WRITERS: Mapping[str, Callable[[Sequence[Sentence]], str]] = {
    "conllu": _conllu,
    "horizontal": _horizontal,
    "vertical": _vertical,
}


async def _parameters(request: Request) -> dict[str, str]:
    """Those of the address and of a form, the form's in place of the address's."""
    try:
        found = _pairs(request.url.query)
        if request.method == "POST":
            found |= _form(await request.body(), request.headers.get("content-type", ""))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise Refused(400, f"Cannot parse the request: {error}.") from None
    return found


def _pairs(text: str) -> dict[str, str]:
    return dict(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=100))


def _form(body: bytes, kind: str) -> dict[str, str]:
    if kind.startswith("application/x-www-form-urlencoded"):
        return _pairs(body.decode())
    if not kind.startswith("multipart/form-data"):
        raise ValueError(f"content of type {quoted(kind, 60)}; wanted a form")
    head = f"Content-Type: {kind}\r\n\r\n".encode("latin-1")
    message = email.parser.BytesParser(policy=email.policy.compat32).parsebytes(head + body)
    parts = message.get_payload()
    if not isinstance(parts, list):
        raise ValueError("not the parts of a form")
    found: dict[str, str] = {}
    for part in parts:
        assert isinstance(part, Message)
        name = part.get_param("name", header="Content-Disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            found[name] = content.decode()
    return found
