"""Best chains of tags: Viterbi, dense, by column generation, and by beams."""
