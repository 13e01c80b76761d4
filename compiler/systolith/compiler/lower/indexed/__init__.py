"""Lowering of gather and scatter: windows of an array at places that a list has.

In: a group of one such operation, and where its operands and results lie (`lower/dma_ops.py`).  Out: operations of tile
IR that read the list as they run: indirect DMA, and kernels in serial mode.  What finds the list's values does not
belong here: it is HLO (`passes/expand/gathers.py`, `scatters.py`).
"""
