"""Corpora of any size, parsed as a stream in constant memory."""

from __future__ import annotations

from gpuparse.cli.corpus.driver import parse_corpus
from gpuparse.cli.corpus.report import Failure, Report

__all__ = ["Failure", "Report", "parse_corpus"]
