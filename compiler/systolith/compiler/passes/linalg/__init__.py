"""Decompositions of matrices as loops, products and elementwise operations, and the custom calls that ask for them."""
