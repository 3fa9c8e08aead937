"""``gpuparse info``: what is here, and whether the kernels agree with plain torch."""

from __future__ import annotations

import json
import math
import platform
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuparse import __version__
from gpuparse.cli.common import Output, count, fail, put, size_text
from gpuparse.system import startup
from gpuparse.system.quote import visible

if TYPE_CHECKING:
    from gpuparse.cli.selftest import Check

_PATHS = {"kernels": "compiled kernels", "torch": "plain torch"}


def info(
    run_selftest: Annotated[
        bool,
        typer.Option("--selftest", help="Compare every kernel with plain torch on every device here."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    report_file: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="FILE",
            help="With --selftest: write all that was found, with times, to a file that can be sent to us.",
        ),
    ] = None,
) -> None:
    """Print versions, devices, which code each device runs, the compiler and the cache.

    On a GPU the self-test also times every kernel there, on the CPU and in plain torch.
    """
    if report_file is not None and not run_selftest:
        fail("--report needs --selftest: there is nothing else to report", 2)
    with startup.importing():
        from gpuparse.cli import selftest
        from gpuparse.ops import backend
        from gpuparse.system.files import write_json

    report = _report(backend.describe())
    console = Output()
    if not as_json:
        _print_report(console, report)
    checks = None
    if run_selftest:
        with Console(stderr=True).status("comparing the kernels with plain torch"):
            checks = selftest.run(times=None if report_file is None else True)
        # JSON has no NaN and no infinity: they become null
        finite = (c.max_difference if math.isfinite(c.max_difference) else None for c in checks)
        report["selftest"] = [asdict(c) | {"max_difference": x} for c, x in zip(checks, finite, strict=True)]
        if report_file is not None:
            write_json(Path(report_file), _without_home(report))
    if as_json:
        put(json.dumps(report, indent=2, ensure_ascii=sys.stdout.isatty(), allow_nan=False))
    elif checks:
        _print_checks(console, checks)
    if checks is not None:
        _finish(checks)


def _without_home(x: Any) -> Any:
    """The same with ``~`` for the home directory, whose name is nobody else's business."""
    if isinstance(x, dict):
        return {name: _without_home(value) for name, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [_without_home(value) for value in x]
    return x.replace(str(Path.home()), "~") if isinstance(x, str) and Path.home() != Path("/") else x


def _report(found: Any) -> dict[str, Any]:
    """What ``info`` says of what the backend found, as JSON has it."""
    versions = {"gpuparse": __version__, "python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in ("torch", "numpy")} | {"cupy": found["cupy"]}
    devices = [{"device": "cpu", **found["cpu"]}]
    devices += [{"device": f"cuda:{index}", **device} for index, device in enumerate(found["cuda"])]
    return {"versions": versions, "devices": devices, **{k: found[k] for k in ("compiler", "kernels_dir", "cache")}}


def _print_report(console: Console, report: dict[str, Any]) -> None:
    def line(name: str, *values: str) -> None:
        first, *others = (visible(value, keep="") for value in values)
        console.print(Text.assemble((f"{name:<10}", "bold"), first), soft_wrap=True)
        for other in others:
            console.print(Text(f"{'':<10}{other}"), soft_wrap=True)

    names = {"python": "Python", "cupy": "CuPy"}
    for package, version in report["versions"].items():
        line(names.get(package, package), version or "not installed")
    console.print()
    for device in report["devices"]:
        if device["device"] == "cpu":
            what = f"{device['model']}, {count(device['threads'], 'thread')}"
        else:
            what = f"{device['name']}, compute capability {device['capability']}"
        path = _PATHS[device["path"]]
        line(device["device"], what, path if device["reason"] == path else f"{path}: {device['reason']}")
    if len(report["devices"]) == 1:
        line("cuda", "no device")
    console.print()
    compiler, cache = report["compiler"], report["cache"]
    known = (compiler["path"], compiler["version"] or "unknown version", " ".join(compiler["flags"]))
    line("compiler", *(known if compiler["path"] is not None else ("not found",)))
    line("kernels", report["kernels_dir"])
    used = "used" if cache["used"] else f"not used: {cache['reason']}"
    state = "writable" if cache["writable"] else "not writable"
    line("cache", cache["path"], used, f"{state}, {count(cache['files'], 'file')}, {size_text(cache['bytes'])}")


def _print_checks(console: Console, checks: list[Check]) -> None:
    table = Table(title="selftest", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for heading in ("kernel", "device", "type"):
        table.add_column(heading, overflow="fold")
    table.add_column("difference", justify="right", no_wrap=True)
    table.add_column("allowed", justify="right", no_wrap=True)
    timed = any(check.seconds is not None for check in checks)
    for heading in ("ms", "plain ms") if timed else ():
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("note", overflow="fold")
    for check in checks:
        table.add_row(
            Text(check.kernel),
            check.device,
            check.dtype,
            f"{check.max_difference:.1e}",
            f"{check.tolerance:.1e}" if check.tolerance else "0",
            *(["" if x is None else f"{1000 * x:.3f}" for x in (check.seconds, check.plain_seconds)] if timed else []),
            Text("ok", "green") if check.ok else Text("DIFFERS", "bold red"),
            Text(check.note),
        )
    console.print()
    console.print(table)


def _finish(checks: list[Check]) -> None:
    """Leave with 1, saying why, unless there were checks and all are well."""
    bad = sum(not check.ok for check in checks)
    if not checks:
        fail("selftest: no compiled kernel runs here, so there was nothing to compare")
    if bad:
        fail(f"selftest: {bad} of {count(len(checks), 'check')} differ")
