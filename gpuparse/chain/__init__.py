"""Best chains of tags: Viterbi by the dense program, by column generation, and by beams."""

from gpuparse.chain.viterbi import Tagging, Transitions, viterbi

__all__ = ["Tagging", "Transitions", "viterbi"]
