"""Fetch the treebanks that tests and benchmarks use: ``python -m tools.fetch_treebanks [DIRECTORY]``.

They are files of Universal Dependencies (https://universaldependencies.org), each under a licence of its own, which is
fetched beside it; some are for non-commercial use only. The digest of every file's sentences is pinned: releases are
tried from the newest on until one has the sentences that are meant, and nothing else is kept. It is a digest of the
sentences and not of the file, for files that differ in nothing but their order serve as well.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ADDRESS = "https://raw.githubusercontent.com/UniversalDependencies"
RELEASES = tuple(f"r2.{minor}" for minor in range(16, 6, -1))
MOST_BYTES = 2**27
SECONDS = 60.0


class File(NamedTuple):
    repository: str
    name: str
    digest: str  # of its sentences


FILES = (
    File("UD_Danish-DDT", "da_ddt-ud-dev.conllu", "38ac3744dcf7a7c118e4dc629e28b23cdd432d691d2350fc52be35bf335adebf"),
    File("UD_English-EWT", "en_ewt-ud-dev.conllu", "83b8ded47798abd28ea66bbe64e7cf8420a960659cb401063ce79b3876c3b8f7"),
    File(
        "UD_English-EWT", "en_ewt-ud-train.conllu", "cfa761083a388cc59cb44b3ce9e53a390541ba3e147464a4f045d018f54605c4"
    ),
    File(
        "UD_Hungarian-Szeged",
        "hu_szeged-ud-dev.conllu",
        "389152bc44b526940a9a41fff38c17eee929f0106e3669f4cf0ff19fb572fbd1",
    ),
    File(
        "UD_Hungarian-Szeged",
        "hu_szeged-ud-train.conllu",
        "f775c3badcb7c30a4e105831e104e56b4d14c020302b4e13cbe5e97f08f838f9",
    ),
    File(
        "UD_Italian-ISDT", "it_isdt-ud-dev.conllu", "194ca8791f9575d2a16f270a7a9bee988b296e37562f92e805de0d927efc44af"
    ),
    File(
        "UD_Dutch-Alpino", "nl_alpino-ud-dev.conllu", "224ffeedcb9e5b617d1c0d6562fc1946622d5d97249646c1f4c419736d83eee2"
    ),
)


class Problem(Exception):
    """Why a file could not be fetched, in one line."""


def digest(content: bytes) -> str:
    """SHA-256 of the sentences' SHA-256s, sorted."""
    sentences = content.replace(b"\r\n", b"\n").strip(b"\n").split(b"\n\n")
    each = sorted(hashlib.sha256(sentence.strip(b"\n")).digest() for sentence in sentences)
    return hashlib.sha256(b"".join(each)).hexdigest()


def download(address: str) -> bytes | None:
    """None if there is no such file."""
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            content: bytes = answer.read(MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise Problem(f"{address}: {error}") from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, FileNotFoundError):
            return None
        raise Problem(f"{address}: {error.reason}") from error
    except OSError as error:
        raise Problem(f"{address}: {error}") from error
    if len(content) > MOST_BYTES:
        raise Problem(f"{address}: more than {MOST_BYTES} bytes")
    return content


def write(path: Path, content: bytes) -> None:
    """Whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    os.replace(part, path)


def fetch(file: File, directory: Path, address: str) -> str:
    """The release whose file was kept, or "there" if one was there already."""
    path = directory / file.name
    if path.is_file() and digest(path.read_bytes()) == file.digest:
        return "there"
    for release in RELEASES:
        place = f"{address}/{file.repository}/{release}"
        content = download(f"{place}/{file.name}")
        if content is not None and digest(content) == file.digest:
            licence = download(f"{place}/LICENSE.txt")
            if licence is not None:
                write(directory / f"LICENSE-{file.repository.removeprefix('UD_')}.txt", licence)
            write(path, content)
            return release
    raise Problem(f"{file.name}: no release from {RELEASES[-1]} to {RELEASES[0]} has the sentences that are meant")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fetch_treebanks", description=(__doc__ or "").split("\n")[0])
    default = os.environ.get("GPUPARSE_TREEBANKS") or "../shared/treebanks"
    parser.add_argument("directory", nargs="?", default=default, help="default: $GPUPARSE_TREEBANKS or %(default)s")
    parser.add_argument("--address", default=ADDRESS, help="where the repositories are (default: %(default)s)")
    given = parser.parse_args(arguments)
    directory, failed = Path(given.directory), 0
    directory.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        try:
            print(f"{file.name}: {fetch(file, directory, given.address.rstrip('/'))}")
        except Problem as problem:
            print(problem, file=sys.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
