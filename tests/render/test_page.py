from __future__ import annotations

import io
import itertools
import re
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from gpuparse.data.conllu import ConlluError, Sentence, read_conllu
from gpuparse.evaluate import evaluate
from gpuparse.render import parses, write_page
from tests.refusals import refusal
from tests.render.drawings import GOLD, SVG, WORDS, WRONG, arcs, corpus, groups, texts
from tests.treebanks import treebank


def page(*sentences: Sentence, **options) -> str:
    stream = io.StringIO()
    write_page(sentences, stream, **options)
    return stream.getvalue()


def drawings(html: str) -> list[ElementTree.Element]:
    found = re.findall(r'<svg (?:id="[^"]*" )?xmlns.*?</svg>', html, re.DOTALL)
    return [ElementTree.fromstring(svg) for svg in found]


class Checker(HTMLParser):
    """That every element is closed where it should be, and what ids and links there are."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.feed(html)
        assert self.open == []

    def handle_startendtag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]
        self.links += [value for name, value in attributes if name == "href"]

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        self.open += [tag] if tag not in ("meta", "input") else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_says_the_trees():
    gold, system = corpus(40)
    html = page(*system, gold=gold)
    drawn = drawings(html)
    assert len(drawn) == 40
    for root, sentence, right in zip(drawn, system, gold, strict=True):
        assert [texts(group)[0] for group in groups(root, "w")] == sentence.words
        over = sorted(set(arcs(root)) - set(arcs(root, "g")))
        assert over == list(enumerate(sentence.heads, 1))
        pairs = list(zip(enumerate(sentence.heads, 1), enumerate(right.heads, 1), strict=True))
        assert arcs(root, "x") == [ours for ours, theirs in pairs if ours != theirs]
        assert arcs(root, "g") == [theirs for ours, theirs in pairs if ours != theirs]


def test_the_page_is_whole_and_nothing_comes_from_elsewhere():
    gold, system = corpus(60)
    html = page(*system, gold=gold)
    checker = Checker(html)
    assert len(set(checker.ids)) == len(checker.ids)
    assert checker.links and set(checker.links) <= {f"#{name}" for name in checker.ids}
    assert set(re.findall(r"https?:[^\"]*", html)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import|\ssrc=|<link", html)
    assert "default-src 'none'" in html
    nothing = page()
    assert "No sentences." in nothing and "<nav" not in nothing
    Checker(nothing)


def test_counts_agree_with_evaluate(tmp_path):
    gold, system = corpus(50)
    tally = write_page(system, tmp_path / "page.html", gold=gold)
    metrics = evaluate(gold, system).metrics
    assert tally.uas == pytest.approx(100 * metrics["UAS"].f1)
    assert tally.las == pytest.approx(100 * metrics["LAS"].f1)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"<dt>UAS</dt><dd>{tally.uas:.2f}</dd>" in html
    assert f"<dt>LAS</dt><dd>{tally.las:.2f}</dd>" in html
    assert f"<dt>Sentences with errors</dt><dd>{tally.wrong_sentences}</dd>" in html
    assert tally.sentences == tally.shown == 50
    assert 0 < tally.wrong_sentences < 50


def test_a_sentence_is_summed_up():
    html = page(WRONG, gold=[GOLD])
    assert "<bdi>a-1</bdi>" in html
    assert "We saw the man" in html
    assert "UAS 75.0" in html and "LAS 50.0" in html
    assert "× 1 wrong head, 1 wrong label" in html
    assert 'id="e1"' in html and 'href="#e2"' in html and '<footer id="e2">' in html
    (root,) = drawings(html)
    assert groups(root, "w")[0].find(f"{SVG}title").text == "1 We\nwe PRON"


def test_confidence_comes_from_misc():
    (root,) = drawings(page(WRONG))
    opacity = {g.get("data-m"): float(g.find(f"{SVG}g").get("opacity")) for g in groups(root, "a")}
    assert opacity["3"] < opacity["4"] < opacity["1"] < opacity["2"] == 1
    assert "less sure" in page(WRONG)
    other = page(WRONG, confidence_key="Other")
    assert "less sure" not in other and 'opacity="' not in other
    (parse,) = parses([WRONG])
    assert parse.confidence == [0.9, 1.0, 0.25, 0.5]


def test_odd_text_is_only_text():
    nasty = "</script></svg><script>alert(1)</script>&amp;\"'"
    sentence = Sentence.from_words(
        [nasty], [nasty], heads=[0], deprels=[nasty], comments=[f"# sent_id = {nasty}", f"# text = {nasty}"]
    )
    html = page(sentence, title=nasty, note=nasty)
    assert html.count("<script>") == 1
    Checker(html)
    (root,) = drawings(html)
    assert texts(groups(root, "w")[0]) == [nasty, nasty]
    assert unescape(re.search("<title>(.*?)</title>", html).group(1)) == nasty


def test_a_wide_tree_scrolls_and_is_printed_in_strips():
    words = ["word"] * 90
    sentence = Sentence.from_words(words, heads=list(range(90)), deprels=["obj"] * 90)
    html = page(sentence, GOLD)
    assert 'class="box wide" tabindex="0"' in html and '<div class="box" dir="rtl"' not in html
    hebrew = Sentence.from_words(["הילד", "קרא"], heads=[2, 0], deprels=["nsubj", "root"])
    assert '<div class="box" dir="rtl"' in page(hebrew)  # which begins at the right
    boxes = re.findall(r'viewBox="([\d.]+) 0 ([\d.]+) [\d.]+"><use href="#t1"/>', html)
    assert len(boxes) > 3
    at = 0.0
    for left, width in boxes:
        assert float(left) == pytest.approx(at, abs=0.11)
        assert 0 < float(width) <= 1000
        at = float(left) + float(width)
    assert at == pytest.approx(float(drawings(html)[0].get("width", "")), abs=0.2)
    assert html.count('class="strips"') == 1


def test_tokens_and_empty_nodes():
    text = (
        "1-2\tdella\t_\t_\t_\t_\t_\t_\t_\t_\n1\tdi\t_\tADP\t_\t_\t3\tcase\t_\t_\n2\tla\t_\tDET\t_\t_\t3\tdet\t_\t_\n"
        "3\tcasa\t_\tNOUN\t_\t_\t0\troot\t_\t_\n3.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    )
    (root,) = drawings(page(Sentence(text)))
    (token,) = groups(root, "m")
    assert texts(token) == ["della"]
    assert len(groups(root, "w")) == 3


def test_a_sentence_without_heads_is_drawn_without_arcs():
    bare = Sentence.from_words(WORDS)
    html = page(bare)
    assert "not parsed" in html
    assert arcs(drawings(html)[0]) == []
    assert "UAS 0.0" in page(bare, gold=[GOLD])


def test_only_errors_and_limit():
    gold, system = corpus(50)
    wrong = [i for i, parse in enumerate(parses(system, gold), 1) if parse.wrong]
    html = page(*system, gold=gold, only_errors=True)
    assert [int(number) for number in re.findall(r'<section id="s(\d+)"', html)] == wrong
    assert f"<dt>Shown</dt><dd>{len(wrong)}</dd>" in html
    some = page(*system, gold=gold, only_errors=True, limit=3)
    assert [int(number) for number in re.findall(r'<section id="s(\d+)"', some)] == wrong[:3]
    stream = io.StringIO()  # reading stops at the limit
    tally = write_page(itertools.repeat(WRONG), stream, gold=itertools.repeat(GOLD), limit=5)
    assert (tally.shown, tally.sentences, stream.getvalue().count("<section")) == (5, 5, 5)
    stray = Sentence("# newdoc\n\n")  # comments without words are no sentences
    assert page(stray, WRONG, gold=[GOLD, stray]).count("<section") == 1


def test_a_page_is_there_whole_or_not_at_all(tmp_path, capfdbinary):
    def broken():
        yield WRONG
        raise ConlluError("x.conllu:9: broken")

    target = tmp_path / "page.html"
    target.write_text("old")
    with pytest.raises(ConlluError, match="broken"):
        write_page(broken(), target)
    assert target.read_text() == "old"
    write_page([WRONG], target)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    write_page([WRONG], "-")  # the same, and standard output stays open
    print("still open")
    out = capfdbinary.readouterr().out
    assert out == target.read_bytes() + b"still open\n" and out.startswith(b"<!DOCTYPE html>") and b"</html>\n" in out
    with pytest.raises(FileNotFoundError) as error:
        write_page([WRONG], tmp_path / "none" / "page.html")
    assert error.value.filename == str(tmp_path / "none" / "page.html")


OTHER = Sentence.from_words(["We", "see", "the", "man"], heads=[2, 0, 4, 2], source="gold.conllu", line=7)
SHORT = Sentence.from_words(["We", "saw"], heads=[2, 0], source="gold.conllu", line=7)
OURS = Sentence(WRONG.text, "ours.conllu", 11)
LOOP = Sentence.from_words(["a", "b"], heads=[1, 0], source="loop.conllu")
HALF = Sentence("1\ta\t_\t_\t_\t_\t_\t_\t_\t_\n2\tb\t_\t_\t_\t_\t7\t_\t_\t_\n\n", "half.conllu", 3)
UNSURE = Sentence.from_words(["a"], heads=[0], misc=["Confidence=high"], source="unsure.conllu")


@pytest.mark.parametrize(
    ("ours", "gold", "message"),
    [
        ([OURS], [OTHER], "ours.conllu:14: the word 'saw', but 'see' in gold (gold.conllu:8)"),
        ([OURS], [SHORT], "ours.conllu:11: 4 words, but 2 in gold (gold.conllu:7)"),
        ([OURS], [], "ours.conllu:11: gold has no such sentence"),
        ([OURS], [GOLD, SHORT], "ours.conllu:11: the last sentence, but gold goes on at gold.conllu:7"),
        ([], [SHORT], "no sentences, but gold goes on at gold.conllu:7"),
        ([LOOP], None, "loop.conllu:1: word 1 is its own head"),
        ([HALF], None, "half.conllu:4: word 2 has HEAD 7 in a sentence of 2"),
        ([UNSURE], None, "unsure.conllu:1: Confidence=high in MISC is not a number between 0 and 1"),
    ],
)
def test_errors_name_the_place(ours, gold, message):
    assert message in refusal(page, *ours, gold=gold, error=ConlluError)


@pytest.mark.parametrize(
    ("options", "message"), [({"only_errors": True}, "only_errors: "), ({"limit": 0}, "limit: 0 sentences")]
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        page(WRONG, **options)


@pytest.mark.parametrize("name", ["hu_szeged-ud-dev", "it_isdt-ud-dev"])
def test_real_sentences(name):
    sentences = list(itertools.islice(read_conllu(treebank(name)), 60))
    html = page(*sentences, gold=sentences)
    for root, sentence in zip(drawings(html), sentences, strict=True):
        assert arcs(root) == list(enumerate(sentence.heads, 1))
    assert "<dd>100.00</dd>" in html
