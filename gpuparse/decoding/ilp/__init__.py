"""Trees under constraints, by integer programs that grow (Riedel and Clarke, 2006)."""
