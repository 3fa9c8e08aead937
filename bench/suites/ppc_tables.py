"""The tables of the suite ppc beside those of the paper, what is to be reached, and a picture."""

from __future__ import annotations

from typing import Any

from bench.bars import Bar
from bench.output import plot, show_records, titled
from bench.registry import Args

PAPER_1 = {  # speed over brute force, percent scored, added and integral, UAS
    "italian": (7.6, 6, 5, 98, 88),
    "hungarian": (3.8, 12, 7, 97, 81),
    "danish": (3.9, 13, 7, 97, 88),
}
PAPER_2 = {  # relative speed and percent integral
    "italian": {"arcgp": (1.0, 77), "onegp": (10.0, 9), "all": (12.0, 98)},
    "hungarian": {"arcgp": (1.0, 71), "onegp": (1.62, 3), "all": (1.05, 97)},
}
Results = dict[str, dict[str, Any]]


def report1(tables: Results, args: Args) -> list[Bar]:
    """Print table 1; returns what is to be reached."""
    shown = {
        **{"": "title", ">×": "ratio:.1f", ">/s": "per_second:.1f", ">scored": "scored:.1f", ">added": "added:.1f"},
        **{">integral": "integral:.1f", ">UAS": "uas:.1f", ">cost": "objective:.1f"},
        **{">off": "objective_difference:.0e", ">rounds": "iterations:.1f"},
    }
    tight = {">×": "ratio_tight:.1f", ">scored": "scored_tight:.1f", ">integral": "integral_tight:.1f"}
    title = f"Table 1: over brute force, up to {args.words} words, in percent"
    show_records(title, shown, titled(tables))
    columns = {"": "title", ">sentences": "sentences", **tight, "paper: ×, scored, added, integral, UAS": "paper"}
    show_records(
        "With cuts (tight), and what the paper has",
        columns,
        titled(tables, lambda title: PAPER_1.get(title.split(",")[0], ())),
    )
    plot(args.out / "ppc.png", [lambda axes: draw(axes, tables)])
    worst = 1e6 * max(r["objective_difference"] for r in tables.values())
    bars = [Bar("objective off that of brute force, by its size, the most, × 1e6", worst, 1.0, most=True, digits=3)]
    if hungarian := tables.get("hungarian, templates"):
        bars.append(Bar("over brute force, Hungarian, templates", hungarian["ratio"], 20, 40, unit=" ×"))
        bars.append(Bar("scored, Hungarian, templates", hungarian["scored"], 12, 5, most=True, unit=" %"))
    if english := tables.get("english, trilinear"):
        bars.append(Bar("scored, English, trilinear", english["scored"], 25, 10, most=True, unit=" %"))
    if english := tables.get("english, templates"):
        bars.append(Bar("over brute force, English, templates", english["ratio"], 12, 25, unit=" ×"))
    for kind, most in (("both", 12), ("templates_both", 15)):
        for name in [title for title in tables if title.endswith(f", {kind}")]:
            bars.append(Bar(f"over brute force, {name}", tables[name]["ratio"], 15, 40, unit=" ×"))
            bars.append(Bar(f"scored, {name}", tables[name]["scored"], most, 5, most=True, unit=" %"))
    return bars


def report2(tables: Results, args: Args) -> list[Bar]:
    """Print table 2."""
    rows = []
    for title, result in tables.items():
        paper = PAPER_2.get(title.split(",")[0], {})
        rows += [{**r, "language": title} for r in titled(result, lambda name, paper=paper: paper.get(name, ()))]  # type: ignore[misc]
    columns = {"": "language", " ": "title", ">×": "ratio:.2f", ">% integral": "integral:.1f", ">UAS": "uas:.2f"}
    columns["paper: ×, % integral"] = "paper"
    show_records(f"Table 2: polytopes by brute force, up to {args.words2} words", columns, rows)
    worst = 1e6 * max(r["tight"]["objective_difference"] for r in tables.values())
    tighter = min(r["all"]["integral"] - r["arcgp"]["integral"] for r in tables.values())
    faster = min(r["all"]["ratio"] for r in tables.values())
    return [
        Bar("integral, all less arcgp, the least", tighter, 0.0, unit=" points", digits=2),
        Bar("speed, all over arcgp, the least", faster, 1.0, unit=" ×", digits=2),
        Bar("objective of tight off that of brute force, × 1e6", worst, 1.0, most=True, digits=3),
    ]


def report3(tables: Results, args: Args) -> list[Bar]:
    """Print what branch and bound came to."""
    shown = {
        **{"": "title", ">sentences": "sentences", ">% certified": "certified:.2f"},
        **{">% integral, all": "integral_all:.2f", ">tight": "integral_tight:.2f", ">nodes": "branches:.2f"},
        **{">/s": "per_second:.2f", ">UAS": "uas:.2f"},
    }
    show_records("With branch and bound, all sentences", shown, titled(tables))
    bars = [Bar("certified with exact=True, the least", min(r["certified"] for r in tables.values()), 100.0)]
    for polytope in ("all", "tight"):
        least = min(r[f"integral_{polytope}"] for r in tables.values())
        bars.append(Bar(f"integral, polytope {polytope}, the least", least, 97, 99, unit=" %", digits=2))
    return bars


def draw(axes: Any, results: Results) -> None:
    """Runtime by length."""
    for name, result in results.items():
        rows = sorted(result["by_length"])
        line = axes.plot([x for x, _, _ in rows], [1000 * y for _, y, _ in rows], label=f"{name}, price and cut")
        axes.plot([x for x, _, _ in rows], [1000 * y for _, _, y in rows], ":", color=line[0].get_color())
    axes.set(xlabel="words", ylabel="ms a sentence (dotted: brute force)", yscale="log")
