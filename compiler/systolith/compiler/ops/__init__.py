"""Operations: a table of opcodes, groups of operations, and expressions of micro-operations over
index maps.

In: an opcode; the computation of a group.  Out: its row; nodes (loads, constants, micro-operations), and reductions of
them.  No loops, no addresses, no cycles.
"""
