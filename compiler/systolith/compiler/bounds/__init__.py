"""Cycles that no program of a module can go below, from its canonical HLO and the chip alone: nothing that the compiler
decides.
"""
