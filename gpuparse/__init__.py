"""gpuparse: dependency parsing as structured inference over batched PyTorch tensors."""

__version__ = "0.1.0"

from gpuparse.decode import Parse, decode
from gpuparse.distributions import NonProjectiveTrees, ProjectiveTrees
from gpuparse.mst import mst
from gpuparse.parser import Parser
from gpuparse.scores import Scores

__all__ = ["NonProjectiveTrees", "Parse", "Parser", "ProjectiveTrees", "Scores", "__version__", "decode", "mst"]
