"""The component in real pipelines of spaCy, blank ones: no model of spaCy's is needed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuparse.config import Config
from gpuparse.data import Sentence
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.vocab import Vocabulary
from gpuparse.models.parser import Parser
from tests.models.made import FILES, lively
from tests.refusals import refusal
from tests.train.small import TINY

spacy = pytest.importorskip("spacy", reason="no spacy")
tokens = pytest.importorskip("spacy.tokens")
component_module = pytest.importorskip("gpuparse.integrations.spacy")
docs_module = pytest.importorskip("gpuparse.integrations.spacy_docs")

TEXT = "The dog saw it .\n\nIt ran away ! Nobody  knew"
pytestmark = pytest.mark.usefixtures("one_thread")
WORDS_ONLY = ["scorer.tag=0", "scorer.feats=0"]


@pytest.fixture(scope="module")
def treebank():
    return list(artificial_treebank(20, seed=9))


@pytest.fixture(scope="module")
def parser(treebank):
    return lively(Parser.new(Config.load(None, [*TINY, *WORDS_ONLY]), Vocabulary.build(treebank)))


@pytest.fixture(scope="module")
def model(parser, tmp_path_factory):
    path = tmp_path_factory.mktemp("spacy") / "model"
    parser.save(path)
    return str(path)


@pytest.fixture(scope="module")
def tagged_model(treebank, tmp_path_factory):
    path = tmp_path_factory.mktemp("spacy") / "model"
    lively(Parser.new(Config.load(None, TINY), Vocabulary.build(treebank))).save(path)
    return str(path)


def pipeline(model, **config):
    nlp = spacy.blank("en")
    nlp.add_pipe("gpuparse", config={"model": model, **config})
    return nlp


def starts(doc):
    return [token.i for token in doc if token.is_sent_start]


def expected(parser, words):
    """Heads and labels of a sentence's words, as spaCy counts them from 0."""
    (tree,) = parser.parse([words])
    heads = [number if head == 0 else head - 1 for number, head in enumerate(tree.heads)]
    return heads, ["ROOT" if label == "root" else label for label in tree.deprels]


def test_a_sentence(model, parser):
    words = ["The", "dog", "saw", "it"]
    nlp = pipeline(model)
    doc = nlp(tokens.Doc(nlp.vocab, words))
    heads, labels = expected(parser, words)
    assert [token.head.i for token in doc] == heads and [token.dep_ for token in doc] == labels
    (tree,) = parser.predict([Sentence.from_words(words)], confidence=True)
    assert [token._.gpuparse_confidence for token in doc] == pytest.approx(tree.confidence)
    assert doc.has_annotation("DEP") and doc.has_annotation("SENT_START") and starts(doc) == [0]
    assert next(doc.sents).root.i == labels.index("ROOT")
    assert nlp.get_pipe("gpuparse").labels == tuple(parser.labels)


def test_nothing(model):
    nlp = pipeline(model)
    assert len(nlp("")) == 0 and [len(doc) for doc in nlp.pipe(["", "a", ""])] == [0, 1, 0]
    doc = nlp("   \n")
    assert [token.head.i for token in doc] == [0] * len(doc) and doc[0].dep_ == "ROOT" and starts(doc) == [0]


def test_sentences_where_nothing_is_preset(model):
    assert [span.text.strip() for span in pipeline(model)(TEXT).sents] == [
        "The dog saw it .",
        "It ran away !",
        "Nobody  knew",
    ]
    assert len([*pipeline(model, sentences="preset")(TEXT).sents]) == 1
    nlp = pipeline(model, sentences="preset")
    nlp.add_pipe("sentencizer", first=True)
    assert len([*nlp(TEXT).sents]) == 3


@pytest.mark.parametrize(
    ("rule", "preset", "found"),
    [
        ("rules", {}, [0, 3]),
        ("rules", {3: False}, [0]),
        ("rules", {1: True, 4: True}, [0, 1, 3, 4]),
        ("rules", {3: True, 1: False}, [0, 3]),
        ("preset", {}, [0]),
        ("preset", {2: True, 3: False}, [0, 2]),
    ],
)
def test_sentence_starts_that_are_preset(model, rule, preset, found):
    nlp = pipeline(model, sentences=rule)
    doc = tokens.Doc(nlp.vocab, ["We", "ran", ".", "It", "saw", "us"])
    for index, value in preset.items():
        doc[index].is_sent_start = value
    assert starts(nlp(doc)) == found
    assert [token.is_sent_start for token in doc] == [index in found for index in range(6)]
    for span in doc.sents:
        assert sum(token.head == token for token in span) == 1
        assert all(token.head in span for token in span)
    assert starts(nlp(doc)) == found  # once more


def test_white_space(model, parser):
    nlp = pipeline(model)
    doc = nlp(tokens.Doc(nlp.vocab, [" ", "We", "\n", "saw", "\t", "  ", "it"], spaces=[False] * 7))
    heads, labels = expected(parser, ["We", "saw", "it"])
    places = [1, 3, 6]
    assert [doc[place].head.i for place in places] == [places[head] for head in heads]
    assert [doc[place].dep_ for place in places] == labels
    assert [doc[place].head.i for place in (0, 2, 4, 5)] == [1, 1, 3, 3]
    assert {doc[place].dep_ for place in (0, 2, 4, 5)} == {"dep"}
    assert [doc[place]._.gpuparse_confidence for place in (0, 2, 4, 5)] == [None] * 4
    preset = tokens.Doc(nlp.vocab, ["We", "\n", "saw", "\n", "it"])
    preset[1].is_sent_start = preset[3].is_sent_start = preset[4].is_sent_start = True
    assert starts(nlp(preset)) == [0, 1, 3, 4]  # of which one has no words
    assert preset[3].head.i == 3 and preset[3].dep_ == "ROOT"
    merged = nlp.make_doc("New York  City is")
    with merged.retokenize() as retokenizer:
        retokenizer.merge(merged[0:4])
    assert nlp(merged)[0].text == "New York  City"


def test_a_stream(model):
    nlp = pipeline(model, batch_words=20)
    texts = [TEXT, "", "A dog .", " ", *(["We saw it ."] * 5)]
    one_by_one = [nlp(text) for text in texts]
    for size in (1, 3, 100):
        for doc, alone in zip(nlp.pipe(texts, batch_size=size), one_by_one, strict=True):
            assert doc.text == alone.text and starts(doc) == starts(alone)
            assert [(t.head.i, t.dep_) for t in doc] == [(t.head.i, t.dep_) for t in alone]
    pairs = list(nlp.pipe([("a", 1), ("b", 2)], as_tuples=True))
    assert [(doc.text, context) for doc, context in pairs] == [("a", 1), ("b", 2)]


def test_tags_and_features(tagged_model, treebank):
    parser = Parser.load(tagged_model)
    nlp = spacy.blank("en")
    nlp.add_pipe("gpuparse", config={"model": tagged_model})
    docs = [
        tokens.Doc(nlp.vocab, one.words, pos=one.upos, morphs=["" if x == "_" else x for x in one.feats])
        for one in treebank
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = list(nlp.pipe(docs))
    bare = [Sentence.from_words(one.words, one.upos, feats=one.feats) for one in treebank]
    for doc, tree in zip(found, parser.predict(bare), strict=True):
        if starts(doc) == [0]:
            assert [t.head.i + 1 if t.head != t else 0 for t in doc] == tree.heads
    assert sum(starts(doc) == [0] for doc in found) > 5


def test_columns_that_are_missing_are_named_once(tagged_model):
    nlp = pipeline(tagged_model)
    with pytest.warns(UserWarning) as told:
        nlp("We saw it .")
        nlp("And more .")
    (line,) = (str(warning.message) for warning in told)
    assert line == (
        "gpuparse: the model reads UPOS (Token.pos) and FEATS (Token.morph), which no Doc has; "
        "put what sets it before this component, or parses will be worse"
    )
    nlp = pipeline(tagged_model)
    doc = tokens.Doc(nlp.vocab, ["We"], pos=["PRON"])
    with pytest.warns(UserWarning, match=r"the model reads FEATS \(Token.morph\), which no Doc has"):
        nlp(doc)


def test_saved_with_its_model(model, tmp_path):
    nlp = pipeline(model, confidence="sure", sentences="preset")
    doc = nlp(TEXT)
    nlp.to_disk(tmp_path / "nlp")
    assert {path.name for path in (tmp_path / "nlp" / "gpuparse").iterdir()} == FILES
    config = (tmp_path / "nlp" / "config.cfg").read_text().replace(model, "/gone/elsewhere")
    (tmp_path / "nlp" / "config.cfg").write_text(config)
    again = spacy.load(tmp_path / "nlp")
    in_bytes = pipeline("/gone/elsewhere", confidence="sure", sentences="preset").from_bytes(nlp.to_bytes())
    pickled = pickle.loads(pickle.dumps(nlp))
    for other in (again, in_bytes, pickled):
        found = other(TEXT)
        assert (
            found.to_array(["HEAD", "DEP", "SENT_START"]).tolist()
            == doc.to_array(["HEAD", "DEP", "SENT_START"]).tolist()
        )
        assert [t._.sure for t in found] == [t._.sure for t in doc] and found[0]._.sure is not None
    assert spacy.tokens.Doc(nlp.vocab).from_bytes(doc.to_bytes())[0]._.sure == doc[0]._.sure


def test_bytes_of_a_stranger(model, tmp_path):
    nlp = pipeline(model)
    component = nlp.get_pipe("gpuparse")
    for name in ("../escaped", "a/../../escaped", "/escaped", "a\\..\\escaped", ""):
        content = spacy.util.srsly.msgpack_dumps({name: b"x"})
        assert "is no file of a model" in refusal(component.from_bytes, content)
    content = spacy.util.srsly.msgpack_dumps({"model.json": b"{}"})
    assert "a model of format None" in refusal(component.from_bytes, content)


def test_no_confidence(model):
    doc = pipeline(model, confidence="")("We saw it")
    assert doc.user_data == {}


def test_options(model):
    nlp = pipeline(model, options={"method": "eisner", "projective": True})
    assert len(nlp(TEXT)) and not nlp.analyze_pipes()["problems"]["gpuparse"]
    assert refusal(component_module.SpacyParser, sentences="all").startswith("sentences: 'all'; wanted 'rules'")
    assert refusal(component_module.SpacyParser, confidence="a b").startswith("confidence: 'a b' is no name")
    with pytest.raises(ValueError, match="sentences"):
        pipeline(model, sentences="all")
    with pytest.raises(ValueError, match="model"):
        spacy.blank("en").add_pipe("gpuparse")


def test_a_model_that_is_not_there(tmp_path, model):
    missing = str(tmp_path / "none")
    assert refusal(pipeline(missing), "We").startswith(f"{missing}: no such directory, and no name of the Hugging")
    assert "no model; give one in config" in refusal(component_module.SpacyParser(), tokens.Doc(spacy.vocab.Vocab()))
    nlp = pipeline(missing)
    failed = []
    nlp.set_error_handler(lambda name, component, docs, error: failed.append((name, len(docs), str(error))))
    assert list(nlp.pipe(["a", "b"], batch_size=2)) == []
    assert [(name, count) for name, count, _ in failed] == [("gpuparse", 1)] * 2
    short = pipeline(model)
    real = short.get_pipe("gpuparse").parser.predict

    def no_room(sentences, on_unfit, **options):
        for index, one in enumerate(sentences):
            if len(one) > 3:
                on_unfit(index, ValueError(f"<Doc>:1: a sentence of {len(one)} words needs 9 GB; split it"))
        return real(sentences, **options)

    short.get_pipe("gpuparse").parser.predict = no_room
    said = "gpuparse: a sentence of 4 words needs 9 GB; preset sentence starts, so that it is split"
    assert refusal(short, "We saw it now") == said
    short.set_error_handler(lambda *_: None)
    assert [doc.text for doc in short.pipe(["We", "We saw it now", "It"], batch_size=3)] == ["We", "It"]


def test_the_device_is_spacys(model, monkeypatch):
    seen = []

    def load(path, device):
        seen.append(str(device))
        return Parser.load(path)

    monkeypatch.setattr(component_module.Parser, "from_pretrained", load)
    for device, spacys, wanted in [
        ("auto", "cpu", "cpu"),
        ("auto", "cuda:1", "cuda:1"),
        ("auto", "mps", "cpu"),
        ("cuda", "cpu", "cuda"),
    ]:
        monkeypatch.setattr(component_module, "get_torch_default_device", lambda kind=spacys: torch.device(kind))
        pipeline(model, device=device)("We")
        assert seen.pop() == wanted and not seen


def test_scores(model):
    nlp = pipeline(model)
    reference = nlp("We saw it . It ran .")
    example = spacy.training.Example(nlp.make_doc(reference.text), reference)
    found = nlp.evaluate([example])
    assert found["dep_uas"] == found["dep_las"] == found["sents_f"] == 1.0


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_trees_of_any_form_leave_sentences_as_they_are(data):
    """Crossing arcs too, on which spaCy's own search for sentence starts may give up."""
    count = data.draw(st.integers(1, 30))
    vocab = spacy.vocab.Vocab()
    doc = tokens.Doc(vocab, data.draw(st.lists(st.sampled_from(["a", " ", "."]), min_size=count, max_size=count)))
    for token in doc[1:]:
        token.is_sent_start = data.draw(st.sampled_from([True, False, None]))
    preset = [token.is_sent_start for token in doc]
    pieces = docs_module.pieces_of(doc, rules=data.draw(st.booleans()))
    assert [index for piece in pieces for index in range(piece.begin, piece.end)] == list(range(count))
    begins = {piece.begin for piece in pieces}
    assert all(value is None or (index in begins) == value for index, value in enumerate(preset) if index)
    found, heads = [], list(range(count))
    for piece in pieces:
        n = len(piece.words)
        order = data.draw(st.permutations(range(1, n + 1)))
        tree = [0] * n
        for place, word in enumerate(order[1:], 1):
            tree[word - 1] = data.draw(st.sampled_from(order[:place]))
        for word, head in zip(piece.words, tree, strict=True):
            heads[word] = piece.words[head - 1] if head else word
        prediction = component_prediction(tree) if n else None
        found.append((piece, prediction))
    docs_module.set_trees(doc, found)
    assert {token.i for token in doc if token.is_sent_start} == begins
    assert all(token.head.i == heads[token.i] for token in doc if not token.is_space)
    for span in doc.sents:
        assert sum(token.head == token for token in span) == 1 and all(token.head in span for token in span)


def component_prediction(heads):
    from gpuparse.data.prediction import Prediction

    return Prediction(heads, ["root" if head == 0 else "x" for head in heads])


def test_found_by_its_entry_point(model):
    """Without importing gpuparse; and gpuparse does not import spaCy."""
    code = f"""
import sys
import gpuparse.models.parser
assert "spacy" not in sys.modules
import spacy
nlp = spacy.blank("de")
nlp.add_pipe("gpuparse", config={{"model": {model!r}}})
print(nlp("Es ging .").has_annotation("DEP"))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_heads_are_offsets_that_spacy_reads():
    doc = tokens.Doc(spacy.vocab.Vocab(), ["a", "b"])
    (piece,) = docs_module.pieces_of(doc, rules=False)
    docs_module.set_trees(doc, [(piece, component_prediction([2, 0]))])
    assert doc.to_array(["HEAD"]).astype(np.int64).tolist() == [1, 0]
