"""Every treebank file through reader and writer: the same to the byte, and how fast.

Three ways: read and write; the same packed with gzip, there and back; and read, put every sentence's own heads and
labels into it as a parser would, and write.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.bars import none_of
from bench.models import treebanks
from bench.output import LOG, OUT, figure, show
from bench.registry import TREEBANKS, Args, Measured, Suite, repeats
from bench.timing import Case, Contender, measure
from gpuparse.data.conllu import read_conllu, write_conllu
from gpuparse.data.sentence import Sentence


def parsed(sentences: Iterator[Sentence]) -> Iterator[Sentence]:
    """The sentences with the heads and labels that they have."""
    for sentence in sentences:
        yield sentence.with_parse(sentence.heads, sentence.deprels)


def copy(source: Path, target: Path, change: Callable[[Iterator[Sentence]], Iterator[Sentence]] = iter) -> None:
    write_conllu(change(read_conllu(source)), target)


def round_trip(path: Path, scratch: Path, repeats: int) -> dict[str, Any]:
    """One file, all ways."""
    content = path.read_bytes()
    packed = scratch / f"in-{path.name}.gz"
    packed.write_bytes(gzip.compress(content))
    plain, zipped, filled = (scratch / f"{name}-{path.name}" for name in ("plain", "gzip", "with_parse"))
    zipped = zipped.with_suffix(".conllu.gz")
    runs = {"plain": partial(copy, path, plain), "gzip": partial(copy, packed, zipped)}
    runs["with_parse"] = partial(copy, path, filled, parsed)
    case = Case("round trip", path.name, 0, len(content))
    measure(case, [Contender(name, run, ours=True) for name, run in runs.items()], repeats=repeats)
    ways = {}
    for timing, end in zip(case.timings, (plain, zipped, filled), strict=True):
        written = gzip.decompress(end.read_bytes()) if end.suffix == ".gz" else end.read_bytes()
        ways[timing.name] = {
            "identical": written == content,
            "seconds": timing.seconds,
            "megabytes_per_second": timing.rates()["median"] / 1e6,
        }
        end.unlink()
    packed.unlink()
    sentences = sum(1 for _ in read_conllu(path))
    return {"file": path.name, "bytes": len(content), "sentences": sentences, "ways": ways}


def round_trips(args: Args) -> Measured:
    records = []
    with tempfile.TemporaryDirectory() as scratch:
        for path in sorted(treebanks(args).rglob("*.conllu")):
            LOG.print(path.name)
            records.append(round_trip(path, Path(scratch), args.repeats))
    title = f"Round trips, MB/s of unpacked text (median of {args.repeats}) and whether every byte is the same"
    rows = []
    for record in records:
        ways = record["ways"].values()
        told = [text for w in ways for text in (figure(w["megabytes_per_second"]), "yes" if w["identical"] else "NO")]
        rows.append((record["file"], figure(record["bytes"] / 1e6), record["sentences"], *told))
    columns = ("file", ">MB", ">sentences", ">read + write", "same", ">gzip", "same", ">heads put in", "same")
    show(title, columns, rows)
    OUT.print(f"{len(records)} files, {sum(record['bytes'] for record in records) / 1e6:.1f} MB")
    other = sum(not way["identical"] for record in records for way in record["ways"].values())
    return Measured(records, [none_of("round trips that are not byte-identical", other)])


SUITE = Suite(
    "roundtrip",
    "every treebank file through reader and writer, plain and packed: the same to the byte; MB/s",
    {"roundtrip": round_trips},
    [TREEBANKS, repeats(3)],
)
