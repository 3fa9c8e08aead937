"""What the tests of commands share: a model that knows nothing, and running a command."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from gpuparse.cli.evaluate import evaluate
from gpuparse.cli.parse import parse
from gpuparse.cli.tag import tag
from gpuparse.data.artificial import artificial_treebank
from gpuparse.data.vocab import Vocabulary
from gpuparse.models.parser import Parser
from tests.train.small import config


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A parser that has learned nothing, and parses all the same."""
    path = tmp_path_factory.mktemp("model")
    Parser.new(config(), Vocabulary.build(artificial_treebank(20))).save(path)
    return path


@pytest.fixture
def command():
    """Run a command by its name, in this process."""
    app = typer.Typer(pretty_exceptions_enable=False)
    for each in (tag, parse, evaluate):
        app.command()(each)

    def command(*arguments, stdin=None):
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)

    return command
