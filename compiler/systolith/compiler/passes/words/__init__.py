"""Element types that the chip does not have, as values of those that it has: 64-bit integers and floats as words of
u32, complex numbers as pairs of floats, narrow types as bytes.
"""
