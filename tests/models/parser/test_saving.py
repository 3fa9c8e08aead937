"""Parsers saved and loaded; models that are broken."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from functools import partial

import pytest
import torch

import gpuparse
from gpuparse.config import Config, TrainingConfig
from gpuparse.models.parser import Parser
from tests.models.made import FILES, refused, rewrite
from tests.models.parser.small import TINY, make


def test_saved_and_loaded(parser, saved, treebank):
    assert set(os.listdir(saved)) == FILES  # and nothing that is run when it is read
    again = Parser.load(saved)
    assert again.config == parser.config and again.vocabulary.to_json() == parser.vocabulary.to_json()
    assert again.results == {"dev": {"las": 0.5}, "name": "größe"}
    assert not again.scorer.training
    assert again.predict(treebank, confidence=True) == parser.predict(treebank, confidence=True)
    ours, theirs = parser.scorer.state_dict(), again.scorer.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    about = json.loads((saved / "model.json").read_text())
    assert about["format"] == 1 and about["gpuparse"] == gpuparse.__version__


def test_saved_over_another(parser, model, treebank, tmp_path):
    other = make(parser.vocabulary, seed=2)
    assert other.predict(treebank) != parser.predict(treebank)
    other.save(str(model))
    assert set(os.listdir(model)) == FILES
    assert Parser.load(str(model)).predict(treebank) == other.predict(treebank)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "templates", "bits": 8, "label_bits": 7},
        {"layers": 0, "word": 0},
        {"chars": 0, "tag": 0, "feats": 0, "layers": 2},
    ],
    ids=["templates", "no encoder", "words only"],
)
def test_other_scorers_are_saved_too(vocabulary, treebank, tmp_path, changes):
    parser = make(vocabulary, dataclasses.replace(TINY, **changes))
    parser.save(tmp_path / "model")
    again = Parser.load(tmp_path / "model")
    found = again.predict(treebank, confidence=True)
    assert found == parser.predict(treebank, confidence=True)
    assert len({tuple(one.heads) for one in found}) > len(treebank) / 2


@pytest.mark.slow
def test_a_pretrained_encoder_is_saved_whole(vocabulary, treebank, tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    pytest.importorskip("tokenizers")
    from tests.nn.tiny_models import make_bert

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    torch.manual_seed(0)
    (tmp_path / "bert").mkdir()
    make_bert(tmp_path / "bert")
    scorer = dataclasses.replace(TINY, pretrained=str(tmp_path / "bert"), pretrained_layers=2)
    parser = make(vocabulary, scorer)
    expected = parser.predict(treebank[:8], confidence=True)
    parser.save(tmp_path / "model")
    shutil.rmtree(tmp_path / "bert")  # not needed any more
    assert set(os.listdir(tmp_path / "model")) == {*FILES, "encoder"}
    again = Parser.load(tmp_path / "model")
    assert again.predict(treebank[:8], confidence=True) == expected
    again.save(tmp_path / "copy")
    assert Parser.load(tmp_path / "copy").predict(treebank[:8], confidence=True) == expected
    shutil.rmtree(tmp_path / "copy" / "encoder")
    with pytest.raises(ValueError, match=r"encoder\.json: not there"):
        Parser.load(tmp_path / "copy")


def test_weights_follow_the_seed(vocabulary, treebank):
    def state(seed):
        config = Config(scorer=TINY, training=dataclasses.replace(TrainingConfig(), seed=seed))
        return Parser.new(config, vocabulary).scorer.state_dict()

    one, same, other = state(1), state(1), state(2)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["embedding.word.weight"], other["embedding.word.weight"])


def test_devices(parser, saved):
    for device in ("cpu", torch.device("cpu")):
        assert Parser.load(saved, device=device).device == torch.device("cpu")
    assert parser.to("cpu") is parser
    with pytest.raises(ValueError, match="device: 'meta' is neither cpu nor cuda"):
        Parser.load(saved, device="meta")
    for device in ("gpu", "cpu:x", "cuda:99"):
        for call in (partial(Parser.load, saved), Parser.load(saved).to):
            with pytest.raises(ValueError, match=f"^device: '{device}' is not to be had[^\n]*$"):
                call(device=device)


def test_no_model(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        assert refused(path) == ": no model here (there is no model.json); gpuparse train makes one"
    (tmp_path / "file").write_text("x")
    assert refused(tmp_path / "file").startswith(": no model here")


def test_another_version_or_something_else(model):
    for found in (2, 0, "1", None):
        rewrite(model / "model.json", format=found, gpuparse="9.9")
        reads = f"gpuparse {gpuparse.__version__} reads format 1: train it anew"
        assert refused(model) == f": a model of format {found}, written by gpuparse 9.9; {reads}"
    for content in ("{}", "[]", "3", "null"):
        (model / "model.json").write_text(content)
        assert refused(model).startswith(": a model of format None, written by gpuparse ?; ")


def test_a_save_that_fails_leaves_what_was_there(parser, model, treebank, monkeypatch):
    """Each file is whole, and a file that is not there says so."""
    before = {name: (model / name).read_bytes() for name in FILES}
    monkeypatch.setattr(
        "gpuparse.system.files.os.fsync", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    with pytest.raises(OSError, match="No space left"):
        make(parser.vocabulary, seed=2).save(model)
    assert {name: (model / name).read_bytes() for name in os.listdir(model)} == before


def test_results_that_json_cannot_hold_are_refused(vocabulary, tmp_path):
    parser = make(vocabulary)
    parser.results = {"loss": math.nan}
    with pytest.raises(ValueError):
        parser.save(tmp_path)
    with pytest.raises(ValueError, match="no model here"):
        Parser.load(tmp_path)
