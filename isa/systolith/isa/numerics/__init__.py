"""Bit-exact arithmetic of the instruction set: the same bits on every machine.

Values are 32-bit register images, `numpy.uint32` arrays of any shape (0-d for constants).  Nothing here uses numpy's
own exp, log and so on, whose last bits differ between builds: only operations that IEEE 754 or two's complement fix.
"""
