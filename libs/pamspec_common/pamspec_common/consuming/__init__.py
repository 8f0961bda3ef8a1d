"""Consuming the ledger over the bus: each entry takes effect once and in its scope's order, whatever the bus does.

A service brings an `Effect` and the four tables of `tables.sql` in a schema of its own; `Consumer` does the rest.
"""
