"""The measurements: each figure beside its floor, both measured in the same run and in turns.

A figure counts only as a ratio to what the same machine does at the same time without the product.
"""
