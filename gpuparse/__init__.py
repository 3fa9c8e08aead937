"""gpuparse: dependency parsing as structured inference over batched PyTorch tensors.

``__all__`` has the names that most programs want. What else there is has its own module: ``gpuparse.data`` and
``gpuparse.train``, ``gpuparse.lp`` (constraints), ``gpuparse.dual``, ``gpuparse.bp``, ``gpuparse.decoding.viterbi``,
``gpuparse.evaluate``, ``gpuparse.render``; ``gp.evaluate``, ``gp.train`` and ``gp.render`` are those modules after
``import gpuparse as gp`` alone. Everything is imported when it is first asked for, torch too.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpuparse.system import startup

__version__ = "0.1.0"

__all__ = [
    "ConstituencyTrees",
    "Grammar",
    "LexicalizedTrees",
    "NonProjectiveTrees",
    "Parse",
    "Parser",
    "ProjectiveTrees",
    "Scores",
    "SecondOrderTrees",
    "TagChains",
    "Tagger",
    "TrigramChains",
    "decode",
    "mst",
    "verify",
    "viterbi",
]

if startup.is_command():
    startup.begin()

if TYPE_CHECKING:
    from gpuparse import evaluate as evaluate
    from gpuparse import render as render
    from gpuparse import train as train
    from gpuparse.bp import BeliefPropagation as BeliefPropagation
    from gpuparse.decoding.methods import decode
    from gpuparse.decoding.parse import Parse
    from gpuparse.decoding.proofs import Proof as Proof
    from gpuparse.decoding.scores import Scores
    from gpuparse.decoding.spanning import mst
    from gpuparse.decoding.verifying import verify
    from gpuparse.decoding.viterbi import viterbi
    from gpuparse.distributions import (
        ConstituencyTrees,
        LexicalizedTrees,
        NonProjectiveTrees,
        ProjectiveTrees,
        SecondOrderTrees,
        TagChains,
        TrigramChains,
    )
    from gpuparse.dual import DualDecomposition as DualDecomposition
    from gpuparse.models.parser import Parser
    from gpuparse.models.tagger import Tagger
    from gpuparse.structures.grammars import Grammar
else:  # a type checker would take any name for one that is there
    _HOMES = dict.fromkeys((name for name in __all__ if name.endswith(("Trees", "Chains"))), "distributions") | {
        "BeliefPropagation": "bp",
        "DualDecomposition": "dual",
        "Grammar": "structures.grammars",
        "Parse": "decoding.parse",
        "Parser": "models.parser",
        "Proof": "decoding.proofs",
        "Scores": "decoding.scores",
        "Tagger": "models.tagger",
        "decode": "decoding.methods",
        "mst": "decoding.spanning",
        "verify": "decoding.verifying",
        "viterbi": "decoding.viterbi",
    }

    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is not None:
            found = getattr(import_module(f"gpuparse.{home}"), name)
        elif not name.startswith("_") and find_spec(f"gpuparse.{name}") is not None:
            found = import_module(f"gpuparse.{name}")
        else:
            raise AttributeError(f"module 'gpuparse' has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
