"""Configuration: TOML, overrides, what is refused and how, and the way back to TOML."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from gpuparse.config import LIMITS, Config, DataConfig, ScorerConfig, TrainingConfig
from tests.refusals import refusal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECTIONS = {"data": DataConfig, "scorer": ScorerConfig, "training": TrainingConfig}
HINTS = {(name, key): hint for name, section in SECTIONS.items() for key, hint in get_type_hints(section).items()}


def ids(pair):
    return ".".join(pair)


every_setting = pytest.mark.parametrize("setting", HINTS, ids=ids)


def get(config, setting):
    section, name = setting
    return getattr(getattr(config, section), name)


def other_value(setting):
    """A value that is neither the default nor refused."""
    value = get(Config(), setting)
    hint = HINTS[setting]
    if setting == ("training", "objective"):
        return "hinge"
    if get_origin(hint) is Literal:
        return next(other for other in get_args(hint) if other != value)
    return {bool: lambda: not value, int: lambda: value + 3, float: lambda: value / 3 + 0.01, str: lambda: "a b.c"}[
        hint
    ]()


def refused(what, **tables):
    """The one line that says what is wrong."""
    line = refusal(Config.from_dict, tables, "x.toml", longest=700)
    assert line.startswith("x.toml: ") and what in line
    return line


# ------------------------------------------------------------------------------------------------ TOML and overrides


def test_defaults():
    assert Config.load() == Config() == Config.from_dict({}) == Config.from_dict({"data": {}, "training": {}})


def test_a_file_and_overrides(tmp_path):
    """A file gives what it names, overrides go over it, later ones over earlier ones, defaults stand for the rest."""
    path = tmp_path / "c.toml"
    path.write_text('# größer\n[scorer]\nword = 7\ntag = 8\n\n[data]\ntrain = "ü.conllu"\n', encoding="utf-8")
    config = Config.load(path, ["scorer.tag=9", "training.epochs=4", "scorer.tag=10"])
    expected = Config(
        DataConfig(train="ü.conllu"), ScorerConfig(word=7, tag=10), dataclasses.replace(TrainingConfig(), epochs=4)
    )
    assert config == expected
    assert Config.load(str(path)).scorer.tag == 8


@pytest.mark.parametrize(
    ("override", "setting", "value"),
    [
        ("training.epochs=12", ("training", "epochs"), 12),
        ("training.epochs=1_000", ("training", "epochs"), 1000),
        ("training.learning_rate=3e-4", ("training", "learning_rate"), 3e-4),
        ("training.learning_rate=1", ("training", "learning_rate"), 1.0),
        ("training.bf16=true", ("training", "bf16"), True),
        ("training.single_root=false", ("training", "single_root"), False),
        ("training.decay=cosine", ("training", "decay"), "cosine"),
        ('training.decay="cosine"', ("training", "decay"), "cosine"),
        ("scorer.kind='templates'", ("scorer", "kind"), "templates"),
        ("data.train=/data/en ewt/train.conllu.gz", ("data", "train"), "/data/en ewt/train.conllu.gz"),
        ("data.train=-", ("data", "train"), "-"),
        ("data.train=a=b.conllu", ("data", "train"), "a=b.conllu"),
        ('data.train="12"', ("data", "train"), "12"),
        ('data.train=""', ("data", "train"), ""),
        ("data.train=", ("data", "train"), ""),
        ("data.train=größe.conllu", ("data", "train"), "größe.conllu"),
        (r'data.train="a\"\\b"', ("data", "train"), 'a"\\b'),
        (" training.epochs = 12 ", ("training", "epochs"), 12),
    ],
)
def test_overrides(override, setting, value):
    found = get(Config.load(overrides=[override]), setting)
    assert found == value and type(found) is type(value)


@every_setting
def test_every_setting_can_be_overridden(setting):
    value = other_value(setting)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    config = Config.load(overrides=[f"{ids(setting)}={text}"])
    assert get(config, setting) == value != get(Config(), setting)
    others = [other for other in HINTS if other != setting]
    assert [get(config, other) for other in others] == [get(Config(), other) for other in others]


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("override", ["training.epochs", "=3", "training.=3", ".epochs=3", "a..b=3", ""])
def test_overrides_that_are_none(override):
    with pytest.raises(ValueError, match=r"^--set .*: wanted section\.name=value$"):
        Config.load(overrides=[override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("epochs=3", "configuration: no setting epochs; there are data, scorer, training"),
        ("trainng.epochs=3", "configuration: no setting trainng; there are data, scorer, training"),
        ("training.epoch=3", "configuration: no setting training.epoch; there are objective, projective, "),
        ("training=3", "configuration: training is a section, not a value"),
        ("training.epochs=3.0", "configuration: training.epochs is 3.0; wanted a whole number"),
        ("training.epochs=many", "configuration: training.epochs is 'many'; wanted a whole number"),
        ("training.epochs=", "configuration: training.epochs is ''; wanted a whole number"),
        ("training.epochs=true", "configuration: training.epochs is True; wanted a whole number"),
        ("training.epochs.x=3", "configuration: training.epochs is {'x': 3}; wanted a whole number"),
        ("training.bf16=1", "configuration: training.bf16 is 1; wanted true or false"),
        ("training.bf16=yes", "configuration: training.bf16 is 'yes'; wanted true or false"),
        ("data.train=12", "configuration: data.train is 12; wanted a string"),
        ("training.decay=fast", "configuration: training.decay is 'fast'; wanted one of 'linear', 'cosine', 'none'"),
    ],
)
def test_overrides_that_are_wrong(override, message):
    assert refusal(Config.load, overrides=[override], longest=700).startswith(message)


def test_an_override_into_a_value_of_the_file(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("[training]\nepochs = 3\n")
    with pytest.raises(ValueError, match=r"^--set training\.epochs\.x=1: epochs is a value, not a section$"):
        Config.load(path, ["training.epochs.x=1"])


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.toml"):
        Config.load(tmp_path / "none.toml")


@every_setting
def test_wrong_types(setting):
    """For every setting every type that is not its own."""
    hint = HINTS[setting]
    section, name = setting
    wanted = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}
    for wrong in (3, 0.5, True, "x", [1], {"x": 1}, None):
        if type(wrong) is not hint and not (hint is float and type(wrong) is int):
            line = refused(f"{section}.{name} is {wrong!r}; wanted ", **{section: {name: wrong}})
            assert line.endswith(wanted[hint]) if hint in wanted else "one of" in line


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("setting", "values", "wanted"),
    [
        ("data.min_count", [0, -1, 10**9 + 1], "1 to 1000000000"),
        ("data.max_words", [-1, 10**9 + 1], "0 to 1000000000"),
        ("scorer.embedding_dropout", [1, 1.5, -0.1, NAN, INF], "a number in [0, 1)"),
        ("scorer.encoder_dropout", [1, -0.1, NAN], "a number in [0, 1)"),
        ("scorer.mlp_dropout", [1, -0.1, NAN], "a number in [0, 1)"),
        *((f"scorer.{name}", [-1, 65537], "0 to 65536") for name in ("word", "chars", "tag", "feats")),
        *((f"scorer.{name}", [-1, 2**64], "0 to 65536") for name in ("grandparents", "siblings")),
        *((f"scorer.{name}", [0, -5, 10**9], "1 to 65536") for name in ("char", "hidden", "arc", "label")),
        ("scorer.layers", [-1, 101], "0 to 100"),
        ("scorer.pretrained_layers", [0, 1001], "1 to 1000"),
        *((f"scorer.{name}", [0, 31], "1 to 30") for name in ("bits", "label_bits")),
        ("training.epochs", [0, -1, 10**6 + 1], "1 to 1000000"),
        ("training.batch_words", [0, -1, 10**9 + 1], "1 to 1000000000"),
        *((f"training.{name}", [-1, NAN, INF, 1001], "0 to 1000") for name in ("weight_decay", "pretrained_rate")),
        *((f"training.{name}", [-1, NAN, INF, 2e9], "0 to 1000000000") for name in ("clip", "margin")),
        *((f"training.{name}", [-1, NAN, INF], "0 to 1000000000") for name in ("transition_l1", "transition_l2")),
        ("training.checkpoint_seconds", [-1, NAN, INF], "0 to 1000000000"),
        ("training.patience", [-1, 10**9 + 1], "0 to 1000000000"),
        *((f"training.{name}", [0, 10**4 + 1], "1 to 10000") for name in ("bp_iterations", "dd_iterations")),
        ("training.seed", [-1, 1 << 63], "0 to 2^63 - 1"),
        ("training.learning_rate", [0, -1, NAN, INF, 1001], "more than 0, at most 1000"),
        ("training.aggressiveness", [0, -1, NAN, INF], "more than 0, at most 1000000000"),
        *((f"training.{name}", [1, -0.1, NAN], "a number in [0, 1)") for name in ("beta1", "beta2", "average")),
        ("training.warmup", [1, -0.1, NAN], "a number in [0, 1)"),
    ],
)
def test_senseless_values(setting, values, wanted):
    section, name = setting.split(".")
    for value in values:
        shown = float(value) if HINTS[section, name] is float else value
        line = refused(f"{setting} is {shown!r}", **{section: {name: value}})
        assert line.endswith(f"; wanted {wanted}")


def test_every_number_has_limits():
    numbers = {setting for setting, hint in HINTS.items() if hint in (int, float)}
    assert {tuple(name.split(".")) for name in LIMITS} == numbers
    for section, name in sorted(numbers):
        limits, hint = LIMITS[f"{section}.{name}"], HINTS[section, name]
        assert 0 <= limits.least < limits.most <= 2**63 - 1
        for wrong in (2**63, 10**400, -(2**64), *([NAN, INF, -INF] if hint is float else [])):
            line = refused(f"{section}.{name} is ", **{section: {name: wrong}})
            assert line.endswith(f"; wanted {limits}") and len(line) < 300
        for right in (limits.least, limits.most):
            if limits.hold(right):
                assert getattr(getattr(Config.from_dict({section: {name: right}}), section), name) == right


def test_a_number_beyond_all_floats():
    line = refused("training.clip is a number of 1329 bits", training={"clip": 10**400})
    assert line.endswith("; wanted 0 to 1000000000")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"x = " + b"[" * 5000, "not TOML: too many lists in one another"),
        (b"x = " + b"{a=" * 5000, "not TOML: too many lists in one another"),
        (b"a." * 20000 + b"b = 1", "not TOML: line 1 has too many dots; names have few parts"),
        (b"\n[" + b"a." * 20000 + b"b]", "not TOML: line 2 has too many dots; names have few parts"),
        (b"#" * 70000, ""),  # more bytes than are read
        (b"\xff", "not TOML: 'utf-8' codec can't decode"),
        (b"[scorer]\nhidden = 1" + b"0" * 5000, ""),  # not TOML by its length, or beyond the limits
        (b"[scorer]\nhidden = 0x" + b"f" * 5000, "scorer.hidden is a number of 20000 bits; wanted 1 to 65536"),
        (b"[scorer]\nhidden = 2012-06-01", "scorer.hidden is 2012-06-01; wanted a whole number"),
        (b"[scorer]\nkind = [" + b"1," * 9000 + b"]", "scorer.kind is [1, 1, "),
        (b'[scorer]\nkind = "\\u001b[31m' + b"x" * 9000 + b'"', "scorer.kind is '\\x1b[31mxxx"),
        (b"[scorer]\n" + b"x" * 9000 + b" = 1", "no setting scorer.xxx"),
        (b'[scorer]\n"a\\u0000\\nb" = 1', "no setting scorer.a\\x00 b; there are"),
        (b'[data]\ntrain = "a\\u0000b"', r"data.train is 'a\x00b'; wanted at most 4096 characters, none of them NUL"),
        (b'[data]\ntrain = "' + b"a" * 5000 + b'"', "data.train is 'aaa"),
        *((text, "not TOML: ") for text in (b"[scorer\n", b"word = \n", b"[data]\n\xff=1\n")),
        *((text, "not TOML: ") for text in (b"scorer = 1\nscorer.hidden = 2", b"[scorer]\nword = 1\nword = 2\n")),
        (b"[scorer]\nwords = 1\n", "no setting scorer.words; there are kind, word, char, "),
    ],
)
def test_files_of_strangers(tmp_path, content, message):
    """One line, soon, that is not long."""
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    began = time.perf_counter()
    for inside in (None, tmp_path):
        assert refusal(Config.load, path, inside=inside, longest=700).startswith(f"{path}: {message}")
    assert time.perf_counter() - began < 2


def test_overrides_of_any_size():
    for override in ("x" * 10**5, "x" * 10**5 + "=1", "task.x" + "y" * 10**5 + "=1", "scorer.hidden=" + "[" * 10**4):
        refusal(Config.load, None, ["task=tag", override], longest=700)


def test_words_want_vectors():
    nothing = {"word": 0, "chars": 0, "tag": 0, "feats": 0}
    refused("scorer has no vectors of words; one of word, chars, tag, feats, pretrained is wanted", scorer=nothing)
    for name, value in (("word", 1), ("chars", 1), ("tag", 1), ("feats", 1), ("pretrained", "x")):
        Config.from_dict({"scorer": {**nothing, name: value}})


@pytest.mark.parametrize("objective", ["perceptron", "mira"])
def test_objectives_of_templates(objective):
    refused(f"training.objective is '{objective}'; wanted nll, local, hinge", training={"objective": objective})
    Config.from_dict({"training": {"objective": objective}, "scorer": {"kind": "templates"}})


def test_tasks():
    assert Config().task == "parse"
    for text in ('task = "tag"', 'task = "tag"\n[scorer]\nkind = "templates"\n[training]\nobjective = "perceptron"'):
        assert Config.from_dict(tomllib.loads(text)) == Config.load(overrides=["task=tag"])
    tagger = Config.load(overrides=["task=tag"])
    assert (tagger.task, tagger.scorer.kind, tagger.training.objective) == ("tag", "templates", "perceptron")
    assert (tagger.training.epochs, tagger.training.batch_words) == (10, 200)
    given = Config.load(overrides=["training.epochs=3", "task=tag", "training.objective=nll"])
    assert (given.training.epochs, given.training.batch_words) == (3, Config().training.batch_words)
    assert given.training.learning_rate == 0.02 and tagger.training.learning_rate == Config().training.learning_rate
    for kind in ("bilstm", "bilstm+templates"):
        neural = Config.load(overrides=["task=tag", f"scorer.kind={kind}"])
        assert neural.training == Config().training
    assert Config.from_dict(tomllib.loads(tagger.to_toml())) == Config.from_dict(tagger.to_dict()) == tagger


def test_what_a_task_does_not_have():
    refused("task is 'chunk'; wanted one of 'parse', 'tag'", task="chunk")
    refused("task is 3; wanted one of", task=3)
    refused(
        "scorer.kind is 'bilstm'; wanted one of biaffine, templates where task is 'parse'", scorer={"kind": "bilstm"}
    )
    wanted = "one of templates, bilstm, bilstm+templates where task is 'tag'"
    refused(f"scorer.kind is 'biaffine'; wanted {wanted}", task="tag", scorer={"kind": "biaffine"})
    refused("training.objective is 'mira'; wanted nll, local, hinge or", task="tag", training={"objective": "mira"})
    neural = {"kind": "bilstm"}
    refused("training.objective is 'perceptron'", task="tag", scorer=neural, training={"objective": "perceptron"})
    nothing = {**neural, "word": 0, "chars": 0}
    refused("one of word, chars, pretrained is wanted", task="tag", scorer=nothing)
    for task in ("parse", "tag"):
        refused("scorer is a section, not a value", task=task, scorer=3)
        refused("data is a section, not a value", task=task, data=[{"train": "x"}])


def test_fixed_once_made():
    for part in (Config(), Config().data, Config().scorer, Config().training):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, dataclasses.fields(part)[0].name, None)


# ------------------------------------------------------------------------------------------------ back to TOML


def all_changed():
    tables = {}
    for setting in HINTS:
        tables.setdefault(setting[0], {})[setting[1]] = other_value(setting)
    return Config.from_dict(tables)


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        all_changed(),
        Config(data=DataConfig(train='"\\ \n\té\U0001f600 = # [x]', dev="'''")),
        Config(
            training=dataclasses.replace(TrainingConfig(), learning_rate=1e-300, clip=0.1 + 0.2, seed=(1 << 63) - 1)
        ),
    ],
    ids=["defaults", "all changed", "odd strings", "odd numbers"],
)
def test_round_trip(config, tmp_path):
    path = tmp_path / "c.toml"
    path.write_bytes(config.to_toml().encode())
    again = Config.load(path)
    assert again == config and again.to_toml() == config.to_toml()
    assert Config.from_dict(config.to_dict()) == config
    for setting in HINTS:
        assert type(get(again, setting)) is type(get(config, setting))


def test_all_settings_are_written():
    text = Config().to_toml()
    for section, name in HINTS:
        assert f"[{section}]" in text and f"\n{name} = " in text
    assert all(get(all_changed(), setting) != get(Config(), setting) for setting in HINTS)
