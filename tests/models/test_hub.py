"""Models from and to the Hugging Face Hub, without a network."""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gpuparse.config import Config
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.vocab import Vocabulary
from gpuparse.models import hub
from gpuparse.models.parser import Parser
from gpuparse.models.tagger import Tagger
from gpuparse.train.tagging import tag_vocabulary
from tests.models.made import FILES, lively
from tests.refusals import refusal
from tests.train.small import TINY

library = pytest.importorskip("huggingface_hub", reason="no huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")
pytestmark = pytest.mark.usefixtures("one_thread")
NAME, COMMIT = "someone/small", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def treebank():
    return list(artificial_treebank(20, seed=9))


@pytest.fixture(scope="module")
def parser(treebank):
    secret = ["data.train=/home/somebody/secret/en-train.conllu", "data.dev=/home/somebody/secret/en-dev.conllu"]
    model = lively(Parser.new(Config.load(None, [*TINY, *secret]), Vocabulary.build(treebank)))
    model.results = {"epoch": 7, "dev_uas": 0.91234, "dev_las": 0.875, "note": "<script>"}
    return model


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    """As by the variable of this name, which the library has read when it was imported."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@pytest.fixture
def cache(parser, tmp_path):
    """What the library leaves of a model that it fetched: links to files beside them."""
    parser.save(tmp_path / "saved")
    (tmp_path / "saved" / "encoder").mkdir()
    (tmp_path / "saved" / "pytorch_model.bin").write_bytes(pickle.dumps(print))
    return cached(tmp_path / "saved", tmp_path / "cache")


def cached(model: Path, cache: Path) -> Path:
    home = cache / f"models--{NAME.replace('/', '--')}"
    for directory in ("blobs", "refs", f"snapshots/{COMMIT}"):
        (home / directory).mkdir(parents=True)
    (home / "refs" / "main").write_text(COMMIT)
    for file in model.rglob("*"):
        if file.is_file():
            blob = home / "blobs" / hashlib.sha1(file.read_bytes()).hexdigest()
            shutil.copyfile(file, blob)
            link = home / "snapshots" / COMMIT / file.relative_to(model)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(blob, link.parent))
    return cache


def snapshot(cache: Path) -> Path:
    return next(cache.glob("models--*/snapshots/*"))


class Api:
    """What is asked of the Hub, and what would be on it."""

    asked: list[tuple]

    def __init__(self, **options):
        self.asked.append(("HfApi", options))

    def create_repo(self, repo_id, **options):
        self.asked.append(("create_repo", repo_id, options))
        return SimpleNamespace(repo_id=repo_id if "/" in repo_id else f"me/{repo_id}")

    def create_branch(self, repo_id, **options):
        self.asked.append(("create_branch", repo_id, options))

    def upload_folder(self, *, folder_path, **options):
        shutil.copytree(folder_path, self.uploaded)
        self.asked.append(("upload_folder", options))
        return SimpleNamespace(
            commit_url="https://hub/commit", pr_url="https://hub/pr" if options["create_pr"] else None
        )


@pytest.fixture
def api(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "HfApi", type("Fake", (Api,), {"asked": [], "uploaded": tmp_path / "uploaded"}))
    return library.HfApi


# ------------------------------------------------------------------------------------------------ from the Hub


def test_from_the_cache(parser, cache, treebank):
    again = Parser.from_pretrained(NAME, cache_dir=cache, local_files_only=True)
    assert again.results == parser.results and again.predict(treebank) == parser.predict(treebank)
    for revision in ("main", COMMIT):
        assert Parser.from_pretrained(NAME, cache_dir=cache, revision=revision).vocabulary.labels.names
    assert not [path for path in cache.rglob("*") if "gpuparse" in path.name]  # nothing is left behind


def test_from_a_directory(parser, tmp_path, treebank):
    parser.save(tmp_path / "model")
    assert Parser.from_pretrained(tmp_path / "model").predict(treebank) == parser.predict(treebank)
    assert "is not to be had" in refusal(Parser.from_pretrained, NAME, device="nowhere")


def test_a_file_system_without_links(parser, cache, treebank, monkeypatch):
    def no_link(*_):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", no_link)
    assert Parser.from_pretrained(NAME, cache_dir=cache).predict(treebank) == parser.predict(treebank)


def test_what_is_fetched(cache, monkeypatch):
    """Files of a model alone, none that could be run."""
    asked = []
    files = [
        *FILES,
        "README.md",
        "pytorch_model.bin",
        "encoder/config.json",
        "encoder/x.py",
        "encoder/a/b.bin",
        "run.sh",
    ]

    def fetch(repo_id, **options):
        filters = {name: options.pop(name) for name in ("allow_patterns", "ignore_patterns")}
        asked.append((repo_id, options, {*library.utils.filter_repo_objects(files, **filters)}))
        return str(snapshot(cache))

    monkeypatch.setattr(library, "snapshot_download", fetch)
    Parser.from_pretrained(NAME, revision="v1", token="t", cache_dir="c")
    options = {"revision": "v1", "cache_dir": "c", "local_files_only": False, "token": "t", "library_name": "gpuparse"}
    assert asked == [(NAME, options, {*FILES, "encoder/config.json"})]


def damage(file: Path, content: bytes) -> None:
    os.unlink(file)
    file.write_bytes(content)


def test_a_strangers_model_is_refused_by_its_name(cache, tmp_path):
    def refused() -> str:
        return refusal(Parser.from_pretrained, NAME, cache_dir=cache)

    place = snapshot(cache)
    weights = (place / "model.safetensors").read_bytes()
    damage(place / "model.safetensors", pickle.dumps(print))
    assert refused().startswith(f"{NAME}/model.safetensors: ")
    damage(place / "model.safetensors", weights[:-8])
    assert refused().startswith(f"{NAME}/model.safetensors: ")
    (tmp_path / "elsewhere").write_bytes(weights)
    os.unlink(place / "model.safetensors")
    (place / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    assert "model.safetensors: a link out of " in refused()
    os.unlink(place / "model.safetensors")
    assert refused() == f"{NAME}: model.safetensors is missing; the model is not whole"
    damage(place / "model.json", b'{"format": 9}')
    assert refused().startswith(f"{NAME}: a model of format 9, ")
    assert refusal(Tagger.from_pretrained, NAME, cache_dir=cache).startswith(f"{NAME}: a model of format 9, ")


def test_what_is_not_there(cache, tmp_path, monkeypatch):
    def why(name=NAME, **options):
        return refusal(Parser.from_pretrained, name, **{"cache_dir": cache, **options}).removeprefix(f"{name}: ")

    absent = "no such directory, and not whole in the cache of the Hugging Face Hub; fetch it once while online"
    assert why("someone/else") == why(local_files_only=True, revision="v2") == absent
    assert why("./no/such/directory").startswith("no such directory, and no name of the Hugging Face Hub")

    response = SimpleNamespace(headers={}, status_code=404, request=None)
    kinds = library.errors
    for kind, said in [
        (
            kinds.RepositoryNotFoundError,
            "no such directory, and no such model on the Hugging Face Hub, or a ",
        ),
        (kinds.GatedRepoError, "a gated model of the Hugging Face Hub; "),
        (kinds.RevisionNotFoundError, "no revision v2 of it on the Hugging Face Hub"),
        (ConnectionError, "the Hugging Face Hub says: no route\\x1b to host"),
    ]:

        def fail(*_, kind=kind, **__):
            hub_error = issubclass(kind, kinds.HfHubHTTPError)
            raise kind("no\nroute\x1b to host", response=response) if hub_error else kind("no\nroute\x1b to host")

        monkeypatch.setattr(library, "snapshot_download", fail)
        assert why(revision="v2").startswith(said)


def test_without_the_library(monkeypatch, parser):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    told = "huggingface_hub is not installed; pip install 'gpuparse[hub]'"
    assert refusal(Parser.from_pretrained, NAME) == f"from_pretrained: {told}"
    assert refusal(parser.push_to_hub, NAME) == f"push_to_hub: {told}"


# ------------------------------------------------------------------------------------------------ to the Hub


def test_pushed(parser, api, treebank):
    url = parser.push_to_hub("small", private=True, token="t", language="en", license="mit", message="first")
    assert url == "https://hub/commit"
    assert api.asked == [
        ("HfApi", {"token": "t", "library_name": "gpuparse"}),
        ("create_repo", "small", {"private": True, "repo_type": "model", "exist_ok": True}),
        (
            "upload_folder",
            {
                "repo_id": "me/small",
                "revision": None,
                "delete_patterns": ["encoder/*"],
                "create_pr": False,
                "commit_message": "first",
            },
        ),
    ]
    assert {path.name for path in api.uploaded.iterdir()} == {*FILES, "README.md"}
    again = Parser.load(api.uploaded)
    assert again.predict(treebank) == parser.predict(treebank)
    assert again.config.data.train == "en-train.conllu" and parser.config.data.train.startswith("/home/")
    content = b"".join(path.read_bytes() for path in api.uploaded.iterdir() if path.suffix != ".safetensors")
    assert b"somebody" not in content and b"secret" not in content and b"/tmp" not in content


def test_pushed_to_a_branch_and_as_a_proposal(parser, api):
    assert parser.push_to_hub(NAME, branch="next", create_pr=True, card="My own words.\n") == "https://hub/pr"
    assert ("create_branch", NAME, {"branch": "next", "exist_ok": True}) in api.asked
    assert api.asked[-1][1]["revision"] == "next"
    assert (api.uploaded / "README.md").read_text() == "My own words.\n"


def test_pushing_that_fails(parser, api, monkeypatch):
    def fail(*_, **__):
        raise library.errors.LocalTokenNotFoundError("Token is required,\nbut no token found")

    monkeypatch.setattr(api, "create_repo", fail)
    told = refusal(parser.push_to_hub, NAME)
    assert told == f"{NAME}: the Hugging Face Hub says: Token is required, but no token found"


def test_card(parser):
    card = library.ModelCard(parser.card(NAME, language=["en", "hu"], license="cc-by-4.0"))
    data = card.data
    assert (data.library_name, data.language, data.license) == ("gpuparse", ["en", "hu"], "cc-by-4.0")
    found = {result.metric_name: result.metric_value for result in data.eval_results}
    assert found == {"UAS": 91.23, "LAS": 87.5} and data.eval_results[0].dataset_name == "en-dev.conllu"
    text = card.text
    assert "| UAS | 91.23 |" in text and "| LAS | 87.50 |" in text and "<script>" not in text
    assert f'parser = gp.Parser.from_pretrained("{NAME}")' in text and "UPOS and FEATS" in text
    labels = parser.vocabulary.labels.names
    assert f"- {len(labels)} labels: `{labels[0]}`" in text
    weights = sum(each.numel() for each in parser.scorer.parameters())
    assert f"- {weights:,} weights, in safetensors" in text and '~~~~toml\ntask = "parse"' in text


def test_card_of_a_tagger_that_nobody_measured(treebank):
    config = Config.load(None, [*TINY, "task=tag", "data.tags=upos+feats"])
    tagger = Tagger.new(config, tag_vocabulary(config, treebank))
    text = library.ModelCard(tagger.card("me/tags")).text
    assert "trained without development data" in text and "gp.Tagger.from_pretrained" in text
    assert "It reads words alone." in text and "`NOUN+" in text and "\t" not in text
    tagger.results = {"dev_accuracy": 0.5}
    assert "| accuracy | 50.00 |" in tagger.card("me/tags")


def test_code_of_the_card_runs(parser, tmp_path, monkeypatch, capsys):
    parser.save(tmp_path / "someone" / "small")
    monkeypatch.chdir(tmp_path)
    code = parser.card(NAME).partition("```python\n")[2].partition("```")[0]
    exec(compile(code, "card", "exec"), {})
    assert capsys.readouterr().out.startswith("[")


def test_a_pretrained_encoder_goes_along_without_its_place(tmp_path, treebank, api):
    from tests.nn.tiny_models import make_bert  # which skips without transformers

    (tmp_path / "secret").mkdir()
    make_bert(tmp_path / "secret")
    settings = [*TINY, f"scorer.pretrained={tmp_path / 'secret'}", "scorer.layers=0"]
    model = lively(Parser.new(Config.load(None, settings), Vocabulary.build(treebank)))
    model.push_to_hub(NAME)
    names = {path.name for path in (api.uploaded / "encoder").iterdir()}
    assert "encoder.json" in names and "tokenizer.json" in names
    for file in api.uploaded.rglob("*"):
        assert not file.is_file() or str(tmp_path).encode() not in file.read_bytes(), file
    again = Parser.from_pretrained(NAME, cache_dir=cached(api.uploaded, tmp_path / "cache"))
    with torch.inference_mode():
        assert again.predict(treebank) == model.predict(treebank)


def test_names_of_encoders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for path, name in [("owner/name", "owner/name"), ("/a/b/c/", "c"), (str(tmp_path / "mine"), "mine"), ("", "")]:
        assert hub.bare_name(path) == name
