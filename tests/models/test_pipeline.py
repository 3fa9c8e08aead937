"""Tag, then parse: the same as one after the other, from lists and from streams."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gpuparse.data import Sentence
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.vocab import Vocabulary
from gpuparse.lp import Children
from gpuparse.models.parser import Parser
from gpuparse.models.pipeline import Pipeline
from gpuparse.models.tagger import Tagger
from gpuparse.train.tagging import tag_vocabulary
from tests.models.made import lively
from tests.train.small import config

TREEBANK = list(artificial_treebank(12, seed=5))
WORDS = [one.words for one in TREEBANK]


def tagger(*overrides: str) -> Tagger:
    settings = config("task=tag", *overrides)
    return lively(Tagger.new(settings, tag_vocabulary(settings, TREEBANK)))


@pytest.fixture(scope="module")
def pipeline() -> Pipeline:
    return Pipeline(tagger("data.tags=upos+feats"), lively(Parser.new(config(), Vocabulary.build(TREEBANK))))


def test_one_after_the_other(pipeline: Pipeline) -> None:
    assert pipeline.tagger is not None and pipeline.missing == ()
    tagged = pipeline.tagger.tag(WORDS)
    expected = pipeline.parser.parse(tagged)
    assert [one.text for one in pipeline.parse(WORDS)] == [one.text for one in expected]
    assert [one.heads for one in expected] != [one.heads for one in pipeline.parser.parse(WORDS)]  # tags matter
    given = [Sentence.from_words(words) for words in WORDS]
    found = pipeline.predict(given, confidence=True)
    assert [p.fill(one).text for p, one in zip(found, given, strict=True)] == [one.text for one in expected]
    assert found == pipeline.parser.predict(tagged, confidence=True)
    assert [p.tagged.upos for p in found if p.tagged is not None] == [one.upos for one in tagged]
    assert set(found.seconds) == {"batch", "encode", "decode", "labels"} and min(found.seconds.values()) > 0
    asked = {"constraints": [Children(at_most=1)]}
    assert pipeline.predict(given, **asked).counts == pipeline.parser.predict(tagged, **asked).counts


def test_streams(pipeline: Pipeline) -> None:
    expected = [one.text for one in pipeline.parse(WORDS)]
    for window in (1, 5, 100):
        assert [one.text for one in pipeline.pipe(iter(WORDS), window=window)] == expected
    endless = pipeline.pipe(itertools.cycle(WORDS), window=4)
    assert [next(endless).text for _ in range(20)] == (expected + expected)[:20]
    with pytest.raises(ValueError, match="window: 0 is not positive"):
        next(pipeline.pipe(WORDS, window=0))


def test_without_a_tagger(pipeline: Pipeline) -> None:
    alone = Pipeline(None, pipeline.parser)
    assert alone.missing == pipeline.parser.columns
    assert [one.text for one in alone.parse(TREEBANK)] == [one.text for one in pipeline.parser.parse(TREEBANK)]
    assert alone.predict(TREEBANK) == pipeline.parser.predict(TREEBANK)


def test_directories_and_columns(pipeline: Pipeline, tmp_path: Path) -> None:
    assert pipeline.tagger is not None
    pipeline.tagger.save(tmp_path / "tagger")
    pipeline.parser.save(tmp_path / "parser")
    again = Pipeline.load(tmp_path / "tagger", tmp_path / "parser")
    assert [one.text for one in again.parse(WORDS)] == [one.text for one in pipeline.parse(WORDS)]
    assert Pipeline.load(None, tmp_path / "parser").tagger is None
    assert Pipeline(tagger("data.tags=upos"), pipeline.parser).missing == ("feats",)
    why = "the tagger gives XPOS, and the parser reads UPOS and FEATS; train one of what it reads"
    with pytest.raises(ValueError, match=f"^{why}"):
        Pipeline(tagger("data.tags=xpos"), pipeline.parser)
    tagger("data.tags=xpos").save(tmp_path / "other")
    with pytest.raises(ValueError, match=f"^{tmp_path / 'other'}, {tmp_path / 'parser'}: {why}"):
        Pipeline.load(tmp_path / "other", tmp_path / "parser")
