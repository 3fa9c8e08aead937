"""Documents to evaluate: made up, or read from a file, then changed at random without changing their text."""

from __future__ import annotations

import itertools
from random import Random

LABELS = ["root", "nsubj", "nsubj:pass", "obj", "aux", "case", "case:loc", "cc", "punct", "acl:relcl", "odd"]
TAGS = ["NOUN", "VERB", "ADP", "_"]
FEATS = ["_", "Case=Nom|Number=Sing", "Number=Sing|Case=Nom", "Number=Sing|Case=Nom|Odd=Yes", "Number[psor]=Sing"]
LEMMAS = ["a", "b", "_"]
FORMS = ["a", "ab", "B", "abc", "Ba", "a b", "10\u00a0000", "\u3000x", "é", "ß", "𝒳y"]
SPACES = str.maketrans("", "", " \u00a0\u3000")


class Word:
    def __init__(self, form, random):
        self.form = form
        self.head = None
        self.columns = {}
        for column in ("lemma", "upos", "xpos", "feats", "deprel"):
            self.change(column, random)

    def change(self, column, random):
        choices = {"lemma": LEMMAS, "feats": FEATS, "deprel": LABELS}.get(column, TAGS)
        self.columns[column] = random.choice(choices)


class Token:
    """What is written as one; ``words`` has more than one where it is a range."""

    def __init__(self, form, words):
        self.form = form
        self.words = words


def words_of(sentence):
    return [word for token in sentence for word in token.words]


def made_up(random, sentences):
    document = []
    for _ in range(sentences):
        sentence = []
        for _ in range(random.randint(1, 8)):
            form = random.choice(FORMS)
            sentence.append(Token(form, [Word(form, random)]))
        words = words_of(sentence)
        random.shuffle(words)
        for i, word in enumerate(words):
            word.head = random.choice(words[:i]) if i else None
        document.append(sentence)
    return document


def parse(text):
    """A document of a CoNLL-U text."""
    document = []
    for block in text.strip("\n").split("\n\n"):
        sentence, heads, words, joined = [], [], [], 0
        for line in block.split("\n"):
            columns = line.split("\t")
            if line.startswith("#") or "." in columns[0]:
                continue
            if "-" in columns[0]:
                joined = int(columns[0].split("-")[1])
                sentence.append(Token(columns[1], []))
                continue
            word = Word(columns[1], Random(0))
            word.columns = dict(zip(["lemma", "upos", "xpos", "feats"], columns[2:6], strict=True), deprel=columns[7])
            heads.append(int(columns[6]))
            words.append(word)
            if int(columns[0]) <= joined:
                sentence[-1].words.append(word)
            else:
                sentence.append(Token(columns[1], [word]))
        for word, head in zip(words, heads, strict=True):
            word.head = words[head - 1] if head else None
        document.append(sentence)
    return document


def text_of(document, random=None):
    """The document as CoNLL-U; with ``random``, comments and empty nodes besides."""
    lines = []
    for sentence in document:
        if random and random.random() < 0.5:
            lines.append("# text = whatever")
        ids = {word: i for i, word in enumerate(words_of(sentence), 1)}
        for token in sentence:
            first, last = ids[token.words[0]], ids[token.words[-1]]
            if last > first:
                lines.append("\t".join([f"{first}-{last}", token.form, *"________"]))
            for word in token.words:
                c = word.columns
                head = str(ids[word.head]) if word.head else "0"
                morphology = [c["lemma"], c["upos"], c["xpos"], c["feats"]]
                lines.append("\t".join([str(ids[word]), word.form, *morphology, head, c["deprel"], "_", "_"]))
                if random and random.random() < 0.05:
                    lines.append("\t".join([f"{ids[word]}.1", "empty", *"________"]))
        lines.append("")
    return "\n".join(lines) + "\n"


def copy(document):
    new = {}
    for sentence in document:
        for word in words_of(sentence):
            new[word] = object.__new__(Word)
            new[word].form, new[word].columns = word.form, dict(word.columns)
    for word, twin in new.items():
        twin.head = new[word.head] if word.head else None
    return [[Token(token.form, [new[word] for word in token.words]) for token in sentence] for sentence in document]


def changed(document, random, rate=0.1, cut=True):
    """Another document of the same text: tags, labels, heads and, with ``cut``, words and sentences changed."""
    document = copy(document)
    if cut:
        document = _cut_sentences(document, random, rate)
        document = [_cut_tokens(sentence, random, rate) for sentence in document]
    for sentence in document:
        words = words_of(sentence)
        for word in words:
            for column in word.columns:
                if random.random() < rate / 2:
                    word.change(column, random)
            if random.random() < rate:
                _attach(word, random.choice(words))
        if random.random() < rate:
            _make_root(random.choice(words))
    return document


def _attach(word, head):
    """Give a word another head unless that would break the tree."""
    above = head
    while above is not None and above is not word:
        above = above.head
    if above is None and word.head is not None:
        word.head = head


def _make_root(word):
    """Turn the arcs from the root to the word around."""
    head = None
    while word is not None:
        word.head, head, word = head, word, word.head


def _cut_sentences(document, random, rate):
    new = []
    for sentence in document:
        if new and random.random() < rate:  # joined with the sentence before
            root = next(word for word in words_of(new[-1]) if word.head is None)
            next(word for word in words_of(sentence) if word.head is None).head = root
            new[-1].extend(sentence)
        else:
            new.append(sentence)
        if len(new[-1]) > 1 and random.random() < rate:
            at = random.randrange(1, len(new[-1]))
            halves = [new[-1][:at], new[-1][at:]]
            new[-1:] = halves
            for half in halves:
                words = words_of(half)
                loose = [word for word in words if word.head not in words]
                for word in loose:
                    word.head = None if word is loose[0] else loose[0]
    return new


def _cut_tokens(sentence, random, rate):
    new = []
    for token in sentence:
        if new and random.random() < rate:
            new[-1] = _joined(new[-1], token, words_of(new) + words_of(sentence), random)
        else:
            new.append(token)
        if random.random() < rate:
            new[-1:] = _split(new[-1], random)
        last = new[-1]
        if len(last.words) > 1:
            for word in last.words:
                if random.random() < rate:
                    word.form = random.choice([word.form.upper(), word.form.lower(), *FORMS])
    return new


def _joined(before, token, others, random):
    form = before.form + token.form
    words = before.words + token.words
    if random.random() < 0.5 and len(words) == 2:  # one word of two
        kept, lost = words if random.random() < 0.5 else words[::-1]
        _make_way(kept, lost, others)
        kept.form = form
        words = [kept]
    return Token(form, words)


def _make_way(kept, lost, others):
    """Take a word out of the tree, its neighbour in its place."""
    above = kept
    while above is not None and above is not lost:
        above = above.head
    if above is lost:
        kept.head = lost.head
    for word in others:
        if word.head is lost:
            word.head = kept


def _split(token, random):
    text = token.form.translate(SPACES)
    parts = len(token.words) if len(token.words) > 1 else random.randint(2, 3)
    if len(text) < parts:
        return [token]
    cuts = [0, *sorted(random.sample(range(1, len(text)), parts - 1)), len(text)]
    forms = [text[a:b] for a, b in itertools.pairwise(cuts)]
    words = list(token.words)
    while len(words) < parts:
        word = Word("", random)
        word.head = words[0]
        words.append(word)
    for word, form in zip(words, forms, strict=True):
        word.form = form
    if random.random() < 0.3 and len(words) > len(token.words):
        return [Token(token.form, words)]
    return [Token(form, [word]) for form, word in zip(forms, words, strict=True)]
