"""What the tests of the parser share."""

from __future__ import annotations

import shutil

import pytest

from gpuparse.data.artificial import artificial_treebank
from tests.models.parser.small import make


@pytest.fixture(scope="module")
def treebank():
    return list(artificial_treebank(40, seed=9))


@pytest.fixture(scope="module")
def parser(vocabulary):
    return make(vocabulary)


@pytest.fixture(scope="module")
def saved(parser, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    parser.results = {"dev": {"las": 0.5}, "name": "größe"}
    parser.save(path)
    return path


@pytest.fixture
def model(saved, tmp_path):
    """A copy to break."""
    return shutil.copytree(saved, tmp_path / "model")
