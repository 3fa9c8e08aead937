"""Conventions: what trees, chains of tags, grammars and constituents are, and how arguments are checked."""
