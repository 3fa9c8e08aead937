"""The JSON API."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from gpuparse.data.sentence import ConlluError
from gpuparse.render.compare import parses
from gpuparse.render.style import svg_style
from gpuparse.serve.messages import (
    PROBLEMS,
    DrawRequest,
    HealthAnswer,
    ModelAnswer,
    ParseAnswer,
    ParseRequest,
    ReadAnswer,
    ReadRequest,
)
from gpuparse.serve.sentences import answer_of, as_read, draw, options_of, read_given, read_text, sentences_of_conllu
from gpuparse.serve.service import Served, is_heavy, version
from gpuparse.serve.settings import Refused
from gpuparse.system.defaults import ready

router = APIRouter(prefix="/api")


def as_json(content: Any, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer, written at once: what is not finite has been left out before."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Response(text.encode(), media_type="application/json", headers=headers)


@router.post("/parse", responses={**PROBLEMS, 200: {"model": ParseAnswer}})
async def parse(body: ParseRequest, request: Request, service: Served) -> Response:
    """Parse sentences, keeping to what is required, forbidden and labelled."""
    heavy = is_heavy(request)
    given = await asyncio.to_thread(read_given, body, service.limits) if heavy else read_given(body, service.limits)
    predictions = await service.parse(given, options_of(body, tag=False))

    def answer() -> Response:
        pairs = zip(given.sentences, predictions, strict=True)
        sentences = [answer_of(*pair, svg=body.svg, conllu=body.with_conllu) for pair in pairs]
        return as_json({"model": service.engine.name, "sentences": sentences})

    return await asyncio.to_thread(answer) if heavy or len(predictions) > 8 else answer()


@router.post("/read", responses={**PROBLEMS, 200: {"model": ReadAnswer}})
async def read(body: ReadRequest) -> Response:
    """Cut text, or a CoNLL-U file, into sentences, without parsing them."""

    def answer() -> Response:
        sentences, _ = read_text(body.conllu, body.text)
        return as_json({"sentences": [as_read(one) for one in sentences]})

    return await asyncio.to_thread(answer)


@router.post(
    "/svg",
    response_class=Response,
    responses={**PROBLEMS, 200: {"content": {"image/svg+xml": {}}, "description": "The drawing"}},
)
async def svg(body: DrawRequest, service: Served) -> Response:
    """Draw a parsed sentence, as a file that needs nothing else."""
    sentences = sentences_of_conllu(body.conllu)
    if len(sentences) != 1:
        raise Refused(422, f"{len(sentences)} sentences; wanted one")
    service.limits.check(sentences, ["the sentence"])
    try:
        (parsed,) = parses(sentences)
    except ConlluError as error:
        raise Refused(422, str(error)) from None
    drawn = draw(sentences[0], parsed.heads, parsed.labels, parsed.confidence, standalone=True)
    return Response(drawn, media_type="image/svg+xml", headers={"Content-Security-Policy": "default-src 'none'"})


@router.get("/model", responses={200: {"model": ModelAnswer}})
async def model(service: Served) -> Response:
    """What the model knows and what the server allows."""
    engine = service.engine
    return as_json(
        {
            "model": engine.name,
            "version": version(),
            "labels": engine.labels,
            "columns": engine.pipeline.parser.columns,
            "tagger": engine.tagger_columns,
            "projective": engine.projective,
            "constraints": ready(),
            "limits": engine.limits.as_json(),
        }
    )


@router.get("/health", responses={200: {"model": HealthAnswer}})
async def health(service: Served) -> Response:
    """Whether the server is there, and what it has done."""
    batcher = service.batcher
    counts = {"waiting": batcher.waiting, "batches": batcher.batches, "sentences": batcher.parsed}
    return as_json({"status": "ok", **counts})


@router.get("/tree.css", include_in_schema=False)
async def tree_css() -> Response:
    """The style sheet of drawings."""
    return Response(svg_style(), media_type="text/css")
