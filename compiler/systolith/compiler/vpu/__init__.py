"""Groups on the vector and cross-lane units: elementwise loops, reductions, scans, transposes.

In: expressions and where their arrays lie.  Out: kernels and tile IR that runs them, or what they would take.
"""
