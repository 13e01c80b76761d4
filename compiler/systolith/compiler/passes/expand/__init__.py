"""Operations as others that the back end lowers, one pass or one family of operations a file, by XLA's names.

The evaluator gives the same values before and after; what an expansion needs of others is in the files beside it.
"""
