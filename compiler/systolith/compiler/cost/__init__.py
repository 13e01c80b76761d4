"""The cost model: prices of work by its size, and the timeline of the units; every planner asks it.

In: sizes, micro-operations, or operations with their closed forms from `isa/timing.py`.  Out: cycles.  Nothing here
knows HLO or tile IR; which groups, kernels and tiles there are is decided by those who ask.
"""
