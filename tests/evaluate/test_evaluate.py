"""Roots, whole trees and the breakdown; errors; the command."""

from __future__ import annotations

import io
import json
from random import Random

import pytest
import typer
from typer.testing import CliRunner

from gpuparse.cli.evaluate import evaluate as command
from gpuparse.data.conllu import ConlluError, Sentence
from gpuparse.evaluate import Score, evaluate
from tests.evaluate.documents import changed, made_up, text_of


def sentence(words, heads, labels):
    return Sentence.from_words(words.split(" "), heads=heads, deprels=labels.split())


def file(*sentences):
    return io.StringIO("".join(s.text for s in sentences))


GOLD = [
    sentence("a b c", [2, 0, 2], "nsubj root obj:x"),
    sentence("d e", [0, 1], "root obj"),
    sentence("f g h i j k", [2, 0, 2, 3, 4, 2], "det root obj nmod nmod punct"),
]
SYSTEM = [
    sentence("a b c", [2, 0, 2], "nsubj root obj"),  # right but for a subtype, which does not count
    sentence("d e", [0, 1], "root iobj"),  # right but for a label
    sentence("f g h i j k", [3, 3, 0, 3, 2, 3], "det nmod root nmod nmod punct"),  # the wrong root
]


@pytest.fixture
def found():
    return evaluate(file(*GOLD), file(*SYSTEM))


def test_roots_and_whole_trees(found):
    metrics = found.metrics
    assert (metrics["Root"], metrics["UEM"], metrics["LEM"]) == (Score(2, 3, 3, 3), Score(2, 3, 3), Score(1, 3, 3))
    assert (metrics["UAS"].correct, metrics["LAS"].correct) == (6, 5)
    assert evaluate(GOLD, iter(SYSTEM)).metrics == metrics  # sentences in place of files


def test_a_tree_cut_differently_is_not_right():
    """One sentence of the same arcs as two, and a token of the same characters as two words."""
    gold = [sentence("a b", [0, 1], "root obj"), sentence("c d", [0, 1], "root obj")]
    system = [sentence("a b c d", [0, 1, 1, 3], "root obj conj obj")]
    metrics = evaluate(file(*gold), file(*system)).metrics
    assert metrics["UAS"].correct == 3
    assert metrics["UEM"] == Score(0, 2, 1)
    assert metrics["Root"] == Score(1, 2, 1, 2)
    joined = Sentence("1-2\tcd\t_\t_\t_\t_\t_\t_\t_\t_\n" + gold[1].text)
    assert evaluate(file(*gold), file(gold[0], joined)).metrics["LEM"] == Score(2, 2, 2)
    one = sentence("cd", [0], "root")
    assert evaluate(file(*gold), file(gold[0], one)).metrics["LEM"] == Score(1, 2, 2)


def parts(scores):
    """Of scores, their sums."""
    scores = list(scores)
    return [sum(getattr(score, part) for score in scores) for part in ("correct", "gold", "system", "aligned")]


def test_arc_lengths(found):
    rows = {row.length: row for row in found.breakdown.arc_lengths}
    # gold 1 →2, 3 →2, e, f, h, i, j; system 1, 3, e, g, i
    scores = {"root": Score(2, 3, 3, 3), "1": Score(4, 7, 5, 7), "2": Score(0, 0, 1, 0), "3": Score(0, 0, 2, 0)}
    assert {length: row.unlabelled for length, row in rows.items()} == scores | {"4–5": Score(0, 1, 0, 1)}
    assert list(rows) == [*scores, "4–5"] and rows["1"].labelled == Score(3, 7, 5, 7)
    for name, metric in (("unlabelled", "UAS"), ("labelled", "LAS")):
        assert parts(getattr(row, name) for row in rows.values()) == parts([found.metrics[metric]])


def test_arc_lengths_count_within_gold_words():
    """An arc that is right spans one word more in the system's file: it counts under its gold length."""
    gold = sentence("a bc d", [3, 3, 0], "obj det root")
    system = sentence("a b c d", [4, 4, 4, 0], "obj det det root")
    rows = {row.length: row.unlabelled for row in evaluate(file(gold), file(system)).breakdown.arc_lengths}
    assert rows == {"root": Score(1, 1, 1, 1), "1": Score(0, 1, 1, 0), "2": Score(1, 1, 2, 1)}


def test_sentence_lengths(found):
    rows = found.breakdown.sentence_lengths
    assert [(row.length, row.sentences, row.words) for row in rows] == [("1–5", 2, 5), ("6–10", 1, 6)]
    figures = [(row.uas, row.las, row.uem, row.lem) for row in rows]
    assert figures == [(1, 4 / 5, 1, 1 / 2), (1 / 6, 1 / 6, 0, 0)]


def test_labels_and_confusions(found):
    labels = {row.label: row for row in found.breakdown.labels}
    assert list(labels) == ["obj", "root", "nmod", "det", "nsubj", "punct", "iobj"]
    given = {"obj": Score(1, 3, 1, 3), "nmod": Score(2, 2, 3, 2), "iobj": Score(0, 0, 1, 0)}
    assert {name: labels[name].given for name in given} == given
    assert labels["nmod"].attached == Score(1, 2, 3, 2)
    rows = [(row.gold, row.system, row.words, row.right_heads) for row in found.breakdown.confusions]
    assert rows == [("obj", "iobj", 1, 1), ("obj", "root", 1, 0), ("root", "nmod", 1, 0)]


def test_sums_of_a_breakdown_when_words_differ():
    random = Random(5)
    gold = changed(made_up(random, 60), random, 0.2)
    result = evaluate(io.StringIO(text_of(gold)), io.StringIO(text_of(changed(gold, random, 0.1))))
    las, found = result.metrics["LAS"], result.breakdown
    for scores in ([row.labelled for row in found.arc_lengths], [row.attached for row in found.labels]):
        assert parts(scores) == parts([las])
    assert sum(row.words for row in found.sentence_lengths) == las.gold
    assert round(sum(row.words * row.las for row in found.sentence_lengths)) == las.correct
    assert round(sum(row.sentences * row.lem for row in found.sentence_lengths)) == result.metrics["LEM"].correct


def test_byte_order_marks_line_ends_and_blank_lines_do_not_matter():
    text = "1-2\tab\t_\t_\t_\t_\t_\t_\t_\t_\n" + sentence("a b", [0, 1], "root obj").text + GOLD[0].text
    odd = "\ufeff" + text.replace("\n\n", "\n \n\n# only a comment\n\n").replace("\n", "\r\n").rstrip()
    metrics = evaluate(io.StringIO(text), io.BytesIO(odd.encode())).metrics
    assert metrics["LEM"] == Score(2, 2, 2)
    assert metrics["Tokens"] == Score(4, 4, 4)


def write(path, *sentences):
    path.write_text("".join(s.text for s in sentences), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (GOLD[:2], r"gold\.conllu:8 \('fghijk'\) against the end of .*system\.conllu: the texts differ"),
        ([*GOLD, GOLD[1]], r"the end of .*gold\.conllu against .*system\.conllu:15 \('de'\)"),
        ([sentence("a bX c", [2, 0, 2], "x x x"), *GOLD[1:]], r"gold\.conllu:3 .'cdefghijk'. .*system\.conllu:2 .'Xc"),
        ([sentence("a b c", [2, 1, 0], "x x x")], r"system\.conllu:1: a cycle of heads: 1 → 2 → 1"),
        ([sentence("a b c", [0, 1, 0], "x x x")], r"system\.conllu:3: word 3 is a second root"),
        ([Sentence.from_words(["a"])], r"system\.conllu:1: word 1 has no HEAD"),
        ([sentence("a\u3000", [0], "x"), sentence("\u3000", [0], "x")], r"system\.conllu:3: a FORM of spaces only"),
        ([], r"system\.conllu: no words"),
    ],
)
def test_errors(tmp_path, system, message):
    gold = write(tmp_path / "gold.conllu", *GOLD)
    system = write(tmp_path / "system.conllu", *system)
    with pytest.raises(ValueError, match=message) as caught:
        evaluate(gold, system)
    assert "\n" not in str(caught.value)
    result = run(gold, system)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == f"gpuparse: {caught.value}\n"


def test_several_roots_where_allowed(tmp_path):
    two = sentence("a b c", [0, 0, 2], "root root obj")
    with pytest.raises(ConlluError, match="second root"):
        evaluate([two], [two])
    assert evaluate([two], [GOLD[0]], single_root=False).metrics["Root"] == Score(1, 2, 1, 2)
    path = write(tmp_path / "two.conllu", two)
    assert run(path, path).exit_code == 1
    assert run(path, path, "--several-roots").exit_code == 0


app = typer.Typer()
app.command()(command)


def run(*arguments, input=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)


def cells(output, first):
    [line] = [line for line in output.splitlines() if line.startswith(first)]
    return line[len(first) :].split()


def test_command(tmp_path):
    gold, system = write(tmp_path / "gold.conllu", *GOLD), write(tmp_path / "system.conllu", *SYSTEM)
    result = run(gold, system)
    assert result.exit_code == 0, result.stderr
    assert cells(result.stdout, "LAS") == ["45.45", "45.45", "45.45", "45.45"]
    assert cells(result.stdout, "Words") == ["100.00"] * 3
    assert cells(result.stdout, "Exact, labelled") == ["33.33"] * 3
    assert "by l" not in result.stdout
    assert cells(run(gold, system, "--counts").stdout, "LAS") == ["5", "11", "11", "11"]
    lengths, labels, both = (run(gold, system, o).stdout for o in ("--by-length", "--by-label", "--breakdown"))
    assert cells(lengths, "1–5") == ["2", "100.00", "80.00", "100.00", "50.00"]
    assert cells(lengths, "root ") == ["3", "3", *["66.67"] * 6]
    assert cells(labels, "obj → iobj") == ["1", "1"]
    assert cells(labels, "nmod  ") == ["2", "3", "66.67", "100.00", "80.00", "40.00"]
    assert "by label" in both and "by length of sentence" in both
    result = run("-", system, "--json", input="".join(s.text for s in GOLD))
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == evaluate(gold, system).to_json()
    assert json.loads(result.stdout)["metrics"]["LAS"]["f1"] == 5 / 11
    assert run("-", "-").exit_code == 2
    missing = run(tmp_path / "none", tmp_path / "none")
    assert (missing.exit_code, missing.stderr) == (1, f"gpuparse: {tmp_path / 'none'}: No such file or directory\n")
