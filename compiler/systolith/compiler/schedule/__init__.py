"""The order of tile IR, and what it takes.

In: tile IR, or a program.  Out: operations in the order in which they run, those that repeat as loops, with addresses;
cycles by the closed forms of `isa/timing.py`.  What computes what is decided before.
"""
