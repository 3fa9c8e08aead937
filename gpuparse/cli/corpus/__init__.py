"""Corpora of any size, parsed as a stream in constant memory."""

from __future__ import annotations

from gpuparse.cli.corpus.driver import parse_corpus
from gpuparse.cli.corpus.report import CorpusReport, Failure

__all__ = ["CorpusReport", "Failure", "parse_corpus"]
