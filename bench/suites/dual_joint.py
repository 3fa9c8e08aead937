"""Joint parsing of the suite dual: a grammar with a tagger, and a lexicalised grammar with a dependency parser.

All that the grammars know is counted in a treebank (``gpuparse.data.grammar``); the dependency parser is a trained one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import gpuparse as gp
from bench.models import ENGLISH, check_trained, treebank_file
from bench.output import LOG
from bench.parsers import encoded, scores_of
from bench.registry import Args, Measured
from bench.suites.dual_tables import Convergence, report_dependencies, report_tagger
from gpuparse.data.batches import batches_by_length
from gpuparse.data.brackets import Constituent
from gpuparse.data.conllu import read_conllu
from gpuparse.data.constituents import lexicalise_sentence, name_rows, tree_of
from gpuparse.data.grammar import CountedModels, Trigrams, read_models
from gpuparse.data.sentence import Sentence
from gpuparse.decoding.dual.grammars import Constituents, Lexicalized
from gpuparse.decoding.dual.joint import constituents_and_dependencies
from gpuparse.decoding.dual.oracles import TaggerOracle, tag_indicators
from gpuparse.dual import Agreement, DualDecomposition, Found
from gpuparse.evaluate.brackets import bracket_scores
from gpuparse.structures.constituents import tags_of

ITERATIONS = 50
LIMITS = (1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 40, 50)
"""Iterations of figure 5."""


class EdgeTagger:
    """An oracle of tags [B, n, T]: chains of trigrams, the edge around each sentence, within which it alone is seen."""

    def __init__(self, trigrams: Trigrams, unary: Tensor, lengths: Tensor) -> None:
        self.trigrams, self.unary, self.lengths = trigrams, unary, lengths
        self.device, self.shapes = unary.device, {"tags": tuple(unary.shape)}

    def _padded(self, unary: Tensor) -> TaggerOracle:
        padded, longer = self.trigrams.pad(unary, self.lengths)
        return TaggerOracle(padded, self.trigrams.scores, longer)

    def best(self, penalties: Mapping[str, Tensor]) -> Found:
        found = self._padded(self.unary + penalties["tags"] if penalties else self.unary).best({})
        tags = self.trigrams.strip(found.structures["tags"], self.lengths)
        return Found(found.value, {"tags": tag_indicators(tags, self.unary.shape[2])}, {"tags": tags})

    def score(self, tags: Tensor) -> Tensor:
        """Scores [B] of chains, without penalties: those of the only chains that are left."""
        only = torch.where(tag_indicators(tags, self.unary.shape[2]) > 0, self.unary, -torch.inf)
        return self._padded(only).best({}).value

    def take(self, rows: Tensor) -> EdgeTagger:
        return EdgeTagger(self.trigrams, self.unary[rows], self.lengths[rows])


def parse_and_tag(parser: Constituents, tagger: EdgeTagger) -> DualDecomposition:
    """As ``gpuparse.decoding.dual.joint.parse_and_tag``, with a tagger that knows where sentences begin and end."""

    def primal(found: Sequence[Found], rows: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        tree = found[0].structures["tree"]
        own = tags_of(tree)
        score = parser.take(rows).score(tree) + tagger.take(rows).score(own)
        return {"tree": tree, "tags": own}, torch.where(tree[:, 0, 0] < 0, -torch.inf, score)

    return DualDecomposition([parser, tagger], primal=primal, iterations=ITERATIONS)


class Trees:
    """The trees of a system, and what they come to: phrases by their tags, whatever relations the grammar knows."""

    def __init__(self) -> None:
        self.trees: list[Constituent | None] = []
        self.heads: list[list[int]] = []

    def add(
        self, rows: Tensor, grammar: gp.Grammar, sentences: Sequence[Sentence], heads: Tensor | None = None
    ) -> None:
        for b, sentence in enumerate(sentences):
            named = name_rows(rows[b], grammar.symbols)
            some = [row._replace(symbol=row.symbol.partition(":")[0]) for row in named]
            self.trees.append(tree_of(some, sentence.words) if some else None)
            self.heads.append([] if heads is None else heads[b, 1 : len(sentence) + 1].tolist())

    def measure(self, sentences: Sequence[Sentence]) -> dict[str, float]:
        gold = [lexicalise_sentence(sentence) for sentence in sentences]
        found = bracket_scores([made.tree for made in gold if made is not None], self.trees)
        pairs = zip(sentences, self.heads, strict=True)
        right = sum(sum(map(int.__eq__, sentence.heads, own)) for sentence, own in pairs)
        phrases = {name: 100 * getattr(found.labelled, name) for name in ("precision", "recall", "f1")}
        none = sum(tree is None for tree in self.trees)
        uas = 100 * right / sum(map(len, sentences))
        return {**phrases, "tags": 100 * found.tags.recall, "uas": uas, "without a tree": none}


def counted(args: Args) -> CountedModels:
    """All models of the training file, in double precision."""
    LOG.print(f"counting in {ENGLISH.learned}, rules seen {args.min_count} times at least")
    sentences = read_conllu(treebank_file(args, ENGLISH.learned))
    options: dict[str, Any] = {"min_count": args.min_count, "relations": not args.no_relations}
    models = read_models(sentences, **options, dtype=torch.float64)
    LOG.print(f"{models.grammar}")
    return models


def dev_sentences(args: Args, most: int, *, tuned: bool) -> list[Sentence]:
    """Of up to ``most`` words: those by which weights are chosen, or those after them."""
    some = [s for s in read_conllu(treebank_file(args, ENGLISH.parsed)) if 0 < len(s) <= most]
    return some[: args.tuned] if tuned else some[args.tuned :][: args.first or None]


def batches(sentences: Sequence[Sentence], words: int) -> tuple[list[Sentence], list[list[Sentence]]]:
    """Sentences of like lengths together; and all of them in this order."""
    found = [[sentences[i] for i in indices] for indices in batches_by_length([len(s) for s in sentences], words)]
    return [sentence for batch in found for sentence in batch], found


def stacked(tables: Sequence[Tensor], value: float = 0.0) -> Tensor:
    """Tables of sentences side by side [B, ..], filled up."""
    sizes = [max(sizes) for sizes in zip(*(table.shape for table in tables), strict=True)]
    found = tables[0].new_full((len(tables), *sizes), value)
    for b, table in enumerate(tables):
        found[b][tuple(slice(size) for size in table.shape)] = table
    return found


def emissions_of(models: CountedModels, batch: Sequence[Sentence]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(sentence) for sentence in batch])
    return stacked([models.emissions.score(sentence.words) for sentence in batch]), lengths


def _tagger(models: CountedModels, unary: Tensor, lengths: Tensor, weight: float = 1.0) -> EdgeTagger:
    """That of the counts, all its scores weighted."""
    trigrams = Trigrams(models.trigrams.tags, weight * models.trigrams.scores)
    return EdgeTagger(trigrams, weight * unary, lengths)


def or_else(one: dict[str, Tensor], other: dict[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    """Structures, the others where a sentence has no tree; and how many of these there are."""
    none = one["tree"][:, 0, 0] < 0
    return {k: torch.where(none.view(-1, *[1] * (x.dim() - 1)), other[k], x) for k, x in one.items()}, int(none.sum())


def tagger(args: Args) -> Measured:
    """Sections 4.1 and 7.2: table 3, and a row of table 1.

    Of several weights of the tagger against the parser, the best on sentences that are not measured is taken.
    """
    models = counted(args)
    grammar = models.grammar.merged()

    def joint(batch: Sequence[Sentence], weight: float) -> Agreement:
        unary, lengths = emissions_of(models, batch)
        return parse_and_tag(Constituents(grammar, unary, lengths), _tagger(models, unary, lengths, weight)).run()

    weight = choose("tagger", joint, grammar, dev_sentences(args, args.words, tuned=True), args.tagger_weights)
    sentences, parts = batches(dev_sentences(args, args.words, tuned=False), 1000)
    systems = {name: Trees() for name in ("fixed tags", "parser alone", "joint")}
    convergence, right, none = Convergence(), 0, 0
    for number, batch in enumerate(parts):
        unary, lengths = emissions_of(models, batch)
        parser = Constituents(grammar, unary, lengths)
        tags = _tagger(models, unary, lengths).best({}).structures["tags"]
        gold = stacked([torch.tensor([models.trigrams.tags.index(t) for t in s.upos]) for s in batch], -2)
        right += int((tags == gold).sum())
        alone = parser.best({}).structures
        only = torch.where(tag_indicators(tags, unary.shape[2]) > 0, unary, -torch.inf)
        fixed, without = or_else(replace(parser, tags=only).best({}).structures, alone)
        found = joint(batch, weight)
        for name, structures in zip(systems, (fixed, alone, found.structures), strict=True):
            systems[name].add(structures["tree"], grammar, batch)
        none += without
        convergence.add(found)
        LOG.print(f"tagger: {number + 1} of {len(parts)} batches")
    data = {
        "sentences": len(sentences),
        "rules": len(grammar.scores),
        "weight": weight,
        "iterations": convergence.row(),
        "within_10": convergence.within(10),
        "tagger alone": 100 * right / sum(map(len, sentences)),
        "fixed tags without a tree": none,
        **{name: system.measure(sentences) for name, system in systems.items()},
    }
    return Measured(data, report_tagger(data))


def choose(
    title: str,
    joint: Callable[[Sequence[Sentence], float], Agreement],
    grammar: gp.Grammar,
    sentences: Sequence[Sentence],
    weights: Sequence[float],
) -> float:
    """The weight of the second model with which F1 is best."""
    if len(weights) == 1:
        return weights[0]
    ordered, parts = batches(sentences, 400)
    best = []
    for weight in weights:
        system = Trees()
        for batch in parts:
            system.add(joint(batch, weight).structures["tree"], grammar, batch)
        best.append((system.measure(ordered)["f1"], weight))
        LOG.print(f"{title}: F1 {best[-1][0]:.2f} with weight {weight:g} on {len(sentences)} other sentences")
    return max(best)[1]


class Recorded:
    """The trees that dual decomposition would give if it ended sooner."""

    def __init__(self, decomposition: DualDecomposition, B: int) -> None:
        assert decomposition.primal is not None
        self.primal = decomposition.primal
        decomposition.primal = self
        self.score = torch.full((B,), -torch.inf, dtype=torch.float64)
        self.history: list[Tensor] = []

    def __call__(self, found: Sequence[Found], rows: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        structures, score = self.primal(found, rows)
        tree = structures["tree"]
        last = self.history[-1].clone() if self.history else tree.new_full((len(self.score), *tree.shape[1:]), -1)
        better = score > self.score[rows]
        last[rows[better]], self.score[rows[better]] = tree[better], score[better]
        self.history.append(last)
        return structures, score

    def after(self, iterations: int) -> Tensor:
        return self.history[min(iterations, len(self.history)) - 1]


class Dependencies:
    """A lexicalised grammar and a dependency parser with grandparents, as they are.

    Args:
        arcs: weight of the grammar's arcs against its rules and emissions.
    """

    def __init__(self, models: CountedModels, parser: gp.Parser, arcs: float) -> None:
        self.models, self.parser, self.weight = models, parser, arcs

    def grammar(self, batch: Sequence[Sentence]) -> Lexicalized:
        """The scores of model 1; its arcs see the tags of the trigram tagger."""
        models = self.models
        unary, lengths = emissions_of(models, batch)
        tags = _tagger(models, unary, lengths).best({}).structures["tags"]
        names = [[models.trigrams.tags[t] for t in row[:n]] for row, n in zip(tags.tolist(), lengths, strict=True)]
        pairs = zip(batch, names, strict=True)
        arcs = stacked([models.bilexical.score(sentence.words, own) for sentence, own in pairs])
        return Lexicalized(models.grammar, unary, self.weight * arcs, lengths)

    def scores(self, batch: Sequence[Sentence]) -> gp.Scores:
        """Of the dependency parser."""
        return scores_of(self.parser, encoded(self.parser, batch))

    def joint(self, one: Lexicalized, other: gp.Scores, weight: float) -> DualDecomposition:
        how: dict[str, Any] = {"weight": weight, "iterations": ITERATIONS}
        return constituents_and_dependencies(one.grammar, one.tags, one.arcs, other, **how)


def dependencies(args: Args) -> Measured:
    """Sections 4.2 and 7.1: table 2, a row of table 1, and what figure 5 shows.

    Of several weights of the dependency parser (gamma), the best on sentences that are not measured is taken.
    """
    parser = gp.Parser.load(check_trained(args.models / "english_trilinear_0", "ppc"))
    both = Dependencies(counted(args), parser, args.arcs_weight)
    grammar = both.models.grammar

    def joint(batch: Sequence[Sentence], weight: float) -> Agreement:
        return both.joint(both.grammar(batch), both.scores(batch), weight).run()

    weight = choose("dependencies", joint, grammar, dev_sentences(args, args.words2, tuned=True), args.gamma)
    sentences, parts = batches(dev_sentences(args, args.words2, tuned=False), 400)
    systems: dict[str, Trees] = {name: Trees() for name in ("model 1", "hard constraint", "joint")}
    limited = {limit: Trees() for limit in LIMITS}
    same = dict.fromkeys(LIMITS, 0)
    convergence, right, none = Convergence(), 0, 0
    for number, batch in enumerate(parts):
        one, other = both.grammar(batch), both.scores(batch)
        alone = one.best({}).structures
        heads = gp.decode(other, "eisner", projective=True).heads
        kept = heads[:, None] == torch.arange(heads.shape[1])[:, None]
        only = replace(one, arcs=one.arcs.masked_fill(~kept, -torch.inf))  # nothing but the arcs of that tree
        hard, without = or_else(only.best({}).structures, alone)  # without a tree: model 1's own
        decomposition = both.joint(one, other, weight)
        recorded = Recorded(decomposition, len(batch))
        found = decomposition.run()
        for name, structures in zip(systems, (alone, hard, found.structures), strict=True):
            systems[name].add(structures["tree"], grammar, batch, structures["heads"])
        none += without
        right += sum(sum(map(int.__eq__, s.heads, heads[b, 1 : len(s) + 1].tolist())) for b, s in enumerate(batch))
        convergence.add(found)
        LOG.print(f"dependencies: {number + 1} of {len(parts)} batches")
        last = recorded.after(ITERATIONS)
        for limit in LIMITS:
            tree = recorded.after(limit)
            limited[limit].add(tree, grammar, batch)
            same[limit] += int((tree == last).flatten(1).all(1).sum())
    data = {
        "sentences": len(sentences),
        "rules": len(grammar.scores),
        "gamma": weight,
        "arcs_weight": args.arcs_weight,
        "iterations": convergence.row(),
        "within_10": convergence.within(10),
        "dependency parser": {"uas": 100 * right / sum(map(len, sentences))},
        "hard constraint without a tree": none,
        **{name: system.measure(sentences) for name, system in systems.items()},
        "by_limit": [
            {
                "iterations": limit,
                "f1": limited[limit].measure(sentences)["f1"],
                "certificates": convergence.within(limit),
                "match": 100 * same[limit] / len(sentences),
            }
            for limit in LIMITS
        ],
    }
    return Measured(data, report_dependencies(data, args))
