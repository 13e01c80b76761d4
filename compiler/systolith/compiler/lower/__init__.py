"""Grouped HLO to tile IR.

In: grouped HLO and its placement.  Out: tile IR in regions, with what was decided and where probes look.  Rules for the
kinds of groups come from `vpu`, `mxu` and here (data movement, control flow, blocks); `module.py` has their table.
"""
