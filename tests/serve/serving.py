"""Servers of tiny parsers: in this process, on a port, and as the command."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.vocab import Vocabulary
from gpuparse.models.parser import Parser
from gpuparse.models.pipeline import Pipeline
from gpuparse.models.tagger import Tagger
from gpuparse.serve.app import create_app
from gpuparse.serve.run import address_of, listen
from gpuparse.serve.settings import ServerLimits
from gpuparse.train.tagging import tag_vocabulary
from tests.models.made import lively
from tests.train.small import BILSTM, config

ROOT = Path(__file__).parents[2]
WORDS = ["the", "dog", "saw", "a", "cat"]
TAGGED = ["DET", "NOUN", "VERB", "DET", "NOUN"]
SMALL = ServerLimits(max_words=30, max_sentences=20, max_bytes=200_000, time_limit=20.0)


def tiny_parser() -> Parser:
    """One that has learned nothing, and prefers some trees to others."""
    return lively(Parser.new(config(), Vocabulary.build(artificial_treebank(20))))


def tiny_pipeline(tagged: bool = False) -> Pipeline:
    settings = config(*BILSTM)
    tagger = lively(Tagger.new(settings, tag_vocabulary(settings, list(artificial_treebank(20))))) if tagged else None
    return Pipeline(tagger, tiny_parser())


@contextmanager
def on_a_port(limits: ServerLimits = SMALL, pipeline: Pipeline | None = None) -> Iterator[str]:
    """The address of a server that runs in a thread."""
    app = create_app(pipeline or tiny_pipeline(), limits, "tiny")
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, ws="none"))
    with listen("127.0.0.1", 0) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        yield address_of(listening)
        server.should_exit = True
        thread.join(30)


def start_command(model: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    """``gpuparse serve`` on a free port, and its address, once it says so."""
    program = [sys.executable, "-m", "gpuparse.cli", "serve", str(model), "--port", "0", "--threads", "1", *options]
    process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://\S+", line):
            return process, found[0]
    raise AssertionError(f"exit {process.wait()} before it listened")
