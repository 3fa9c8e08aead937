"""Clients of UDPipe's service: its own script's requests, forms, addresses with parameters."""

from __future__ import annotations

import email.mime.multipart
import email.mime.nonmultipart
import email.policy
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from gpuparse.data.sentence import Sentence
from gpuparse.serve.app import create_app
from tests.serve.serving import SMALL, TAGGED, WORDS, tiny_pipeline

GIVEN = Sentence.from_words(WORDS, TAGGED, comments=["# sent_id = ő"]).text


@pytest.fixture(scope="module")
def tagging() -> Iterator[TestClient]:
    with TestClient(create_app(tiny_pipeline(tagged=True), SMALL, "tiny")) as client:
        yield client


def sentences(text: str) -> list[Sentence]:
    return [Sentence(f"{block}\n\n") for block in text.split("\n\n") if block.strip()]


def request_as_its_script(server: str, method: str, parameters: dict[str, str]):
    """A request in the form that ``udpipe2_client.py`` makes: parts of plain text in eight bits, lines with CR LF."""
    if not parameters:
        return json.loads(urllib.request.urlopen(f"{server}/{method}").read())
    message = email.mime.multipart.MIMEMultipart("form-data", policy=email.policy.HTTP)
    for name, value in parameters.items():
        part = email.mime.nonmultipart.MIMENonMultipart("text", "plain")
        part.add_header("Content-Disposition", f'form-data; name="{name}"')
        part.add_header("Content-Transfer-Encoding", "8bit")
        part.set_payload(value, charset="utf-8")
        message.attach(part)
    body = message.as_bytes().split(b"\r\n\r\n", maxsplit=1)[1]
    headers = {"Content-Type": message["Content-Type"]}
    with urllib.request.urlopen(urllib.request.Request(f"{server}/{method}", headers=headers, data=body)) as answer:
        return json.loads(answer.read())


def test_as_its_own_script(address):
    listed = request_as_its_script(address, "models", {})
    assert listed == {"models": {"tiny": ["tokenizer", "parser"]}, "default_model": "tiny"}
    options = {"input": "conllu", "output": "conllu", "data": GIVEN * 2, "tagger": "", "parser": ""}
    answer = request_as_its_script(address, "process", options)
    assert answer["model"] == "tiny" and "no tagger" in " ".join(answer["acknowledgements"])
    found = sentences(answer["result"])
    assert [one.words for one in found] == [WORDS] * 2 and all(one.heads.count(0) == 1 for one in found)
    assert found[0].sent_id == "ő" and found[0].comment("udpipe_model") == "tiny" and "\r" not in answer["result"]
    assert found[0].upos == TAGGED


def test_plain_text_of_an_address(address):
    query = urllib.parse.urlencode({"data": "Árvíztűrő kutya. Igen!", "tokenizer": "", "tagger": "", "parser": ""})
    with urllib.request.urlopen(f"{address}/process?{query}") as answer:
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        said = json.loads(answer.read())
    assert [one.words for one in sentences(said["result"])] == [["Árvíztűrő", "kutya", "."], ["Igen", "!"]]
    assert "by simple rules" in " ".join(said["acknowledgements"])


def test_forms_and_formats(client):
    def ask(**form):
        answer = client.post("/process", data=form)
        return answer.json()["result"] if answer.status_code == 200 else (answer.status_code, answer.text)

    (found,) = sentences(ask(data="a b c\n", input="horizontal", parser=""))
    assert found.words == ["a", "b", "c"] and found.heads.count(0) == 1
    assert ask(data="a\tx\nb\n\nc\n", input="vertical", output="horizontal") == "a b\nc\n"
    assert ask(data=GIVEN, output="vertical") == "\n".join(WORDS) + "\n\n"
    assert sentences(ask(data=GIVEN))[0].given_heads == [None] * 5  # only read and written
    for form, said in (
        ({"model": "tiny"}, "The parameter 'data' is required."),
        ({"data": "a", "model": "other"}, "The requested model 'other' does not exist"),
        ({"data": "a", "input": "rst"}, "Unknown input format 'rst'"),
        ({"data": GIVEN, "output": "epe"}, "Unknown output format 'epe'"),
        ({"data": "no tabs"}, "conllu:1: "),
    ):
        status, text = ask(**form)
        assert status == 400 and said in text, text
    assert ask(data="w " * 31, input="horizontal", parser="")[0] == 413
    assert client.post("/process", content=b"x", headers={"content-type": "text/plain"}).status_code == 400
    assert client.post("/process", content=b"x", headers={"content-type": "multipart/form-data"}).status_code == 400


def test_with_a_tagger(tagging):
    assert tagging.get("/models").json()["models"] == {"tiny": ["tokenizer", "tagger", "parser"]}

    def ask(**form):
        return sentences(tagging.post("/process", data={"data": GIVEN, **form}).json()["result"])[0]

    both, tagged, parsed = ask(tagger="", parser=""), ask(tagger=""), ask(parser="")
    assert both.upos == tagged.upos != TAGGED and parsed.upos == TAGGED
    assert tagged.given_heads == [None] * 5 and both.heads.count(0) == parsed.heads.count(0) == 1
    # The API tags what has no tags.
    (bare,) = tagging.post("/api/parse", json={"sentences": [{"words": WORDS}]}).json()["sentences"]
    assert bare["upos"] == tagged.upos
    (kept,) = tagging.post("/api/parse", json={"sentences": [{"words": WORDS, "upos": TAGGED}]}).json()["sentences"]
    assert kept["upos"] == TAGGED
    mixed = {"sentences": [{"words": WORDS, "upos": TAGGED}, {"words": WORDS, "required": [[0, 3]]}]}
    first, second = tagging.post("/api/parse", json=mixed).json()["sentences"]
    assert (first["upos"], second["upos"], second["heads"][2]) == (TAGGED, tagged.upos, 0)


def test_errors_are_plain_text(address):
    with pytest.raises(urllib.error.HTTPError) as caught:
        request_as_its_script(address, "process", {"data": "a\tb"})
    assert caught.value.code == 400 and caught.value.headers["Content-Type"].startswith("text/plain")
    assert caught.value.read().decode().count("\n") == 1
