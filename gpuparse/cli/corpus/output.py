"""An output file that appears once it is complete and can be gone on with after an interruption.

It grows as ``name.partial``. Now and then the file is brought to disk, and then ``name.progress`` says how much of
it is good and which place of the input that is. At the end it takes its name.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from gpuparse.cli.corpus.inputs import Place
from gpuparse.system.files import is_special
from gpuparse.system.quote import shown
from gpuparse.system.streams import STDOUT, naming, standard_output

if sys.platform != "win32":
    import fcntl

_VERSION = 1
_LEVEL = 6  # of gzip


@dataclass
class State:
    """What a run has done so far."""

    place: Place = field(default_factory=Place)
    length: int = 0
    sentences: int = 0
    words: int = 0
    failed: int = 0
    complete: bool = False


class StreamOutput:
    """Output that cannot be taken back: stdout, a pipe, a device."""

    def __init__(self, stream: IO[bytes], name: str = STDOUT, *, packed: bool = False) -> None:
        self._stream, self._name, self._packed = stream, name, packed

    def write(self, data: bytes) -> None:
        """Write the next piece."""
        with naming(self._name):
            self._stream.write(gzip.compress(data, _LEVEL, mtime=0) if self._packed else data)
            self._stream.flush()

    def save(self, state: State) -> None:
        """There is nothing to go on with."""

    def finish(self, state: State) -> None:
        """Nothing is left to do but to close."""
        with naming(self._name):
            self._stream.close()

    def close(self) -> None:
        """Leave off before the end. What cannot be written any more has been said of the file."""
        with suppress(OSError):
            self._stream.close()


class FileOutput:
    """Output to a file that can be gone on with."""

    def __init__(self, path: str, run: Mapping[str, Any], state: State, every: float) -> None:
        self._path = path
        self._run = run
        self._every = every
        self._length = state.length
        self._saved = state.length
        # Every piece is a gzip member by itself, so that the file can be cut off after any of them.
        self._packed = path.endswith(".gz")
        handle = os.open(partial_of(path), os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
        self._stream = os.fdopen(handle, "r+b")
        try:
            self._lock()
            if self._stream.seek(0, os.SEEK_END) < self._length:
                raise ValueError(
                    f"{partial_of(path)}: shorter than {progress_of(path)} says; pass --overwrite to start anew"
                )
            self._write_progress(state)
            self._stream.seek(self._length)
            self._stream.truncate()
        except BaseException:
            self._stream.close()
            raise
        self._last = time.monotonic()

    def write(self, data: bytes) -> None:
        """Write the next piece."""
        if self._packed and data:
            data = gzip.compress(data, _LEVEL, mtime=0)
        with naming(self._path):
            self._stream.write(data)
        self._length += len(data)

    def save(self, state: State) -> None:
        """Take ``state`` as the place to go on from, unless the last one is recent."""
        if time.monotonic() - self._last < self._every:
            return
        self._save(state)
        self._last = time.monotonic()

    def finish(self, state: State) -> None:
        """Give the file its name."""
        if self._packed and not self._length:
            self._stream.write(gzip.compress(b"", _LEVEL, mtime=0))
        state.complete = True
        self._save(state)
        with naming(self._path):
            self._stream.close()
        _publish(self._path)

    def close(self) -> None:
        """Leave off before the end; where nothing was saved, nothing stays."""
        with suppress(OSError):  # a full disk, which has been said
            self._stream.close()
        if not self._saved:
            for name in (partial_of(self._path), progress_of(self._path), f"{progress_of(self._path)}.new"):
                Path(name).unlink(missing_ok=True)

    def _save(self, state: State) -> None:
        with naming(self._path):
            self._stream.flush()
            os.fsync(self._stream.fileno())
        state.length = self._length
        self._write_progress(state)
        self._saved = self._length

    def _write_progress(self, state: State) -> None:
        path = progress_of(self._path)
        with naming(path), open(f"{path}.new", "w", encoding="utf-8") as stream:
            json.dump({"version": _VERSION, "run": self._run, "state": asdict(state)}, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(f"{path}.new", path)

    def _lock(self) -> None:
        """Make sure that no other run writes the same file, nor has just given it its name."""
        partial = partial_of(self._path)
        if sys.platform != "win32":
            try:
                fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"{partial}: another process is writing it; wait for its end") from None
            except OSError:  # a file system without locks
                return
            if not os.path.exists(partial) or not os.path.samestat(os.stat(partial), os.fstat(self._stream.fileno())):
                raise ValueError(f"{partial}: another process has just finished it; try again")


def partial_of(path: str) -> str:
    """The name of an output that is not complete."""
    return f"{path}.partial"


def progress_of(path: str) -> str:
    """The name of the record of how far an output is good."""
    return f"{path}.progress"


def begin(
    target: str, run: Mapping[str, Any], *, resume: bool, overwrite: bool, every: float
) -> tuple[StreamOutput | FileOutput, State] | None:
    """Open an output and say where to go on; None if it is complete already.

    Args:
        run: what the output depends on, as JSON has it; to resume a run, it must be what it was.
        resume: go on with an interrupted run where there is one.
        overwrite: forget an interrupted run.
        every: seconds between two places to go on from.
    """
    if resume and overwrite:
        raise ValueError("resume and overwrite: one goes on with an interrupted run, the other forgets it; choose one")
    if target == "-":
        if resume:
            raise ValueError("resume: what went to standard output cannot be gone on with; name an output file")
        return StreamOutput(standard_output()), State()
    if is_special(target):  # before realpath: a pipe has no path
        if resume:
            raise ValueError(f"resume: {target} is no regular file and cannot be gone on with")
        return StreamOutput(open(target, "wb"), target, packed=target.endswith(".gz")), State()
    path = os.path.realpath(target)
    run = json.loads(json.dumps(run))
    there = os.path.exists(partial_of(path))
    progress = None if overwrite else _read_progress(path)
    if progress is None:
        if there and not (overwrite or resume):
            raise _interrupted(target)
        if resume and not there and os.path.exists(path):
            return None
        return FileOutput(path, run, State(), every), State()
    old, state = progress
    if state.complete and not there:  # killed after the file took its name
        Path(progress_of(path)).unlink(missing_ok=True)
        return None if resume else (FileOutput(path, run, State(), every), State())
    if not resume:
        raise _interrupted(target)
    _compare(target, old, run)
    if state.complete:
        _publish(path)
        return None
    return FileOutput(path, run, state, every), state


def _interrupted(target: str) -> ValueError:
    return ValueError(
        f"{partial_of(target)}: left by an interrupted run; pass --resume to go on, or --overwrite to start anew"
    )


def _publish(path: str) -> None:
    os.replace(partial_of(path), path)
    Path(progress_of(path)).unlink(missing_ok=True)


def _read_progress(path: str) -> tuple[Any, State] | None:
    """What the output of a run depends on, and what the run has done."""
    try:
        with open(progress_of(path), encoding="utf-8") as stream:
            progress = json.load(stream)
        if progress["version"] == _VERSION:
            values = dict(progress["state"])
            return progress.get("run"), State(place=Place(**values.pop("place")), **values)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise ValueError(f"{progress_of(path)}: not a record of this version; pass --overwrite to start anew")


def _compare(target: str, old: Any, new: Mapping[str, Any]) -> None:
    old = old if isinstance(old, dict) else {}
    for key in {**old, **new}:
        if old.get(key) != new.get(key):
            was, now = _shown(old.get(key)), _shown(new.get(key))
            raise ValueError(
                f"{shown(key)}: {was} when {target} was begun, {now} now; give the same, or --overwrite to start anew"
            )


def _shown(value: Any) -> str:
    return "not given" if value is None else shown(json.dumps(value, ensure_ascii=False))
