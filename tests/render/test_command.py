from __future__ import annotations

import gzip

import pytest
import typer
from typer.testing import CliRunner

from gpuparse.cli.render import render
from gpuparse.data.conllu import Sentence, write_conllu
from tests.render.drawings import GOLD, WRONG, corpus


@pytest.fixture
def files(tmp_path):
    gold, system = corpus(8)
    write_conllu([GOLD, *gold], tmp_path / "gold.conllu")
    write_conllu([WRONG, *system], tmp_path / "system.conllu")
    return tmp_path


@pytest.fixture
def run(files, monkeypatch):
    monkeypatch.chdir(files)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(render)
    return lambda *arguments, **options: CliRunner().invoke(app, arguments, **options)


def test_a_page(run, files):
    def made(*options):
        result = run("system.conllu", "--gold", "gold.conllu", "-o", "page.html", *options)
        assert (result.exit_code, result.stdout) == (0, ""), result.output
        assert result.stderr.startswith("page.html: ")
        return result.stderr, (files / "page.html").read_text(encoding="utf-8")

    told, html = made()
    assert told.startswith("page.html: 9 trees of 9 sentences, ")
    assert '<h1 dir="auto">system.conllu</h1>' in html and "system.conllu compared with gold.conllu" in html
    assert html.count("<section") == 9 and "less sure" in html
    _, html = made("--limit", "1", "--only-errors", "--title", "Mine & yours", "--confidence-key", "None")
    assert "<title>Mine &amp; yours</title>" in html
    assert html.count("<section") == 1 and "less sure" not in html


def test_packed_input_and_standard_streams(run, files):
    (files / "system.conllu.gz").write_bytes(gzip.compress((files / "system.conllu").read_bytes()))
    packed = run("system.conllu.gz", "--title", "t")
    piped = run("-", "--title", "t", input=(files / "system.conllu").read_bytes())
    assert packed.exit_code == piped.exit_code == 0
    assert packed.stdout == piped.stdout
    assert packed.stdout.startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_pictures(run, files, kind):
    begin = {"svg": b"<svg ", "png": b"\x89PNG"}[kind]

    def made(*options):
        before = {*files.iterdir()}
        result = run("system.conllu", "-o", f"tree.{kind}", *options)
        assert (result.exit_code, result.stdout) == (0, ""), result.output
        new = sorted({*files.iterdir()} - before)
        assert all(path.read_bytes().startswith(begin) for path in new)
        for path in new:
            path.unlink()
        return result.stderr.strip(), [path.name for path in new]

    assert made("--limit", "1") == (f"tree.{kind}: 1 tree", [f"tree.{kind}"])
    told, names = made()
    assert told == f"tree-1.{kind} to tree-9.{kind}: 9 trees"
    assert names == [f"tree-{number}.{kind}" for number in range(1, 10)]
    told, names = made("--gold", "gold.conllu", "--only-errors", "--limit", "2")
    assert names[0] == f"tree-1.{kind}" and len(names) == 2 and "2 trees" in told
    told, names = made("--gold", "system.conllu", "--only-errors")
    assert told == f"tree.{kind}: no trees to draw, nothing written" and names == []


def test_pictures_of_a_large_file(run, files, monkeypatch):
    write_conllu([WRONG] * 101, files / "large.conllu")
    result = run("large.conllu", "-o", "tree.svg")
    assert result.exit_code == 1 and not [*files.glob("tree*")]
    assert result.stderr.startswith("gpuparse: tree.svg: more than 100 trees, each a file; --limit N allows more")
    assert run("large.conllu", "-o", "tree.SVG", "--limit", "200").exit_code == 0
    assert sorted(path.name for path in files.glob("tree*"))[::50] == ["tree-001.SVG", "tree-051.SVG", "tree-101.SVG"]


def test_the_name_says_what_is_written(run, files):
    for name in ("a.txt", "a.html", "a.htm", "a"):
        assert run("system.conllu", "-o", name).exit_code == 0
    assert (files / "a.txt").read_text().startswith("1  a-1  4 words")
    assert all((files / name).read_text().startswith("<!DOCTYPE html>") for name in ("a.html", "a.htm", "a"))
    assert run("system.conllu", "--text", "-o", "a.log").exit_code == 0


def test_text(run):
    result = run("system.conllu", "--gold", "gold.conllu", "--text", "--limit", "1")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "1  a-1  4 words  UAS 75.0  LAS 50.0",
        "We saw the man",
        "╭────── ROOT",
        "│   ╭─► We    nsubj  0.90",
        "╰►╭─┼── saw   root  1.00",
        "  │ ╰─► the   det  0.25  × det of 4 man",
        "  ╰───► man   iobj  0.50  × obj",
        "",
    ]


def test_text_of_what_is_no_tree(run, files):
    bare = Sentence.from_words(["a", "b\x1b[31m"], comments=["# text = a\x1b[31m"])
    write_conllu([bare, Sentence.from_words(["a", "b"], heads=[2, 1])], files / "odd.conllu")
    result = run("odd.conllu", "--text")
    assert result.exit_code == 0
    assert "(not parsed)" in result.stdout
    assert "(not a tree: heads: word 1 is on a cycle)" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nothing.conllu", "-o", "x"), 1, "nothing.conllu: No such file or directory"),
        (("system.conllu", "-o", "none/x"), 1, "none/x: No such file or directory"),
        (("empty.conllu", "-o", "x"), 1, "empty.conllu: no sentences to draw"),
        (("system.conllu", "--gold", "short.conllu", "-o", "x"), 1, "gold has no such sentence; give both in full"),
        (("broken.conllu", "-o", "x"), 1, "broken.conllu:1: "),
        (("-", "--gold", "-"), 2, "standard input can be INPUT or --gold, not both"),
        (("system.conllu", "--only-errors"), 2, "--only-errors: "),
        (("system.conllu", "-o", "system.conllu"), 2, "system.conllu is the input"),
        (("system.conllu", "-o", "tree.pdf"), 2, "tree.pdf: *.pdf is not what is drawn; wanted *.html, *.svg, "),
        (("system.conllu", "-o", "none/x.svg"), 1, "none/x.svg: no such directory"),
        (("broken.conllu", "-o", "x.png"), 1, "broken.conllu:1: "),
        (("empty.conllu", "-o", "x.svg"), 1, "empty.conllu: no sentences to draw"),
        (("system.conllu", "--limit", "0"), 2, "limit"),
        ((), 2, "INPUT"),
    ],
)
def test_errors(run, files, arguments, code, message):
    (files / "empty.conllu").write_text("")
    (files / "broken.conllu").write_text("1\tword\n\n")
    write_conllu([GOLD], files / "short.conllu")
    before = sorted(path.name for path in files.iterdir())
    result = run(*arguments)
    assert result.exit_code == code
    assert result.stdout == ""
    assert message in result.stderr
    if code == 1:
        assert len(result.stderr.splitlines()) == 1
    assert sorted(path.name for path in files.iterdir()) == before
