"""Groups on the matrix units: contractions in tiles, operands that are computed as they are staged, epilogues.

In: a group with a dot or convolution and where its arrays lie.  Out: tile plans, the cheapest first, and tile IR.
"""
