"""The version of records and the limit of their numbers, apart from their schema, which takes long to import."""

VERSION = 1
MOST = 2**63 - 1  # of numbers in it
