"""How many replicas: what is seen of a fleet goes in, the size of each variant comes out."""
