"""Files that are there whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file under a temporary name beside it, then rename: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """The same for JSON."""
    write_bytes(path, (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


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
