"""Corpora of any size, parsed as a stream in constant memory."""

from __future__ import annotations

from gpuparse.corpus.driver import parse_corpus
from gpuparse.corpus.report import Failure, Report

__all__ = ["Failure", "Report", "parse_corpus"]
