"""The version of records, apart from their schema, which takes long to import."""

VERSION = 1
