"""Directories of models that a broken disk or a stranger made: loaded, and a sentence parsed or tagged by what loads.

Tiny models of every kind, and a checkpoint, are made once, in memory. A case is a copy of one of them with some damage:
bytes, values of TOML and JSON, headers of tensors, files that are links, pipes, directories or not there.
"""

from __future__ import annotations

import json
import os
import random
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from mutate import changed_json, dumped, extreme, mutated, refusal

from gpuparse.config import Config
from gpuparse.data import check_tree
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.batches import collate
from gpuparse.data.vocab import Vocabulary
from gpuparse.models.parser import Parser
from gpuparse.models.tagger import Tagger
from gpuparse.train import checkpoint
from gpuparse.train.gradient import GradientLearner
from gpuparse.train.tagging import tag_vocabulary

NAME = "model directories"
COUNT = 5_000

WORDS = ["the", "dog", "barks", "\u00e9", "!"]
FILES = ("model.json", "config.toml", "vocabulary.json", "model.safetensors")
_TINY = [
    *("scorer.word=5", "scorer.char=3", "scorer.chars=4", "scorer.tag=3", "scorer.feats=2", "scorer.hidden=4"),
    *("scorer.layers=1", "scorer.arc=5", "scorer.label=4", "scorer.bits=8", "scorer.label_bits=6"),
]
_KINDS: dict[str, tuple[str, ...]] = {
    "biaffine": (),
    "trilinear": ("scorer.grandparents=3", "scorer.siblings=2"),
    "templates": ("scorer.kind=templates", "scorer.grandparents=1", "scorer.siblings=1", "training.projective=true"),
    "tagger": ("task=tag",),
    "bilstm tagger": ("task=tag", "scorer.kind=bilstm+templates", "data.tags=upos+feats"),
}
Files = dict[str, bytes]


def _made(settings: tuple[str, ...]) -> Files:
    """The files of a model with weights of some size."""
    torch.manual_seed(1)
    treebank = list(artificial_treebank(12, seed=3))
    config = Config.load(None, [*_TINY, *settings])
    model: Parser | Tagger
    if config.task == "parse":
        model = Parser.new(config, Vocabulary.build(treebank, min_count=1))
    else:
        model = Tagger.new(config, tag_vocabulary(config, treebank))
    with torch.no_grad():
        for name, weights in model.scorer.named_parameters():
            pairs = name.startswith(("grandparents", "siblings"))  # small, or the best tree takes long to prove
            weights.normal_(std=0.2 if pairs else 0.5)
    with tempfile.TemporaryDirectory() as directory:
        model.save(directory)
        return {name: Path(directory, name).read_bytes() for name in FILES}


def _learner() -> GradientLearner:
    config = Config.load(None, _TINY)
    treebank = list(artificial_treebank(4, seed=3))
    vocabulary = Vocabulary.build(treebank, min_count=1)
    learner = GradientLearner(Parser.new(config, vocabulary).scorer, config.training)
    batch = collate([vocabulary.encode(one, tree=True) for one in treebank], vocabulary.chars)
    learner.step(batch, words=sum(map(len, treebank)), progress=0.0)
    return learner


def _saved_checkpoint() -> Files:
    """The checkpoint of a run after its first step."""
    numbers = dict.fromkeys(("loss", "words", "seconds", "step_seconds", "inference"), 1.5)
    counts = {"epoch": 0, "batch": 1, "steps": 1, "processes": 1, "log_length": 0}
    best = {"epoch": 1, "dev_uas": 0.5, "dev_las": 0.25}
    with tempfile.TemporaryDirectory() as directory:
        checkpoint.save_checkpoint(Path(directory), LEARNER, {**numbers, **counts, "best": best})
        return {checkpoint.NAME: Path(directory, checkpoint.NAME).read_bytes()}


CHECKPOINT = "checkpoint"
LEARNER = _learner()
MODELS = {CHECKPOINT: _saved_checkpoint(), **{name: _made(settings) for name, settings in _KINDS.items()}}


def one(rng: random.Random, directory: Path) -> str:
    """Damage a model, load it, use it."""
    kind = rng.choice(list(MODELS))
    path = directory / "model"
    path.mkdir()
    files = dict(MODELS[kind])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(_DAMAGES)(rng, files)
    for name, content in files.items():
        (path / name).write_bytes(content)
    if rng.random() < 0.15:
        _replace(rng, path, directory)
    try:
        return _resume(path) if kind == CHECKPOINT else _use(kind, path, rng.random() < 0.03)
    except ValueError as error:
        return refusal(error)


def _use(kind: str, path: Path, again: bool) -> str:
    """Load a model and ask it for an answer, which has to be one; and what is saved once more is the same model."""
    model = Tagger.load(path) if "tagger" in kind else Parser.load(path)
    answer = model.tag([WORDS]) if isinstance(model, Tagger) else model.parse([WORDS])
    assert answer[0].words == WORDS, f"other words: {answer[0].words!a}"
    if isinstance(model, Parser):
        check_tree(answer[0], single_root=model.config.training.single_root)
    if again:
        other = path.with_name("again")
        model.save(other)
        loaded = type(model).load(other)
        loaded.save(path.with_name("third"))
        for name in FILES:
            assert (other / name).read_bytes() == (path.with_name("third") / name).read_bytes(), f"{name} changes"
    return "ok"


def _resume(path: Path) -> str:
    """Put a run back to where it was."""
    if not os.path.lexists(path / checkpoint.NAME):
        return "none"
    checkpoint.check_position(checkpoint.load_checkpoint(path, LEARNER), path)
    return "ok"


def _some_file(rng: random.Random, files: Files, ending: str = "") -> str:
    return rng.choice([name for name in files if name.endswith(ending)])


def _bytes(rng: random.Random, files: Files) -> None:
    """A file with some of its bytes changed, cut off, moved or added."""
    name = _some_file(rng, files)
    files[name] = mutated(
        rng, files[name], [b"\0", b"\0" * 10_000, b"\xef\xbb\xbf", b"[" * 5000, b'"', b"{", b"}", b"]"]
    )


def _swapped(rng: random.Random, files: Files) -> None:
    """A file in the place of another, or of another model; or hardly any."""
    one, other = _some_file(rng, files), _some_file(rng, files)
    what = rng.random()
    if what < 0.4:
        files[one], files[other] = files[other], files[one]
    elif what < 0.8:
        files[one] = rng.choice([content for made in MODELS.values() for content in made.values()])
    else:
        files[one] = rng.choice((b"", b"\0", b"null", b"[]", b"{}", rng.randbytes(100)))


_TOML = (
    *("0", "-1", "1", "2", "7", "100", "65536", "1000000000", "9223372036854775807", "9223372036854775808", "-0.0"),
    *("1" + "0" * 400, "1" + "0" * 5000, "0x" + "f" * 3000, "nan", "inf", "-inf", "1e308", "1e400", "1e-320", "0.5"),
    *("true", "false", '""', '"x"', '"\\u0000"', '"\\u001b[31m"', "'" + "x" * 10_000 + "'", '"../../x"', '"/dev/zero"'),
    *("[]", "{}", "[" * 2000, "[" * 50 + "]" * 50, "{a = {b = 1}}", "2012-06-01", "1979-05-27T07:32:00Z", "", "null"),
    *('"templates"', '"biaffine"', '"bilstm"', '"tag"', '"parse"', '"upos"', '"bp"', '"nll"', '"dd"', '"mira"'),
)


def _toml(rng: random.Random, files: Files) -> None:
    """A setting with another value, or twice, or gone, or one that there is not."""
    if "config.toml" not in files:
        return
    lines = files["config.toml"].decode("utf-8", "replace").split("\n")
    at = rng.randrange(len(lines))
    what = rng.randrange(10)
    if what < 7:
        settings = [number for number, line in enumerate(lines) if "=" in line]
        if settings:
            at = rng.choice(settings)
            lines[at] = lines[at].partition("=")[0] + "= " + rng.choice(_TOML)
    elif what == 7:
        lines.insert(at, rng.choice(lines))
    elif what == 8:
        del lines[at]
    else:
        lines.insert(at, rng.choice(("a." * 4000 + "b = 1", "[" + "a." * 300 + "b]", "[[scorer]]", "x = 1", "\x00")))
    files["config.toml"] = "\n".join(lines).encode("utf-8", "replace")


def _json(rng: random.Random, files: Files) -> None:
    """A value of a JSON file changed, gone, or there several times."""
    if "model.json" in files:
        name = _some_file(rng, files, ".json")
        files[name] = changed_json(rng, files[name])


_SIZES = (0, 1, 2, 3, 7, -1, 2**31, 2**32, 2**62, 2**63, 2**64, 10**30, 1.5, None, "1", True, [1])
_DTYPES = ("F32", "F64", "F16", "BF16", "I64", "I8", "BOOL", "U8", "F8_E4M3", "C64", "", "f32", None, 4, ["F32"])


def _weights(rng: random.Random, files: Files) -> None:
    """Another header, or other numbers."""
    file = _some_file(rng, files, ".safetensors")
    content = files[file]
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
    except (ValueError, RecursionError):
        return
    data = content[8 + length :]
    if not isinstance(header, dict) or rng.random() < 0.25:
        files[file] = content[: 8 + length] + _numbers(rng, data)
        return
    names = [name for name, entry in header.items() if isinstance(entry, dict) and "shape" in entry]
    what = rng.randrange(9)
    if names and what < 6:
        name = rng.choice(names)
        entry = header[name]
        if what == 0:
            entry["shape"] = _other_sizes(rng, entry["shape"])
        elif what == 1:
            entry["dtype"] = rng.choice(_DTYPES)
        elif what == 2:
            entry["data_offsets"] = _other_sizes(rng, entry["data_offsets"])
        elif what == 3:
            other = header[rng.choice(names)]
            header[name] = other if rng.random() < 0.5 else {**entry, "shape": other["shape"]}
        elif what == 4:
            header[rng.choice((name + "x", "", "\x00", "x" * 2000, "../x"))] = header.pop(name)
        else:
            entry[rng.choice(list(entry))] = extreme(rng)
    elif what == 6 and "position" in (header.get("__metadata__") or ()) and rng.random() < 0.8:
        position = changed_json(rng, str(header["__metadata__"]["position"]).encode("utf-8", "replace"))
        header["__metadata__"]["position"] = position.decode("utf-8", "replace")
    elif what == 6:
        header["__metadata__"] = rng.choice((None, [], {"a": 1}, {"a": "b"}, {"a": {}}, "x", {"x" * 5000: "y"}))
    elif what == 7:
        data = data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data + rng.randbytes(rng.randrange(99))
    packed = dumped(header)
    if what == 8:
        packed = changed_json(rng, packed)
    length = len(packed) if rng.random() < 0.9 else rng.choice((0, 1, len(packed) - 1, 2**31, 2**63, 2**64 - 1))
    files[file] = struct.pack("<Q", length) + packed + data


def _other_sizes(rng: random.Random, sizes: Any) -> Any:
    """A shape, or a place, that is another."""
    if not isinstance(sizes, list) or not sizes or rng.random() < 0.1:
        return extreme(rng)
    sizes = list(sizes)
    at = rng.randrange(len(sizes))
    what = rng.randrange(4)
    if what == 0:
        sizes[at] = rng.choice(_SIZES)
    elif what == 1 and isinstance(sizes[at], int):
        sizes[at] += rng.choice((-4, -1, 1, 4, 1000))
    elif what == 2:
        rng.shuffle(sizes)
    else:
        sizes += [rng.choice(_SIZES)] * rng.choice((1, 1, 3, 5000))
    return sizes


def _numbers(rng: random.Random, data: bytes) -> bytes:
    """Some weights are no numbers, or extreme ones."""
    numbers = bytearray(data)
    value = rng.choice((float("nan"), float("inf"), -float("inf"), 3e38, -3e38, 1e30, 1e19, 1e-45, 0.0))
    for _ in range(rng.choice((1, 10, len(data) // 8))):
        if len(numbers) >= 4:
            at = 4 * rng.randrange(len(numbers) // 4)
            numbers[at : at + 4] = struct.pack("<f", value if rng.random() < 0.9 else -value)
    return bytes(numbers)


def _replace(rng: random.Random, path: Path, directory: Path) -> None:
    """Something that is no file in the place of one, or nothing, or a file of any size."""
    file = path / rng.choice(sorted(os.listdir(path)))
    content = file.read_bytes()
    what = rng.randrange(9)
    if what == 8:
        (path / "encoder").symlink_to("/")
        return
    if what == 7:
        os.truncate(file, rng.choice((1 << 20, 1 << 28, 1 << 36)))  # all but the beginning is a hole
        return
    file.unlink()
    if what == 1:
        os.mkfifo(file)
    elif what == 2:
        file.mkdir()
    elif what == 3:
        outside = directory / "outside"
        outside.write_bytes(content)
        file.symlink_to(rng.choice((outside, Path("..", "outside"))))
    elif what == 4:
        file.symlink_to(rng.choice(("/dev/zero", "/dev/null", "/dev/stdin", "/dev/full", "/", ".", "..")))
    elif what == 5:
        file.symlink_to(rng.choice((file.name, "nowhere", *FILES)))
    elif what == 6:
        (path / "real").write_bytes(content)
        file.symlink_to(rng.choice(("real", path / "real")))


_DAMAGES: tuple[Callable[[random.Random, Files], None], ...] = (
    *(_bytes, _swapped, _toml, _json, _weights, _weights),
    lambda rng, files: None,
)
