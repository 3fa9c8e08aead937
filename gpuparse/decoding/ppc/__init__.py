"""Parse, price and cut (Riedel, Smith and McCallum 2012) over one linear program of arcs and grandparents."""
