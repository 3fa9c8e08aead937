"""The words of the artificial language, made of syllables from a seed, with their inflection.

Every content word has a class, 0 or 1, that its features and its form show: nouns by animacy, verbs by aspect, adverbs
by what they tell (time or place). The grammar decides attachments by the classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple, TypeVar

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
INTRANSITIVE, TRANSITIVE, DITRANSITIVE, CLAUSAL, CONTROL, COPULA = range(6)
EITHER, TO_NOUN, TO_VERB = range(3)

_CASES = ("Nom", "Acc", "Dat", "Gen")
_NUMBERS = ("Sing", "Plur")
_GENDERS = ("Masc", "Fem", "Neut")
_SLOTS = 1024  # of a table of frequencies

Item = TypeVar("Item")


class Word(NamedTuple):
    """A form as it stands in a sentence."""

    form: str
    columns: str  # LEMMA, UPOS, XPOS and FEATS with tabs between
    kind: int  # the class, 0 or 1
    upos: str


class Noun(NamedTuple):
    """A noun or a name."""

    gender: int
    kind: int
    forms: tuple[Word, ...]  # by 2 * case + number


class Verb(NamedTuple):
    """A verb."""

    kind: int
    finite: tuple[Word, ...]  # by 4 * tense + 2 * (third person) + number
    infinitive: Word
    participle: Word


class Preposition(NamedTuple):
    """A preposition, the case it governs and what its phrases belong to."""

    word: Word
    case: int
    use: int  # EITHER, TO_NOUN or TO_VERB


class Lexicon(NamedTuple):
    """All words. Lists of content words hold frequent words more often, so that a uniform choice is Zipf's."""

    nouns: tuple[list[Noun], list[Noun]]  # by class
    names: list[Noun]
    surnames: list[Word]
    verbs: list[list[Verb]]  # by frame, without the copula
    adjectives: list[tuple[Word, ...]]  # by 8 * gender + 2 * case + number
    determiners: list[tuple[Word, ...]]
    relatives: tuple[Word, ...]
    pronouns: tuple[Word, ...]  # by 8 * (third person) + 2 * case + number
    prepositions: tuple[list[Preposition], ...]  # by use
    adverbs: tuple[list[Word], list[Word]]  # by class
    numerals: list[Word]
    auxiliaries: list[tuple[Word, ...]]  # as the finite forms of verbs
    copula: tuple[Word, ...]
    coordinators: list[Word]
    subordinators: list[Word]
    complementiser: Word
    negation: Word
    question: Word
    interjections: list[Word]
    comma: Word
    stops: tuple[Word, Word, Word]  # . ? !


def word(form: str, lemma: str, upos: str, xpos: str = "_", feats: str = "_", kind: int = 0) -> Word:
    """A form with its columns."""
    return Word(form, f"{lemma}\t{upos}\t{xpos}\t{feats}", kind, upos)


def compound(first: Noun, second: Noun, form: int) -> Word:
    """A noun of two nouns: the first's stem before a form of the second."""
    stem = first.forms[0].columns.split("\t", 1)[0]
    last = second.forms[form]
    return Word(stem[:-2] + last.form, stem[:-2] + last.columns, last.kind, last.upos)


@lru_cache(maxsize=4)
def lexicon(language_seed: int) -> Lexicon:
    """The lexicon of a seed."""
    return _Maker(language_seed).lexicon()


class _Maker:
    """Draws by ``Random.random`` alone, whose sequence Python keeps from version to version."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random
        self._taken: set[str] = set()
        consonants = self._shuffled("ptkbdgmnlrsvhjš")[:12]
        vowels = self._shuffled("aeiouä")[:5]
        self._vowels = vowels
        self._onsets = [*consonants, *consonants, "st", "tr", "kl"]
        self._codas = ["", "", "", *self._shuffled("nlrsm")[:3]]
        # Endings: the gender's vowel, then what case and number add.
        self._gender_vowels = vowels[:3]
        self._case_endings = self._shuffled(["s", "n", "m", "ta", "r", "lo", "š", "ki"])
        self._case_endings[0] = ""
        self._person_endings = self._shuffled(["mu", "si", "t", "nt", "ve", "li", "do", "ga"])
        self._noun_themes, self._verb_themes, self._adverb_ends = (
            self._shuffled(pair) for pair in (["k", "m"], ["v", "nd"], ["ne", "ru"])
        )

    def _shuffled(self, given: Iterable[str]) -> list[str]:
        items = list(given)
        for last in range(len(items) - 1, 0, -1):
            other = int(self._random() * (last + 1))
            items[last], items[other] = items[other], items[last]
        return items

    def _one(self, items: list[str]) -> str:
        return items[int(self._random() * len(items))]

    def _stem(self, syllables: int, end: str = "") -> str:
        """A new stem that ends in ``end``. A longer one where nearly all of that length are taken."""
        for attempt in range(1000):
            parts: list[str] = []
            for last in range(syllables + attempt // 50, 0, -1):
                coda = self._one(self._codas) if last > 1 or not parts else ""  # longer stems end in a vowel
                parts.append(self._one(self._onsets) + self._one(self._vowels) + coda)
            stem = "".join(parts) + end
            if stem not in self._taken:
                break
        self._taken.add(stem)
        return stem

    def _size(self) -> int:
        return 1 + (self._random() < 0.7)

    def lexicon(self) -> Lexicon:
        nouns = [self._noun(rank % 2) for rank in range(96)]
        frames = {INTRANSITIVE: 16, TRANSITIVE: 24, DITRANSITIVE: 8, CLAUSAL: 8, CONTROL: 8}
        verbs = [_frequencies([self._verb(rank % 2) for rank in range(count)]) for count in frames.values()]
        adverbs = [self._adverb(rank % 2) for rank in range(28)]
        auxiliaries = [self._finite(self._stem(1), "AUX", "VA") for _ in range(3)]
        return Lexicon(
            nouns=(_frequencies(nouns[0::2]), _frequencies(nouns[1::2])),
            names=_frequencies([self._name() for _ in range(24)]),
            surnames=_frequencies([self._surname() for _ in range(20)]),
            verbs=verbs,
            adjectives=_frequencies([self._adjective() for _ in range(40)]),
            determiners=_frequencies([self._agreeing(self._stem(1), "DET", "|PronType=Dem") for _ in range(3)]),
            relatives=self._agreeing(self._stem(1), "PRON", "|PronType=Rel"),
            pronouns=self._pronouns(),
            prepositions=tuple(self._prepositions(use) for use in (EITHER, TO_NOUN, TO_VERB)),
            adverbs=(_frequencies(adverbs[0::2]), _frequencies(adverbs[1::2])),
            numerals=self._plain(8, "NUM", "CD", "NumForm=Word|NumType=Card", syllables=2),
            auxiliaries=_frequencies(auxiliaries),
            copula=self._finite(self._stem(1), "AUX", "VC"),
            coordinators=_frequencies(self._plain(3, "CCONJ")),
            subordinators=_frequencies(self._plain(5, "SCONJ", "IS")),
            complementiser=self._plain(1, "SCONJ", "IC")[0],
            negation=self._plain(1, "PART", feats="Polarity=Neg")[0],
            question=self._plain(1, "PART", feats="PartType=Int")[0],
            interjections=_frequencies(self._plain(4, "INTJ")),
            comma=word(",", ",", "PUNCT", ","),
            stops=(word(".", ".", "PUNCT", "."), word("?", "?", "PUNCT", "."), word("!", "!", "PUNCT", ".")),
        )

    def _plain(self, count: int, upos: str, xpos: str = "_", feats: str = "_", syllables: int = 1) -> list[Word]:
        forms = [self._stem(syllables) for _ in range(count)]
        return [word(form, form, upos, xpos, feats) for form in forms]

    def _ending(self, gender: int, case: int, number: int) -> str:
        if gender == 2 and case == ACCUSATIVE:  # the neuter's accusative is like its nominative
            case = NOMINATIVE
        return self._gender_vowels[gender] + self._case_endings[2 * case + number]

    def _noun(self, kind: int) -> Noun:
        stem = self._stem(self._size()) + self._noun_themes[kind]
        gender = int(self._random() * 3)
        feats = f"Animacy={('Anim', 'Inan')[kind]}|Case={{}}|Gender={_GENDERS[gender]}|Number={{}}"
        return Noun(gender, kind, self._declined(stem, gender, gender, "NOUN", "NN", feats, kind))

    def _name(self) -> Noun:
        """A name of a person: as nouns, but nobody asks for its plural."""
        stem = self._stem(2).capitalize()
        gender = int(self._random() * 2)
        feats = f"Animacy=Anim|Case={{}}|Gender={_GENDERS[gender]}|Number={{}}"
        return Noun(gender, 0, self._declined(stem, gender, gender, "PROPN", "NP", feats))

    def _declined(
        self, stem: str, gender: int, of_lemma: int, upos: str, xpos: str, feats: str, kind: int = 0
    ) -> tuple[Word, ...]:
        """By 2 * case + number, whose names are put into ``feats``; ``of_lemma`` is the gender of the lemma."""
        lemma = stem + self._ending(of_lemma, 0, 0)
        return tuple(
            word(stem + self._ending(gender, c, n), lemma, upos, xpos, feats.format(case, number), kind)
            for c, case in enumerate(_CASES)
            for n, number in enumerate(_NUMBERS)
        )

    def _surname(self) -> Word:
        form = self._stem(2, "d").capitalize()
        return word(form, form, "PROPN", "NP")

    def _finite(
        self, stem: str, upos: str, xpos: str, aspect: str = "", lemma: str = "", kind: int = 0
    ) -> tuple[Word, ...]:
        forms = []
        for tense, name in enumerate(("Past", "Pres")):
            for person in (1, 3):
                for number in (0, 1):
                    # An ending for the person and number, and a vowel before it for the tense.
                    form = stem + self._vowels[tense] + self._person_endings[2 * (person == 3) + number]
                    feats = f"{aspect}Mood=Ind|Number={_NUMBERS[number]}|Person={person}|Tense={name}|VerbForm=Fin"
                    forms.append(word(form, lemma or stem, upos, xpos, feats, kind))
        return tuple(forms)

    def _verb(self, kind: int) -> Verb:
        stem = self._stem(self._size()) + self._verb_themes[kind]
        aspect = f"Aspect={('Imp', 'Perf')[kind]}|"
        infinitive = stem + self._vowels[2] + self._person_endings[5]
        participle = stem + self._vowels[3] + self._person_endings[6]
        return Verb(
            kind,
            self._finite(stem, "VERB", "VF", aspect, infinitive, kind),
            word(infinitive, infinitive, "VERB", "VI", f"{aspect}VerbForm=Inf", kind),
            word(participle, infinitive, "VERB", "VP", f"{aspect}VerbForm=Part", kind),
        )

    def _agreeing(self, stem: str, upos: str, feats: str, xpos: str = "_") -> tuple[Word, ...]:
        """The forms of a word that agrees with a noun."""
        forms: list[Word] = []
        for gender, name in enumerate(_GENDERS):
            forms += self._declined(stem, gender, 0, upos, xpos, f"Case={{}}|Gender={name}|Number={{}}{feats}")
        return tuple(forms)

    def _adjective(self) -> tuple[Word, ...]:
        return self._agreeing(self._stem(self._size()) + "l", "ADJ", "", "JJ")

    def _pronouns(self) -> tuple[Word, ...]:
        forms: list[Word] = []
        for person in (1, 3):
            feats = f"Case={{}}|Number={{}}|Person={person}|PronType=Prs"
            forms += self._declined(self._stem(1), 0, 0, "PRON", "_", feats)
        return tuple(forms)

    def _prepositions(self, use: int) -> list[Preposition]:
        cases = {
            EITHER: (DATIVE, ACCUSATIVE, DATIVE, ACCUSATIVE),
            TO_NOUN: (GENITIVE, DATIVE),
            TO_VERB: (DATIVE, ACCUSATIVE),
        }
        words = self._plain(len(cases[use]), "ADP", "IN")
        return _frequencies([Preposition(item, case, use) for item, case in zip(words, cases[use], strict=True)])

    def _adverb(self, kind: int) -> Word:
        form = self._stem(self._size()) + self._adverb_ends[kind]
        return word(form, form, "ADV", ("RT", "RL")[kind], f"AdvType={('Tim', 'Loc')[kind]}", kind)


def _frequencies(items: Sequence[Item]) -> list[Item]:
    """A list that holds the item of rank r in proportion to 1 / (r + 3)."""
    weights = [1_000_000 // (rank + 3) for rank in range(len(items))]
    total = sum(weights)
    return [item for item, weight in zip(items, weights, strict=True) for _ in range(1 + _SLOTS * weight // total)]
