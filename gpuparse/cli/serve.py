"""``gpuparse serve``: a parser on a port, with a page for people."""

from __future__ import annotations

import os
import signal
from errno import errorcode
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from gpuparse.cli.common import fail, say
from gpuparse.cli.options import BatchWords, Device, Model, Quiet, Threads
from gpuparse.system import startup
from gpuparse.system.defaults import (
    BATCH_WORDS,
    HOST,
    PORT,
    SERVE_BYTES,
    SERVE_SECONDS,
    SERVE_SENTENCES,
    SERVE_WORDS,
)
from gpuparse.system.quote import shown

_NEEDED = ("fastapi", "uvicorn")


def serve(
    model: Model,
    tagger: Annotated[
        Path | None,
        typer.Option(help="The directory of a trained tagger: sentences that come without its tags are tagged first."),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 is everywhere: then anybody can use it.")] = HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 is one that is free.")] = PORT,
    max_words: Annotated[int, typer.Option(min=1, help="Words of a sentence at most.")] = SERVE_WORDS,
    max_sentences: Annotated[int, typer.Option(min=1, help="Sentences of a request at most.")] = SERVE_SENTENCES,
    max_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a request at most.")] = SERVE_BYTES,
    time_limit: Annotated[
        float, typer.Option(min=0.001, help="Seconds for a request, those that it waits included.")
    ] = SERVE_SECONDS,
    batch_words: BatchWords = BATCH_WORDS,
    device: Device = "cpu",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Serve a parser by HTTP, and a page to work with it; the extra "serve" has what this needs.

    The page is at /. The JSON API is described at /api/openapi.json: POST /api/parse parses, keeps what is required and
    forbidden, and gives the best trees with their probabilities. /models and /process answer as UDPipe's service does.
    /inception is an external recommender for dependency relations in INCEpTION.
    Requests that arrive together are parsed as one batch. Nothing but the model is read, and nothing is written. Ctrl-C
    and SIGTERM stop it when it has answered what has come.
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        fail(f"{' and '.join(missing)} wanted: pip install 'gpuparse[serve]'")
    with startup.importing():
        import torch

        from gpuparse.models.pipeline import Pipeline, listed
        from gpuparse.serve.app import create_app
        from gpuparse.serve.engine import model_name
        from gpuparse.serve.run import address_of, listen, run_server
        from gpuparse.serve.settings import ServerLimits
    if threads is not None:
        torch.set_num_threads(threads)
    pipeline = Pipeline.load(tagger, model, device)
    name = model_name(model)
    try:
        listening = listen(host, port)
    except (OSError, OverflowError, UnicodeError) as error:
        code = getattr(error, "errno", None) or 0
        fail(f"cannot listen on {shown(host)}, port {port}: {os.strerror(code) if code in errorcode else error}")
    if not quiet and pipeline.missing:
        say(f"{name} reads {listed(pipeline.missing)}, taken as given")
    limits = ServerLimits(max_words, max_sentences, max_bytes, time_limit, batch_words)
    with listening:
        address = address_of(listening)
        stopped_by = run_server(
            create_app(pipeline, limits, name), listening, lambda: say(f"serving {name} at {address} (Ctrl-C stops it)")
        )
    if stopped_by == signal.SIGINT:
        raise KeyboardInterrupt
