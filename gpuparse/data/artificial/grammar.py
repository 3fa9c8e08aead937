"""The clauses and sentences of the artificial language.

Orders of words vary and clauses nest, so that the verb or noun that decides an attachment (see ``draft.py``) need not
be the nearest. Relative clauses behind the verb, adjectives and genitives far before their noun, and objects of
infinitives before the other verb make arcs cross.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuparse.data.artificial.draft import BETWEEN
from gpuparse.data.artificial.lexicon import (
    ACCUSATIVE,
    CLAUSAL,
    CONTROL,
    COPULA,
    DATIVE,
    DITRANSITIVE,
    GENITIVE,
    INTRANSITIVE,
    NOMINATIVE,
    TRANSITIVE,
    Noun,
    Verb,
    Word,
)
from gpuparse.data.artificial.phrases import INFINITIVE, MAIN, SUBJECT_GAP, SUBORDINATE, Phrases

SHORTEST, LONGEST = 3, 60
"""Bounds of a sentence's length."""

# Lengths to aim for, equally likely: nearly log-normal.
_LENGTHS = (
    *(3, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 16, 16, 17, 17, 18, 18),
    *(19, 20, 20, 21, 22, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 33, 35, 37, 40, 44, 48, 52),
)
# Orders of subject, verb and object, as often as they occur.
_MAIN_ORDERS = ("SVO", "SVO", "SVO", "SVO", "VSO", "VSO", "SOV", "SOV", "OVS", "VOS")
_SUBORDINATE_ORDERS = ("SOV", "SOV", "SOV", "SVO", "VSO")
_RELATIVE_ORDERS = ("SVO", "SVO", "VSO", "SOV")
_ARGUMENTS = {"S": (NOMINATIVE, "nsubj"), "O": (ACCUSATIVE, "obj"), "I": (DATIVE, "iobj")}
_WITH_CLAUSE = (CLAUSAL, CONTROL)


@dataclass(slots=True)
class _Clause:
    """A clause while it is written."""

    subject: int
    dependants: list[int]  # those that certainly belong to the head
    person: int = 2
    head: int = 0
    auxiliary: int = 0
    forms: tuple[Word, ...] = ()  # of the auxiliary
    moved: int = 0  # a word at the clause's beginning that belongs to a later phrase
    noun: tuple[Noun, int] | None = None  # the object's noun and number, where a word that agrees is moved


class ArtificialGrammar(Phrases):
    """Writes one sentence at a time into ``words``, ``heads`` and ``labels``."""

    def sentence(self, seed: int) -> None:
        """Write the sentence of a seed."""
        self.source.seed(seed)
        while True:
            self.reset()
            self._sentence(self.one(_LENGTHS))
            if SHORTEST < len(self.words) <= LONGEST + 1:
                return

    def _sentence(self, budget: int) -> None:
        random, lexicon = self.random, self.lexicon
        first: list[int] = []
        if random() < 0.02:
            first.append(self.put(self.one(lexicon.interjections), "discourse"))
            self.put(lexicon.comma, "punct", first[0])
        asks = random() < 0.06
        if asks:
            first.append(self.put(lexicon.question, "discourse"))
        clauses = 1
        if budget >= 15 and random() < 0.45:
            clauses = 3 if budget >= 30 and random() < 0.4 else 2
        root = self.clause(MAIN, (budget - len(self.words)) // clauses)
        self.labels[root] = "root"
        for rest in range(clauses - 1, 0, -1):
            self._next_clause(root, (budget - len(self.words)) // rest, rest == 1)
        for item in first:
            self.heads[item] = root
        self.put(lexicon.stops[1 if asks else 2 if random() < 0.03 else 0], "punct", root)

    def _next_clause(self, root: int, budget: int, last: bool) -> None:
        """A clause beside the first, after a comma, a conjunction or an adverbial that may belong to either clause."""
        marks: list[int] = []
        adverbial = 0
        if self.random() < 0.4:
            adverbial = self.adverbial()
        else:
            if not last or self.random() < 0.5:
                marks.append(self.put(self.lexicon.comma, "punct"))
            if last:
                marks.append(self.put(self.one(self.lexicon.coordinators), "cc"))
        verb = self.clause(MAIN, budget - len(marks))
        self.heads[verb] = root
        self.labels[verb] = "conj" if marks else "parataxis"
        for mark in marks:
            self.heads[mark] = verb
        if adverbial:
            self.leave_open(adverbial, BETWEEN, root, verb)
            self.decide(root)
            self.open.clear()

    def clause(self, kind: int, budget: int, gap: int = 0) -> int:
        random = self.random
        outer, self.open = self.open, []
        self.noun_edge = self.verb_edge = 0
        frame = self._frame(kind, budget, gap)
        plan = self._plan(kind, frame, budget, gap)
        spare = max(0, budget - len(plan) - plan.count("P"))
        inner = later = 0  # words of a clause inside, of a relative clause behind
        if frame in _WITH_CLAUSE:
            inner = max(3, 2 * spare // 3)
        elif kind == MAIN and spare >= 4 and "S" in plan[:-1] and random() < 0.25:
            later = 4 + int(random() * (spare - 3)) // 2
        # What each part gets of the words left.
        weights = [0 if part in "VHA" else 1 + int(100 * random()) for part in plan]
        left, total = max(0, spare - inner - later), sum(weights) or 1

        state = _Clause(gap if kind == SUBJECT_GAP else 0, [gap] if gap else [])
        state.person = 2 + (self.agreement[gap] & 1) if state.subject else int(4 * random())
        if "F" not in plan:
            self._move(state, plan, frame)
        verb = None if frame == COPULA else self.one(self.lexicon.verbs[frame])
        for part, weight in zip(plan, weights, strict=True):
            if part == "V":
                self._verb(state, verb)
            else:
                self._part(state, part, left * weight // total)
            if self.verb_edge and random() < 0.75:
                self._between(self.verb_edge)
        if inner:
            self._inner_clause(state, frame, inner)
        if later and state.subject in self.cases:
            self.relative_clause(state.subject, later)
        if kind != INFINITIVE:
            self._inflect(state, verb)
        for dependant in state.dependants:
            self.heads[dependant] = state.head
        self.decide(state.head)
        self.open = outer
        self.noun_edge = self.verb_edge = 0
        return state.head

    def _frame(self, kind: int, budget: int, gap: int) -> int:
        if gap and kind != SUBJECT_GAP:
            return TRANSITIVE
        draw = self.random()
        if budget >= 8 and draw < 0.3:
            return CONTROL if draw < 0.18 else CLAUSAL
        if draw > 0.9 and kind in (MAIN, SUBORDINATE):
            return COPULA
        if budget < 2 or draw > 0.74:
            return INTRANSITIVE
        return DITRANSITIVE if draw > 0.64 and budget >= 4 else TRANSITIVE

    def _plan(self, kind: int, frame: int, budget: int, gap: int) -> list[str]:
        """The parts in their order: V verb, H auxiliary, S O I arguments, K predicate, P A adverbials, F clause."""
        random = self.random
        if frame == COPULA:
            plan = ["S", "V", "K"]
        else:
            orders = _MAIN_ORDERS if kind == MAIN else _RELATIVE_ORDERS if gap else _SUBORDINATE_ORDERS
            absent = "S" if kind in (SUBJECT_GAP, INFINITIVE) or (kind == MAIN and random() < 0.08) else ""
            if frame not in (TRANSITIVE, DITRANSITIVE) or (gap and kind != SUBJECT_GAP):
                absent += "O"
            plan = [part for part in self.one(orders) if part not in absent]
            if frame == DITRANSITIVE:
                plan.insert(plan.index("V") + 1 if random() < 0.6 else plan.index("O"), "I")
            if kind != INFINITIVE and random() < 0.22:
                place = plan.index("V")
                plan.insert(place, "H")
                if kind == MAIN and frame not in _WITH_CLAUSE and random() < 0.5:  # the verb goes to the end
                    plan.append(plan.pop(place + 1))
        spare = budget - len(plan) - (4 if frame in _WITH_CLAUSE else 0)
        adverbials = 0
        while spare > 0 and adverbials < 4 and random() < 0.65:
            adverbials += 1
            phrase = spare > 1 and random() < 0.75
            spare -= 3 if phrase else 1
            places = len(plan) + 1
            place = max(int(random() * places), int(random() * places))
            if phrase and random() < 0.7:  # rather behind a noun
                while place and plan[place - 1] not in "SOIP":
                    place -= 1
            plan.insert(place, "P" if phrase else "A")
        if kind == MAIN and spare > 6 and random() < 0.35:
            plan.insert(0, "F")
        return plan

    def _move(self, state: _Clause, plan: list[str], frame: int) -> None:
        """Perhaps begin with a word that belongs to a later phrase, across what stands between."""
        draw = self.random()
        if frame == CONTROL and draw < 0.2:
            state.moved = self.noun_phrase(ACCUSATIVE, int(2 * self.random()), "obj")
        elif "O" in plan[1:] and draw < 0.12:
            noun, number = state.noun = self.any_noun()
            if draw < 0.08:
                forms = self.one(self.lexicon.adjectives)
                state.moved = self.put(forms[8 * noun.gender + 2 * ACCUSATIVE + number], "amod")
            else:
                state.moved = self.noun_phrase(GENITIVE, 0, "nmod")
        self.noun_edge = 0  # what is moved takes no modifier here

    def _part(self, state: _Clause, part: str, share: int) -> None:
        if part in "PA" and self.verb_edge:
            self._between(self.verb_edge)
        elif part in _ARGUMENTS:
            case, label = _ARGUMENTS[part]
            argument = self.noun_phrase(case, share, label, state.noun if part == "O" else None)
            state.dependants.append(argument)
            if part == "S":
                state.subject, state.person = argument, self.person
            elif part == "O" and state.noun:
                self.heads[state.moved] = argument
        elif part == "P":
            self.prepositional(share)
        elif part == "A":
            self.adverb()
        elif part == "F":
            self._adverbial_clause(state, 4 + share)
        elif part == "K":
            self._predicate(state, share)
        else:
            self._auxiliary(state, "aux", self.one(self.lexicon.auxiliaries))

    def _between(self, verb: int) -> None:
        """An adverbial that belongs to ``verb``, whose clause ends here, or to the clause at work."""
        self.leave_open(self.adverbial(), BETWEEN, verb)

    def _verb(self, state: _Clause, verb: Verb | None) -> None:
        if verb is None:
            self._auxiliary(state, "cop", self.lexicon.copula)
            return
        if not state.auxiliary:
            self._negate(state)
        state.head = self.put(verb.infinitive, "")
        self.noun_edge = self.verb_edge = 0

    def _auxiliary(self, state: _Clause, label: str, forms: tuple[Word, ...]) -> None:
        self._negate(state)
        state.auxiliary, state.forms = self.put(forms[0], label), forms
        state.dependants.append(state.auxiliary)
        self.noun_edge = self.verb_edge = 0

    def _negate(self, state: _Clause) -> None:
        if self.random() < 0.05:
            state.dependants.append(self.put(self.lexicon.negation, "advmod"))

    def _inflect(self, state: _Clause, verb: Verb | None) -> None:
        """Give the verb its form, now that person and number are known."""
        form = 4 * (self.random() < 0.4) + state.person
        if state.auxiliary:
            self.words[state.auxiliary] = state.forms[form]
            if verb:
                self.words[state.head] = verb.participle
        elif verb:
            self.words[state.head] = verb.finite[form]

    def _predicate(self, state: _Clause, share: int) -> None:
        if self.random() < 0.5:
            state.head = self.noun_phrase(NOMINATIVE, share, "", self.any_noun())
            return
        agreement = self.agreement.get(state.subject, state.person & 1)
        forms = self.one(self.lexicon.adjectives)
        state.head = self.put(forms[8 * (agreement >> 1) + (state.person & 1)], "")
        self.noun_edge = self.verb_edge = 0

    def _adverbial_clause(self, state: _Clause, budget: int) -> None:
        mark = self.put(self.one(self.lexicon.subordinators), "mark")
        verb = self.clause(SUBORDINATE, budget - 1)
        self.heads[mark] = verb
        self.labels[verb] = "advcl"
        state.dependants.append(verb)
        if self.random() < 0.4:
            self.put(self.lexicon.comma, "punct", verb)
        else:
            self._between(verb)

    def _inner_clause(self, state: _Clause, frame: int, budget: int) -> None:
        """The clause that the verb governs, perhaps with an adverbial before it that may belong to either verb."""
        random, behind = self.random, self.verb_edge
        marked = frame == CLAUSAL and random() < 0.45
        adverbial = self.adverbial() if not marked and random() < 0.85 else 0
        mark = self.put(self.lexicon.complementiser, "mark") if marked else 0
        kind, label = (SUBORDINATE, "ccomp") if frame == CLAUSAL else (INFINITIVE, "xcomp")
        verb = self.clause(kind, budget - marked, state.moved if frame == CONTROL else 0)
        self.labels[verb] = label
        state.dependants.append(verb)
        if mark:
            self.heads[mark] = verb
        if adverbial:
            self.leave_open(adverbial, BETWEEN, *((behind,) if behind else (state.head, verb)))
