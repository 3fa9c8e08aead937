"""gpuparse: dependency parsing as structured inference over batched PyTorch tensors."""

from gpuparse.distributions import NonProjectiveTrees, ProjectiveTrees
from gpuparse.mst import mst

__version__ = "0.1.0"
__all__ = ["NonProjectiveTrees", "ProjectiveTrees", "__version__", "mst"]
