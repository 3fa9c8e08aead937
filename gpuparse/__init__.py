"""gpuparse: dependency parsing as structured inference over batched PyTorch tensors.

``__all__`` has the names that most programs want. What else there is has its own module: ``gpuparse.data`` and
``gpuparse.train``, ``gpuparse.lp`` (constraints), ``gpuparse.dual``, ``gpuparse.bp``, ``gpuparse.chain``,
``gpuparse.evaluate``, ``gpuparse.render``. Everything is imported when it is first asked for, torch too.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from gpuparse import startup

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
    from gpuparse.bp import BeliefPropagation as BeliefPropagation
    from gpuparse.chain.viterbi import viterbi
    from gpuparse.checking import verify
    from gpuparse.decoding import decode
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
    from gpuparse.grammars import Grammar
    from gpuparse.parse import Parse
    from gpuparse.parser import Parser
    from gpuparse.proofs import Proof as Proof
    from gpuparse.scores import Scores
    from gpuparse.spanning import mst
    from gpuparse.tagger import Tagger
else:  # a type checker would take any name for one that is there
    _HOMES = dict.fromkeys((name for name in __all__ if name.endswith(("Trees", "Chains"))), "distributions") | {
        "BeliefPropagation": "bp",
        "DualDecomposition": "dual",
        "Grammar": "grammars",
        "Parse": "parse",
        "Parser": "parser",
        "Proof": "proofs",
        "Scores": "scores",
        "Tagger": "tagger",
        "decode": "decoding",
        "mst": "spanning",
        "verify": "checking",
        "viterbi": "chain.viterbi",
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
