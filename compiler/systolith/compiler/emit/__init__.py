"""Tile IR to a program.

In: tile IR in its final order, and an address for every buffer.  Out: instructions, patterns, kernels, tokens, and
tables for reports and checks.  Nothing is reordered.
"""
