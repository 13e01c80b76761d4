"""What a piece of code costs: the prices and the timeline that every planner asks.

In: sizes, micro-operations, or operations with their closed forms from `isa/timing.py`.  Out: cycles.  Nothing here
knows HLO or tile IR; which groups, kernels and tiles there are is decided by those who ask.
"""
