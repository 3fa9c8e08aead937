"""The script that fetches treebanks, from files in the place of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.treebanks import NAMES, treebank
from tools import fetch_treebanks
from tools.fetch_treebanks import FILES, RELEASES, File, digest, main

MEANT = b"1\ta\t0\n\n1\tb\t0\n\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two treebanks: one whose second newest release is meant, in another order; one that no release has."""
    found = File("UD_One", "one.conllu", digest(MEANT)), File("UD_Two", "two.conllu", digest(b"other"))
    monkeypatch.setattr(fetch_treebanks, "FILES", found)
    for repository, release, content in (
        ("UD_One", RELEASES[0], b"1\tnewer\t0\n\n"),
        ("UD_One", RELEASES[1], b"1\tb\t0\n\n1\ta\t0\n\n"),
        ("UD_Two", RELEASES[0], MEANT),
    ):
        place = tmp_path / "server" / repository / release
        place.mkdir(parents=True)
        (place / f"{repository[3:].lower()}.conllu").write_bytes(content)
        (place / "LICENSE.txt").write_text(f"licence of {release}")
    return tmp_path / "server"


def test_what_is_meant_and_nothing_else(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new" / "treebanks"
    assert main([str(target), "--address", files.as_uri()]) == 1
    told = capsys.readouterr()
    assert told.out == f"one.conllu: {RELEASES[1]}\n"
    assert told.err == "two.conllu: no release from r2.7 to r2.16 has the sentences that are meant\n"
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {
        "one.conllu": b"1\tb\t0\n\n1\ta\t0\n\n",
        "LICENSE-One.txt": f"licence of {RELEASES[1]}".encode(),
    }
    (target / "one.conllu").write_bytes(MEANT)
    main([str(target), "--address", "file:///nowhere"])
    assert capsys.readouterr().out == "one.conllu: there\n" and (target / "one.conllu").read_bytes() == MEANT
    (target / "one.conllu").write_bytes(b"damaged")
    main([str(target), "--address", files.as_uri()])
    assert digest((target / "one.conllu").read_bytes()) == digest(MEANT)


def test_a_server_that_does_not_answer(files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "new"), "--address", "http://localhost:9"]) == 1
    assert capsys.readouterr().err.count("\n") == 2 and not list((tmp_path / "new").iterdir())


def test_a_digest_of_sentences() -> None:
    assert digest(MEANT) == digest(MEANT.replace(b"\n", b"\r\n")) == digest(b"1\tb\t0\n\n1\ta\t0")
    assert len({digest(MEANT), digest(MEANT * 2), digest(MEANT.replace(b"a", b"c"))}) == 3


@pytest.mark.parametrize("name", NAMES)
def test_treebanks_are_those_that_are_meant(name: str) -> None:
    expected = next(file.digest for file in FILES if file.name == f"{name}.conllu")
    assert digest(treebank(name).read_bytes()) == expected
