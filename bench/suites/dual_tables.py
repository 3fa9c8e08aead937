"""The tables of the suite dual beside those of the paper, what is to be reached, and figure 5."""

from __future__ import annotations

from typing import Any

import torch

from bench.bars import Bar
from bench.output import plot, show, show_records, titled
from bench.registry import Args
from gpuparse.dual import Agreement

BINS = ((1, 1), (2, 2), (3, 3), (4, 4), (5, 10), (11, 20), (21, 50))
"""Iterations of table 1."""

PAPER_1 = {  # percent of sentences by iterations, and of those that are not proven
    "tagger": (58.7, 15.4, 6.3, 3.6, 10.3, 3.8, 0.8, 1.1),
    "dependencies": (43.5, 20.1, 10.2, 4.9, 14.0, 5.7, 1.4, 0.4),
}
PAPER_2 = {"model 1": (88.4, 87.8, 88.1, 91.4), "hard constraint": (89.9, 89.6, 89.7, 93.3)}
PAPER_2["joint"] = (91.0, 90.4, 90.7, 93.8)
PAPER_3 = {"fixed tags": (88.1, 87.6, 87.9, 96.7), "joint": (88.7, 88.0, 88.3, 97.1)}
WITHIN = {"tagger": (90.0, 94.0), "dependencies": (90.0, 92.7)}
"""Percent that must be, and are aimed to be, proven within 10 iterations; the aims are the paper's."""

Results = dict[str, Any]


class Convergence:
    """How many iterations sentences took until a proof."""

    def __init__(self) -> None:
        self.iterations: list[int] = []  # 0: not proven

    def add(self, found: Agreement) -> None:
        self.iterations += torch.where(found.certified, found.iterations, 0).tolist()

    def row(self) -> list[float]:
        """Percent of sentences by ``BINS``, and of those that are not proven."""
        bins = [sum(low <= k <= high for k in self.iterations) for low, high in (*BINS, (0, 0))]
        return [100 * count / len(self.iterations) for count in bins]

    def within(self, limit: int) -> float:
        return 100 * sum(0 < k <= limit for k in self.iterations) / len(self.iterations)


def report_iterations(name: str, found: Results) -> list[Bar]:
    """A row of table 1."""
    heads = [str(low) if low == high else f"{low}-{high}" for low, high in BINS]
    rows = [(f"{name} ({found['sentences']})", *(f"{x:.1f}" for x in found["iterations"])), ("paper", *PAPER_1[name])]
    show("Table 1: percent of sentences exact, by iterations", ("", *(f">{h}" for h in heads), ">not"), rows)
    return [Bar(f"{name}: exact within 10 iterations", found["within_10"], *WITHIN[name], unit=" %")]


def less(title: str, one: float, other: float, aim: float | None = None) -> Bar:
    """How many points the one must be above the other, which may be none."""
    return Bar(title, one - other, 0.0, aim, unit=" points", digits=2)


SHOWN = {
    "": "title",
    ">P": "precision:.2f",
    ">R": "recall:.2f",
    ">F1": "f1:.2f",
    ">UAS": "uas:.2f",
    ">tags": "tags:.2f",
}
"""Columns of tables 2 and 3."""


def report_tagger(found: Results) -> list[Bar]:
    bars = report_iterations("tagger", found)
    title = f"Table 3: {found['sentences']} sentences, {found['rules']} rules, weight of the tagger {found['weight']:g}"
    joint, fixed, alone = (found[name] for name in ("joint", "fixed tags", "parser alone"))
    systems = {"fixed tags": fixed, "parser alone": alone, "joint": joint}
    columns = SHOWN | {">no tree": "without a tree", "paper P, R, F1, tags": "paper"}
    del columns[">UAS"]
    rows = titled(systems | {"tagger alone": {"tags": found["tagger alone"]}}, lambda name: PAPER_3.get(name, ()))
    show_records(title, columns, rows)
    return [
        *bars,
        less("tagger: F1 of joint less that of fixed tags", joint["f1"], fixed["f1"], 0.4),
        less("tagger: tags of joint less those of the parser alone", joint["tags"], alone["tags"]),
    ]


def report_dependencies(found: Results, args: Args) -> list[Bar]:
    bars = report_iterations("dependencies", found)
    title = f"Table 2: {found['sentences']} sentences, {found['rules']} rules, gamma {found['gamma']:g}"
    rows = {name: found[name] for name in (*PAPER_2, "dependency parser")}
    show_records(title, SHOWN | {"paper P, R, F1, UAS": "paper"}, titled(rows, lambda name: PAPER_2.get(name, ())))
    limits = {">K": "iterations", ">F1": "f1:.1f", ">% certificates": "certificates:.1f", ">% match": "match:.1f"}
    show_records("Figure 5: by the limit of iterations", limits, found["by_limit"])
    plot(args.out / "dual_figure5.png", [lambda axes: draw(found["by_limit"], axes)])
    joint = found["joint"]
    for name in ("model 1", "hard constraint"):
        bars.append(less(f"dependencies: F1 of joint less {name}", joint["f1"], found[name]["f1"], 1.0))
    parser = found["dependency parser"]["uas"]
    return [*bars, less("dependencies: UAS of joint less the parser's", joint["uas"], parser, 0.5)]


def report_koo(tables: dict[str, Results], languages: int) -> list[Bar]:
    """Print certificates, and what they cost; what was measured of fewer languages than that is no answer."""
    shown = {"": "title", "method": "method", ">sentences": "sentences", ">% certified": "certified:.2f"}
    shown |= {">% scored": "scored:.1f", ">iterations": "iterations:.2f", ">/s": "per_second:.2f"}
    shown |= {">slowest, s": "slowest:.2f", ">words": "words_of_slowest", ">UAS": "uas:.2f"}
    show_records("Non-projective trees, all lengths", shown, titled(tables))
    bars = []
    for kind in ("both", "trilinear"):
        some = [r["certified"] for title, r in tables.items() if r["exact"] and kind in title]
        least = min(some) if len(some) == languages else None  # a language without parsers: not measured
        bars.append(Bar(f"koo, {kind}: certified, exact=True, the least", least, 100.0, unit=" %", digits=2))
    for name, must in (("english", 98.5), ("danish", 96.0)):
        alone, exact = (tables.get(f"{name}, both{how}", {}) for how in ("", ", exact"))
        bars += [
            Bar(f"koo, {name}, both: certified by dd alone", alone.get("certified"), must, 99.6, unit=" %", digits=2),
            Bar(f"koo, {name}, both: parts scored by dd", alone.get("scored"), 40.0, 15.0, most=True, unit=" %"),
            Bar(f"koo, {name}, both, exact=True: sentences per second", exact.get("per_second"), unit="/s"),
            Bar(
                f"koo, {name}, both, exact=True: slowest sentence",
                exact.get("slowest"),
                None,
                1.0,
                most=True,
                unit=" s",
            ),
        ]
    return bars


def report_soft(found: Results) -> list[Bar]:
    title = f"UAS on {found['sentences']} held-out sentences, {found['learned']} to learn from, by seed"
    means = {name: sum(found[name]) / len(found[name]) for name in ("nll", "dd")}
    rows = [
        (name, *(f"{x:.2f}" for x in found[name]), f"{mean:.2f}", f"{found['seconds'][name]:.0f}")
        for name, mean in means.items()
    ]
    show(title, ("", *(f">{seed}" for seed in found["seeds"]), ">mean", ">s"), rows)
    return [less("soft: UAS with grandparents less first order, mean", means["dd"], means["nll"])]


def draw(rows: list[dict[str, float]], axes: Any) -> None:
    """Figure 5."""
    limits = [row["iterations"] for row in rows]
    for key, label in (("f1", "f-score"), ("certificates", "% certificates"), ("match", "% match")):
        axes.plot(limits, [row[key] for row in rows], marker=".", label=label)
    axes.set(xlabel="maximum number of dual decomposition iterations", ylabel="percent")
