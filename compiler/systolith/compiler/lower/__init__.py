"""Grouped HLO to tile IR.

In: grouped HLO and its placement.  Out: tile IR in regions, with what was decided and where probes look.  A rule for each
kind of group comes from `vpu`, `mxu` and here (data movement, control flow, blocks); `module.py` has the table.
"""
