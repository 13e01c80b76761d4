"""What operations compute: element by element, as expressions of the vector unit's micro-operations over index maps.

In: the computation of a group.  Out: nodes (loads, constants, micro-operations), and reductions of them.  No loops, no
addresses, no cycles.
"""
