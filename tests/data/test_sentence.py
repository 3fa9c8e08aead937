"""Sentences: their trees, parses, comments."""

from __future__ import annotations

import io
import pickle

import pytest

from gpuparse.data import ConlluError, Sentence, check_tree, read_conllu
from tests.data.conllu_text import WHOLE, read, sentence, word
from tests.refusals import refusal


def tree(*heads):
    return sentence("# c", *(word(i, head=head) for i, head in enumerate(heads, 1)))


def test_trees():
    check_tree(tree(0))
    check_tree(tree(2, 0, 4, 2, 2))
    check_tree(tree(3, 4, 0, 3))  # crossing arcs
    check_tree(tree(0, 0, 1), single_root=False)
    for heads, line, what in [
        ((0, 0, 1), 3, "word 2 is a second root after word 1"),
        ((2, 1), 2, "no word has HEAD 0"),
        ((0, 3, 4, 2), 3, "a cycle of heads: 2 → 3 → 4 → 2"),
        ((0, 2), 3, "a cycle of heads: 2 → 2"),
        ((3, 0, 4, 3), 4, "a cycle of heads: 3 → 4 → 3"),
        ((0, *range(3, 21), 2), 3, "a cycle of heads: 2 → 3 → 4 → 5 → … → 18 → 19 → 20 → 2"),
    ]:
        told = f"f.conllu:{line}: {what}; correct HEAD or leave the sentence out"
        assert refusal(check_tree, tree(*heads), error=ConlluError) == told
    with pytest.raises(ConlluError, match="cycle"):
        check_tree(tree(0, 0, 4, 3), single_root=False)


def test_with_parse_changes_what_it_is_asked_to():
    (one,) = read(WHOLE.encode())
    new = one.with_parse([2, 0, 4, 2, 2, 6], list("abcdef"))
    assert new.heads == [2, 0, 4, 2, 2, 6]
    assert new.deprels == list("abcdef")
    assert one.text == WHOLE
    assert (new.source, new.line) == (one.source, one.line)
    before, after = WHOLE.split("\n"), new.text.split("\n")
    for i, (old_line, new_line) in enumerate(zip(before, after, strict=True)):
        old, changed = old_line.split("\t"), new_line.split("\t")
        if i + 1 in {one.line_of(k) for k in range(1, 7)}:
            assert changed[:6] + changed[8:] == old[:6] + old[8:]
        else:
            assert changed == old
    assert new.with_parse(one.heads, one.deprels).text == WHOLE
    assert one.with_parse(one.heads).text == WHOLE
    assert Sentence(new.text).words == new.words


def test_with_parse_adds_to_misc():
    (one,) = read(WHOLE.encode())
    values = [f"0.{i}" for i in range(6)]
    new = one.with_parse(one.heads, misc={"Confidence": values})
    before = ("", "A=1|B=2|", "", "Z=z|", "SpaceAfter=No|", "")
    assert new.misc == [f"{kept}Confidence={value}" for kept, value in zip(before, values, strict=True)]
    assert "1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=Yes\n" in new.text
    both = one.with_parse(one.heads, misc={"B": list("uvwxyz"), "C": list("uvwxyz")})
    assert both.misc[1] == "A=1|B=v|C=v"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (([0],), "heads: 1 for 2 words"),
        (([0, 3],), "heads: not between 0 and 2"),
        (([0, -1],), "heads: not between 0 and 2"),
        (([0, 1], ["a"]), "deprels: 1 for 2 words"),
        (([0, 1], ["a", ""]), "deprels: '' of word 2"),
        (([0, 1], ["a\tb", "c"]), "of word 1 is empty or has a tab"),
        (([0, 1], ["a", "b\n"]), "of word 2 is empty or has a tab"),
        (([0, 1], None, {"K": ["v"]}), r"misc\['K'\]: 1 for 2 words"),
        (([0, 1], None, {"K": ["v", "\r"]}), "of word 2"),
    ],
)
def test_with_parse_refuses(arguments, what):
    with pytest.raises(ValueError, match=what):
        sentence(word(1), word(2)).with_parse(*arguments)


def test_from_words():
    one = Sentence.from_words(["New York", "is"], ["PROPN", "AUX"], heads=[2, 0], comments=["# sent_id = x"])
    assert one.text == "# sent_id = x\n1\tNew York\t_\tPROPN\t_\t_\t2\t_\t_\t_\n2\tis\t_\tAUX\t_\t_\t0\t_\t_\t_\n\n"
    assert (one.words, one.heads, one.sent_id) == (["New York", "is"], [2, 0], "x")
    assert len(Sentence.from_words([])) == 0
    sent = pickle.loads(pickle.dumps(sentence("# c", word(1), line=7)))  # to another process
    assert (sent.words, sent.line_of(1), sent.source) == (["a"], 8, "f.conllu")
    for wrong in (
        {"words": ["a", ""]},
        {"words": ["a\tb"]},
        {"upos": ["X", "Y"]},
        {"comments": ["c"]},
        {"comments": ["#\nc"]},
    ):
        with pytest.raises(ValueError):
            Sentence.from_words(**{"words": ["a"], **wrong})


def test_a_comment_is_added_replaced_and_taken_away():
    (one,) = read(WHOLE.encode())
    marked = one.with_comment("constraints", "infeasible: x")
    assert marked.comments == [*one.comments, "# constraints = infeasible: x"]
    assert marked.text == one.text.replace("1-2\t", "# constraints = infeasible: x\n1-2\t", 1)
    assert (marked.heads, marked.deprels) == (one.heads, one.deprels) and Sentence(marked.text).words == one.words
    again = marked.with_comment("constraints", "not proven")
    assert again.comments == [*one.comments, "# constraints = not proven"]
    assert again.with_comment("constraints", None).text == one.text
    assert one.with_comment("constraints", None) is one
    assert marked.with_parse([0, 1, 1, 1, 1, 1]).comments == marked.comments
    assert marked.line_of(1) == one.line_of(1) + 1
    with pytest.raises(ValueError, match=r"constraints: 'a\\nb' has a line end"):
        one.with_comment("constraints", "a\nb")


@pytest.mark.parametrize("before", ["", "\ufeff", "# a\n", "\ufeff# a\n", "# constraints = old\n# a\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_comment_where_there_are_others_or_none(before, end):
    text = (before + word(1) + "\n\n").replace("\n", end)
    one = Sentence(text)
    marked = one.with_comment("constraints", "x")
    kept = before.replace("# constraints = old\n", "").replace("\n", end)
    assert marked.text == f"{kept}# constraints = x{end}{word(1)}{end}{end}"
    assert marked.with_comment("constraints", None).text == f"{kept}{word(1)}{end}{end}"
    assert marked.words == ["a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# a\n\n", "# a\n# k = v\n\n"),
        ("# a", "# a\n# k = v"),
        ("\n\n# a\n\n\n", "\n\n# a\n# k = v\n\n\n"),
        ("# a\r\n\r\n", "# a\r\n# k = v\r\n\r\n"),
    ],
)
def test_a_comment_in_a_sentence_without_words(text: str, expected: str) -> None:
    changed = Sentence(text).with_comment("k", "v")
    assert changed.text == expected
    assert len(list(read_conllu(io.BytesIO(changed.text.encode())))) == 1
    assert changed.with_comment("k", None).text == text
