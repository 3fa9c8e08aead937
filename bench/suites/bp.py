"""Belief propagation: the figures and tables of Smith and Eisner (2008), on treebanks at hand.

speed: runtime by sentence length of BP against exact programs (their Figures 2 and 3), of one iteration, of decoding.
search: how far BP's trees of least risk are from the exact ones, by iteration (Figure 4), with a parser trained on the
English treebank; by links as variables and by heads. accuracy: factors added one after the other, and weaker
constraints (Tables 2 and 3); parsers that were measured before, in bench/results/bp, are not trained again.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

import gpuparse as gp
from bench.artificial import second_order
from bench.bars import Bar
from bench.models import ENGLISH, train, treebank_file
from bench.output import LOG, OUT, RESULTS, Problem, plot, show, show_records, titled
from bench.parsers import Sums, scored_batches
from bench.registry import TREEBANKS, Args, Measured, Option, Suite, Timed, languages, repeats, threads, whole
from bench.suites.bp_models import FIRST, LANGUAGES, MODELS, SECOND, WEAKER, run
from bench.timing import Case, Contender, measure, timed
from gpuparse.data.conllu import read_conllu
from gpuparse.decoding.bp.parsing import beliefs_of, best_trees
from gpuparse.train.treebank import is_projective

LENGTHS = (10, 20, 30, 40, 50, 60, 70, 80)
STEPS = (1, 2, 3, 4, 5, 7, 10, 20)
VARIABLES = ("links", "heads")
PAPER_2 = {  # Danish, Dutch, English
    FIRST: (85.5, 87.3, 88.6),
    "+NOCROSS": (86.1, 88.3, 89.1),
    "+GRAND": (86.1, 88.6, 89.4),
    "+CHILDSEQ": (86.5, 88.5, 90.1),
    "projective": (86.0, 84.5, 90.2),
    "hill-climbing": (86.1, 87.6, 90.2),
}
PAPER_3 = {
    "NOT2": ("81.8 (76.7)", "83.3 (75.0)", "87.5 (66.4)"),
    "ATMOST1": ("85.4 (82.2)", "87.3 (86.3)", "88.5 (84.6)"),
    "EXACTLY1": ("85.7 (85.0)", "87.0 (86.7)", "88.6 (86.0)"),
    "+ NO2CYCLE": ("85.0 (85.2)", "86.2 (86.7)", "88.5 (86.2)"),
    "TREE": ("85.5 (85.5)", "87.3 (87.3)", "88.6 (88.6)"),
    "PTREE": ("85.8", "83.9", "88.8"),
}
IN_PAPER = {"danish": 0, "dutch": 1, "english": 2}


# Figures 2 and 3 ---------------------------------------------------------------------------------------------------

FIGURES = {2: ("grandparents",), 3: ("grandparents", "siblings")}


def ways(scores: gp.Scores) -> list[Contender]:
    """From scores to projective trees, all iterations made."""

    def bp(iterations: int) -> gp.Parse:
        return gp.decode(scores, "bp", projective=True, iterations=iterations, tolerance=0.0)

    return [
        Contender("BP, 5 iterations", partial(bp, 5), ours=True),
        Contender("BP, 10 iterations", partial(bp, 10), ours=True),
        Contender("exact, best tree", lambda: gp.decode(scores, "eisner"), ours=True),
        Contender("exact, least risk", lambda: exact_least_risk(scores), ours=True),
    ]


def of_iterations(scores: gp.Scores, iterations: int) -> Contender:
    run = partial(beliefs_of, scores, iterations=iterations, tolerance=0.0, schedule="serial")
    return Contender(str(iterations), run, ours=True)


def decoding(batch: int = 64) -> Contender:
    """Trees that may cross, of 20 words."""
    scores = second_order(20, batch, "grandparents", "siblings")
    return Contender("decode", lambda: gp.decode(scores, "bp", iterations=5, tolerance=0.0), ours=True)


def speed(args: Args) -> Measured:
    """Time of a batch of equally long sentences."""
    results: dict[str, Any] = {}
    for number, kinds in FIGURES.items():
        title = f"Figure {number}: PTREE+LINK+GRAND{'+CHILDSEQ' if number == 3 else ''}"
        cases = []
        for n in args.lengths:
            LOG.print(f"{title}, {n} words")
            cases.append(measure(Case(title, "random", n, 8), ways(second_order(n, 8, *kinds)), repeats=args.repeats))
        rows = [{"words": c.n, **{t.name: 1000 / t.rates()["median"] for t in c.timings}} for c in cases]
        columns = [t.name for t in cases[0].timings]
        shown = {">words": "words", **{f">{name}": f"{name}:.2f" for name in columns}}
        show_records(f"{title}, ms a sentence", shown, rows)
        plot(args.out / f"bp_figure_{number}.png", [partial(draw_times, rows, columns, number)])
        results[f"figure_{number}"] = rows
    iteration = {}
    for n in (20, 80):
        scores = second_order(n, 16, "grandparents", "siblings")
        contenders = [of_iterations(scores, k) for k in (5, 15)]
        case = measure(Case("iterations", "random", n, 16), contenders, repeats=args.repeats)
        few, many = (1 / t.rates()["median"] for t in case.timings)
        iteration[n] = (many - few) / 10
    decoded = measure(Case("decode", "random", 20, 64), [decoding()], repeats=args.repeats)
    rate = decoded.rate("decode")
    results |= {"iteration_seconds": iteration, "sentences_per_second": rate}
    bars = [
        Bar("TREE+LINK+GRAND+CHILDSEQ, 5 iterations, decode, n = 20", rate, 150, 500, unit=" sentences/s"),
        Bar("one iteration, n = 80 over n = 20", iteration[80] / iteration[20], 64, most=True, unit=" ×"),
    ]
    return Measured(results, bars)


def timed_speed(args: Args) -> Iterator[Timed]:
    for number, kinds in FIGURES.items():
        for n in (10, 20, 40):
            for way in ways(second_order(n, 8, *kinds)):
                yield Timed(f"Figure {number}, n={n}, {way.name}", way.run)
    yield Timed("decode, n=20", decoding().run)


def exact_least_risk(scores: gp.Scores) -> Tensor:
    marginals = scores.trees(projective=True, single_root=True).marginals
    return gp.decode(gp.Scores(marginals, scores.lengths), "eisner").heads


def draw_times(rows: list[dict[str, Any]], columns: list[str], number: int, axes: Any) -> None:
    for name in columns:
        axes.plot([row["words"] for row in rows], [row[name] for row in rows], label=name, marker=".")
    axes.set(xlabel="words", ylabel="ms a sentence", title=f"As Figure {number} of Smith and Eisner (2008)")


# Figure 4 ----------------------------------------------------------------------------------------------------------


def search(args: Args) -> Measured:
    """How many heads of BP's trees of least risk the exact ones have not; projective sentences of the dev file."""
    file = treebank_file(args, ENGLISH.parsed)
    model = args.english_model or RESULTS / "bp_english"
    train(model, treebank_file(args, ENGLISH.learned), dev=file, config="dutch.toml", values=PROJECTIVE)
    parser = gp.Parser.load(model)
    sentences = [s for s in read_conllu(file) if len(s) and is_projective(s.heads)]
    sums, of_exact = {(variables, k): Sums() for variables in VARIABLES for k in STEPS}, Sums()
    for _, scores in scored_batches(parser, sentences, 1000):
        expected, seconds = timed(partial(exact_least_risk, scores))
        word = expected >= 0
        of_exact.add(words=int(word.sum()), sentences=len(expected), seconds=seconds)
        for (variables, k), found in sums.items():
            heads, seconds = timed(partial(least_risk, scores, k, args.schedule, variables))
            apart = ((heads != expected) & word).sum(1)
            found.add(seconds=seconds, wrong=float(apart.sum()), macro=float((apart / scores.lengths).sum()))
    count, words = of_exact["sentences"], of_exact["words"]
    exact_ms = 1000 * of_exact["seconds"] / count
    rows: list[dict[str, Any]] = []
    for (variables, k), of in sums.items():
        errors = {"error": 100 * of["macro"] / count, "error_of_words": 100 * of["wrong"] / words}
        rows.append({"variables": variables, "iterations": k, **errors, "ms": 1000 * of["seconds"] / count})
    title = f"Figure 4: search error of PTREE+LINK+GRAND, English, {count:.0f} sentences ({args.schedule} schedule)"
    shown = {"variables": "variables", ">iterations": "iterations", ">% of a sentence's heads": "error:.3f"}
    show_records(title, shown | {">% of all heads": "error_of_words:.3f", ">ms a sentence": "ms:.3f"}, rows)
    OUT.print(f"exact: {exact_ms:.3f} ms a sentence. In the paper: 0.4 % after 10 iterations.")
    plot(args.out / "bp_figure_4.png", [partial(draw_search, rows, exact_ms)])
    ten = next(row["error"] for row in rows if row["variables"] == "heads" and row["iterations"] == 10)
    title = "search error, projective GRAND, English, 10 iterations"
    data = {"rows": rows, "sentences": count, "exact_ms": exact_ms}
    return Measured(data, [Bar(title, ten, 0.4, 0.2, most=True, unit=" %", digits=3)])


def least_risk(scores: gp.Scores, iterations: int, schedule: Any, variables: Any) -> Tensor:
    how = {"iterations": iterations, "tolerance": 0.0, "schedule": schedule, "variables": variables}
    return best_trees(beliefs_of(scores, projective=True, **how), scores, projective=True)


PROJECTIVE = {  # exact likelihood, as in the paper; sentences with crossing arcs are left out
    **{"training.objective": "nll", "training.projective": "true", "training.epochs": 10},
    **{"training.batch_words": 1000, "scorer.grandparents": 8},
    **{"scorer.embedding_dropout": 0.33, "scorer.encoder_dropout": 0.33},
}


def draw_search(rows: list[dict[str, Any]], exact: float, axes: Any) -> None:
    for variables in VARIABLES:
        of = [row for row in rows if row["variables"] == variables]
        axes.plot(
            [row["ms"] for row in of], [row["error"] for row in of], marker="o", label=f"{variables} as variables"
        )
    for row in rows:
        axes.annotate(str(row["iterations"]), (row["ms"], row["error"]), textcoords="offset points", xytext=(4, 4))
    axes.axvline(exact, linestyle=":", color="gray", label="exact")
    title = "As Figure 4 of Smith and Eisner (2008), iterations"
    axes.set(xlabel="ms a sentence", ylabel="search error, %", title=title)


# Tables 2 and 3 ----------------------------------------------------------------------------------------------------


def accuracy(args: Args) -> Measured:
    """Train what was not measured before, in parallel, and make the tables."""
    wanted = [
        (language, name, seed)
        for name in MODELS
        for language in args.languages
        for seed in range(1, (LANGUAGES[language].seeds if name in (FIRST, SECOND) else 1) + 1)
    ]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        jobs = {pool.submit(run, *key, args): key for key in wanted}
        for job in as_completed(jobs):
            language, name, seed = jobs[job]
            try:
                result = job.result()
            except Problem as problem:
                raise Problem(f"{language}, {name}, seed {seed}: {problem}") from None
            uas = ", ".join(f"{k} {v['uas']:.2f}" for k, v in result["decoders"].items())
            LOG.print(f"{language}, {name}, seed {seed}: {result['minutes']:.1f} minutes of training; {uas}")
            found.setdefault((language, name), []).append(result)

    def mean(language: str, model: str, decoder: str, seeds: int | None = None) -> float:
        each = sorted(found[language, model], key=lambda result: result["seed"])[:seeds]
        return statistics.mean(result["decoders"][decoder]["uas"] for result in each)

    def table(title: str, rows: Mapping[str, tuple[Callable[[str], str], Sequence[object] | None]]) -> None:
        """By languages, what is said of each, and beside it what the paper has."""
        columns = [(x, paper) for x in args.languages for paper in (False, True) if x in IN_PAPER or not paper]
        shown = [
            (name, *((known[IN_PAPER[x]] if known else "") if paper else own(x) for x, paper in columns))
            for name, (own, known) in rows.items()
        ]
        show(title, ("", *(f">{x}{', paper' if paper else ''}" for x, paper in columns)), shown)

    def first_seed(model: str, decoder: str) -> Callable[[str], str]:
        return lambda language: f"{mean(language, model, decoder, 1):.2f}"

    ways = {FIRST: (FIRST, "TREE"), **{name: (name, name) for name in ("+NOCROSS", "+GRAND", "+CHILDSEQ")}}
    ways |= {"the last one without NOCROSS": (SECOND, SECOND), "  its best projective tree": (SECOND, "projective")}
    ways["  + hill-climbing"] = SECOND, "hill-climbing"
    two = {name: (first_seed(*way), PAPER_2.get(name, PAPER_2.get(way[1]))) for name, way in ways.items()}
    table("Table 2: UAS by factors, 5 iterations of BP (first seed)", two)

    def weaker(name: str, language: str) -> str:
        model = FIRST if name == "TREE" else name
        trained = f" ({mean(language, model, name, 1):.2f})" if model in MODELS else ""
        return f"{mean(language, FIRST, name, 1):.2f}{trained}"

    three = {name: (partial(weaker, name), PAPER_3[name]) for name in WEAKER}
    table("Table 3: UAS of TREE+LINK under weaker constraints (trained with them)", three)
    gains = {x: mean(x, SECOND, SECOND) - mean(x, FIRST, "TREE") for x in args.languages}
    sides = {x: {"first": mean(x, FIRST, "TREE"), "second": mean(x, SECOND, SECOND)} for x in args.languages}
    rows = {x: {**sides[x], "gain": gain, "seeds": len(found[x, SECOND])} for x, gain in gains.items()}
    columns = {"": "title", ">seeds": "seeds", ">first": "first:.2f", ">second": "second:.2f", ">gain": "gain:+.2f"}
    show_records("Second order by BP over first order, the same encoder", columns, titled(rows))
    least = min((gain for language, gain in gains.items() if LANGUAGES[language].seeds >= 3), default=None)
    bar = Bar("second order over first, least of the languages with 3 seeds", least, 0.01, 0.5, digits=2)
    return Measured({"runs": [result for each in found.values() for result in each], "gains": gains}, [bar])


SUITE = Suite(
    "bp",
    "belief propagation: runtime by length against exact programs, search error, accuracy by factors; plots as PNG",
    {"speed": speed, "search": search, "accuracy": accuracy},
    [
        TREEBANKS,
        languages(LANGUAGES),
        Option("english-model", "a parser with grandparents, of search; default: trained here", kind=Path),
        Option("schedule", "of search", "serial", choices=("serial", "parallel")),
        Option("lengths", "words of a sentence, of speed", list(LENGTHS), whole, many=True, trial=True),
        Option("jobs", "parsers trained at a time, a thread each", 2, whole),
        repeats(5),
        threads(None),
    ],
    timed=timed_speed,
)
