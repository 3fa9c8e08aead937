"""Every table and figure of the project: ``python -m bench list``, ``run SUITE [PART]``, ``compare``, ``report``."""
