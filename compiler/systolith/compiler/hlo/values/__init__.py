"""The reference evaluator: what every operation means, in numpy."""
