"""What training takes from files, what it refuses, and what it leaves out."""

from __future__ import annotations

import itertools
import random
import re

import pytest
import torch

from gpuparse.config import Config
from gpuparse.data.artificial import artificial_treebank, builtin_treebank
from gpuparse.data.conllu import write_conllu
from gpuparse.data.sentence import ConlluError, Sentence
from gpuparse.train.treebank import is_projective, load_treebank
from tests.oracle import all_trees, has_crossing, is_tree
from tests.train.small import config as small_config
from tests.train.small import sentences

GOOD = "# sent_id = good\n1\ta\t_\tX\t_\t_\t0\troot\t_\t_\n2\tb\t_\tX\t_\t_\t1\tdep\t_\t_\n\n"


def with_heads(*heads) -> str:
    lines = [f"{i}\tw{i}\t_\tX\t_\t_\t{head}\tdep\t_\t_\n" for i, head in enumerate(heads, 1)]
    return f"# a comment\n{''.join(lines)}\n"


# Heads that are not a tree, the word to blame, and what is said of it.
BAD = {
    "cycle": (with_heads(0, 3, 4, 2), 2, "a cycle of heads: 2 → 3 → 4 → 2"),
    "itself": (with_heads(0, 2), 2, "a cycle of heads: 2 → 2"),
    "missing": (with_heads(0, 1, "_"), 3, "no HEAD"),
    "too large": (with_heads(0, 1, 4), 3, "HEAD 4 in a sentence of 3"),
    "no number": (with_heads(0, "x"), 2, "HEAD 'x', no integer"),
    "no root": (with_heads(2, 1), 1, "no word has HEAD 0"),
    "columns": (with_heads(0, 1).replace("\t_\t_\n", "\n", 1), 1, "columns"),
    "two roots": (with_heads(2, 0, 0), 3, "word 3 is a second root after word 2"),
}


def config(*overrides) -> Config:
    return Config.load(None, list(map(str, overrides)))


def write(path, *texts):
    path.write_text("".join(texts), encoding="utf-8")
    return path


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("kind", BAD)
def test_bad_trees_are_named(tmp_path, kind, split):
    text, word, what = BAD[kind]
    files = {name: write(tmp_path / f"{name}.conllu", GOOD) for name in ("train", "dev")}
    write(files[split], GOOD, text, GOOD)
    line = 4 + 1 + word  # after the good sentence and the comment
    with pytest.raises(ConlluError) as caught:
        load_treebank(config(f"data.train={files['train']}", f"data.dev={files['dev']}"))
    message = str(caught.value)
    assert message.startswith(f"{files[split]}:{line}: ")
    assert what in message
    assert message.endswith('(data.on_bad = "skip" leaves such sentences out)')
    assert "\n" not in message


def test_bad_trees_are_skipped(tmp_path):
    path = write(tmp_path / "a.conllu", GOOD, *(text for text, _, _ in BAD.values()), GOOD)
    treebank = load_treebank(config(f"data.train={path}", f"data.dev={path}", "data.on_bad=skip"))
    assert [one.sent_id for one in treebank.train] == ["good", "good"]
    assert [one.sent_id for one in treebank.dev] == ["good", "good"]
    named = [note for note in treebank.notes if note.startswith("left out: ")]
    line, places = 5, []
    for text, word, what in BAD.values():
        places.append((f"left out: {path}:{line + word}: ", what))
        line += text.count("\n")
    for note, (place, what) in zip(named, [*places, *places], strict=True):
        assert note.startswith(place)
        assert what in note
    several = load_treebank(config(f"data.train={write(path, BAD['two roots'][0])}", "training.single_root=false"))
    assert [one.heads for one in several.train] == [[2, 0, 0]]  # where they are allowed
    total = f"{path}: {len(BAD)} sentences left out that are malformed or whose heads are not a tree"
    assert treebank.notes.count(total) == 2


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n\n"])
def test_empty_files(tmp_path, text):
    empty, full = write(tmp_path / "empty.conllu", text), write(tmp_path / "full.conllu", GOOD)
    with pytest.raises(ValueError, match=f"^{re.escape(str(empty))}: no sentence to learn from$"):
        load_treebank(config(f"data.train={empty}", f"data.dev={full}"))
    with pytest.raises(ValueError, match=f"^{re.escape(str(empty))}: no sentence to evaluate on$"):
        load_treebank(config(f"data.train={full}", f"data.dev={empty}"))
    write(full, BAD["cycle"][0])
    with pytest.raises(ValueError, match="no sentence to learn from"):
        load_treebank(config(f"data.train={full}", "data.on_bad=skip"))
    with pytest.raises(FileNotFoundError, match=r"none\.conllu"):
        load_treebank(config(f"data.train={tmp_path / 'none.conllu'}"))


def test_long_sentences_are_left_out_of_training_only():
    given = list(artificial_treebank(40, 3))
    treebank = load_treebank(config("data.max_words=10"), given, given)
    assert treebank.train == [one for one in given if len(one) <= 10]
    assert treebank.dev == given
    left = len(given) - len(treebank.train)
    assert left
    assert treebank.notes == [f"{left} sentences of more than 10 words left out of training"]


@pytest.mark.parametrize("objective", ["nll", "hinge", "local"])
@pytest.mark.parametrize("projective", [True, False])
def test_crossing_arcs_cannot_be_learned_by_projective_sums(objective, projective):
    crossing = Sentence.from_words(list("abcd"), heads=[3, 4, 0, 3], deprels=["dep"] * 4)
    flat = Sentence.from_words(list("abc"), heads=[2, 0, 2], deprels=["dep"] * 3)
    settings = config(f"training.objective={objective}", f"training.projective={str(projective).lower()}")
    treebank = load_treebank(settings, [crossing, flat], [crossing])
    assert treebank.dev == [crossing]
    if projective and objective != "local":
        assert treebank.train == [flat]
        assert treebank.notes == ["1 sentences with crossing arcs left out of projective training"]
    else:
        assert treebank.train == [crossing, flat]
        assert treebank.notes == []


def test_built_in_treebank(tmp_path):
    treebank = load_treebank(config())
    assert [one.text for one in treebank.dev] == [one.text for one in builtin_treebank("dev")]
    assert len(treebank.train) == 2000
    # Data of one's own are not evaluated on the built-in ones; dev data may be one's own.
    assert load_treebank(config(), treebank.train[:2]).dev == []
    path = write(tmp_path / "dev.conllu", GOOD)
    assert [one.sent_id for one in load_treebank(config(f"data.dev={path}")).dev] == ["good"]


def test_fingerprint_tells_data_apart(tmp_path):
    one, two, three = artificial_treebank(3, 1)
    data = ([one, two], [three]), ([one], [three]), ([two, one], [three]), ([one, two], []), ([one], [two, three])
    prints = [load_treebank(config(), *each).fingerprint() for each in data]
    assert len(set(prints)) == len(prints)
    assert prints[0] == load_treebank(config(), iter([one, two]), iter([three])).fingerprint()
    write_conllu([one, two], tmp_path / "a.conllu.gz")
    packed = load_treebank(config(f"data.train={tmp_path / 'a.conllu.gz'}"), dev=[three])
    assert packed.fingerprint() == prints[0]


def test_projective_trees():
    for n in range(1, 6):  # all of them
        trees = all_trees(n, single_root=False, projective=False)
        assert [is_projective(heads) for heads in trees[:, 1:].tolist()] == (~has_crossing(trees)).tolist()
    draw, counts = random.Random(0), {True: 0, False: 0}
    for number in range(600):
        n = draw.randint(6, 12)
        # A word takes a head nearby among those before it in a random order: some crossing, some not.
        order = sorted(range(1, n + 1), key=lambda word: word + draw.uniform(0, number % 6))
        heads = [0] * n
        for place, word in enumerate(order[1:], 1):
            heads[word - 1] = min(order[:place], key=lambda head: abs(head - word) + draw.uniform(0, 2))
        assert bool(is_tree(torch.tensor([[-1, *heads]])).all())
        arcs = [tuple(sorted((head, word))) for word, head in enumerate(heads, 1)]
        want = not any(a < c < b < d for (a, b), (c, d) in itertools.permutations(arcs, 2))
        assert is_projective(heads) == want
        counts[want] += 1
    assert min(counts.values()) > 50


def test_words_without_a_tag_are_noted():
    whole, *rest = sentences(4)
    bare = Sentence.from_words(whole.words, ["_", *whole.upos[1:]])
    treebank = load_treebank(small_config("task=tag"), [bare, *rest], [])
    total = sum(map(len, (bare, *rest)))
    assert treebank.notes == [f"1 of {total} words have no UPOS: _ is learned as a tag like the others"]
