"""The phrases of the artificial language: nouns with what agrees with them and hangs on them, prepositions, adverbs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from gpuparse.data.artificial.draft import ADVERB, Draft
from gpuparse.data.artificial.lexicon import EITHER, GENITIVE, TO_NOUN, TO_VERB, Noun, Word, compound, word

MAIN, SUBORDINATE, SUBJECT_GAP, OBJECT_GAP, INFINITIVE = range(5)
"""Kinds of clauses."""

_DIGITS = [word(str(number), str(number), "NUM", "CD", "NumForm=Digit|NumType=Card") for number in range(1000)]
_USES = (*[EITHER] * 5, TO_NOUN, TO_VERB)

Item = TypeVar("Item")


class Phrases(Draft, ABC):
    """Writes phrases. A budget is how many words a phrase may have beyond its shortest form, more or less."""

    person = 2
    """Of the noun phrase written last, what a verb agrees with: 2 * (third person) + number."""

    @abstractmethod
    def clause(self, kind: int, budget: int, gap: int = 0) -> int:
        """Write a clause of about ``budget`` words and give its head, whose own head and label the caller sets.

        ``gap`` is a word written before that belongs to the clause: a relative pronoun, the object of an infinitive.
        """

    def one(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[int(self.random() * len(items))]

    def noun_phrase(self, case: int, budget: int, label: str, chosen: tuple[Noun, int] | None = None) -> int:
        """Write a noun phrase and give its head. ``chosen`` is the noun and its number where they are settled."""
        draw = self.random()
        if chosen is None and budget <= 0 and draw < 0.3:
            return self._pronoun(case, label)
        if chosen is None and budget <= 1 and draw < 0.42:
            return self._name(case, label)
        noun, number = chosen or self.any_noun()
        head, budget = self._noun(noun, number, case, budget, label)
        joined = budget > 0 and self._noun_modifiers(head, budget)
        self.person = 3 if joined else 2 + number
        return head

    def any_noun(self) -> tuple[Noun, int]:
        """A noun and a number for it."""
        return self.one(self.lexicon.nouns[int(2 * self.random())]), int(self.random() < 0.3)

    def agreeing(self, forms: tuple[Word, ...], noun: int, case: int) -> Word:
        """The form of a case that agrees with a noun of the sentence."""
        agreement = self.agreement[noun]
        return forms[8 * (agreement >> 1) + 2 * case + (agreement & 1)]

    def prepositional(self, budget: int) -> None:
        """Write a prepositional phrase; what it belongs to stays open."""
        noun, use = self.noun_edge, self.one(_USES)
        self.leave_open(self._prepositional(use, budget), use, noun)

    def adverb(self) -> None:
        """Write an adverb of the clause at work."""
        self.leave_open(self.put(self._any_adverb(), "advmod"), ADVERB)
        self.noun_edge = self.verb_edge = 0

    def adverbial(self) -> int:
        """Write an adverbial that stands between two clauses; the caller leaves it open."""
        if self.random() < 0.65:
            modifier = self.put(self._any_adverb(), "advmod")
        else:
            modifier = self._prepositional(TO_VERB, int(2 * self.random()))
        self.noun_edge = self.verb_edge = 0
        return modifier

    def relative_clause(self, noun: int, budget: int) -> None:
        """Write a relative clause of a noun. The pronoun, which the verb governs, agrees with the noun."""
        of_object = self.random() < 0.3
        form = self.agreeing(self.lexicon.relatives, noun, int(of_object))
        pronoun = self.put(form, "obj" if of_object else "nsubj")
        self.agreement[pronoun] = self.agreement[noun]
        verb = self.clause(OBJECT_GAP if of_object else SUBJECT_GAP, budget - 1, pronoun)
        self.heads[verb] = noun
        self.labels[verb] = "acl:relcl"
        self.verb_edge = verb

    def _any_adverb(self) -> Word:
        return self.one(self.lexicon.adverbs[int(2 * self.random())])

    def _prepositional(self, use: int, budget: int) -> int:
        preposition = self.one(self.lexicon.prepositions[use])
        mark = self.put(preposition.word, "case")
        head = self.noun_phrase(preposition.case, budget, "obl")
        self.heads[mark] = head
        return head

    def _pronoun(self, case: int, label: str) -> int:
        draw = int(4 * self.random())
        self.noun_edge = self.verb_edge = 0
        self.person = draw
        return self.put(self.lexicon.pronouns[8 * (draw >> 1) + 2 * case + (draw & 1)], label)

    def _name(self, case: int, label: str) -> int:
        name = self.one(self.lexicon.names)
        head = self._put_noun(name.forms[2 * case], name.gender, 0, case, label)
        if self.random() < 0.35:
            self.put(self.one(self.lexicon.surnames), "flat", head)
        self.person = 2
        return head

    def _put_noun(self, form: Word, gender: int, number: int, case: int, label: str) -> int:
        head = self.put(form, label)
        self.agreement[head] = 2 * gender + number
        self.cases[head] = case
        self.noun_edge = head
        self.verb_edge = 0
        return head

    def _noun(self, noun: Noun, number: int, case: int, budget: int, label: str) -> tuple[int, int]:
        """A noun after its determiner, numeral and adjectives; what is left of the budget too."""
        random = self.random
        before = []
        slot = 8 * noun.gender + 2 * case + number
        if random() < 0.45:
            before.append(self.put(self.one(self.lexicon.determiners)[slot], "det"))
            budget -= 1
        if number and random() < 0.12:
            numeral = self.one(_DIGITS if random() < 0.5 else self.lexicon.numerals)
            before.append(self.put(numeral, "nummod"))
            budget -= 1
        chance = 0.4
        while budget > 0 and random() < chance:
            before.append(self.put(self.one(self.lexicon.adjectives)[slot], "amod"))
            budget -= 1
            chance = 0.2
        form = noun.forms[2 * case + number]
        if random() < 0.03:
            form = compound(self.one(self.lexicon.nouns[0]), noun, 2 * case + number)
        head = self._put_noun(form, noun.gender, number, case, label)
        for item in before:
            self.heads[item] = head
        return head, budget

    def _noun_modifiers(self, noun: int, budget: int) -> bool:
        """What follows a noun: a genitive, an adjective, and then a phrase, conjuncts or a relative clause.

        Says whether the noun has conjuncts.
        """
        random = self.random
        lowest = noun
        if random() < 0.3:
            inner = int(random() * random() * budget)
            lowest = self.noun_phrase(GENITIVE, inner, "nmod")
            self.heads[lowest] = noun
            budget -= 1 + inner
            if self.noun_edge != lowest:
                if inner:  # it has open modifiers of its own: what followed could cross them
                    return False
                self.noun_edge = lowest = noun  # a pronoun
        if budget > 0 and random() < 0.15:
            target = lowest if random() < 0.5 else noun
            form = self.agreeing(self.one(self.lexicon.adjectives), target, self.cases[target])
            self.put(form, "amod", target)
            budget -= 1
            self.noun_edge = lowest = target
        draw = random()
        if budget >= 4 and draw < 0.42:
            self.relative_clause(lowest if random() < 0.55 else noun, budget)
        elif budget >= 2 and draw < 0.7:
            self.prepositional(budget - 2)
        elif budget >= 2:
            first = lowest if random() < 0.4 else noun
            self._conjuncts(first, budget)
            return first == noun
        return False

    def _conjuncts(self, first: int, budget: int) -> None:
        """More nouns of the case of ``first`` and mostly of its class."""
        random = self.random
        marks = []
        if budget >= 4 and random() < 0.35:
            comma = self.put(self.lexicon.comma, "punct")
            self.heads[comma] = self._conjunct(first, 0)
            budget -= 2
            if random() < 0.5:
                marks.append(self.put(self.lexicon.comma, "punct"))
        marks.append(self.put(self.one(self.lexicon.coordinators), "cc"))
        last = self._conjunct(first, budget - 2)
        for mark in marks:
            self.heads[mark] = last

    def _conjunct(self, first: int, budget: int) -> int:
        kind = self.words[first].kind
        noun = self.one(self.lexicon.nouns[kind if self.random() < 0.8 else 1 - kind])
        head = self.noun_phrase(self.cases[first], budget, "conj", (noun, int(self.random() < 0.3)))
        self.heads[head] = first
        return head
