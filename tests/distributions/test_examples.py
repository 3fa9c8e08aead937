"""The examples in the docstrings of distributions run, and print what they say."""

from __future__ import annotations

import doctest

import pytest

import gpuparse as gp

FAMILIES = (
    gp.ProjectiveTrees,
    gp.NonProjectiveTrees,
    gp.SecondOrderTrees,
    gp.TagChains,
    gp.TrigramChains,
    gp.ConstituencyTrees,
    gp.LexicalizedTrees,
)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_example(family: type) -> None:
    (example,) = (x for x in doctest.DocTestFinder(recurse=False).find(family, family.__name__) if x.examples)
    assert doctest.DocTestRunner().run(example).failed == 0
