"""Choose OpenBLAS's kernels before numpy is imported; this module imports nothing but os.

On processors with AVX-512 its SkylakeX kernels reduce a dot product with one fused multiply-add a step, in order, which
is the matrix unit's arithmetic; others split the sum.  `matmul` checks whatever it finds and does without where it
must, so this decides speed and never results.
"""

from __future__ import annotations

import os
import sys

EXACT_CORE = "SkylakeX"
_CPUINFO = "/proc/cpuinfo"


def prefer_exact_blas() -> bool:
    """Choose kernels and threads, if numpy is not imported yet; whether exact kernels were chosen (needs AVX-512)."""
    if "numpy" in sys.modules:
        return False
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not _has_avx512():
        return False
    os.environ["OPENBLAS_CORETYPE"] = EXACT_CORE
    return True


def _has_avx512() -> bool:
    try:
        with open(_CPUINFO, encoding="ascii", errors="replace") as file:
            return any(" avx512f" in line for line in file if line.startswith("flags"))
    except OSError:
        return False
