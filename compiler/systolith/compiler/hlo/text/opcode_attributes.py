"""Which attributes an instruction of an opcode has, in text: those it must have, and those it may have.

Source: `CreateInstruction` of `xla/hlo/parser/hlo_parser.cc`, and the lists in errors of jaxlib's parser.  Some that
XLA has given up are kept, so that older texts read in.
"""

from __future__ import annotations

from difflib import get_close_matches

COMMON = frozenset(
    """sharding frontend_attributes statistics parameter_replication control-predecessors origin metadata
    backend_config""".split()
)
"""Attributes of every instruction."""

MODULE = frozenset(
    """is_scheduled replica_count num_partitions input_output_alias buffer_donor alias_passthrough_params
    entry_computation_layout frontend_attributes allow_spmd_sharding_propagation_to_parameters
    allow_spmd_sharding_propagation_to_output origin_recovery_table""".split()
)
"""Attributes of a module."""

COMPUTATION = frozenset({"execution_thread"})
"""Attributes of a computation."""

_ACCURATE = """acos acosh asin asinh atan atanh cbrt cosh cosine erf exponential exponential-minus-one log log-plus-one
    logistic rsqrt sine sinh sqrt tan tanh"""
_COLLECTIVE = "replica_groups channel_id constrain_layout use_global_device_ids"
_DOT = "lhs_batch_dims rhs_batch_dims operand_precision lhs_contracting_dims rhs_contracting_dims"
_CONVOLUTION = "window feature_group_count batch_group_count operand_precision"

# Opcodes: attributes that must be there; that may be there.
_TABLE: tuple[tuple[str, str, str], ...] = (
    (_ACCURATE, "", "result_accuracy"),
    ("iota", "iota_dimension", ""),
    ("topk", "k", "largest"),
    ("all-gather all-gather-start", "dimensions", _COLLECTIVE),
    ("all-reduce all-reduce-start", "to_apply", f"{_COLLECTIVE} mode"),
    ("reduce-scatter", "to_apply dimensions", f"{_COLLECTIVE} mode"),
    ("all-to-all", "", "replica_groups channel_id dimensions constrain_layout"),
    ("ragged-all-to-all", "", "replica_groups channel_id dimensions"),
    ("collective-broadcast", "", "replica_groups channel_id"),
    ("collective-permute collective-permute-start", "source_target_pairs", "channel_id slice_sizes"),
    ("async-start", "calls", "async_execution_thread output_to_operand_aliasing async_group_id"),
    ("async-update async-done", "", "calls async_execution_thread async_group_id"),
    ("copy-start", "", "cross_program_prefetch_index"),
    ("reshape", "", "inferred_dimension"),
    ("sort", "dimensions to_apply", "is_stable"),
    ("while", "condition body", ""),
    ("recv recv-done send send-done", "", "channel_id is_host_transfer"),
    ("get-tuple-element", "index", ""),
    ("call", "to_apply", "is_composite"),
    ("reduce-window", "to_apply", "window"),
    ("convolution", "dim_labels", f"{_CONVOLUTION} conv_kind convolution_kind sparsity_config"),
    ("fft", "fft_type fft_length", ""),
    ("triangular-solve", "", "left_side lower unit_diagonal transpose_a"),
    ("cholesky", "", "lower"),
    ("compare", "direction", "type"),
    ("broadcast", "", "dimensions"),
    ("concatenate reverse transpose get-dimension-size set-dimension-size", "dimensions", ""),
    ("map", "to_apply", "dimensions"),
    ("scan", "to_apply dimensions num_carries", "is_reverse is_associative"),
    ("reduce", "to_apply dimensions", ""),
    ("select-and-scatter", "select scatter", "window"),
    ("slice", "slice", ""),
    ("dynamic-slice", "dynamic_slice_sizes", ""),
    ("batch-norm-training batch-norm-inference batch-norm-grad", "epsilon feature_index", ""),
    ("pad", "padding", ""),
    ("fusion", "calls kind", "output_to_operand_aliasing"),
    ("infeed", "", "infeed_config"),
    ("outfeed", "", "outfeed_config outfeed_shape"),
    ("rng", "distribution", ""),
    ("rng-get-and-update-state", "delta", ""),
    ("rng-bit-generator", "algorithm", ""),
    ("reduce-precision", "exponent_bits mantissa_bits", ""),
    ("conditional", "", "true_computation false_computation branch_computations"),
    (
        "custom-call",
        "custom_call_target",
        f"""{_CONVOLUTION} dim_labels operand_layout_constraints custom_call_has_side_effect to_apply calls
        called_computations output_to_operand_aliasing padding_type literal schedule api_version opaque""",
    ),
    ("dot", "", f"{_DOT} algorithm sparsity"),
    ("scaled-dot", "", f"{_DOT} algorithm"),
    ("ragged-dot", "", f"{_DOT} lhs_ragged_dims rhs_group_dims"),
    (
        "gather",
        "offset_dims collapsed_slice_dims start_index_map index_vector_dim slice_sizes",
        "indices_are_sorted operand_batching_dims start_indices_batching_dims",
    ),
    (
        "scatter",
        "update_window_dims inserted_window_dims scatter_dims_to_operand_dims index_vector_dim to_apply",
        "indices_are_sorted unique_indices input_batching_dims scatter_indices_batching_dims",
    ),
    ("domain", "domain", ""),
)

REQUIRED: dict[str, frozenset[str]] = {
    opcode: frozenset(required.split()) for opcodes, required, _ in _TABLE for opcode in opcodes.split()
}
"""Opcode to the attributes that it must have, for those that must have some."""

_ALLOWED: dict[str, frozenset[str]] = {
    opcode: frozenset(f"{required} {optional}".split()) | COMMON
    for opcodes, required, optional in _TABLE
    for opcode in opcodes.split()
}


def allowed(opcode: str) -> frozenset[str]:
    """The attributes that an instruction of this opcode may have."""
    return _ALLOWED.get(opcode, COMMON)


def unknown(key: str, of: str, known: frozenset[str]) -> str:
    """The message about an attribute that is not known there, with a hint."""
    near = get_close_matches(key, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(sorted(known))}"
    return f"{of} has no attribute {key!r}{hint}"
