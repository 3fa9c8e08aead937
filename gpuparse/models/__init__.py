"""Parsers, taggers, pipelines of the two, and their directories."""
