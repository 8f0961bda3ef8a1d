"""Making vectors of texts: models in a process of their own, and endpoints elsewhere."""
