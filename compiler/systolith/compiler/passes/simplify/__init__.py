"""HLO to simpler HLO of the same values: what XLA does under the same names, one pass a file."""
