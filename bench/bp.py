"""Belief propagation: the figures and tables of Smith and Eisner (2008), on treebanks at hand.

    python bench/bp.py [speed] [search] [accuracy] [--languages danish,dutch,hungarian,english] [--jobs 2]

speed: runtime by sentence length of BP against exact programs (their Figures 2 and 3), of one iteration, of decoding.
search: how far BP's trees of least risk are from the exact ones, by iteration (Figure 4), with a parser trained on the
English treebank (--english-model, or trained here). accuracy: factors added one after the other, and weaker constraints
(Tables 2 and 3); parsers that were measured before, in bench/results/bp, are not trained again.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from bp_models import FIRST, LANGUAGES, MODELS, SECOND, WEAKER, run
from commands import PROJECT, RESULTS, Goal, Problem, add_treebanks, leave, print_goals, treebanks, whole
from commands import run as gpuparse
from timing import LOG, OUT, environment, new_table, print_environment, write_json
from torch import Tensor

import gpuparse as gp
from gpuparse.bp.parsing import believe, best_trees
from gpuparse.data.batches import batches_by_length, collate
from gpuparse.data.conllu import read_conllu
from gpuparse.train.treebank import is_projective

PARTS = ("speed", "search", "accuracy")
LENGTHS = (10, 20, 30, 40, 50, 60, 70, 80)
STEPS = (1, 2, 3, 4, 5, 7, 10, 20)
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


# Figures 2 and 3 -------------------------------------------------------------------------------------------------


def random_scores(n: int, batch: int, **kinds: bool) -> gp.Scores:
    g = torch.Generator().manual_seed(n)
    arcs = torch.randn(batch, n + 1, n + 1, generator=g)
    return gp.Scores(arcs, **{name: torch.randn(batch, *[n + 1] * 3, generator=g) for name, on in kinds.items() if on})


def median_seconds(call: Any, repeats: int) -> float:
    call()
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return statistics.median(found)


def speed(args: argparse.Namespace) -> tuple[dict[str, Any], list[Goal]]:
    """Time of a batch of equally long sentences, all iterations made."""
    results: dict[str, Any] = {}
    for figure, kinds in ((2, {"grandparents": True}), (3, {"grandparents": True, "siblings": True})):
        columns = ("BP, 5 iterations", "BP, 10 iterations", "exact, best tree", "exact, least risk")
        title = f"Figure {figure}: PTREE+LINK+GRAND{'+CHILDSEQ' if figure == 3 else ''}, ms a sentence"
        table = new_table(title, ">words", *(f">{name}" for name in columns))
        rows = []
        for n in args.lengths:
            scores = random_scores(n, 8, **kinds)
            calls = [
                lambda s=scores: gp.decode(s, "bp", projective=True, iterations=5, tolerance=0.0),
                lambda s=scores: gp.decode(s, "bp", projective=True, iterations=10, tolerance=0.0),
                lambda s=scores: gp.decode(s, "eisner"),
                lambda s=scores: exact_least_risk(s),
            ]
            times = [1000 * median_seconds(call, args.repeats) / 8 for call in calls]
            rows.append({"words": n, **dict(zip(columns, times, strict=True))})
            table.add_row(str(n), *(f"{x:.2f}" for x in times))
        OUT.print(table)
        draw_times(rows, columns, figure)
        results[f"figure_{figure}"] = rows
    iteration = {}
    for n in (20, 80):
        scores = random_scores(n, 16, grandparents=True, siblings=True)
        few, many = (
            median_seconds(
                lambda k=k, s=scores: believe(s, iterations=k, tolerance=0.0, schedule="serial"), args.repeats
            )
            for k in (5, 15)
        )
        iteration[n] = (many - few) / 10 / 16
    scores = random_scores(20, 64, grandparents=True, siblings=True)
    rate = 64 / median_seconds(lambda: gp.decode(scores, "bp", iterations=5, tolerance=0.0), args.repeats)
    results |= {"iteration_seconds": iteration, "sentences_per_second": rate}
    return results, [
        Goal("TREE+LINK+GRAND+CHILDSEQ, 5 iterations, decode, n = 20", rate, 150, 500, unit=" sentences/s"),
        Goal("one iteration, n = 80 over n = 20", iteration[80] / iteration[20], 64, most=True, unit=" ×"),
    ]


def exact_least_risk(scores: gp.Scores) -> Tensor:
    return gp.decode(
        gp.Scores(scores.trees(projective=True, single_root=True).marginals, scores.lengths), "eisner"
    ).heads


def draw_times(rows: list[dict[str, Any]], columns: tuple[str, ...], number: int) -> None:
    from matplotlib.figure import Figure

    page = Figure(figsize=(6, 4), layout="constrained")
    axes = page.add_subplot()
    for name in columns:
        axes.plot([row["words"] for row in rows], [row[name] for row in rows], label=name, marker=".")
    axes.set(xlabel="words", ylabel="ms a sentence", title=f"As Figure {number} of Smith and Eisner (2008)")
    axes.legend()
    save(page, f"bp_figure_{number}.png")


def save(page: Any, name: str) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    page.savefig(RESULTS / name, dpi=150)
    LOG.print(f"written: bench/results/{name}")


# Figure 4 ----------------------------------------------------------------------------------------------------------


def search(args: argparse.Namespace, directory: Path) -> tuple[dict[str, Any], list[Goal]]:
    """How many heads of BP's trees of least risk the exact ones have not; projective sentences of the dev file."""
    model = args.english_model or RESULTS / "bp_english"
    if not (model / "model.safetensors").is_file():
        train_english(model, directory)
    parser = gp.Parser.load(model)
    sentences = [s for s in read_conllu(directory / "en_ewt-ud-dev.conllu") if len(s) and is_projective(s.heads)]
    wrong, macro, seconds = ({k: 0.0 for k in STEPS} for _ in range(3))
    words, count, exact_seconds = 0, 0, 0.0
    with torch.inference_mode():
        for indices in batches_by_length([len(s) for s in sentences], 1000):
            batch = collate([parser.vocabulary.encode(sentences[i]) for i in indices], parser.vocabulary.chars)
            scores = parser.scorer(batch).scores
            begun = time.perf_counter()
            expected = exact_least_risk(scores)
            exact_seconds += time.perf_counter() - begun
            word = expected >= 0
            words, count = words + int(word.sum()), count + len(indices)
            for k in STEPS:
                begun = time.perf_counter()
                found = believe(scores, projective=True, iterations=k, tolerance=0.0, schedule=args.schedule)
                heads = best_trees(found, scores, projective=True)
                seconds[k] += time.perf_counter() - begun
                apart = ((heads != expected) & word).sum(1)
                wrong[k] += float(apart.sum())
                macro[k] += float((apart / scores.lengths).sum())
    rows = [
        {
            "iterations": k,
            "error": 100 * macro[k] / count,
            "error_of_words": 100 * wrong[k] / words,
            "ms": 1000 * seconds[k] / count,
        }
        for k in STEPS
    ]
    title = f"Figure 4: search error of PTREE+LINK+GRAND, English, {count} sentences ({args.schedule} schedule)"
    table = new_table(title, ">iterations", ">% of a sentence's heads", ">% of all heads", ">ms a sentence")
    for row in rows:
        table.add_row(str(row["iterations"]), *(f"{row[k]:.3f}" for k in ("error", "error_of_words", "ms")))
    OUT.print(table)
    OUT.print(f"exact: {1000 * exact_seconds / count:.3f} ms a sentence. In the paper: 0.4 % after 10 iterations.")
    draw_search(rows, 1000 * exact_seconds / count)
    ten = next(row["error"] for row in rows if row["iterations"] == 10)
    goal = Goal("search error, projective GRAND, English, 10 iterations", ten, 0.4, 0.2, most=True, unit=" %", digits=3)
    return {"rows": rows, "sentences": count, "exact_ms": 1000 * exact_seconds / count}, [goal]


def train_english(model: Path, directory: Path) -> None:
    """By exact likelihood, as in the paper; sentences with crossing arcs are left out."""
    settings = {
        "training.objective": "nll",
        "training.projective": "true",
        "training.epochs": 10,
        "training.batch_words": 1000,
        "scorer.grandparents": 8,
        "scorer.embedding_dropout": 0.33,
        "scorer.encoder_dropout": 0.33,
    }
    options = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    train, dev = (directory / f"en_ewt-ud-{split}.conllu" for split in ("train", "dev"))
    config = PROJECT / "configs" / "dutch.toml"
    LOG.print(f"gpuparse train {model}")
    gpuparse("train", model, "--train", train, "--dev", dev, "--config", config, *options, "--resume", show=True)


def draw_search(rows: list[dict[str, Any]], exact: float) -> None:
    from matplotlib.figure import Figure

    page = Figure(figsize=(6, 4), layout="constrained")
    axes = page.add_subplot()
    axes.plot([row["ms"] for row in rows], [row["error"] for row in rows], marker="o")
    for row in rows:
        axes.annotate(str(row["iterations"]), (row["ms"], row["error"]), textcoords="offset points", xytext=(4, 4))
    axes.axvline(exact, linestyle=":", color="gray", label="exact")
    axes.set(
        xlabel="ms a sentence", ylabel="search error, %", title="As Figure 4 of Smith and Eisner (2008), iterations"
    )
    axes.legend()
    save(page, "bp_figure_4.png")


# Tables 2 and 3 ----------------------------------------------------------------------------------------------------


def accuracy(args: argparse.Namespace, directory: Path) -> tuple[dict[str, Any], list[Goal]]:
    """Train what was not measured before, in parallel, and make the tables."""
    wanted = [
        (language, name, seed)
        for name in MODELS
        for language in args.languages
        for seed in range(1, (LANGUAGES[language].seeds if name in (FIRST, SECOND) else 1) + 1)
    ]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        jobs = {pool.submit(run, *key, directory): key for key in wanted}
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

    columns = [
        f">{language}" + (", paper" if paper else "")
        for language in args.languages
        for paper in (False, *((True,) if language in IN_PAPER else ()))
    ]
    two = new_table("Table 2: UAS by factors, 5 iterations of BP (first seed)", "factors", *columns)
    for title, model, decoder in (
        (FIRST, FIRST, "TREE"),
        *((name, name, name) for name in ("+NOCROSS", "+GRAND", "+CHILDSEQ")),
        ("the last one without NOCROSS", SECOND, SECOND),
        ("  its best projective tree", SECOND, "projective"),
        ("  + hill-climbing", SECOND, "hill-climbing"),
    ):
        cells = []
        for language in args.languages:
            cells.append(f"{mean(language, model, decoder, 1):.2f}")
            if language in IN_PAPER:
                known = PAPER_2.get(decoder if decoder in PAPER_2 else title)
                cells.append(str(known[IN_PAPER[language]]) if known else "")
        two.add_row(title, *cells)
    OUT.print(two)
    three = new_table("Table 3: UAS of TREE+LINK under weaker constraints (trained with them)", "decoding", *columns)
    for name in WEAKER:
        cells = []
        for language in args.languages:
            own = FIRST if name == "TREE" else name
            trained = f" ({mean(language, own, name, 1):.2f})" if own in MODELS else ""
            cells.append(f"{mean(language, FIRST, name, 1):.2f}{trained}")
            if language in IN_PAPER:
                cells.append(PAPER_3[name][IN_PAPER[language]])
        three.add_row(name, *cells)
    OUT.print(three)
    gains = {x: mean(x, SECOND, SECOND) - mean(x, FIRST, "TREE") for x in args.languages}
    bar = new_table("Second order by BP over first order, the same encoder", "", ">seeds", ">first", ">second", ">gain")
    for language, gain in gains.items():
        first, second = mean(language, FIRST, "TREE"), mean(language, SECOND, SECOND)
        seeds = len(found[language, SECOND])
        bar.add_row(language, str(seeds), f"{first:.2f}", f"{second:.2f}", f"{gain:+.2f}")
    OUT.print(bar)
    known = [gain for language, gain in gains.items() if LANGUAGES[language].seeds >= 3]
    goal = Goal(
        "second order over first, least of the languages with 3 seeds",
        min(known) if known else None,
        0.01,
        0.5,
        digits=2,
    )
    return {"runs": [result for each in found.values() for result in each], "gains": gains}, [goal]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"{', '.join(PARTS)}; default: all")
    add_treebanks(parser)
    parser.add_argument("--languages", default=",".join(LANGUAGES))
    parser.add_argument("--english-model", type=Path, help="a parser with grandparents; default: trained here")
    parser.add_argument("--schedule", choices=("serial", "parallel"), default="serial", help="of search")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--repeats", type=whole, default=5)
    parser.add_argument("--jobs", type=whole, default=2, help="parsers trained at a time, a thread each")
    args = parser.parse_args()
    args.languages = args.languages.split(",")
    for name in [*args.parts, *args.languages]:
        if name not in (*PARTS, *LANGUAGES):
            parser.error(f"{name!r} is none of {', '.join((*PARTS, *LANGUAGES))}")
    args.parts = args.parts or list(PARTS)
    args.lengths = [whole(text) for text in args.lengths.split(",")]
    return args


def main() -> int:
    args = arguments()
    found = environment([])
    print_environment(found)
    goals: list[Goal] = []
    for part in args.parts:
        if part == "speed":
            result, more = speed(args)
        else:
            result, more = (search if part == "search" else accuracy)(args, treebanks(args.treebanks))
        goals += more
        write_json(RESULTS / f"bp_{part}.json", {"environment": found, part: result})
        LOG.print(f"written: bench/results/bp_{part}.json")
    return print_goals("Bars", goals)


if __name__ == "__main__":
    leave(main)
