"""``gpuparse serve`` as a process: where it listens, what it says, how it stops."""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
import time
import urllib.request

import pytest
import typer

import gpuparse.cli  # noqa: F401
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.vocab import Vocabulary
from gpuparse.models.parser import Parser
from tests.serve.serving import start_command
from tests.train.small import config


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "tiny"
    Parser.new(config(), Vocabulary.build(artificial_treebank(20))).save(path)
    return path


def post(address: str, body: dict) -> dict:
    request = urllib.request.Request(
        f"{address}/api/parse", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_clean_stop_finishes_what_it_has(model, number, code):
    process, address = start_command(model, "--max-sentences", "2000", "--max-words", "40")
    try:
        assert address.startswith("http://127.0.0.1:")
        many = {"sentences": [{"words": ["a"] * 40}] * 600, "constraints": [], "marginals": True}
        found: list[dict] = []
        asking = threading.Thread(target=lambda: found.append(post(address, many)))
        asking.start()
        while True:  # until it is being parsed
            with urllib.request.urlopen(f"{address}/api/health", timeout=60) as answer:
                if json.loads(answer.read())["batches"]:
                    break
            time.sleep(0.005)
        process.send_signal(number)
        asking.join(60)
        assert len(found[0]["sentences"]) == 600
        assert process.wait(30) == code
        said = process.stderr.read()
        assert said == ("gpuparse: interrupted\n" if number == signal.SIGINT else "")
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def test_a_port_that_is_taken(model, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(typer.Exit) as caught:
        port = taken.getsockname()[1]
        sys.modules["gpuparse.cli.serve"].serve(model, port=port)
    assert caught.value.exit_code == 1
    assert capsys.readouterr().err == f"gpuparse: cannot listen on 127.0.0.1, port {port}: Address already in use\n"


def test_without_the_extra(model, monkeypatch, capsys):
    command = sys.modules["gpuparse.cli.serve"]
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "uvicorn" else object())
    with pytest.raises(typer.Exit) as caught:
        command.serve(model)
    assert caught.value.exit_code == 1
    assert capsys.readouterr().err == "gpuparse: uvicorn wanted: pip install 'gpuparse[serve]'\n"
