"""Where values lie, and for how long.

In: grouped HLO (aliasing, residency, rematerialisation) or scheduled tile IR (VMEM, HBM, the report).  Out: which
values are spilled, what shares memory, an address for every buffer.  No code is made here.
"""
