"""gpuparse: dependency parsing as structured inference over batched PyTorch tensors."""

__version__ = "0.1.0"

from gpuparse import startup

if startup.is_command():  # what follows takes seconds
    startup.begin()

from gpuparse.bp import BeliefPropagation
from gpuparse.chain import Tagging, Transitions, viterbi
from gpuparse.checking import verify
from gpuparse.decoding import Parse, decode
from gpuparse.distributions import (
    ConstituencyTrees,
    LexicalizedTrees,
    NonProjectiveTrees,
    ProjectiveTrees,
    SecondOrderTrees,
    TagChains,
    TrigramChains,
)
from gpuparse.dual import DualDecomposition
from gpuparse.grammars import Grammar
from gpuparse.parser import Parser
from gpuparse.proofs import Proof
from gpuparse.scores import Scores
from gpuparse.spanning import mst
from gpuparse.tagger import Tagger

__all__ = [
    "BeliefPropagation",
    "ConstituencyTrees",
    "DualDecomposition",
    "Grammar",
    "LexicalizedTrees",
    "NonProjectiveTrees",
    "Parse",
    "Parser",
    "ProjectiveTrees",
    "Proof",
    "Scores",
    "SecondOrderTrees",
    "TagChains",
    "Tagger",
    "Tagging",
    "Transitions",
    "TrigramChains",
    "__version__",
    "decode",
    "mst",
    "verify",
    "viterbi",
]
