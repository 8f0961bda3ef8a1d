"""The Agent Memory Protocol over the operations: a cell is an object of a scope."""
