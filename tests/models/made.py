"""Models whose weights are of some size, and directories that are refused."""

from __future__ import annotations

import json
import resource
import time

import pytest
import torch

from gpuparse.models.parser import Parser

FILES = {"config.toml", "model.json", "model.safetensors", "vocabulary.json"}


def lively(model):
    """None of its weights zero, so that it prefers some answers to others."""
    with torch.no_grad():
        for parameter in model.scorer.parameters():
            if not parameter.any():
                parameter.normal_()
    return model


def refused(path, kind=Parser):
    """The line of a refusal: at once, without much memory, of a moderate length."""
    began, peak = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError) as caught:
        kind.load(path)
    assert time.perf_counter() - began < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 200_000  # kB; a file or two of a megabyte
    line = str(caught.value)
    assert line.startswith(str(path)) and line.isprintable() and len(line) < 1000
    return line.removeprefix(str(path))


def rewrite(file, **changes):
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
