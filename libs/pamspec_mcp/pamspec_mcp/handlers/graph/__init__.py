"""The nine tools of a knowledge graph, over a scope."""
