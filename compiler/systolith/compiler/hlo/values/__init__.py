"""The reference evaluator: the values of every operation, in numpy."""
