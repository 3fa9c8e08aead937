"""Dual decomposition: oracles that must agree, with bounds and certificates (Rush et al. 2010, Koo et al. 2010)."""
