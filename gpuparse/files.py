"""Files that are there whole or not at all."""

from __future__ import annotations

import glob
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuparse.streams import naming


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside it, then rename: a reader sees the old one or the new one."""
    write_together({path: content})


def write_together(contents: Mapping[Path, bytes], first_remove: Path | None = None) -> None:
    """Write several files: all under temporary names, and only then, one after the other, under their own.

    Args:
        first_remove: a file that says that the others belong together; it goes before any of them is replaced.
    """
    temporary: dict[Path, str] = {}
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary[path] = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            with naming(path), os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary[path], 0o666 & ~_umask())
        if first_remove is not None:
            first_remove.unlink(missing_ok=True)
        for path, name in temporary.items():
            os.replace(name, path)
    except BaseException:
        for name in temporary.values():
            Path(name).unlink(missing_ok=True)
        raise


def json_bytes(value: Any) -> bytes:
    """A value as the content of a JSON file."""
    return (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file in the same way."""
    write_bytes(path, json_bytes(value))


def remove_leftovers(path: Path) -> None:
    """Remove what a write of this file that was killed left beside it; no other process may be writing it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*"):
        left.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """A JSON file; ``ValueError`` where it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
