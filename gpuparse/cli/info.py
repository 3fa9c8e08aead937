"""``gpuparse info``: what is here, and whether the kernels agree with plain torch."""

from __future__ import annotations

import json
import math
import platform
import sys
from importlib import metadata
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
) -> None:
    """Print versions, devices, which code each device runs, the compiler and the cache."""
    with startup.importing():
        from gpuparse.cli import selftest
        from gpuparse.ops import backend

    report = _report(backend.describe())
    console = Output()
    if not as_json:
        _print_report(console, report)
    checks = None
    if run_selftest:
        with Console(stderr=True).status("comparing the kernels with plain torch"):
            checks = selftest.run()
    if as_json:
        if checks is not None:
            report["selftest"] = [_check_json(check) for check in checks]
        put(json.dumps(report, indent=2, ensure_ascii=sys.stdout.isatty(), allow_nan=False))
    elif checks:
        _print_checks(console, checks)
    if checks is not None:
        _finish(checks)


def _report(found: Any) -> dict[str, Any]:
    """What ``info`` says of what the backend found, as JSON has it."""
    versions = {
        "gpuparse": __version__,
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "numpy": metadata.version("numpy"),
        "cupy": found["cupy"],
    }
    devices = [{"device": "cpu", **found["cpu"]}]
    for index, device in enumerate(found["cuda"]):
        devices.append({"device": f"cuda:{index}", **device})
    return {
        "versions": versions,
        "devices": devices,
        "compiler": found["compiler"],
        "kernels_dir": found["kernels_dir"],
        "cache": found["cache"],
    }


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
    if compiler["path"] is None:
        line("compiler", "not found")
    else:
        line(
            "compiler",
            compiler["path"],
            compiler["version"] or "unknown version",
            " ".join(compiler["flags"]),
        )
    line("kernels", report["kernels_dir"])
    state = "writable" if cache["writable"] else "not writable"
    line(
        "cache",
        cache["path"],
        "used" if cache["used"] else f"not used: {cache['reason']}",
        f"{state}, {count(cache['files'], 'file')}, {size_text(cache['bytes'])}",
    )


def _check_json(check: Check) -> dict[str, Any]:
    """A check for JSON, which has no NaN and no infinity: they become null."""
    return {
        "kernel": check.kernel,
        "device": check.device,
        "dtype": check.dtype,
        "max_difference": check.max_difference if math.isfinite(check.max_difference) else None,
        "tolerance": check.tolerance,
        "ok": check.ok,
        "note": check.note,
    }


def _print_checks(console: Console, checks: list[Check]) -> None:
    table = Table(title="selftest", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for heading in ("kernel", "device", "type"):
        table.add_column(heading, overflow="fold")
    table.add_column("difference", justify="right", no_wrap=True)
    table.add_column("allowed", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("note", overflow="fold")
    for check in checks:
        table.add_row(
            Text(check.kernel),
            check.device,
            check.dtype,
            f"{check.max_difference:.1e}",
            f"{check.tolerance:.1e}" if check.tolerance else "0",
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
