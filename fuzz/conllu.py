"""CoNLL-U: read, written again to the byte, changed, read again."""

from __future__ import annotations

import gzip
import io
import random
from pathlib import Path

from mutate import ODD, field, mutated, refusal

from gpuparse.data.conllu import encode, read_conllu, write_conllu
from gpuparse.data.sentence import ConlluError, Sentence, check_tree

NAME = "conllu"
COUNT = 180_000

_WORDS = [
    *(b"\t", b"\n", b"\n\n", b"\r\n", b"#", b"# sent_id = ", b"# text = ", b"_", b"\t_\t_", b"1", b"0", b"1-2", b"2-1"),
    *(b"1.1", b"0.1", b"3-3", b"1-999999999", b"-1", b"10", b"\xef\xbb\xbf", b"Case=Nom|", b"Confidence=0.5"),
    b"0:root",
]


def document(rng: random.Random) -> bytes:
    """A small document that is well-formed."""
    return "".join(_sentence(rng) for _ in range(rng.randint(1, 3))).encode()


def _sentence(rng: random.Random) -> str:
    lines = [f"# sent_id = {rng.randrange(100)}"] if rng.random() < 0.5 else []
    if rng.random() < 0.3:
        lines.append(f"# text = {field(rng)}")
    count = rng.randint(1, 6)
    heads = tree(rng, count)
    until = 0
    for word in range(1, count + 1):
        if rng.random() < 0.1 and word > until:
            until = rng.randint(word, count)
            lines.append(f"{word}-{until}\tabc" + "\t_" * 8)
        form = field(rng) if rng.random() < 0.3 else rng.choice(["the", "cat", "语", "sleeps", "_", "1"])
        misc = "Confidence=0.25|SpaceAfter=No" if rng.random() < 0.3 else "_"
        feats = "Case=Nom|Number=Sing" if rng.random() < 0.3 else "_"
        row = [word, form, form, rng.choice(["NOUN", "VERB", "_"]), "_", feats, heads[word - 1], "dep", "_", misc]
        lines.append("\t".join(map(str, row)))
        if rng.random() < 0.05:
            lines.append(f"{word}.1\tabc" + "\t_" * 8)
    end = "\r\n" if rng.random() < 0.1 else "\n"
    return end.join([*lines, "", ""])


def tree(rng: random.Random, count: int) -> list[int]:
    """The heads of a random tree with one root."""
    order = list(range(1, count + 1))
    rng.shuffle(order)
    heads = [0] * count
    for place, word in enumerate(order[1:], 1):
        heads[word - 1] = order[rng.randrange(place)]
    return heads


def case(rng: random.Random) -> bytes:
    """A document, changed, or bytes that never were one."""
    if rng.random() < 0.03:
        return b"".join(rng.choice(_WORDS) for _ in range(rng.randint(0, 30)))
    return mutated(rng, document(rng), _WORDS)


def one(rng: random.Random, directory: Path) -> str:
    data = case(rng)
    sentences = _read(rng, directory, data)
    assert encode(sentences) == data, "what was read is not what is written"
    lines = [sentence.line for sentence in sentences]
    assert lines == sorted(set(lines)), "two sentences begin in one line"
    good = [sentence for sentence in sentences if _columns(sentence)]
    try:
        checked = list(read_conllu(io.BytesIO(data)))
        assert len(good) == len(sentences), "a malformed sentence was let through"
        assert [sentence.text for sentence in checked] == [sentence.text for sentence in sentences]
    except ConlluError as error:
        refusal(error)
        assert len(good) < len(sentences), f"all sentences are well-formed, and: {error}"
    for sentence in good[:50]:
        _change(rng, sentence)
    if not good:
        return "refused"
    return "ok" if len(good) == len(sentences) else "partly"


def _read(rng: random.Random, directory: Path, data: bytes) -> list[Sentence]:
    """The sentences of the bytes: from memory, or now and then from a file, packed or not, and back."""
    kind = rng.random()
    if kind > 0.04:
        return list(read_conllu(io.BytesIO(data), check=False))
    path = directory / ("case.conllu.gz" if kind < 0.02 else "case.conllu")
    path.write_bytes(gzip.compress(data) if kind < 0.02 else data)
    sentences = list(read_conllu(path, check=False))
    write_conllu(sentences, path)
    written = path.read_bytes()
    assert (gzip.decompress(written) if kind < 0.02 else written) == data, "the file is not what it was"
    return sentences


def _columns(sentence: Sentence) -> bool:
    """Whether a sentence is well-formed; its columns are then all of one length."""
    try:
        count = len(sentence)
    except ConlluError as error:
        refusal(error)
        _ = sentence.sent_id  # which can be asked for
        return False
    names = ("words", "lemmas", "upos", "xpos", "feats", "deprels", "misc")
    assert all(len(getattr(sentence, name)) == count for name in names), "columns of several lengths"
    assert all(sentence.words), "an empty word"
    for word in range(1, count + 1):
        assert sentence.line_of(word) >= sentence.line
    try:
        assert all(0 <= head <= count for head in sentence.heads)
        check_tree(sentence)
    except ConlluError as error:
        refusal(error)
    return True


def _change(rng: random.Random, sentence: Sentence) -> None:
    """Put a parse, tags and a comment into it, and read it again."""
    count = len(sentence)
    heads, value = tree(rng, count), field(rng)
    changed = sentence.with_parse(heads, [value] * count, {"Confidence": ["0.5"] * count})
    changed = changed.with_comment("constraints", "x")
    again = list(read_conllu(io.BytesIO(encode([changed]))))
    assert len(again) == 1, f"{len(again)} sentences of one"
    assert again[0].text == changed.text
    assert again[0].heads == heads and again[0].deprels == [value] * count, "the parse is not what was put in"
    assert again[0].words == sentence.words and again[0].feats == sentence.feats, "other columns have changed"
    assert all(misc.endswith("Confidence=0.5") for misc in again[0].misc)
    assert changed.with_comment("constraints", None).with_tags(upos=["X"] * count).upos == ["X"] * count
    bad = rng.choice([*ODD, "a\tb", "a\nb"]) * rng.choice([1, 1, 1000])
    try:
        made = Sentence.from_words([bad, "b"], comments=[f"# {bad}"])
    except ValueError as error:
        refusal(error)
    else:
        assert [word.words for word in read_conllu(io.BytesIO(encode([made])))] == [[bad, "b"]]
