"""Index expressions: affine maps between index spaces, with bounds and quotients; boxes; contractions over named axes.

In: dimension numbers of HLO.  Out: which element of an operand an element of a result needs.  Nothing of the machine.
"""
