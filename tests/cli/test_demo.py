from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len

import gpuparse as gp
from gpuparse.cli import demo
from gpuparse.config import Config
from gpuparse.data.artificial import builtin_treebank
from gpuparse.data.conllu import Sentence, read_conllu
from gpuparse.evaluate import attachment_scores
from gpuparse.render import parses

EXAMPLE = Path(__file__).parents[2] / "examples" / "ambiguous.py"


def test_quick(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch, "set_flush_denormal", lambda on: True)  # it would stay for the other tests
    demo.main([str(tmp_path), "--quick"])
    out, err = capsys.readouterr()
    gold, parsed = ([*read_conllu(tmp_path / name)] for name in ("gold.conllu", "parsed.conllu"))
    assert [sentence.text for sentence in gold] == [sentence.text for sentence in builtin_treebank("test")]
    assert all("Confidence=" in misc for sentence in parsed for misc in sentence.misc)

    shown = {name: float(value) for name, value in re.findall(r"^ *(UAS|LAS) +(\S+)", out, re.MULTILINE)}
    uas, las = attachment_scores(gold, parsed)
    assert shown == {"UAS": round(100 * uas, 2), "LAS": round(100 * las, 2)}
    assert uas > 0.4  # the head is the next word in three cases of ten: it has learned more
    assert "► " in out and "  × " in out
    assert f"{tmp_path / 'trees.html'}  {len(gold)} trees" in out

    page = (tmp_path / "trees.html").read_text(encoding="utf-8")
    assert page.count("<section ") == len(gold)
    again = gp.Parser.load(tmp_path / "model").parse(gold[:3], confidence=True)
    assert [sentence.text for sentence in again] == [sentence.text for sentence in parsed[:3]]

    assert "epoch  4/4" in err and "epoch" not in out


def test_an_earlier_demonstration_is_written_over(tmp_path):
    model = tmp_path / "model"
    demo._check_free(model)
    model.mkdir()
    (model / "config.toml").write_text(demo.FULL.to_toml())
    demo._check_free(model)


def test_another_model_is_kept(tmp_path, capsys):
    settings = tmp_path / "model" / "config.toml"
    settings.parent.mkdir()
    settings.write_text(Config().to_toml())
    with pytest.raises(SystemExit) as left:
        demo.main([str(tmp_path)])
    assert left.value.code == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"gpuparse: {settings.parent}: holds a model") and err.count("\n") == 1
    assert [*tmp_path.rglob("*")] == [settings.parent, settings]


@pytest.mark.parametrize("arguments", [["one", "two"], ["--nothing"]])
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as left:
        demo.main(arguments)
    assert left.value.code == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("config", [demo.FULL, demo.QUICK])
def test_settings_make_sense(config):
    assert Config.from_dict(config.to_dict()) == config


def parsed(gold, heads):
    """A sentence with two trees; its words are as many as it has heads."""
    sentence = Sentence.from_words([f"w{i}" for i in range(1, len(gold) + 1)])
    misc = {"Confidence": ["0.5000"] * len(gold)}
    right, found = (sentence.with_parse(tree, ["a"] * len(gold), misc) for tree in (gold, heads))
    return next(parses([found], [right]))


CHAIN = [0, 1, 2, 3, 4, 5]
CROSSING = [0, 1, 1, 2, 4, 5]  # 1 → 3 and 2 → 4


def test_which_trees_are_printed():
    right, crossing = parsed(CHAIN, CHAIN), parsed(CROSSING, CROSSING)
    one_wrong, two_wrong = parsed(CHAIN, [*CHAIN[:-1], 1]), parsed(CHAIN, [*CHAIN[:-2], 1, 1])
    both = parsed(CROSSING, [*CROSSING[:-1], 1])
    short = parsed([0, 1], [0, 1])
    found = demo._chosen([short, right, crossing, two_wrong, one_wrong, both])
    assert [parse for _, parse in found] == [crossing, one_wrong, both]
    # A sentence is printed once, and a kind that is not there not at all.
    assert [parse for _, parse in demo._chosen([both, right])] == [both]
    assert demo._chosen([right]) == []


def test_a_mistake_is_marked():
    lines = demo._drawn(parsed(CHAIN, [*CHAIN[:-1], 1])).splitlines()
    assert [line.endswith("× a of w5") for line in lines] == [False] * 6 + [True]
    assert all("a  0.50" in line for line in lines[1:])
    other_root = demo._drawn(parsed([0, 1], [2, 0])).splitlines()
    assert other_root[1].endswith("× a of ROOT") and other_root[2].endswith("× a of w1")


def test_example_fits_a_terminal():
    program = [sys.executable, str(EXAMPLE)]
    done = subprocess.run(program, capture_output=True, text=True, encoding="utf-8", timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert max(map(cell_len, done.stdout.splitlines()[:-1])) <= 80
    for expected in ("log Z", "╰─► binoculars", "best 3", "sample", "Computed on the CPU by"):
        assert expected in done.stdout
