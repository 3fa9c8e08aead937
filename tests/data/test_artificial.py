from __future__ import annotations

import hashlib
import io
import itertools
import math
import re
from collections import Counter, defaultdict
from functools import partial
from typing import NamedTuple

import pytest
import torch
import typer
from typer.testing import CliRunner
from udtools.udeval import load_conllu
from udtools.validator import Validator

from gpuparse.cli.sample import sample
from gpuparse.data.artificial import LONGEST, SHORTEST, artificial_treebank, builtin_treebank
from gpuparse.data.artificial.draft import BETWEEN, Draft
from gpuparse.data.artificial.lexicon import EITHER, lexicon
from gpuparse.data.conllu import check_tree, read_conllu

UPOS = {"NOUN", "PROPN", "VERB", "AUX", "ADJ", "ADV", "PRON", "DET", "ADP", "CCONJ", "SCONJ", "PART", "NUM"}
UPOS |= {"INTJ", "PUNCT"}
LABELS = {"root", "nsubj", "obj", "iobj", "obl", "nmod", "amod", "advmod", "det", "case", "nummod", "flat", "aux"}
LABELS |= {"cop", "mark", "cc", "conj", "punct", "acl:relcl", "advcl", "ccomp", "xcomp", "parataxis", "discourse"}


class Decision(NamedTuple):
    """An open attachment as it was decided. Words are (lemma, UPOS, class)."""

    modifier: tuple[str, str, int]
    first: tuple[str, str, int]  # the noun, or the verb before
    other: tuple[str, str, int]  # the noun's own head, or the other verb
    sibling: tuple[str, str, int]
    to_first: bool


@pytest.fixture(scope="module")
def recorded():
    """2,000 sentences, and the decisions on the phrases that their grammar leaves open, by kind."""
    decisions = defaultdict(list)
    decide = Draft.decide

    def record(draft, clause):
        decide(draft, clause)
        described = [(word.columns.split("\t")[0], word.upos, word.kind) for word in draft.words]
        for modifier, decision, nearest, other in draft.open:
            if decision != BETWEEN and (decision != EITHER or nearest in (0, clause)):
                continue
            other = draft.heads[nearest] if decision == EITHER else other or clause
            children = [child for child in range(nearest + 1, modifier) if draft.heads[child] == nearest]
            decisions[decision].append(
                Decision(
                    modifier=described[modifier],
                    first=described[nearest],
                    other=described[other],
                    sibling=described[children[-1] if children else nearest],
                    to_first=draft.heads[modifier] == nearest,
                )
            )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draft, "decide", record)
        sentences = list(artificial_treebank(2000, seed=5))
    return sentences, decisions


@pytest.fixture(scope="module")
def sentences(recorded):
    return recorded[0]


def features(sentence):
    return [dict(pair.split("=") for pair in feats.split("|")) if feats != "_" else {} for feats in sentence.feats]


def text_of(sentences):
    return "".join(sentence.text for sentence in sentences)


def test_pinned_and_the_same_everywhere():
    digest = hashlib.sha256(text_of(artificial_treebank(200)).encode()).hexdigest()
    assert digest == "932026b20201e8094d83d072949021a6fbf9366de6b778ad60854c46e9794ee1"


def test_a_sentence_depends_on_its_number_only():
    run = [sentence.text for sentence in artificial_treebank(60, seed=3)]
    assert [sentence.text for sentence in artificial_treebank(20, seed=3, start=40)] == run[40:]
    assert [next(artificial_treebank(1, seed=3, start=number)).text for number in range(60)] == run
    assert len(set(run)) == 60
    assert [one.text for one in itertools.islice(artificial_treebank(10**15, seed=3), 3)] == run[:3]  # a stream


def test_seeds_make_other_sentences_of_one_language():
    one, other = (list(artificial_treebank(300, seed=seed)) for seed in (0, 1))
    texts = [{s.text.split("\n", 2)[2] for s in some if len(s) > 5} for some in (one, other)]
    assert not texts[0] & texts[1]
    lemmas = [{lemma for sentence in some for lemma in sentence.lemmas} for some in (one, other)]
    assert len(lemmas[0] & lemmas[1]) > 0.6 * len(lemmas[0])
    words = [{word for s in artificial_treebank(100, language_seed=seed) for word in s.words} for seed in (2012, 7)]
    assert len(words[0] & words[1]) < 0.1 * len(words[0])  # another language has other words


@pytest.mark.parametrize("argument", ["sentences", "seed", "start", "language_seed"])
def test_a_negative_number_is_refused_at_once(argument):
    with pytest.raises(ValueError, match=rf"^{argument}: -1 is not between 0 and"):
        artificial_treebank(**{"sentences": 1, argument: -1})


def test_the_built_in_splits():
    splits = {name: builtin_treebank(name) for name in ("train", "dev", "test")}
    assert {name: len(split) for name, split in splits.items()} == {"train": 2000, "dev": 300, "test": 300}
    assert splits["dev"][7].text == builtin_treebank("dev")[7].text
    known = {word for sentence in splits["train"] for word in sentence.words}
    unknown = [word not in known for sentence in splits["dev"] for word in sentence.words]
    assert 0.01 < sum(unknown) / len(unknown) < 0.05
    with pytest.raises(ValueError, match="split: 'all' is none of train, dev, test"):
        builtin_treebank("all")


def test_trees_tags_and_columns(sentences):
    for sentence in sentences:
        check_tree(sentence)
        assert sentence.heads.count(0) == 1
        assert [label == "root" for label in sentence.deprels] == [head == 0 for head in sentence.heads]
        assert SHORTEST <= len(sentence) <= LONGEST
        assert set(sentence.upos) <= UPOS
        assert set(sentence.deprels) <= LABELS
    assert {tag for sentence in sentences for tag in sentence.upos} == UPOS
    assert {label for sentence in sentences for label in sentence.deprels} == LABELS
    assert {tag for sentence in sentences for tag in sentence.xpos} >= {"NN", "NP", "VF", "VI", "VP", "RT", "RL", "IN"}


def test_text_and_spaces(sentences):
    assert len({sentence.sent_id for sentence in sentences}) == len(sentences)
    glued = 0
    for sentence in sentences:
        spaces = ["" if misc == "SpaceAfter=No" else " " for misc in sentence.misc]
        glued += spaces.count("")
        text = "".join(word + space for word, space in zip(sentence.words, spaces, strict=True)).rstrip()
        assert f"# text = {text}" in sentence.comments
        assert text[0].isupper() or text[0].isdigit()
        assert re.search(r"[^ ][.?!]$", text)
    assert glued > len(sentences)


def test_the_reader_reads_it(sentences):
    text = text_of(sentences)
    read = list(read_conllu(io.StringIO(text)))
    assert [sentence.text for sentence in read] == [sentence.text for sentence in sentences]


def test_udtools_accept_it(sentences, tmp_path):
    path = tmp_path / "sample.conllu"
    path.write_text(text_of(sentences[:300]), encoding="utf-8")
    with path.open(encoding="utf-8") as file:
        assert len(load_conllu(file, str(path), {}).sentences) == 300
    errors = io.StringIO()
    state = Validator(lang="ud", level=3, output=errors).validate_files([str(path)])
    assert state.passed(), errors.getvalue()


def test_words_show_what_they_are():
    words = lexicon(2012)
    nouns, verbs = words.nouns[0] + words.nouns[1], [verb for frame in words.verbs for verb in frame]
    lemmas = {entry.columns.split("\t")[0] for noun in nouns for entry in noun.forms}
    lemmas |= {verb.infinitive.form for verb in verbs}
    lemmas |= {forms[0].columns.split("\t")[0] for forms in words.adjectives}
    lemmas |= {adverb.form for table in words.adverbs for adverb in table}
    assert 200 < len(lemmas) < 400
    # A noun's ending tells its case and number, but of neuters in nominative and accusative.
    for noun in set(nouns):
        assert len({entry.form for entry in noun.forms}) == (6 if noun.gender == 2 else 8)
    for verb in set(verbs):
        assert len({entry.form for entry in (*verb.finite, verb.infinitive, verb.participle)}) == 10
    # The letter before the ending tells a noun's class, the ending an adverb's.
    for kinds in (
        [[noun.forms[0].form for noun in table] for table in words.nouns],
        [[adverb.form for adverb in table] for table in words.adverbs],
    ):
        first, second = ({form[-2] for form in forms} for forms in kinds)
        assert len(first) == len(second) == 1 and first != second


def test_lengths(sentences):
    lengths = sorted(map(len, sentences))
    mean = sum(lengths) / len(lengths)
    assert 15 < mean < 20
    assert lengths[len(lengths) // 2] < mean  # skewed to the right
    assert lengths[len(lengths) // 20] <= 6 and 35 < lengths[-len(lengths) // 20] <= 50


def test_some_arcs_cross(sentences):
    crossed = words = trees = 0
    for sentence in sentences:
        arcs = [tuple(sorted(arc)) for arc in enumerate(sentence.heads, 1)]
        crossing = [any(a < c < b < d or c < a < d < b for c, d in arcs) for a, b in arcs]
        words += len(arcs)
        crossed += sum(crossing)
        trees += any(crossing)
    assert 0.03 < crossed / words < 0.06
    assert 0.15 < trees / len(sentences) < 0.3


def test_shares_of_labels(sentences):
    labels = Counter(label for sentence in sentences for label in sentence.deprels)
    shares = {"conj": (2, 5), "cc": (2, 5), "acl:relcl": (1, 3), "obl": (5, 10), "nmod": (5, 10)}  # percent
    for label, (least, most) in shares.items():
        assert least < 100 * labels[label] / labels.total() < most


class Word(NamedTuple):
    """A word, the one that it hangs on, and the words of its sentence; the root is word 0."""

    feats: dict[str, str]
    label: str
    tag: str
    head: int
    others: list[Word]

    @property
    def above(self):
        return self.others[self.head]


@pytest.fixture(scope="module")
def words(sentences):
    found = []
    for sentence in sentences:
        own = [Word({}, "", "", 0, [])]
        columns = zip(features(sentence), sentence.deprels, sentence.upos, sentence.heads, strict=True)
        own += [Word(*column, own) for column in columns]
        found += own[1:]
    return found


NOMINAL = ("nsubj", "obj", "obl", "nmod")


@pytest.mark.parametrize(
    ("which", "noun", "names", "least"),
    [
        (lambda word: word.label in ("amod", "det"), lambda word: word.above, ("Case", "Gender", "Number"), 3000),
        (
            lambda word: word.label == "conj" and word.tag == "NOUN" and word.above.label in NOMINAL,
            lambda word: word.above,
            ("Case",),
            300,
        ),
        (lambda word: word.feats.get("PronType") == "Rel", lambda word: word.above.above, ("Gender", "Number"), 300),
    ],
    ids=["adjectives and determiners", "conjuncts", "relative pronouns"],
)
def test_words_agree_with_nouns(words, which, noun, names, least):
    some = [word for word in words if which(word)]
    assert len(some) > least
    for word in some:
        assert [word.feats[name] for name in names] == [noun(word).feats[name] for name in names]
        assert word.feats.get("PronType") != "Rel" or word.above.label == "acl:relcl"


def test_verbs_agree_with_their_subject(words):
    subjects = [word for word in words if word.label == "nsubj"]
    assert len(subjects) > 2000
    for word in subjects:
        verbs = [each for each in word.others if each.head == word.head and each.label in ("aux", "cop")]
        (finite,) = (verb for verb in (word.above, *verbs) if verb.feats.get("VerbForm") == "Fin")
        joined = any(each.label == "conj" and each.above is word for each in word.others)
        assert finite.feats["Number"] == ("Plur" if joined else word.feats["Number"])
        assert finite.feats["Person"] == word.feats.get("Person", "3")


def test_prepositions_govern_a_case(sentences):
    cases = defaultdict(set)
    for sentence in sentences:
        for lemma, head, label in zip(sentence.lemmas, sentence.heads, sentence.deprels, strict=True):
            if label == "case":
                cases[lemma].add(features(sentence)[head - 1]["Case"])
    assert len(cases) == 8 and all(len(found) == 1 for found in cases.values())


# What two words tell about an attachment, and what three tell


def entropy(rows):
    """Bits of the outcome given what is known, for rows of (known, outcome)."""
    counts = defaultdict(Counter)
    for known, outcome in rows:
        counts[known][outcome] += 1
    bits = (-count * math.log2(count / outcomes.total()) for outcomes in counts.values() for count in outcomes.values())
    return sum(bits) / len(rows)


def arc_factored_entropy(rows):
    """Bits of the outcome under the best sum of a score for each of two arcs, for rows of (arc, arc, outcome)."""
    columns: dict[object, int] = {}
    for one, other, _ in rows:
        for key in ((0, one), (1, other)):
            columns.setdefault(key, len(columns))
    one, other = (torch.tensor([columns[side, row[side]] for row in rows]) for side in (0, 1))
    outcomes = torch.tensor([float(row[2]) for row in rows], dtype=torch.float64)
    weights = torch.zeros(len(columns), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = torch.nn.functional.binary_cross_entropy_with_logits(weights[one] + weights[other], outcomes)
        value.backward()
        return value

    optimiser.step(loss)
    return loss().item() / math.log(2)


@pytest.mark.slow
def test_the_grandparent_decides_phrases_behind_nouns(recorded):
    sentences, decisions = recorded
    rows = decisions[EITHER]
    assert len(rows) / sum(map(len, sentences)) > 0.04  # often enough to matter
    # The ends of the arc from the noun, or of the arc from the noun's head: tags and classes, or the words themselves.
    assert entropy([((row.first[1:], row.modifier[1:]), row.to_first) for row in rows]) > 0.9
    assert entropy([((row.other[1:], row.modifier[1:]), row.to_first) for row in rows]) > 0.9
    assert entropy([(row.first[0], row.to_first) for row in rows]) > 0.85
    assert entropy([(row.other[0], row.to_first) for row in rows]) > 0.8
    # Both arcs, each with a score of its own.
    arcs = [((row.first[1:], row.modifier[1:]), (row.other[1:], row.modifier[1:]), row.to_first) for row in rows]
    assert arc_factored_entropy(arcs) > 0.9
    # Noun and head of the noun together.
    assert entropy([((row.first[1:], row.other[1:]), row.to_first) for row in rows]) < 0.35


def test_the_previous_sibling_decides_adverbials_between_clauses(recorded):
    sentences, decisions = recorded
    rows = decisions[BETWEEN]
    assert len(rows) / sum(map(len, sentences)) > 0.025
    siblings = [row for row in rows if row.sibling != row.first]
    assert len(siblings) > 0.5 * len(rows)
    # All of both arcs' ends.
    assert entropy([((row.first[1:], row.other[1:], row.modifier[1:]), row.to_first) for row in siblings]) > 0.85
    arcs = [((row.first[1:], row.modifier[1:]), (row.other[1:], row.modifier[1:]), row.to_first) for row in siblings]
    assert arc_factored_entropy(arcs) > 0.9
    # The verb, the child before, the adverbial.
    known = [((row.first[1:], row.sibling[1:], row.modifier[1:]), row.to_first) for row in siblings]
    assert entropy(known) < 0.35


def test_the_nearest_verb_misleads(sentences):
    """The class of the verb before a noun in the sentence tells less than the class of the noun's own head."""
    either = {item.word.form for item in lexicon(2012).prepositions[EITHER]}
    near, above = [], []
    for sentence in sentences:
        tags, heads, feats = sentence.upos, sentence.heads, sentence.feats
        for preposition, form in enumerate(sentence.words):
            noun = preposition - 1
            if form not in either or noun < 0 or tags[noun] != "NOUN" or heads[noun] == 0:
                continue
            outcome = heads[heads[preposition] - 1] == noun + 1
            head = heads[noun] - 1
            verbs = [place for place in range(noun) if tags[place] == "VERB"]
            for rows, place in ((near, verbs[-1] if verbs else None), (above, head)):
                kind = "" if place is None else re.sub(r"(Aspect|Animacy)=(\w+)|.", r"\2", feats[place])
                rows.append(((kind, "Animacy=Anim" in feats[noun]), outcome))
    assert len(near) > 800
    assert entropy(near) > 0.75
    assert entropy(above) < 0.35


def test_the_command(tmp_path):
    app = typer.Typer()
    app.command()(sample)
    run, path = partial(CliRunner().invoke, app), tmp_path / "sample.conllu"
    result = run(["--sentences", "7", "--seed", "3", "-o", str(path)])
    assert result.exit_code == 0 and "7 sentences" in result.output
    assert path.read_text(encoding="utf-8") == text_of(artificial_treebank(7, 3))
    result = run(["-n", "2", "--start", "5"])
    assert (result.exit_code, result.stdout) == (0, text_of(artificial_treebank(2, start=5)))
    assert run(["--sentences", "-1"]).exit_code == 2
