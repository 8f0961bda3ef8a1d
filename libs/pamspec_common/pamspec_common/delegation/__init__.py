"""Delegation: what a grant permits, decided by one set of rules wherever it is asked.

A grant and those above it are a chain, the first one first. What is done under the last is done with the authority of
the first one's grantor, within the terms of every grant of the chain, and every one of them must be in force.
"""
