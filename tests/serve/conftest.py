"""What the tests of the server share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from gpuparse.models.pipeline import Pipeline
from gpuparse.serve.app import create_app
from tests.serve.serving import SMALL, on_a_port, tiny_pipeline


@pytest.fixture(scope="session")
def pipeline() -> Pipeline:
    return tiny_pipeline()


@pytest.fixture(scope="session")
def client(pipeline: Pipeline) -> Iterator[TestClient]:
    with TestClient(create_app(pipeline, SMALL, "tiny")) as client:
        yield client


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """Of a server on a port."""
    with on_a_port() as address:
        yield address


@pytest.fixture
def parse(client: TestClient) -> Any:
    """The first sentence of an answer; or the status and the line of a refusal."""

    def parse(sentence: Any = None, **options: Any) -> Any:
        body = options if sentence is None else {"sentences": [sentence], **options}
        answer = client.post("/api/parse", json=body)
        if answer.status_code == 200:
            return answer.json()["sentences"][0]
        line = answer.json()["detail"]
        assert line.isprintable() and "\n" not in line
        return answer.status_code, line

    return parse
