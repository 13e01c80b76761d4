"""Element types of HLO: those of the machine (`isa/dtypes.py`), and those that only texts have.

The latter parse, print and evaluate; a compiler of this machine refuses them by name.  Formats: OCP Microscaling
specification (f4e2m1fn, f8e8m0fnu), IEEE-like f8e3m4 and f8e4m3, and XLA's integers of one and two bits.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from systolith.isa.dtypes import DTYPES, DType, Kind


def _t(name: str, kind: Kind, bits: int, stored: type[np.generic]) -> DType:
    return DType(name, -1, kind, bits, np.dtype(stored))


ELEMENT_TYPES: dict[str, DType] = DTYPES | {
    t.name: t
    for t in (
        _t("s1", Kind.SIGNED, 1, ml_dtypes.int1),
        _t("s2", Kind.SIGNED, 2, ml_dtypes.int2),
        _t("u1", Kind.UNSIGNED, 1, ml_dtypes.uint1),
        _t("u2", Kind.UNSIGNED, 2, ml_dtypes.uint2),
        _t("f4e2m1fn", Kind.FLOAT, 4, ml_dtypes.float4_e2m1fn),
        _t("f8e3m4", Kind.FLOAT, 8, ml_dtypes.float8_e3m4),
        _t("f8e4m3", Kind.FLOAT, 8, ml_dtypes.float8_e4m3),
        _t("f8e4m3b11fnuz", Kind.FLOAT, 8, ml_dtypes.float8_e4m3b11fnuz),
        _t("f8e8m0fnu", Kind.FLOAT, 8, ml_dtypes.float8_e8m0fnu),
    )
}
"""Name to element type, all that HLO text may have."""
