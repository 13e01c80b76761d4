"""Which custom calls are compiled."""

from __future__ import annotations

import re

from systolith.compiler.hlo.values.custom_calls import MARKERS
from systolith.compiler.ops.table import OPS, TARGETS
from systolith.compiler.passes.dynamic.dynamic_rules import CALLS
from systolith.compiler.passes.expand.partial_reduce import TARGET
from systolith.compiler.passes.expand.topk import TOP_K
from systolith.compiler.passes.linalg.lapack import ROUTINES
from systolith.compiler.plugins import EXPANDERS, installed
from systolith.isa.routines import known

_LETTER = re.compile("^lapack_[sdcz]")


def targets() -> list[str]:
    """Targets that systolith or an installed package expands, lowers or takes for a marker, in order.

    Of LAPACK's a `?` stands for the letter of the type.
    """
    own = {TARGET, TOP_K, "Pin", "Unpin", "xla.sdy.*"} | MARKERS
    routines = {_LETTER.sub("lapack_?", name) for name in ROUTINES}
    added = {*known()} | (installed(EXPANDERS).keys() - OPS.keys())
    return sorted(own | routines | CALLS.keys() | TARGETS.keys() | added)
