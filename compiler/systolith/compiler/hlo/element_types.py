"""Element types of HLO: all that texts may have, those included that no instruction of the machine has."""

from systolith.isa.dtypes import ELEMENT_TYPES

__all__ = ["ELEMENT_TYPES"]
