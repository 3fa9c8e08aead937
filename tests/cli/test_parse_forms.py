"""gpuparse parse: what is given stays, several trees, objects of JSON."""

from __future__ import annotations

import gzip
import io
import json
from functools import partial

import pytest

from gpuparse.data import Sentence, check_tree, read_conllu, write_conllu

TEXT = (
    "# sent_id = a\n1\tw1\t_\tX\t_\t_\t3\t_\t_\t_\n"
    "2\tw2\t_\tX\t_\t_\t_\tobj\t_\tHeads=1,3\n3\tw3\t_\tX\t_\t_\t_\t_\t_\t_\n\n"
    "# sent_id = b\n1\tw1\t_\tX\t_\t_\t2\t_\t_\t_\n2\tw2\t_\tX\t_\t_\t1\t_\t_\t_\n\n"
    "# sent_id = c\n1\tw3\t_\tX\t_\t_\t0\t_\t_\t_\n2\tw2\t_\tX\t_\t_\t_\t_\t_\t_\n"
)


@pytest.fixture
def run(command):
    return partial(command, "parse")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.conllu"
    path.write_text(TEXT)
    return path


def test_a_part_is_given(run, model, source):
    found = run(model, source, "--partial")
    assert found.exit_code == 1
    assert f"{source}:6 (b): heads of words 1 and 2 make a cycle: 1 -> 2 -> 1; written unparsed" in found.stderr
    assert "1 sentence of 3 written unparsed" in found.stderr
    one, two, three = read_conllu(io.BytesIO(found.stdout.encode()))
    check_tree(one)
    assert one.heads[0] == 3 and one.heads[1] in (1, 3) and one.deprels[1] == "obj"
    assert two.text == TEXT.split("\n\n")[1] + "\n\n"  # as it was
    assert three.heads == [0, 1]
    assert run(model, source).exit_code == 0  # without it all is open


def test_several_trees(run, model, source, tmp_path):
    out = tmp_path / "out.conllu"
    assert run(model, source, "-o", out, "--nbest", 4).exit_code == 0
    trees = list(read_conllu(out))
    assert [(one.sent_id, one.comment("nbest")) for one in trees] == [
        *[("a", f"{k}/4") for k in range(1, 5)],
        *[("b", f"{k}/2") for k in range(1, 3)],  # there are no more
        *[("c", f"{k}/2") for k in range(1, 3)],
    ]
    for one in trees:
        check_tree(one)
    assert len({tuple(one.heads) for one in trees[:4]}) == 4
    share = [float(one.comment("tree_probability")) for one in trees]
    assert share[:4] == sorted(share[:4], reverse=True) and sum(share[4:6]) == pytest.approx(1, abs=1e-3)
    assert "\n\n\n" not in out.read_text()
    for options in (["--nbest", 65], ["--nbest", 3, "--constraints", "ud"]):
        assert run(model, source, *options).exit_code == 2


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz"])
def test_objects_of_json(run, model, source, tmp_path, name):
    out = tmp_path / name
    found = run(model, source, "-o", out, "--partial", "--nbest", 2, "--probabilities")
    assert found.exit_code == 1
    text = gzip.decompress(out.read_bytes()) if name.endswith("gz") else out.read_bytes()
    one, two, three = map(json.loads, text.decode().splitlines())
    assert one["words"] == ["w1", "w2", "w3"] and one["sent_id"] == "a" and one["heads"][0] == 3
    assert one["trees"][0]["heads"] == one["heads"] and 0 < one["tree_probability"] <= 1 and one["entropy"] >= 0
    assert one["confidence"][0] == 1 == one["label_confidence"][1]
    assert two["error"].startswith("heads of words 1 and 2 make a cycle") and two["line"] == 6 and two["words"]
    assert three["heads"] == [0, 1]
    plain = run(model, "-", "--output-format", "jsonl", stdin=TEXT.encode())
    assert [json.loads(line)["sent_id"] for line in plain.stdout.splitlines()] == ["a", "b", "c"]
    assert run(model, source, "--output-format", "xml").exit_code == 2


def test_comments_alone_and_what_is_malformed(run, model, tmp_path):
    source = tmp_path / "in.conllu"
    write_conllu([Sentence("# only a comment\n\n"), Sentence.from_words(["a"])], source)
    source.write_text(source.read_text() + "1\tb\n\n")
    found = run(model, source, "--output-format", "jsonl")
    assert found.exit_code == 1
    good, bad = map(json.loads, found.stdout.splitlines())
    assert good["heads"] == [0] and bad["words"] is None and "column" in bad["error"]


def test_probabilities_in_comments(run, model, source, tmp_path):
    out, again = tmp_path / "out.conllu", tmp_path / "again.conllu"
    assert run(model, source, "-o", out, "--probabilities").exit_code == 0
    for one in read_conllu(out):
        assert 0 < float(one.comment("tree_probability")) <= 1 and float(one.comment("entropy")) >= 0
        assert all("Confidence=" in misc and "|LabelConfidence=" in misc for misc in one.misc)
    assert run(model, out, "-o", again).exit_code == 0  # of another parse
    assert all(one.comment("tree_probability") is None is one.comment("entropy") for one in read_conllu(again))
