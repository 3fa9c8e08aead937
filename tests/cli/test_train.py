"""The command that trains: settings, what it says and does not, exit codes, and a run that is killed."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from gpuparse import cli
from gpuparse.cli import terminal as terminal_module
from gpuparse.config import Config, value_of
from gpuparse.data import Sentence
from gpuparse.data.conllu import encode, write_conllu
from gpuparse.models.parser import Parser
from gpuparse.models.tagger import Tagger
from gpuparse.train import loop
from gpuparse.train.gradient import GradientLearner
from tests.train.small import TINY, outcome, sentences, told

MODULE = sys.modules[cli.train.__module__]  # the package gives its name to the command
SET = [f"--set={setting}" for setting in TINY]
EPOCH = r"epoch   (\d)/2  loss \d+\.\d{3}  dev UAS \d+\.\d\d  LAS \d+\.\d\d  [* ]  \d+ s, \d+\.\d % in tree inference"


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    """What the command sets for the whole process; and no picture, which takes longer than the rest."""
    monkeypatch.setattr(loop, "draw_curve", lambda *_: True)
    monkeypatch.delenv("GPUPARSE_DEBUG", raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


@pytest.fixture
def data(tmp_path):
    write_conllu(sentences(10), tmp_path / "train.conllu")
    write_conllu(sentences(10)[:3], tmp_path / "dev.conllu")
    return ["--train", tmp_path / "train.conllu", "--dev", tmp_path / "dev.conllu", *SET]


@pytest.fixture
def run(monkeypatch, capfd):
    """Run the command as its users do; gives exit code, stdout and stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["gpuparse", "train", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as left:
            code = left.code
        return (code, *capfd.readouterr())

    return run


def test_a_run(run, data, tmp_path):
    code, out, err = run(tmp_path / "model", *data)
    assert (code, out) == (0, "")
    lines = err.splitlines()
    assert [re.fullmatch(EPOCH, line)[1] for line in lines] == ["1", "2"]  # and no bar: this is no terminal
    assert outcome(tmp_path / "model")
    settings = Config.load(tmp_path / "model" / "config.toml")
    assert settings.data.train == str(tmp_path / "train.conllu")
    assert settings.data.dev == str(tmp_path / "dev.conllu")
    assert Parser.load(tmp_path / "model").results == told(tmp_path / "model", "end")[0]["best"]
    # Once more: no, unless asked.
    code, out, err = run(tmp_path / "model", *data)
    assert (code, out) == (1, "")
    assert re.fullmatch(r"gpuparse: .*/model: holds a model already \(model\.json\); --resume .*\n", err)
    code, out, err = run(tmp_path / "model", *data, "--resume")
    assert (code, out, err) == (0, "", f"gpuparse: {tmp_path / 'model'}: training was finished before\n")
    before = outcome(tmp_path / "model")
    code, out, err = run(tmp_path / "model", *data, "--overwrite", "--quiet")
    assert (code, out, err) == (0, "", "")
    assert outcome(tmp_path / "model") == before


def test_a_tagger(run, data, tmp_path):
    code, out, err = run(tmp_path / "model", "--task", "tag", *data)
    assert (code, out) == (0, "")
    line = r"epoch   \d/2  loss \d+\.\d{3}  dev accuracy \d+\.\d\d  [* ]  \d+ s, \d+\.\d % in tag inference"
    assert all(re.fullmatch(line, each) for each in err.splitlines()) and err.count("\n") == 2
    assert outcome(tmp_path / "model")
    assert Config.load(tmp_path / "model" / "config.toml").task == "tag"
    assert Tagger.load(tmp_path / "model").results == told(tmp_path / "model", "end")[0]["best"]
    # The task may stand in the settings; another one cannot go on.
    (tmp_path / "tag.toml").write_text('task = "tag"\n')
    code, _, err = run(tmp_path / "model", "--config", tmp_path / "tag.toml", *data, "--resume")
    assert (code, err) == (0, f"gpuparse: {tmp_path / 'model'}: training was finished before\n")
    code, _, err = run(tmp_path / "model", *data, "--resume")
    assert code == 1 and "cannot go on, task was 'tag' and is 'parse' now" in err
    for options in (["--task", "chunk"], ["--threads", "-1"], ["--nothing"], ["a", "b"], ["--set"]):
        code, out, err = run("model", *data, *options)
        assert (code, out) == (2, "") and err
    code, _, err = run(tmp_path / "other", "--task", "tag", *data, "--set=scorer.kind=biaffine")
    assert code == 1 and "scorer.kind is 'biaffine'; wanted one of templates, bilstm" in err
    write_conllu([Sentence.from_words(one.words, one.upos) for one in sentences(3)], tmp_path / "train.conllu")
    code, _, err = run(tmp_path / "other", "--task", "tag", *data, "--set=data.tags=xpos")
    assert code == 1 and err.count("\n") == 1
    assert "train.conllu: the XPOS column is empty and data.tags is 'xpos'; set it to upos or upos+feats" in err


def test_settings(run, tmp_path):
    assert run("model", "--show-config") == (0, Config().to_toml(), "")
    file = tmp_path / "a.toml"
    file.write_text("[training]\nepochs = 7\nseed = 3\n[data]\nmin_count = 5\n")
    odd = 'a "b" \\c= d.conllu'
    options = ["--set=training.epochs=9", "--set", "scorer.kind=templates", "--set=training.objective=mira"]
    code, out, err = run("model", "--config", file, *options, "--train", odd, "--skip-bad", "--show-config")
    assert (code, err) == (0, "")
    (tmp_path / "shown.toml").write_text(out)
    shown = Config.load(tmp_path / "shown.toml")
    assert (shown.training.epochs, shown.training.seed, shown.training.objective) == (9, 3, "mira")
    assert shown.scorer.kind == "templates"
    assert (shown.data.min_count, shown.data.train, shown.data.dev, shown.data.on_bad) == (5, odd, "", "skip")
    for name in ("esc\x1b.conllu", "tab\tü\x7f"):
        assert value_of(MODULE._quoted(name)) == name
    # What is shown is taken as it is.
    assert run("model", "--config", tmp_path / "shown.toml", "--show-config") == (0, out, "")


@pytest.mark.parametrize(
    ("options", "code", "what"),
    [
        (["--set=training.epochs=0"], 1, "training.epochs is 0; wanted 1 to 1000000"),
        (["--set=training.epochs=many"], 1, "training.epochs is 'many'; wanted a whole number"),
        (["--set=training.epoch=3"], 1, "no setting training.epoch; there are "),
        (["--set=training"], 1, "--set training: wanted section.name=value"),
        (["--set=training.objective=mira"], 1, "training.objective is 'mira'; wanted nll, local, hinge"),
        (["--config", "none.toml"], 1, "none.toml: No such file or directory"),
        (["--config", "bad.toml"], 1, "bad.toml: not TOML: "),
        (["--train", "none.conllu"], 1, "none.conllu"),
        (["--train", "empty.conllu"], 1, "empty.conllu: no sentence to learn from"),
        (["--train", "cycle.conllu"], 1, "cycle.conllu:1: no word has HEAD 0; correct HEAD"),
        (["--train", "columns.conllu"], 1, "columns.conllu:1: "),
        (["--train", "good.conllu", "--dev", "empty.conllu"], 1, "empty.conllu: no sentence to evaluate on"),
        (
            ["--train", "good.conllu", "--set=training.learning_rate=1e38"],
            1,
            "rate is 1e+38; wanted more than 0, at most 1000",
        ),
        (["--resume", "--overwrite"], 2, "choose one"),
        (["--device", "moon"], 1, "'moon' is not to be had"),
    ],
)
def test_errors_are_one_line(run, tmp_path, monkeypatch, options, code, what):
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text("training = [")
    Path("empty.conllu").write_text("")
    Path("cycle.conllu").write_text("1\ta\t_\t_\t_\t_\t1\tdep\t_\t_\n\n")
    Path("columns.conllu").write_text("1\ta\t_\n\n")
    write_conllu(sentences(3), "good.conllu")
    found, out, err = run("model", *SET, *options)
    assert (found, out) == (code, "")
    assert err.startswith("gpuparse: ")
    assert err.count("\n") == 1
    assert what in err
    assert not Path("model/model.json").exists()


def test_bad_sentences_are_skipped_and_named(run, tmp_path):
    bad = b"1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n2\ta\t_\t_\t_\t_\t_\tdep\t_\t_\n\n"
    path = tmp_path / "train.conllu"
    path.write_bytes(bad + encode(sentences(10)))
    code, _, err = run(tmp_path / "model", "--train", path, "--skip-bad", *SET)
    assert code == 0
    named, counted, *epochs = err.splitlines()
    assert named.startswith(f"gpuparse: left out: {path}:2: ")
    assert counted == f"gpuparse: {path}: 1 sentences left out that are malformed or whose heads are not a tree"
    assert len(epochs) == 2
    assert told(tmp_path / "model", "start")[0]["sentences"] == 10


def test_standard_input(data, tmp_path, monkeypatch):
    settings = [str(each) for each in data]
    settings[1] = "-"
    text = (tmp_path / "train.conllu").read_bytes()
    result = CliRunner().invoke(cli.app, ["train", str(tmp_path / "model"), *settings], input=text)
    assert result.exit_code == 0, result.stderr
    assert told(tmp_path / "model", "start")[0]["sentences"] == 10


def test_interruption_and_errors_of_our_own(run, data, tmp_path, monkeypatch):
    real = GradientLearner.step

    def step(self, *arguments, **options):
        if self.steps == 3:
            raise KeyboardInterrupt
        return real(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(GradientLearner, "step", step)
        assert run(tmp_path / "model", *data) == (130, "", "gpuparse: interrupted; pass --resume to go on\n")
    code, _, err = run(tmp_path / "model", *data, "--resume")
    assert code == 0
    assert err.startswith("gpuparse: going on with epoch 1, batch 4\n")

    def fails(*_, **__):
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(GradientLearner, "step", fails)
    told = "gpuparse: RuntimeError: out of memory (GPUPARSE_DEBUG=1 for more)\n"
    assert run(tmp_path / "other", *data) == (1, "", told)


@pytest.mark.parametrize("terminal", [False, True])
def test_a_bar_on_a_terminal(run, data, tmp_path, monkeypatch, terminal):
    shown = io.StringIO()
    monkeypatch.setattr(terminal_module, "Console", lambda **_: Console(file=shown, force_terminal=terminal, width=100))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert run(tmp_path / "model", *data)[0] == 0
    assert ("words/s" in shown.getvalue()) == terminal
    lines = re.findall(EPOCH, re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", shown.getvalue()))
    assert lines == ["1", "2"]
