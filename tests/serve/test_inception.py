"""INCEpTION's external recommender, with documents that dkpro-cassis makes and reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

cassis = pytest.importorskip("cassis")

from gpuparse.serve.xmi import CasDocument, CasTypes, XmiError  # noqa: E402
from tests.serve.serving import TAGGED, WORDS  # noqa: E402

SEGMENT = "de.tudarmstadt.ukp.dkpro.core.api.segmentation.type"
LAYER = "de.tudarmstadt.ukp.dkpro.core.api.syntax.type.dependency.Dependency"
POS = "de.tudarmstadt.ukp.dkpro.core.api.lexmorph.type.pos.POS"
ODD = "𝒟og"  # two units of UTF-16 in a character
FEATURE = "DependencyType"


def types() -> Any:
    made = cassis.TypeSystem()
    made.create_type(f"{SEGMENT}.Sentence")
    token = made.create_type(f"{SEGMENT}.Token")
    pos = made.create_type(POS)
    for name in ("PosValue", "coarseValue"):
        made.create_feature(pos, name, cassis.typesystem.TYPE_NAME_STRING)
    made.create_feature(token, "pos", pos)
    layer = made.create_type(LAYER)
    for name in ("Governor", "Dependent"):
        made.create_feature(layer, name, token)
    for name in (FEATURE, f"{FEATURE}_score_explanation"):
        made.create_feature(layer, name, cassis.typesystem.TYPE_NAME_STRING)
    made.create_feature(layer, "inception_internal_predicted", cassis.typesystem.TYPE_NAME_BOOLEAN)
    made.create_feature(layer, f"{FEATURE}_score", cassis.typesystem.TYPE_NAME_DOUBLE)
    return made


def document(known: list[tuple[int, int, str | None]], system: Any, sentences: int = 2) -> Any:
    """Sentences of the same words; of the first, arcs that are annotated, a word under the root as its own head."""
    cas = cassis.Cas(system)
    words = [ODD if word == "dog" else word for word in WORDS]
    line = " ".join(words)
    cas.sofa_string, cas.sofa_mime = "\n".join([line] * sentences), "text/plain"
    tokens = []
    for number in range(sentences):
        at = number * (len(line) + 1)
        cas.add(system.get_type(f"{SEGMENT}.Sentence")(begin=at, end=at + len(line)))
        for word, tag in zip(words, TAGGED, strict=True):
            pos = system.get_type(POS)(begin=at, end=at + len(word), PosValue="odd", coarseValue=tag)
            tokens.append(system.get_type(f"{SEGMENT}.Token")(begin=at, end=at + len(word), pos=pos))
            cas.add_all([pos, tokens[-1]])
            at += len(word) + 1
    for head, word, label in known:
        ends = {"Governor": tokens[(head or word) - 1], "Dependent": tokens[word - 1]}
        begin, end = tokens[word - 1].begin, tokens[word - 1].end
        cas.add(system.get_type(LAYER)(begin=begin, end=end, **ends, **{FEATURE: label}))
    return cas


def body(cas: Any, feature: str = FEATURE) -> dict[str, Any]:
    about = {"layer": LAYER, "feature": feature, "projectId": 1, "anchoringMode": "tokens", "crossSentence": False}
    given = {"xmi": cas.to_xmi(), "documentId": 42, "userId": "somebody"}
    return {
        "metadata": {**about, "range": {"begin": 0, "end": 9}},
        "document": given,
        "typeSystem": cas.typesystem.to_xml(),
    }


def suggested(client: Any, known: list[tuple[int, int, str | None]]) -> tuple[Any, list[dict[int, Any]]]:
    """The document with suggestions, and these, by word, of each sentence."""
    system = types()
    answer = client.post("/inception/predict", json=body(document(known, system)))
    assert answer.status_code == 200, answer.text
    cas = cassis.load_cas_from_xmi(answer.json()["document"], typesystem=system)
    found: list[dict[int, Any]] = []
    for sentence in cas.select(f"{SEGMENT}.Sentence"):
        tokens = list(cas.select_covered(f"{SEGMENT}.Token", sentence))
        number = {token.xmiID: place for place, token in enumerate(tokens, 1)}
        made = [one for one in cas.select_covered(LAYER, sentence) if one.inception_internal_predicted]
        ends = {number[one.Dependent.xmiID]: (number[one.Governor.xmiID], one) for one in made}
        found.append({word: (0 if head == word else head, one) for word, (head, one) in ends.items()})
    return cas, found


def test_suggestions_are_the_tree(client, parse):
    cas, (first, second) = suggested(client, [])
    tree = parse({"words": [ODD if word == "dog" else word for word in WORDS], "upos": TAGGED})
    for found in (first, second):
        assert [found[word][0] for word in range(1, 6)] == tree["heads"]
        assert [found[word][1][FEATURE] for word in range(1, 6)] == tree["deprels"]
        scores = [found[word][1][f"{FEATURE}_score"] for word in range(1, 6)]
        assert scores == pytest.approx(tree["confidence"], abs=1e-5)
    assert cas.sofa_string.count(ODD) == 2 and "given what is annotated" in first[1][1][f"{FEATURE}_score_explanation"]
    assert first[2][1].get_covered_text() == ODD


def test_what_is_annotated_is_kept(client, parse):
    words = {"words": [ODD if word == "dog" else word for word in WORDS], "upos": TAGGED}
    free = parse(words)["heads"]
    root = 1 + (free.index(0) + 1) % 5
    known = [(0, root, "root"), (root, 1 + root % 5, None)]
    _, (first, second) = suggested(client, known)
    tree = parse({**words, "required": [[head, word] for head, word, _ in known], "labels": {str(root): "root"}})
    assert root not in first  # nothing to suggest
    assert first[1 + root % 5][0] == root  # only a label
    assert {word: head for word, (head, _) in first.items()} == {
        word: head for word, head in enumerate(tree["heads"], 1) if word != root
    }
    assert [second[word][0] for word in range(1, 6)] == free


def test_a_sentence_that_cannot_be_has_no_suggestions(client):
    _, (first, second) = suggested(client, [(1, 2, "x"), (2, 1, "x")])
    assert first == {} and len(second) == 5


def test_several_heads_leave_these_to_choose_from(client):
    _, (first, _) = suggested(client, [(3, 1, "det"), (5, 1, "det")])
    assert first[1][0] in {3, 5}


def test_training_is_taken(client):
    given = body(document([], types()))
    answer = client.post("/inception/train", json={**given, "documents": [given["document"]]})
    assert answer.status_code == 204 and answer.content == b""


JSON = {"content-type": "application/json"}
BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><x>&b;</x>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>'


def test_documents_that_are_refused(client):
    given = body(document([], types()))
    xmi = given["document"]["xmi"]
    for changed, said in (
        ({"typeSystem": BOMB}, "entities"),
        ({"typeSystem": OUTSIDE}, "entities"),
        ({"document": {"xmi": BOMB}}, "entities"),
        ({"document": {"xmi": OUTSIDE}}, "entities"),
        ({"document": {"xmi": "<a>"}}, "xmi: "),
        ({"document": {"xmi": "<a>" * 5000 + "</a>" * 5000}}, "deep"),
        ({"document": {"xmi": "<a/>"}}, "no Sofa"),
        ({"document": {"xmi": xmi.replace('end="', 'end="9', 1)}}, ""),
        ({"document": {"xmi": "\ud800"}}, ""),
        ({"metadata": {**given["metadata"], "layer": "no.Such"}}, "layer 'no.Such' has no feature 'Governor'"),
        ({"metadata": {**given["metadata"], "feature": "Governor"}}, "has no feature of strings 'Governor'"),
    ):
        answer = client.post("/inception/predict", content=json.dumps({**given, **changed}), headers=JSON)
        assert answer.status_code == 422 and said in answer.json()["detail"], answer.text
    with pytest.raises(XmiError, match="not within the text"):
        CasDocument.read(xmi.replace('end="3"', 'end="4000"'), CasTypes.read(given["typeSystem"]))
