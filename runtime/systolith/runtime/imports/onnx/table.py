"""ONNX's operations in HLO; meanings: https://onnx.ai/onnx/operators/."""

from __future__ import annotations

from collections.abc import Mapping

from systolith.runtime.imports.onnx.contraction import CONTRACTIONS
from systolith.runtime.imports.onnx.einsum import EINSUM
from systolith.runtime.imports.onnx.elementwise import ELEMENTWISE
from systolith.runtime.imports.onnx.movement import MOVEMENTS
from systolith.runtime.imports.onnx.node import Rule
from systolith.runtime.imports.onnx.reduction import REDUCTIONS

TABLE: Mapping[str, Rule] = {**ELEMENTWISE, **REDUCTIONS, **CONTRACTIONS, **EINSUM, **MOVEMENTS}
"""The rule of each operation: its results, of which the last optional ones may be left out."""
