"""What the benchmarks of chains share: taggers, their scores, decoders; and Figure 1 and the plots of chains.py."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from commands import RESULTS, run
from timing import LOG, OUT, Case, Contender, figure, measure, new_table
from torch import Tensor

import gpuparse as gp
from gpuparse.chain import Transitions
from gpuparse.data.conllu import read_conllu
from gpuparse.data.sentence import Sentence

TRAIN, DEV = "en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu"
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

    def decode(self, **options: Any) -> list[gp.Tagging]:
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


def exact(found: list[gp.Tagging], dense: list[gp.Tagging]) -> float:
    """Percent of the sentences whose score is the dense program's, to rounding."""
    a, b = (torch.cat([t.score for t in each]) for each in (found, dense))
    return 100 * float(((a - b).abs() <= 1e-12 * b.abs().clamp(min=1.0)).double().mean())


def per_word(found: list[gp.Tagging], what: str, words: int) -> float:
    return float(sum(t.stats[what].sum() for t in found)) / words


def timed(name: str, data: Scored, options: dict[str, dict[str, Any]], args: argparse.Namespace) -> Case:
    """Every decoder on the same scores, in turns."""
    case = Case(name, "", 0, data.sentences)
    contenders = [
        Contender(key, lambda each=each: data.decode(**each), against=None if key == DENSE else DENSE, ours=True)
        for key, each in options.items()
    ]
    for contender in contenders:
        contender.run()
    measure(case, contenders, repeats=args.repeats, least=args.least, budget=60.0)
    return case


def train(model: Path, data: Path, *settings: str, config: str = "english_tag.toml", dev: Path | None = None) -> None:
    """Train a tagger with the perceptron of the configuration, unless it is there."""
    if (model / "training.json").is_file():
        LOG.print(f"{model.name}: trained before")
        return
    files = ("--train", data, *(("--dev", dev) if dev else ()))
    options = [part for setting in settings for part in ("--set", setting)]
    path = Path(__file__).resolve().parents[1] / "configs" / config
    LOG.print(f"gpuparse train {model.name} --task tag {' '.join(settings)}")
    run("train", model, "--task", "tag", "--config", path, *files, "--overwrite", *options, show=True)


def accuracy(tagger: gp.Tagger, sentences: list[Sentence], **options: Any) -> float:
    """Percent of the words that get their tag."""
    gold = [tagger.vocabulary.tag_set.tags(sentence) for sentence in sentences]
    found = tagger.predict(sentences, **options)
    pairs = [a == b for right, given in zip(gold, found, strict=True) for a, b in zip(right, given, strict=True)]
    return 100 * sum(pairs) / len(pairs)


def regularisation(directory: Path, dev: list[Sentence], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Figure 1: perceptrons whose transitions alone are regularised, on the first 5,000 sentences in 5 iterations."""
    part = RESULTS / "chains_first.conllu"
    sentences = []
    for sentence in read_conllu(directory / TRAIN):
        if len(sentences) == FIRST:
            break
        sentences.append(sentence.text)
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text("".join(text + "\n\n" for text in sentences), encoding="utf-8")
    rows: list[dict[str, Any]] = []
    for norm, strengths in STRENGTHS.items():
        for strength in strengths:
            name = f"chains_{norm}_{strength:g}" if strength else "chains_unregularised"
            model = RESULTS / name
            settings = (f"training.epochs={EPOCHS}", f"training.transition_{norm}={strength}")
            train(model, part, *settings)
            tagger = gp.Tagger.load(model)
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
    part.unlink()
    columns = (
        ">strength",
        ">accuracy %",
        f">{SWEEP} ms",
        ">averaged ms",
        f">{DENSE} ms",
        ">transitions/word",
        ">largest",
    )
    table = new_table(
        f"Figure 1: {FIRST:,} sentences, {EPOCHS} iterations; decoding the dev sentences", "norm", *columns
    )
    for row in rows:
        times = [figure(row["milliseconds"][key]) for key in (SWEEP, AVERAGED, DENSE)]
        looked_at = figure(row["transitions_per_word"][SWEEP])
        largest = figure(row["largest_transition"])
        table.add_row(row["norm"], f"{row['strength']:g}", f"{row['accuracy']:.2f}", *times, looked_at, largest)
    OUT.print(table)
    return rows


def draw(tables: dict[str, list[dict[str, Any]]], rows: list[dict[str, Any]]) -> None:
    """The tables and the figure as PNG."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        LOG.print("no plots: matplotlib is not installed (pip install 'gpuparse[bench]')")
        return

    def save(name: str, width: float, panels: list[Callable[[Any], None]]) -> None:
        figure = Figure(figsize=(width, 4.2), layout="constrained")
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axis, panel in zip(axes, panels, strict=True):
            panel(axis)
        path = RESULTS / name
        temporary = path.with_name(f".{path.name}")
        figure.savefig(temporary, format="png", dpi=150)
        temporary.replace(path)
        LOG.print(f"written: {path}")

    def speed(tags: str, found: list[dict[str, Any]]) -> Callable[[Any], None]:
        def panel(axis: Any) -> None:
            names = [f"{row['decoder']}\n{row['exact_percent']:.2f} % exact" for row in found][::-1]
            rates = [row["sentences_per_second"]["median"] for row in found][::-1]
            colours = ["#2a6f97" if row["exact_percent"] == 100 else "#c9a227" for row in found][::-1]
            axis.barh(names, rates, color=colours)
            axis.set_title(TITLES[tags], fontsize=10)
            axis.set_xlabel("sentences per second")
            axis.tick_params(labelsize=8)

        return panel

    def against(values: Callable[[dict[str, Any]], float], label: str) -> Callable[[Any], None]:
        def panel(axis: Any) -> None:
            for norm, marker in (("l2", "o-"), ("l1", "s--")):
                line = [(row["strength"], values(row)) for row in rows if row["norm"] == norm]
                axis.plot(
                    [s for s, _ in line], [v for _, v in line], marker, label=f"{norm.upper()} of the transitions"
                )
            axis.set_xscale("symlog", linthresh=1e-5)
            axis.set_xlabel("strength of regularisation")
            axis.set_ylabel(label)
            axis.legend(fontsize=8)

        return panel

    if tables:
        save("chains_speed.png", 6 * len(tables), [speed(*item) for item in tables.items()])
    if rows:
        panels = [
            against(lambda row: row["milliseconds"][SWEEP], "column generation, ms"),
            against(lambda row: row["milliseconds"][AVERAGED], "averaged pricing, ms"),
            against(lambda row: row["accuracy"], "accuracy on the dev sentences, %"),
        ]
        save("chains_regularisation.png", 13, panels)
