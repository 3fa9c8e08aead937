"""Every treebank file through reader and writer: the same to the byte, and how fast.

    python bench/roundtrip.py [--treebanks DIR] [--repeats 3]

Three ways: read and write; the same packed with gzip, there and back; and read, put every sentence's own heads and
labels into it as a parser would, and write. Exits with 1 at a difference, and with 2 at wrong usage.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from commands import RESULTS, add_treebanks, leave, treebanks, whole
from timing import LOG, OUT, environment, figure, new_table, print_environment, write_json

from gpuparse.data.conllu import read_conllu, write_conllu
from gpuparse.data.sentence import Sentence


def parsed(sentences: Iterator[Sentence]) -> Iterator[Sentence]:
    """The sentences with the heads and labels that they have."""
    for sentence in sentences:
        yield sentence.with_parse(sentence.heads, sentence.deprels)


def copy(source: Path, target: Path) -> None:
    write_conllu(read_conllu(source), target)


def copy_parsed(source: Path, target: Path) -> None:
    write_conllu(parsed(read_conllu(source)), target)


def measure(run: Callable[[Path, Path], None], source: Path, target: Path, repeats: int) -> list[float]:
    """The seconds of each repetition."""
    seconds = []
    for _ in range(repeats):
        begun = time.perf_counter()
        run(source, target)
        seconds.append(time.perf_counter() - begun)
    return seconds


def round_trip(path: Path, scratch: Path, repeats: int) -> dict[str, Any]:
    """One file, all ways."""
    content = path.read_bytes()
    packed, target = scratch / f"in-{path.name}.gz", scratch / path.name
    packed.write_bytes(gzip.compress(content))
    ways = {
        "plain": (copy, path, target),
        "gzip": (copy, packed, target.with_name(f"{path.name}.gz")),
        "with_parse": (copy_parsed, path, target),
    }
    record: dict[str, Any] = {
        "file": path.name,
        "bytes": len(content),
        "sentences": sum(1 for _ in read_conllu(path)),
        "ways": {},
    }
    for name, (run, source, end) in ways.items():
        seconds = measure(run, source, end, repeats)
        written = gzip.decompress(end.read_bytes()) if end.suffix == ".gz" else end.read_bytes()
        record["ways"][name] = {
            "identical": written == content,
            "seconds": seconds,
            "megabytes_per_second": len(content) / 1e6 / statistics.median(seconds),
        }
        end.unlink()
    packed.unlink()
    return record


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add_treebanks(parser)
    parser.add_argument("--repeats", type=whole, default=3, help="of each way; default 3")
    parser.add_argument("--json", type=Path, default=RESULTS / "roundtrip.json")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    files = sorted(treebanks(args.treebanks).rglob("*.conllu"))
    found = environment([])
    print_environment(found)
    records = []
    with tempfile.TemporaryDirectory() as scratch:
        for path in files:
            LOG.print(path.name)
            records.append(round_trip(path, Path(scratch), args.repeats))
    table = new_table(
        f"Round trips, MB/s of unpacked text (median of {args.repeats}) and whether every byte is the same",
        "file",
        ">MB",
        ">sentences",
        ">read + write",
        "same",
        ">gzip",
        "same",
        ">heads put in",
        "same",
    )
    for record in records:
        cells = [record["file"], figure(record["bytes"] / 1e6), f"{record['sentences']:,}"]
        for way in record["ways"].values():
            cells += [figure(way["megabytes_per_second"]), "yes" if way["identical"] else "NO"]
        table.add_row(*cells)
    OUT.print(table)
    good = all(way["identical"] for record in records for way in record["ways"].values())
    megabytes = sum(record["bytes"] for record in records) / 1e6
    verdict = "byte-identical" if good else "NOT all byte-identical"
    OUT.print(f"{len(records)} files, {megabytes:.1f} MB: {verdict}")
    write_json(args.json, {"environment": found, "files": records, "byte_identical": good})
    LOG.print(f"written: {args.json}")
    return int(not good)


if __name__ == "__main__":
    leave(main)
