"""Tile IR: the machine's instructions over symbolic buffers, in structured regions.

In: calls of the builder, or text.  Out: blocks of operations that the verifier accepts.  No choice is made here.
"""
