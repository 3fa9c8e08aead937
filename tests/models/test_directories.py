"""Directories of models that a stranger or a broken disk made: refused in one line, at once, before memory is taken."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import time
import tracemalloc

import pytest
import torch
from safetensors.torch import load_file, save, save_file
from typer.testing import CliRunner

from gpuparse.cli import app
from gpuparse.config import Config
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.vocab import Vocabulary
from gpuparse.models.parser import Parser
from gpuparse.models.tagger import Tagger
from gpuparse.nn import saved as saved_models
from gpuparse.train.tagging import tag_vocabulary
from tests.models.made import FILES, refused, rewrite
from tests.train.small import TINY

KINDS = {
    "biaffine": [],
    "trilinear": ["scorer.grandparents=3", "scorer.siblings=2"],
    "templates": ["scorer.kind=templates", "scorer.grandparents=1"],
    "tagger": ["task=tag"],
    "bilstm tagger": ["task=tag", "scorer.kind=bilstm+templates"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model of each kind."""
    directory = tmp_path_factory.mktemp("models")
    treebank = list(artificial_treebank(20, seed=9))
    for name, settings in KINDS.items():
        config = Config.load(None, [*TINY, *settings])
        if config.task == "parse":
            Parser.new(config, Vocabulary.build(treebank)).save(directory / name)
        else:
            Tagger.new(config, tag_vocabulary(config, treebank)).save(directory / name)
    return directory


@pytest.fixture(params=KINDS)
def model(request, made, tmp_path):
    """A copy to break, of each kind."""
    return shutil.copytree(made / request.param, tmp_path / "model")


@pytest.fixture
def biaffine(made, tmp_path):
    return shutil.copytree(made / "biaffine", tmp_path / "model")


def kind_of(path):
    return Tagger if 'task = "tag"' in (path / "config.toml").read_text() else Parser


def set_to(path, name, value):
    """Another value of a setting in config.toml."""
    text = (path / "config.toml").read_text()
    lines = [f"{name} = {value}" if line.startswith(f"{name} = ") else line for line in text.split("\n")]
    assert text != "\n".join(lines)
    (path / "config.toml").write_text("\n".join(lines))


# ------------------------------------------------------------------------------------------------ what is whole


def test_saved_again_it_is_the_same_to_the_byte(model, tmp_path):
    kind_of(model).load(model).save(tmp_path / "again")
    for name in FILES:
        assert (tmp_path / "again" / name).read_bytes() == (model / name).read_bytes()


def test_weights_of_another_precision(biaffine):
    """They are read as what they should be."""
    parser = Parser.load(biaffine)
    save_file(
        {name: value.double() for name, value in parser.scorer.state_dict().items()}, biaffine / "model.safetensors"
    )
    again = Parser.load(biaffine)
    for one, other in zip(parser.scorer.parameters(), again.scorer.parameters(), strict=True):
        assert torch.equal(one, other)


# ------------------------------------------------------------------------------------------------ sizes


def test_sizes_beyond_the_limits(biaffine):
    set_to(biaffine, "hidden", 10**9)
    assert refused(biaffine) == "/config.toml: scorer.hidden is 1000000000; wanted 1 to 65536"


@pytest.mark.parametrize(
    ("name", "value", "weight", "found", "wanted"),
    [
        ("hidden", 60_000, "encoder.onward.0.weight_ih_l0", "[32, 22]", "[240000, 22]"),
        ("arc", 65_536, "arcs.weight", "[9, 8]", "[65537, 65536]"),
        ("label", 65_536, "labels.weight", r"[\d+, 7, 7]", r"[\d+, 65537, 65537]"),
        ("word", 65_536, "embedding.word.weight", r"[\d+, 8]", r"[\d+, 65536]"),
    ],
)
def test_sizes_that_the_weights_do_not_have(biaffine, monkeypatch, name, value, weight, found, wanted):
    """The file, the weight and both shapes are named, and nothing of that size is made."""
    set_to(biaffine, name, value)
    made = []
    build = saved_models.load_weights
    monkeypatch.setattr(saved_models, "load_weights", lambda *given: made.append(build(*given)))
    began = time.perf_counter()
    line = refused(biaffine)
    assert time.perf_counter() - began < 0.5 and not made
    pattern = f"/model.safetensors: not the weights of this model: '{weight}' has the shape {found}, and {wanted} is "
    assert line.startswith(pattern) or matches(pattern, line)
    assert line.endswith("is wanted by config.toml and vocabulary.json")


def matches(pattern, line):
    return re.match(re.escape(pattern).replace(r"\\d\+", r"\d+"), line)


@pytest.mark.parametrize(("name", "value"), [("layers", 100), ("grandparents", 65_536), ("siblings", 65_536)])
def test_weights_that_are_missing(biaffine, name, value):
    set_to(biaffine, name, value)
    line = refused(biaffine)
    assert line.startswith("/model.safetensors: not the weights of this model: '") and " is missing, and [" in line


def test_tables_of_templates(made, tmp_path):
    path = shutil.copytree(made / "templates", tmp_path / "model")
    set_to(path, "bits", 30)
    line = refused(path)
    assert line.startswith("/model.safetensors: not the weights of this model: 'weights' has the shape [")
    set_to(path, "bits", 1)
    assert refused(path).startswith(": template '")


def test_a_vocabulary_of_another_size(model):
    """Every list that has weights."""
    saved = json.loads((model / "vocabulary.json").read_text())
    names = ("tags",) if kind_of(model) is Tagger else ("words", "tags", "feats", "chars", "labels")
    for name in names:
        if "templates" in (model / "config.toml").read_text() and name in ("chars", "feats"):
            continue
        more = {name: [*saved[name], *(f"new{number}" for number in range(50_000))]}
        if name == "labels":
            more["root_labels"] = [*saved["root_labels"], *[[True, True]] * 50_000]
        (model / "vocabulary.json").write_text(json.dumps({**saved, **more}))
        assert refused(model, kind_of(model)).startswith("/model.safetensors: not the weights of this model: ")


# ------------------------------------------------------------------------------------------------ weights


def test_no_numbers(model):
    file = model / "model.safetensors"
    weights = load_file(file)
    for name in (min(weights), max(weights)):
        for wrong in (torch.nan, torch.inf, -torch.inf):
            broken = weights[name].clone()
            broken.view(-1)[-1] = wrong
            save_file({**weights, name: broken}, file)
            line = refused(model, kind_of(model))
            assert (
                line
                == f"/model.safetensors: '{name}' has a NaN or an infinity; the file is damaged, or training diverged"
            )


def test_headers(model):
    """Read as carefully as ``test_tensors`` has it."""
    file = model / "model.safetensors"
    content = file.read_bytes()
    for wrong in (content[:-1], struct.pack("<Q", 1 << 31) + content[8:]):
        file.write_bytes(wrong)
        assert refused(model, kind_of(model)).startswith("/model.safetensors: not the weights of this model: ")


def test_weights_that_are_not_wanted(biaffine):
    weights = load_file(biaffine / "model.safetensors")
    for changes, message in (
        ({"arcs.weight": weights["arcs.weight"].int()}, "'arcs.weight' is int32, and float32 is wanted by"),
        ({"further": torch.zeros(1)}, "'further' is there, and is not wanted by"),
    ):
        (biaffine / "model.safetensors").write_bytes(save({**weights, **changes}))
        assert refused(biaffine).endswith(f": {message} config.toml and vocabulary.json")


# ------------------------------------------------------------------------------------------------ JSON


@pytest.mark.parametrize("name", ["model.json", "vocabulary.json"])
def test_json_of_strangers(model, name):
    """Read as carefully as ``test_files`` has it."""
    (model / name).write_bytes(b'{"format":1,"format":1}')
    assert refused(model, kind_of(model)) == f"/{name}: not JSON: 'format' is there twice"


@pytest.mark.parametrize("results", [None, 3, [], "x" * 10**5])
def test_results_of_another_kind(biaffine, results):
    rewrite(biaffine / "model.json", results=results)
    assert refused(biaffine).startswith("/model.json: results is ")


@pytest.mark.parametrize("task", [None, 3, [], {}, "x" * 10**5, "\x1b[31m"])
def test_tasks_that_there_are_not(biaffine, task):
    rewrite(biaffine / "model.json", task=task)
    assert refused(biaffine).startswith(": holds a ")
    rewrite(biaffine / "model.json", format=task, gpuparse=task)
    assert refused(biaffine).startswith(": a model of format ")


def test_files_that_are_huge(model):
    kind = kind_of(model)
    for name, most in (("model.json", 1 << 20), ("config.toml", 1 << 16), ("vocabulary.json", 1 << 27)):
        content = (model / name).read_bytes()
        os.truncate(model / name, 1 << 40)  # a hole
        assert refused(model, kind) == f"/{name}: 1,099,511,627,776 bytes; at most {most:,} are read"
        (model / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("biaffine", {"labels": [None]}, "labels[0] is None; wanted a string"),
        ("biaffine", {"labels": ["\x1b"]}, r"labels: '\x1b' is not a value of a column, without control characters"),
        ("biaffine", {"root_labels": [[True]]}, "root_labels[0] is [True]; wanted two of true and false"),
        ("tagger", {"tags": ["\x00"]}, r"tags: '\x00' is not a value of a column, without control characters"),
        ("tagger", {"tag_set": "lemma"}, "data.tags is 'lemma'; wanted one of 'xpos', 'upos', 'upos+feats'"),
        ("tagger", {"features": [1]}, "features is [1]; wanted an object of templates"),
    ],
)
def test_vocabularies_of_strangers(made, tmp_path, name, changes, message):
    model = shutil.copytree(made / name, tmp_path / "model")
    rewrite(model / "vocabulary.json", **changes)
    assert refused(model, kind_of(model)) == f"/vocabulary.json: not a vocabulary of this version: {message}"


def test_no_features(made, tmp_path):
    tagger = shutil.copytree(made / "tagger", tmp_path / "model")
    rewrite(tagger / "vocabulary.json", features=None)
    assert refused(tagger, Tagger).startswith(": vocabulary: features are wanted for templates")


# ------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize("name", sorted(FILES))
def test_what_is_no_file(model, name, tmp_path):
    file = model / name
    content = file.read_bytes()
    kind = kind_of(model)
    file.unlink()
    told = "no model here (there is no model.json); gpuparse train makes one"
    told = told if name == "model.json" else f"{name} is missing; the model is not whole"
    assert refused(model, kind) == f": {told}"
    os.mkfifo(file)
    assert refused(model, kind) == f"/{name}: a pipe; wanted a file"
    file.unlink()
    file.mkdir()
    assert refused(model, kind) == f"/{name}: a directory; wanted a file"
    file.rmdir()
    (tmp_path / "outside").write_bytes(content)
    for to in (tmp_path / "outside", "../outside", "/dev/zero", "/"):
        file.symlink_to(to)
        assert refused(model, kind) == f"/{name}: a link out of {model}; put the file itself there"
        file.unlink()
    file.symlink_to(name)
    assert refused(model, kind) == f"/{name}: cannot be read: Too many levels of symbolic links"
    file.unlink()
    file.symlink_to("nowhere")
    assert refused(model, kind) == f"/{name}: cannot be read: No such file or directory"
    file.unlink()
    (model / "real").write_bytes(content)
    file.symlink_to("real")  # within the directory
    kind.load(model)


def test_a_directory_by_a_link(model, tmp_path):
    (tmp_path / "link").symlink_to(model)
    kind_of(model).load(tmp_path / "link")


# ------------------------------------------------------------------------------------------------ memory


def test_memory_of_a_vocabulary_that_is_refused(biaffine):
    """By its punctuation, before it is parsed."""
    (biaffine / "vocabulary.json").write_bytes(b"[" + b"[],{}," * 3_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="more than 4,194,304 values"):
            Parser.load(biaffine)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_a_vocabulary_that_could_not_be_read_again_is_not_saved(biaffine, tmp_path, monkeypatch):
    parser = Parser.load(biaffine)
    monkeypatch.setattr(saved_models, "MOST_VALUES", 10)
    with pytest.raises(
        ValueError, match=r"^vocabulary: [\d,]+ bytes, [\d,]+ values; a model has at most .* raise data"
    ):
        parser.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


# ------------------------------------------------------------------------------------------------ commands


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def one_line(result):
    assert result.exit_code == 1, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("gpuparse: ") and len(lines[0]) < 1000 and not result.stdout
    return lines[0].removeprefix("gpuparse: ")


def test_commands(made, tmp_path):
    """One line and 1, for each of the ways to be wrong."""
    (tmp_path / "in.conllu").write_text("1\ta\t_\tNOUN\t_\t_\t_\t_\t_\t_\n\n")
    for command, kind in (("parse", "biaffine"), ("tag", "tagger")):
        path = tmp_path / command
        shutil.copytree(made / kind, path)
        assert run(command, path, tmp_path / "in.conllu").exit_code == 0
        (path / "encoder").symlink_to("/")  # which is not looked at
        assert run(command, path, tmp_path / "in.conllu").exit_code == 0
        vocabulary = (path / "vocabulary.json").read_bytes()
        rewrite(path / "vocabulary.json", words=[None])
        assert "words[0] is None; wanted a string" in one_line(run(command, path, tmp_path / "in.conllu"))
        (path / "vocabulary.json").write_bytes(b"[" * 10**5)
        assert "lists or objects in one another" in one_line(run(command, path, tmp_path / "in.conllu"))
        (path / "vocabulary.json").write_bytes(vocabulary)
        set_to(path, "batch_words", "nan")
        assert "training.batch_words is nan; wanted" in one_line(run(command, path, tmp_path / "in.conllu"))
        (path / "config.toml").unlink()
        os.mkfifo(path / "config.toml")
        assert "config.toml: a pipe; wanted a file" in one_line(run(command, path, tmp_path / "in.conllu"))
