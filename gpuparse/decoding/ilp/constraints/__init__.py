"""What a tree may be asked for beyond its score. A constraint is a small object that gives rows for a sentence."""
