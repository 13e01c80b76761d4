"""Modules and groups on part of a dimension at a time.

In: HLO.  Out: batch loops around segments of a module, and regions that run in blocks whose values stay in VMEM.
"""
