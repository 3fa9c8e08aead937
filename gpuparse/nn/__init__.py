"""Neural and linear scorers: what gives the parts of a tree their scores."""
