from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuparse.data import ConlluError, Sentence, check_tree, read_conllu, write_conllu
from gpuparse.data.conllu import encode, split_sentences
from tests.data.conllu_text import WHOLE, read, sentence, word
from tests.refusals import refusal
from tests.treebanks import NAMES, treebank


def test_the_parts_of_a_sentence():
    (one,) = read(WHOLE.encode())
    assert len(one) == 6
    assert one.words == ["Vamos", "nos", "a", "el", "mar", "."]
    assert one.lemmas == ["ir", "nosotros", "a", "el", "mar", "."]
    assert one.upos == ["VERB", "PRON", "ADP", "DET", "NOUN", "PUNCT"]
    assert one.xpos == ["v", "_", "_", "_", "n", "."]
    assert one.feats == ["Mood=Imp", "Case=Acc|Number=Plur", "_", "_", "_", "_"]
    assert one.heads == [0, 1, 5, 5, 1, 1]
    assert one.deprels == ["root", "obj", "case", "det", "obl", "punct"]
    assert one.misc == ["_", "A=1|B=2", "_", "Confidence=0.1|Z=z", "SpaceAfter=No", "_"]
    assert one.comments == ["# newdoc", "# sent_id = first", "# text = Vámonos al mar."]
    assert one.sent_id == "first"
    assert [one.line_of(i) for i in range(1, 7)] == [5, 6, 10, 11, 12, 13]
    assert (one.source, one.line, one.text) == ("<file>", 1, WHOLE)
    one.words[0] = "changed"  # what a caller gets is its own
    one.comments.clear()
    assert one.words[0] == "Vamos" and len(one.comments) == 3


VARIANTS = {
    "plain": f"{word(1)}\n\n{word(1)}\n\n",
    "no last newline": f"{word(1)}\n\n{word(1)}",
    "no last blank line": f"{word(1)}\n\n{word(1)}\n",
    "several blank lines": f"{word(1)}\n\n\n\n{word(1)}\n\n\n",
    "leading blank lines": f"\n\n \n{word(1)}\n\n{word(1)}\n\n",
    "one leading blank line": f"\n{word(1)}\n\n{word(1)}\n\n",
    "spaces in blank lines": f"{word(1)}\n  \n\t\n{word(1)}\n \n   ",
    "CRLF": f"# c\n{word(1)}\n\n{word(1)}\n\n".replace("\n", "\r\n"),
    "CRLF, no last newline": f"{word(1)}\n\n{word(1)}".replace("\n", "\r\n"),
    "mixed line ends": f"# c\r\n{word(1)}\n\r\n{word(1)}\r\n\n",
    "BOM": f"\ufeff# c\n{word(1)}\n\n{word(1)}\n\n",
    "BOM before a word": f"\ufeff{word(1)}\n\n{word(1)}\n\n",
    "BOM and blank lines": f"\ufeff\n\n{word(1)}\n\n{word(1)}\n\n",
    "spaces at the end of the last column": f"{word(1, misc='x ')}\n\n{word(1, misc=' ')}\n\n",
}


@pytest.mark.parametrize("text", VARIANTS.values(), ids=VARIANTS)
def test_variants_of_line_ends(text):
    sentences = read(text.encode())
    assert encode(sentences) == text.encode()
    assert [one.words for one in sentences] == [["a"], ["a"]]
    assert all(one.misc[0].strip() in {"_", "x", ""} and "\r" not in one.misc[0] for one in sentences)
    lines = text.split("\n")
    for one in sentences:
        assert one.text.startswith(lines[one.line - 1])
        assert lines[one.line_of(1) - 1].lstrip("\ufeff").startswith("1\t")
    parsed = [one.with_parse([0], ["new"], {"K": ["v"]}) for one in sentences]
    assert [one.deprels for one in read(encode(parsed))] == [["new"], ["new"]]
    again = [one.with_parse([0], ["dep"]) for one in sentences]
    assert encode(again) == text.encode()


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("", []),
        ("\n", [0]),
        (" \n\n\n", [0]),
        ("\ufeff", [0]),
        ("# only\n# comments", [0]),
        (f"{word(1)}\n\n# the end\n", [1, 0]),
        (f"# begin\n\n{word(1)}\n\n# middle\n\n{word(1)}\n{word(2)}", [0, 1, 0, 2]),
    ],
)
def test_blocks_without_words(text, lengths):
    sentences = read(text.encode())
    assert [len(one) for one in sentences] == lengths
    assert encode(sentences) == text.encode()
    empty = [one for one in sentences if not len(one)]
    assert all(one.words == [] and one.heads == [] and one.with_parse([], []).text == one.text for one in empty)
    assert sum(len(one.comments) for one in sentences) == text.count("#")
    for one in empty:
        check_tree(one)


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x1e", "\x85", "\u2028", "\u2029", "\u00a0", "\r"])
def test_unicode_line_separators_stay_in_their_field(separator):
    text = f"# a{separator}b\n{word(1, f'x{separator}y')}\n{word(2, separator + 'z', '1')}\n\n{word(1)}\n\n"
    first, second = read(text.encode())
    assert first.words == [f"x{separator}y", f"{separator}z"]
    assert len(first.comments) == 1
    assert second.line == 5
    assert first.with_parse([0, 1]).text + second.text == text


def test_sentences_do_not_depend_on_where_blocks_end(monkeypatch):
    text = f"\n \n{WHOLE}\n \n\n{WHOLE}   \n{VARIANTS['CRLF']}# é\n\n{WHOLE}"
    whole = [(one.text, one.line) for one in read(text.encode())]
    assert len(whole) == 6
    for size in range(1, 40):
        monkeypatch.setattr("gpuparse.data.conllu._BLOCK", size)
        assert [(one.text, one.line) for one in read(text.encode())] == whole
    monkeypatch.setattr("gpuparse.data.conllu._BLOCK", 7)
    assert [(one.text, one.line) for one in read_conllu(io.StringIO(text, newline=""))] == whole
    stream = io.BytesIO((WHOLE * 3).encode())  # from a place in a file on
    stream.seek(len(WHOLE.encode()))
    lines = WHOLE.count("\n")
    assert [one.line for one in split_sentences(stream, "x", line=lines + 1)] == [lines + 1, 2 * lines + 1]


def test_reading_is_lazy():
    class Endless(io.RawIOBase):
        def read(self, size=-1):
            return (WHOLE * (size // len(WHOLE) + 1)).encode()[: size // 300 * 300]

    sentences = read_conllu(Endless(), check=False)
    assert len(next(sentences)) == 6


def test_long_sentences_and_long_runs_of_blank_lines(monkeypatch):
    data = f"{word(1)}\n".encode() + b" \n" * 200_000 + word(1).encode()  # in linear time
    assert [len(one) for one in read(data)] == [1, 1]
    assert read(b"\n" * 500_000)[0].text == "\n" * 500_000
    monkeypatch.setattr("gpuparse.data.conllu._BLOCK", 64)
    text = "".join(f"{word(i)}\n" for i in range(1, 3001)) + "\n"
    (one,) = read(text.encode())
    assert len(one) == 3000 and one.with_parse([0] * 3000, ["dep"] * 3000).text == text
    assert one.with_parse([3000] * 3000).heads == [3000] * 3000


@pytest.mark.parametrize("name", ["a.conllu", "a.conllu.gz"])
def test_files(tmp_path, name):
    path = tmp_path / name
    write_conllu(read(WHOLE.encode() * 1500), path)
    packed = path.read_bytes()
    assert (gzip.decompress(packed) if name.endswith(".gz") else packed) == WHOLE.encode() * 1500
    sentences = list(read_conllu(str(path)))
    assert len(sentences) == 1500
    assert sentences[2].source == str(path)
    assert sentences[2].line == 1 + 2 * WHOLE.count("\n")
    write_conllu(sentences, path)
    assert path.read_bytes() == packed  # the same input gives the same bytes, packed too
    assert os.listdir(tmp_path) == [name]


def test_stdin_and_stdout():
    program = "from gpuparse.data.conllu import *; write_conllu(read_conllu('-'), '-')"
    text = "\ufeff" + WHOLE.replace("\n", "\r\n") + WHOLE.rstrip()
    done = subprocess.run([sys.executable, "-c", program], input=text.encode(), capture_output=True, check=True)
    assert done.stdout == text.encode()


def test_what_breaks_off_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text("old")

    def breaks():
        yield sentence(word(1))
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_conllu(breaks(), path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.conllu"]


def test_writing_over_what_is_being_read(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(WHOLE * 10, newline="")
    write_conllu((one.with_parse([0] * 6) for one in read_conllu(path)), path)
    assert [one.heads for one in read_conllu(path)] == [[0] * 6] * 10


def test_links_and_devices_stay_what_they_are(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_conllu([sentence(word(1))], link)
    assert link.is_symlink()
    assert real.read_text() == f"{word(1)}\n\n"
    null = tmp_path / "null"
    null.symlink_to("/dev/null")
    write_conllu([sentence(word(1))], null)
    assert not Path("/dev/null").is_file()


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.conllu"):
        list(read_conllu(tmp_path / "none.conllu"))
    broken = tmp_path / "broken.gz"
    packed = gzip.compress(os.urandom(5000))[:-900]
    for content, what in ((packed, "the gzip data breaks off"), (WHOLE.encode(), "not gzip data")):
        broken.write_bytes(content)
        with pytest.raises(ConlluError, match=rf"broken\.gz: {what}"):
            list(read_conllu(broken))


def test_a_text_file_may_be_given(tmp_path):
    path = tmp_path / "a.conllu"
    path.write_text(WHOLE, encoding="utf-8")
    with open(path, encoding="utf-8") as stream:
        (one,) = read_conllu(stream)
    assert one.source == str(path)
    path.write_bytes(b"\xff")
    with open(path, encoding="utf-8") as stream, pytest.raises(ConlluError, match="not UTF-8"):
        list(read_conllu(stream))


BAD = {
    "too few columns": (["# c", word(1), "2\tb"], 3, "2 columns where CoNLL-U has 10"),
    "one column": (["words"], 1, "1 column where"),
    "too many columns": ([word(1), word(2) + "\t_"], 2, "11 columns"),
    "columns that add up to twenty": (["\t".join("123456789"), "\t".join("2" * 11)], 1, "9 columns"),
    "columns that add up to nine": (["1\tA\tB\tC", "x\ty\tz\tw\tv", word(2)], 1, "4 columns"),
    "spaces for tabs": ([word(1).replace("\t", " ")], 1, "separate columns by one tab"),
    "a gap": ([word(1), word(3)], 2, "the ID 3 where 2 is due"),
    "twice the same": ([word(1), word(1)], 2, "the ID 1 where 2 is due"),
    "from zero": ([word(0)], 1, "the ID '0' is not a number"),
    "from two": ([word(2)], 1, "the ID 2 where 1 is due"),
    "no number": ([word(1), word("x")], 2, "the ID 'x' is not a number"),
    "a large number": ([word("1" * 5000)], 1, "is not a number"),
    "no ID": ([word(1), word("")], 2, "the ID '' is not a number"),
    "a zero in front": ([word("01")], 1, "the ID '01' is not a number"),
    "other digits": ([word("١")], 1, "is not a number"),
    "a late range": ([word(1), word("1-2"), word(2)], 2, "the range 1-2 before word 2"),
    "a range backwards": ([word(1), word("2-1"), word(2)], 2, "the range 2-1"),
    "ranges that overlap": ([word("1-2"), word(1), word("2-3"), word(2), word(3)], 3, "without overlap"),
    "a range too long": ([word("1-4"), word(1), word(2)], 3, "a range ends at word 4 but the sentence at word 2"),
    "an empty node out of place": ([word(1), word("2.1"), word(2)], 2, "the ID 2.1 where 1.1 is due"),
    "empty nodes out of order": ([word(1), word("1.2")], 2, "the ID 1.2 where 1.1 is due"),
    "a comment between": ([word(1), "# c", word(2)], 2, "a comment between words"),
    "an empty form": ([word(1), word(2, "")], 2, "the FORM (column 2) is empty"),
    "an empty form under a range": ([word("1-2", ""), word(1), word(2)], 1, "the FORM (column 2) is empty"),
}


@pytest.mark.parametrize(("lines", "line", "what"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_malformed(tmp_path, lines, line, what, end):
    path = tmp_path / "bad.conllu"
    path.write_bytes((WHOLE + "\n".join([*lines, "", ""])).replace("\n", end).encode())
    sentences = read_conllu(path)
    next(sentences)
    message = refusal(next, sentences, error=ConlluError)
    assert message.startswith(f"{path}:{line + WHOLE.count(chr(10))}: ") and what in message and "; " in message
    unchecked = list(read_conllu(path, check=False))
    assert encode(unchecked) == path.read_bytes()
    for _ in range(2):
        with pytest.raises(ConlluError):
            len(unchecked[1])
    assert unchecked[1].comments == [text for text in lines[:1] if text.startswith("#")]


def test_not_utf_8():
    data = WHOLE.encode() + f"# c\n{word(1)}\n".encode() + word(2, "caf\xe9").encode("latin-1") + b"\n\n"
    with pytest.raises(ConlluError, match=r"^<file>:17: not UTF-8"):
        read(data)
    sentences = read(data, check=False)
    assert encode(sentences) == data
    with pytest.raises(ConlluError, match=r"^<file>:17: not UTF-8"):
        sentences[1].check()


@pytest.mark.parametrize(
    ("head", "what"),
    [
        *((head, "has no HEAD") for head in ("_", "")),
        *((head, "no integer") for head in ("-1", "1.5", "01", " 1", "1_0", "٣", "9" * 5000)),
        ("x", "has HEAD 'x', no integer"),
        ("4", "has HEAD 4 in a sentence of 3"),
    ],
)
def test_heads_that_are_none(head, what):
    one = sentence("# c", word("1-2", head="_"), word(1), word(2, head=head), word(3, head="2"), line=10)
    told = refusal(lambda: one.heads, error=ConlluError)
    assert told.startswith("f.conllu:13: word 2 has ") and what in told
    with pytest.raises(ConlluError):
        check_tree(one)


BLANKS = st.sampled_from(["\n", "\n", "\n", "\r\n", " \n", "\n\n", "\t\n\n"])
CELL = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r"), min_size=1, max_size=6)


@st.composite
def sentences(draw):
    end = draw(st.sampled_from(["\n", "\r\n"]))
    lines = [f"#{text}" for text in draw(st.lists(CELL, max_size=2))]
    count = draw(st.integers(0 if lines else 1, 5))
    row = st.lists(CELL, min_size=9, max_size=9)
    if count and draw(st.booleans()):
        lines.append("\t".join(["0.1", *draw(row)]))
    until = 0
    for number in range(1, count + 1):
        if until < number and draw(st.integers(0, 4)) == 0:
            until = draw(st.integers(number, count))
            lines.append("\t".join([f"{number}-{until}", *draw(row)]))
        lines.append("\t".join([str(number), *draw(row)]))
        for empty in range(1, 1 + draw(st.sampled_from([0, 0, 0, 2]))):
            lines.append("\t".join([f"{number}.{empty}", *draw(row)]))
    return count, end.join(lines) + end


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_file_survives(data):
    blocks = data.draw(st.lists(sentences(), max_size=4))
    text = data.draw(st.sampled_from(["", "\ufeff", "\n", "\ufeff \n\n"])) if blocks else ""
    for _, block in blocks:
        text += block + data.draw(BLANKS)
    if blocks and data.draw(st.booleans()):
        text = text.rstrip("\n")
    found = read(text.encode())
    assert [len(one) for one in found] == [count for count, _ in blocks]
    assert encode(found) == text.encode()
    parsed = []
    for one in found:
        heads = data.draw(st.lists(st.integers(0, len(one)), min_size=len(one), max_size=len(one)))
        parsed.append(one.with_parse(heads, one.deprels))
        assert parsed[-1].heads == heads
        assert Sentence(parsed[-1].text).heads == heads
    original = [column for one in found for column in (one.words, one.feats, one.misc, one.comments)]
    assert [c for one in read(encode(parsed)) for c in (one.words, one.feats, one.misc, one.comments)] == original


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_treebanks_survive(name):
    path = treebank(name)
    data = path.read_bytes()
    found = list(read_conllu(path))
    assert encode(found) == data
    assert encode(one.with_parse(one.heads, one.deprels) for one in found) == data
    for one in found:
        check_tree(one)
    crlf = data.replace(b"\n", b"\r\n")
    assert encode(one.with_parse(one.heads, one.deprels) for one in read(crlf)) == crlf


def test_messages_are_short():
    for wrong in ("a\t" + "x" * 1000, "\n" * 500):
        refusal(Sentence.from_words, [wrong], longest=300)
    with pytest.raises(ConlluError, match="<text>:2: a blank line inside a sentence"):
        len(Sentence(f"{word(1)}\n\n{word(1)}\n\n"))
