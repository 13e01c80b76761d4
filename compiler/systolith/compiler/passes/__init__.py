"""HLO to HLO, one pass a file, by XLA's names: what `registry.py` lists and `pipeline.py` runs before groups form.

`simplify/` gives the same values by less work, `expand/` writes operations as others, `linalg/` decompositions of
matrices, `dynamic/` arrays of bounded sizes, and `words/` element types that the chip does not have.  What they are
written with stands here.  Nothing here knows a chip but for its element types.
"""
