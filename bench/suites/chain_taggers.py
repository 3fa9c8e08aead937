"""What the suite chains is made of: taggers' scores, decoders, and Figure 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

import gpuparse as gp
from bench.models import ENGLISH, train, treebank_file
from bench.output import RESULTS, plot, show_records
from bench.registry import Args, Measured, effort
from bench.timing import Case, Contender, measure
from gpuparse.data.conllu import read_conllu
from gpuparse.data.sentence import Sentence
from gpuparse.decoding.viterbi import Tagging, Transitions

CONFIG = "english_tag.toml"
DENSE = "Viterbi"
SWEEP = "column generation"
AVERAGED = "column generation, averaged pricing"
BEAMS = {"xpos": (1, 2, 3, 4), "upos+feats": (1, 5, 15, 20)}  # as in the paper's tables
TITLES = {"xpos": "part-of-speech tags (Table 2)", "upos+feats": "joint tags and features (Table 1)"}
# Strengths of regularisation, each the transition_l1 or transition_l2 of a training.
STRENGTHS = {"l2": (0.0, 1e-5, 1e-4, 1e-3, 1e-2), "l1": (0.0, 1e-5, 1e-4, 1e-3, 1e-2)}
FIRST, EPOCHS = 5000, 5  # sentences and iterations of the paper's Figure 1


@dataclass(frozen=True)
class Scored:
    """Sentences with the scores of a tagger, in batches, and what is to be found."""

    batches: list[tuple[Tensor, Tensor]]  # unary [B, n, T], lengths [B]
    transitions: Transitions
    sentences: int
    words: int

    @property
    def tags(self) -> int:
        return self.transitions.scores.shape[0]

    def decode(self, **options: Any) -> list[Tagging]:
        return [gp.viterbi(unary, self.transitions, lengths, **options) for unary, lengths in self.batches]


def scored(tagger: gp.Tagger, sentences: list[Sentence], batch_words: int) -> Scored:
    batches = [(b.unary.clone(), b.lengths.clone()) for b in tagger.score(sentences, batch_words=batch_words)]
    words = sum(int(lengths.sum()) for _, lengths in batches)
    return Scored(batches, Transitions(tagger.transitions.clone()), len(sentences), words)


def decoders(tags: str) -> dict[str, dict[str, Any]]:
    return {
        DENSE: {"method": "dense"},
        SWEEP: {"method": "column_generation"},
        AVERAGED: {"method": "column_generation", "pricing": "averaged"},
        **{f"beam {k}": {"method": "beam", "beam": k} for k in BEAMS[tags]},
    }


def exact_decoders() -> dict[str, dict[str, Any]]:
    return {name: each for name, each in decoders("xpos").items() if not name.startswith("beam")}


def exact(found: list[Tagging], dense: list[Tagging]) -> float:
    """Percent of the sentences whose score is the dense program's, to rounding."""
    a, b = (torch.cat([t.score for t in each]) for each in (found, dense))
    return 100 * float(((a - b).abs() <= 1e-12 * b.abs().clamp(min=1.0)).double().mean())


def per_word(found: list[Tagging], what: str, words: int) -> float:
    return float(sum(t.stats[what].sum() for t in found)) / words


def timed(name: str, data: Scored, options: dict[str, dict[str, Any]], args: Args) -> Case:
    """Every decoder on the same scores, in turns."""
    contenders = [
        Contender(key, partial(data.decode, **each), against=None if key == DENSE else DENSE, ours=True)
        for key, each in options.items()
    ]
    return measure(Case(name, "", 0, data.sentences), contenders, **effort(args, 9), budget=60.0)


def dev_sentences(args: Args) -> list[Sentence]:
    return list(read_conllu(treebank_file(args, ENGLISH.parsed)))


def accuracy(tagger: gp.Tagger, sentences: list[Sentence], **options: Any) -> float:
    """Percent of the words that get their tag."""
    gold = [tagger.vocabulary.tag_set.tags(sentence) for sentence in sentences]
    found = tagger.predict(sentences, **options)
    pairs = [a == b for right, given in zip(gold, found, strict=True) for a, b in zip(right, given, strict=True)]
    return 100 * sum(pairs) / len(pairs)


def regularisation(args: Args) -> Measured:
    """Figure 1: perceptrons whose transitions alone are regularised, on the first 5,000 sentences in 5 iterations."""
    first = list(islice(read_conllu(treebank_file(args, ENGLISH.learned)), FIRST))
    dev = dev_sentences(args)
    rows: list[dict[str, Any]] = []
    for norm, strengths in STRENGTHS.items():
        for strength in strengths:
            name = f"chains_{norm}_{strength:g}" if strength else "chains_unregularised"
            values = {"training.epochs": EPOCHS, f"training.transition_{norm}": strength}
            train(RESULTS / name, first, config=CONFIG, values=values, task="tag")
            tagger = gp.Tagger.load(RESULTS / name)
            data = scored(tagger, dev, args.batch_words)
            options = exact_decoders()
            case = timed(name, data, options, args)
            found = {key: data.decode(**options[key]) for key in (SWEEP, AVERAGED)}
            rows.append(
                {
                    "norm": norm,
                    "strength": strength,
                    "accuracy": accuracy(tagger, dev),
                    "milliseconds": {t.name: 1000 * data.sentences / t.rates()["median"] for t in case.timings},
                    "transitions_per_word": {k: per_word(v, "transitions", data.words) for k, v in found.items()},
                    "largest_transition": float(data.transitions.scores.abs().max()),
                }
            )
    columns = {"norm": "norm", ">strength": "strength:g", ">accuracy %": "accuracy:.2f"}
    columns |= {f">{SWEEP} ms": f"{SWEEP}:~", ">averaged ms": f"{AVERAGED}:~", f">{DENSE} ms": f"{DENSE}:~"}
    columns |= {">transitions/word": "transitions:~", ">largest": "largest_transition:~"}
    title = f"Figure 1: {FIRST:,} sentences, {EPOCHS} iterations; decoding the dev sentences"
    records = [{**row, **row["milliseconds"], "transitions": row["transitions_per_word"][SWEEP]} for row in rows]
    show_records(title, columns, records)
    lines: list[tuple[str, Callable[[dict[str, Any]], float]]] = [
        ("column generation, ms", lambda row: row["milliseconds"][SWEEP]),
        ("averaged pricing, ms", lambda row: row["milliseconds"][AVERAGED]),
        ("accuracy on the dev sentences, %", lambda row: row["accuracy"]),
    ]
    panels = [partial(_against, rows, *line) for line in lines]
    plot(args.out / "chains_regularisation.png", panels, width=13, height=4.2)
    return Measured(rows)


def draw_speed(tags: str, found: list[dict[str, Any]], axis: Any) -> None:
    names = [f"{row['decoder']}\n{row['exact_percent']:.2f} % exact" for row in found][::-1]
    rates = [row["sentences_per_second"]["median"] for row in found][::-1]
    colours = ["#2a6f97" if row["exact_percent"] == 100 else "#c9a227" for row in found][::-1]
    axis.barh(names, rates, color=colours)
    axis.set_title(TITLES[tags], fontsize=10)
    axis.set_xlabel("sentences per second")
    axis.tick_params(labelsize=8)


def _against(rows: list[dict[str, Any]], label: str, value: Callable[[dict[str, Any]], float], axis: Any) -> None:
    """A figure by the strength of regularisation."""
    for norm, marker in (("l2", "o-"), ("l1", "s--")):
        own = [row for row in rows if row["norm"] == norm]
        line = [row["strength"] for row in own], [value(row) for row in own]
        axis.plot(*line, marker, label=f"{norm.upper()} of the transitions")
    axis.set_xscale("symlog", linthresh=1e-5)
    axis.set_xlabel("strength of regularisation")
    axis.set_ylabel(label)
