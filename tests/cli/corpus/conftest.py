"""What the tests of corpora share."""

from __future__ import annotations

import pytest

from tests.cli.corpus.made import words


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "in.conllu"
    path.write_text(words(300), newline="", encoding="utf-8")
    return path


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder / "out.conllu"
