"""A sentence while it is written: words in their order, heads as they become known, attachments that stay open.

The words are drawn without regard to the tree. Where a phrase could belong to several words, it stays open until its
clause is complete, and is then decided:

- A prepositional phrase after a noun belongs to the noun if the noun is of the class of its own head (verb or noun),
  else to that head, and so on upwards: a matter of three words, of which no two tell anything.
- An adverbial between two clauses belongs to the verb before it if its class is not that of the verb's last dependant
  before it (of the verb itself where there is none), else to the other verb: a matter of siblings.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from gpuparse.data.artificial.lexicon import EITHER, TO_NOUN, Lexicon, Word, word

NOISE = 0.04
"""The share of decisions that go against their rule."""

# Decisions besides those on prepositions: an adverbial behind the clause of a verb, which may belong to another one;
# an adverb of the clause at work, whose class follows from the sibling before it.
BETWEEN, ADVERB = 3, 4
_ROOT = word("", "", "")
_NOMINAL = ("NOUN", "PROPN", "PRON")


class _OpenPhrase(NamedTuple):
    """A word whose head is not decided."""

    modifier: int
    decision: int  # the preposition's use, BETWEEN or ADVERB
    nearest: int  # the noun (0: none), or the verb, before it
    other: int  # the other verb; 0 for the head of the clause


class Draft:
    """``words``, ``heads`` and ``labels`` of a sentence; index 0 of each is the root."""

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self.source = Random()
        self.random = self.source.random
        self.reset()

    def reset(self) -> None:
        """Start a new sentence."""
        self.words: list[Word] = [_ROOT]
        self.heads = [0]
        self.labels = [""]
        self.agreement: dict[int, int] = {}
        """Of nouns: 2 * gender + number."""
        self.cases: dict[int, int] = {}
        """Of nouns: the case."""
        self.open: list[_OpenPhrase] = []
        """The undecided words of the clause at work."""
        self.noun_edge = self.verb_edge = 0
        """What the words so far end with: the lowest noun, or the verb of a relative clause; else 0."""

    def put(self, item: Word, label: str, head: int = 0) -> int:
        """Write a word and give its number."""
        self.words.append(item)
        self.labels.append(label)
        self.heads.append(head)
        return len(self.words) - 1

    def leave_open(self, modifier: int, decision: int, nearest: int = 0, other: int = 0) -> None:
        """Write down what is to be decided of a word (see ``_OpenPhrase``)."""
        self.open.append(_OpenPhrase(modifier, decision, nearest, other))

    def decide(self, clause: int) -> None:
        """Decide what is open in the clause with head ``clause``, from left to right."""
        self.open.sort()
        for modifier, decision, nearest, other in self.open:
            if decision == BETWEEN:
                head = nearest if self._alternates(nearest, modifier) else other or clause
            elif decision == ADVERB:
                head = clause
                if modifier > clause and not self._alternates(clause, modifier):
                    table = self.lexicon.adverbs[1 - self.words[modifier].kind]
                    self.words[modifier] = table[int(self.random() * len(table))]
            else:
                head = self._of_noun(nearest, clause, decision) if nearest else clause
            self.heads[modifier] = head
            if self.words[modifier].upos == "ADV":
                self.labels[modifier] = "advmod"
            else:
                self.labels[modifier] = "nmod" if self.words[head].upos in _NOMINAL else "obl"

    def _of_noun(self, noun: int, clause: int, use: int) -> int:
        """The head of a prepositional phrase behind ``noun``."""
        words, heads, random = self.words, self.heads, self.random
        if use == EITHER:
            while noun != clause:
                above = heads[noun]
                if (words[noun].kind == words[above].kind) != (random() < NOISE):
                    break
                noun = above
            return noun
        return noun if (use == TO_NOUN) != (random() < NOISE) else clause

    def _alternates(self, verb: int, modifier: int) -> bool:
        """Whether the modifier may follow the verb's last dependant before it."""
        heads = self.heads
        last = modifier - 1
        while last > verb and heads[last] != verb:
            last -= 1
        # The loop ends at the verb itself where it has no dependant on that side.
        return (self.words[max(last, verb)].kind != self.words[modifier].kind) != (self.random() < NOISE)
