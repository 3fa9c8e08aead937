"""The JSON API: what is given stays, what cannot be is refused in one line, and limits hold."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree

import pytest

from gpuparse.data.partial import Partial
from gpuparse.data.sentence import Sentence
from tests.serve.serving import TAGGED, WORDS

SENTENCE = {"words": WORDS, "upos": TAGGED}
ODD = '<script>alert(1)</script>"&\u202e'


def is_tree(heads):
    for word in range(1, len(heads) + 1):
        seen = set()
        while word:
            if word in seen:
                return False
            seen.add(word)
            word = heads[word - 1]
    return heads.count(0) == 1


def test_the_same_as_the_library(parse, pipeline):
    (found,) = pipeline.parser.predict([Sentence.from_words(WORDS, TAGGED)], probabilities=True, marginals=True)
    given = parse(SENTENCE, marginals=True)
    assert (given["heads"], given["deprels"], given["certified"]) == (found.heads, found.deprels, True)
    assert given["confidence"] == pytest.approx(found.confidence, abs=1e-5)
    assert given["tree_probability"] == pytest.approx(found.probability, rel=1e-5)
    assert given["entropy"] == pytest.approx(found.entropy, rel=1e-5)
    columns = [sum(row[word] for row in given["marginals"]) for word in range(1, 6)]
    assert columns == pytest.approx([1] * 5, abs=1e-4)  # of six numbers rounded to six digits
    assert given["words"] == WORDS and given["upos"] == TAGGED and given["sent_id"] is None
    assert parse(SENTENCE, probabilities=False)["confidence"] is None


def test_what_is_decided_stays(parse):
    free = parse(SENTENCE)
    word = 1 + free["heads"].index(0)
    other = 1 + (word % 5)
    required = parse({**SENTENCE, "required": [[0, other]], "labels": {"2": "obj"}})
    assert required["heads"][other - 1] == 0 and required["confidence"][other - 1] == 1
    assert required["deprels"][1] == "obj" and is_tree(required["heads"])
    forbidden = parse({**SENTENCE, "forbidden": [[0, word]]})
    assert forbidden["heads"][word - 1] != 0 and is_tree(forbidden["heads"])
    known = Partial.nothing(5).forbid(0, word)
    assert known.heads[word - 1] == set(range(1, 6)) - {word}


def test_partial_conllu(parse):
    rows = [[str(i), word, "_", tag, *"______"] for i, (word, tag) in enumerate(zip(WORDS, TAGGED, strict=True), 1)]
    rows[0][6:8], rows[1][9] = ["5", "odd:label"], "Heads=3,4"
    text = "# sent_id = a\n" + "\n".join(map("\t".join, rows)) + "\n\n"
    found = parse(conllu=text, partial=True, with_conllu=True)
    assert found["heads"][0] == 5 and found["deprels"][0] == "odd:label" and found["heads"][1] in {3, 4}
    assert found["sent_id"] == "a" and found["conllu"].startswith("# sent_id = a\n")
    assert parse(conllu=text)["heads"] == parse(SENTENCE)["heads"]  # where nothing is to be kept
    rows[4][6] = "1"
    cycle = "\n".join(map("\t".join, rows)) + "\n\n"
    status, line = parse(conllu=cycle, partial=True)
    assert status == 422 and "words 1 and 5 make a cycle" in line


def test_best_trees(parse):
    some = parse(SENTENCE, nbest=64)["alternatives"]
    assert len({tuple(one["heads"]) for one in some}) == len(some) == 64
    shares = [one["probability"] for one in some]
    assert shares == sorted(shares, reverse=True) and sum(shares) <= 1 + 1e-6
    assert all(is_tree(one["heads"]) for one in some) and some[0]["heads"] == parse(SENTENCE)["heads"]


def test_constraints(parse):
    found = parse(SENTENCE, constraints=["ud"])
    assert found["constraints"] is None or found["constraints"].startswith(("infeasible", "not proven"))
    assert found["deprels"].count("root") == 1 and found["deprels"][found["heads"].index(0)] == "root"
    two = {**SENTENCE, "required": [[3, 2], [3, 5]], "labels": {"2": "obj", "5": "obj"}}
    assert parse(two, constraints=["ud"])["constraints"].startswith("infeasible: ")


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ({"words": []}, ""),
        ({**SENTENCE, "required": [[1, 2], [2, 1]]}, "heads of words 1 and 2 make a cycle: 1 -> 2 -> 1"),
        ({**SENTENCE, "required": [[0, 2], [0, 1]]}, "words 1 and 2 both hang on the root"),
        ({**SENTENCE, "required": [[3, 2], [1, 2]]}, "word 2: heads 3 and 1 are both required"),
        ({**SENTENCE, "required": [[3, 2]], "forbidden": [[3, 2]]}, "the arc from 3 is both required and forbidden"),
        ({**SENTENCE, "forbidden": [[head, 2] for head in (0, 1, 3, 4, 5)]}, "every head of word 2 is forbidden"),
        ({**SENTENCE, "required": [[9, 2]]}, "required: from 9 to 2 is no arc of 5 words"),
        ({**SENTENCE, "forbidden": [[2, 2]]}, "forbidden: from 2 to 2 is no arc"),
        ({**SENTENCE, "labels": {"6": "obj"}}, "labels: wanted numbers of words, 1 to 5, not 6"),
        ({**SENTENCE, "labels": {"1": "a\tb"}}, "sentences.0.labels.1"),
        ({**SENTENCE, "upos": ["X"]}, "upos: 1 for 5 words"),
        ({"words": ["a\tb"]}, "sentences.0.words.0"),
        ({"words": ["\ud800"]}, "sentences.0.words.0"),
        ({"words": ["a"], "conllu": "x"}, "wanted either words or conllu"),
        ({"conllu": "1\ta\n\n"}, "conllu:1: "),
        ({**SENTENCE, "sent_id": "a\nb"}, "sent_id: more than one line"),
        ({**SENTENCE, "colour": 1}, "sentences.0.colour: "),
        ({"words": ["a"] * 31}, "31 words; at most 30 a sentence"),
        ({"words": ["a" * 1001]}, "sentences.0.words.0"),
        ({"conllu": f"1\t{'a' * 2000}\t_\t_\t_\t_\t_\t_\t_\t_\n\n"}, "word 1 has 2,000 characters"),
    ],
)
def test_refusals(client, parse, sentence, said):
    if not sentence["words" if "words" in sentence else "conllu"]:
        assert parse(sentence)["heads"] == []
        return
    body = json.dumps({"sentences": [sentence]})
    answer = client.post("/api/parse", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in {413, 422}, answer.text
    assert said in answer.json()["detail"] and answer.json()["detail"].isprintable()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 422),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"sentences": 1e999}', 422),
        (b'{"sentences": [{"words": ["a"], "required": [[0, ' + b"9" * 5000 + b"]]}]}", 400),
        (b'{"text": "a", "conllu": "b"}', 422),
        (b"{}", 422),
        (b'{"text": "a", "partial": true}', 422),
        (b'{"text": "a", "nbest": 65}', 422),
        (b'{"text": "a", "nbest": 2, "constraints": ["ud"]}', 422),
        (b'{"text": "a", "constraints": ["../../../etc/passwd"]}', 422),
        (b'{"text": "a", "constraints": ["/etc/passwd"]}', 422),
        (b'{"text": "' + b"a" * 5000 + b'"}', 422),
        (b'{"text": "' + b"a " * 40 + b'"}', 413),
        (b'{"text": "' + b"a\\n" * 21 + b'"}', 413),
        (b'{"text": "' + b"a" * 200_001 + b'"}', 413),
    ],
)
def test_bodies_that_are_refused(client, body, status):
    answer = client.post("/api/parse", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in {status, 422} and len(answer.json()["detail"]) < 1100


def test_text_and_several_sentences(client):
    text = 'She saw Dr. Lee (twice). "Really?" he asked...\n\nno, e.g. here.'
    words = [one["words"] for one in client.post("/api/read", json={"text": text}).json()["sentences"]]
    assert words == [
        ["She", "saw", "Dr.", "Lee", "(", "twice", ")", "."],
        ['"', "Really", "?", '"', "he", "asked", "..."],
        ["no", ",", "e.g.", "here", "."],
    ]
    answer = client.post("/api/parse", json={"text": text, "svg": True, "with_conllu": True}).json()
    assert answer["model"] == "tiny" and [one["words"] for one in answer["sentences"]] == words
    for one in answer["sentences"]:
        assert is_tree(one["heads"]) and one["svg"].startswith("<svg")
        assert Sentence(one["conllu"]).heads == one["heads"]


def test_drawings_say_what_is_in_them(client, parse):
    found = parse({"words": [ODD, "b"], "sent_id": ODD}, svg=True, with_conllu=True)
    drawing = client.post("/api/svg", json={"conllu": found["conllu"]})
    assert drawing.headers["content-type"] == "image/svg+xml" and "prefers-color-scheme" not in drawing.text
    for text in (found["svg"], drawing.text):
        assert not {each.tag.rpartition("}")[2] for each in ElementTree.fromstring(text).iter()} & {"script", "a"}
    assert client.post("/api/svg", json={"conllu": "1\ta\t_\t_\t_\t_\t5\tx\t_\t_\n"}).status_code == 422
    assert client.post("/api/svg", json={"conllu": ""}).status_code == 422


def test_what_is_said_of_the_model(client):
    model = client.get("/api/model").json()
    assert model["columns"] == ["upos", "feats"] and "nsubj" in model["labels"] and model["limits"]["max_words"] == 30
    before = client.get("/api/health").json()
    client.post("/api/parse", json={"text": "a b\nc d"})
    after = client.get("/api/health").json()
    assert after["batches"] == before["batches"] + 1 and after["sentences"] == before["sentences"] + 2
    paths = client.get("/api/openapi.json").json()["paths"]
    assert {"/api/parse", "/process", "/inception/predict"} <= paths.keys()


def test_files_of_the_page_and_no_others(client):
    page = client.get("/")
    assert page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
    assert (
        page.headers["x-content-type-options"] == "nosniff" and "unsafe" not in page.headers["content-security-policy"]
    )
    for name in ("app.js", "work.js", "tree.js", "panel.js", "files.js", "keys.js", "style.css", "icon.svg"):
        assert client.get(f"/page/{name}").status_code == 200
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page//etc/passwd", "/docs", "/page/index.html", "/static"):
        assert client.get(path).status_code == 404
    assert client.get("/api/tree.css").text.count(".gp") > 10


def test_numbers_are_finite_or_absent(parse):
    found = parse({"words": ["a"]}, nbest=4)
    assert math.isfinite(found["alternatives"][0]["score"] or 0) and found["tree_probability"] == pytest.approx(1)
    assert found["heads"] == [0]
