"""The wire format of XLA's modules: messages, field numbers and types, as far as a `Module` needs them.

Source: `xla/service/hlo.proto` and `xla/xla_data.proto`.  Enumerations are `int32` here (the same on the wire), so that
a value that is not known is seen and refused, and maps are lists of entries.  A field that the table leaves out
(buffer assignments, profiles, ...) is skipped when read.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from systolith.compiler.hlo.proto.declared import Declared

if TYPE_CHECKING:
    from google.protobuf.message import Message

_PACKAGE = "systolith.hlo"  # not `xla`, so that a process may also load XLA's own definitions

MESSAGES: dict[str, str] = {
    "DeviceAssignmentProto": """1 replica_count int32, 2 computation_count int32,
        3 computation_devices ComputationDevice*""",
    "ComputationDevice": "1 replica_device_ids int64*",
    "HloModuleProtoWithConfig": "1 hlo_module HloModuleProto, 2 config HloModuleConfigProto",
    "HloModuleConfigProto": """1 entry_computation_layout ProgramShapeProto, 4 replica_count int64,
        5 num_partitions int64""",
    "HloProto": "1 hlo_module HloModuleProto",
    "HloSnapshot": "1 hlo HloProto",
    "HloModuleProto": """1 name string, 3 computations HloComputationProto*,
        4 host_program_shape ProgramShapeProto, 6 entry_computation_id int64, 7 schedule HloScheduleProto,
        8 input_output_alias HloInputOutputAliasProto, 12 spmd_output_sharding OpSharding,
        14 spmd_parameters_shardings OpSharding*,
        17 stack_frame_index StackFrameIndexProto, 18 buffer_donor HloBufferDonorProto,
        19 frontend_attributes FrontendAttributes, 20 original_value_recovery_table OriginalValueRecoveryTableProto,
        22 payloads bytes*""",
    "HloComputationProto": """1 name string, 2 instructions HloInstructionProto*, 5 id int64, 6 root_id int64,
        8 execution_thread string""",
    "HloInstructionProto": """1 name string, 2 opcode string, 3 shape ShapeProto, 7 metadata OpMetadata,
        8 literal LiteralProto, 9 parameter_number int64, 11 fusion_kind string, 13 tuple_index int64,
        14 dimensions int64*, 15 window Window, 16 convolution_dimension_numbers ConvolutionDimensionNumbers,
        17 slice_dimensions SliceDimensions*, 18 exponent_bits int32, 19 mantissa_bits int32,
        20 dynamic_slice_sizes int64*, 21 padding_config PaddingConfig, 22 outfeed_config bytes,
        23 distribution int32, 24 epsilon float, 25 feature_index int64, 26 channel_id int64, 27 infeed_config bytes,
        28 custom_call_target string, 29 outfeed_shape ShapeProto, 30 dot_dimension_numbers DotDimensionNumbers,
        31 fft_type int32, 32 fft_length int64*, 33 gather_dimension_numbers GatherDimensionNumbers,
        34 gather_slice_sizes int64*, 35 id int64, 36 operand_ids int64*, 37 control_predecessor_ids int64*,
        38 called_computation_ids int64*, 40 sharding OpSharding, 43 backend_config bytes,
        47 is_host_transfer bool, 48 scatter_dimension_numbers ScatterDimensionNumbers,
        49 replica_groups ReplicaGroup*, 50 feature_group_count int64, 51 precision_config PrecisionConfig,
        52 source_target_pairs SourceTarget*, 54 domain_entry_sharding OpSharding,
        55 domain_exit_sharding OpSharding, 56 constrain_layout bool, 57 operand_shapes_with_layout ShapeProto*,
        58 batch_group_count int64, 59 triangular_solve_options TriangularSolveOptions, 60 is_stable bool,
        61 parameter_replication ParameterReplication, 62 cholesky_options CholeskyOptions,
        63 comparison_direction string, 65 custom_call_has_side_effect bool, 66 delta int64,
        67 indices_are_sorted bool, 68 frontend_attributes FrontendAttributes, 69 unique_indices bool,
        70 rng_algorithm int32, 71 use_global_device_ids bool, 72 comparison_type string,
        74 output_operand_aliasing OutputOperandAliasing*, 75 padding_type int32, 76 custom_call_schedule int32,
        77 custom_call_api_version int32, 79 async_execution_thread string, 80 cross_program_prefetch_index int32?,
        81 k int64, 82 statistics_viz StatisticsViz, 85 largest bool, 87 collective_device_list CollectiveDeviceList,
        88 original_value OriginalValueProto, 89 is_composite bool, 90 ragged_dot_dimension_numbers
        RaggedDotDimensionNumbers, 91 result_accuracy ResultAccuracy, 92 iota_collective_device_list IotaGroups,
        93 mesh_axes_replica_group_list MeshAxesGroups, 94 is_reverse bool, 95 num_carries int64,
        96 is_associative int32, 97 conv_kind int32,
        99 backend_config_payload Payload""",
    "SliceDimensions": "1 start int64, 2 limit int64, 3 stride int64",
    "Payload": "1 value bytes?, 2 id int64?",
    "ShapeProto": """2 element_type int32, 3 dimensions int64*, 4 tuple_shapes ShapeProto*, 5 layout LayoutProto,
        6 is_dynamic_dimension bool*""",
    "LayoutProto": """1 minor_to_major int64*, 6 tiles Tile*, 7 element_size_in_bits int64, 8 memory_space int64,
        10 physical_shape ShapeProto, 11 index_primitive_type int32, 12 pointer_primitive_type int32,
        15 dynamic_shape_metadata_prefix_bytes int64, 16 tail_padding_alignment_in_elements int64,
        17 split_configs SplitConfig*""",
    "Tile": "1 dimensions int64*",
    "SplitConfig": "1 dimension int64, 2 split_indices int64*",
    "ProgramShapeProto": "1 parameters ShapeProto*, 2 result ShapeProto",
    "LiteralProto": """1 shape ShapeProto, 2 preds bool*, 3 u8s bytes, 4 s32s int32*, 5 s64s int64*, 6 u32s uint32*,
        7 u64s uint64*, 8 f32s float*, 9 f64s double*, 10 tuple_literals LiteralProto*, 11 f16s bytes,
        12 c64s float*, 13 bf16s bytes, 15 s8s bytes, 16 u16s bytes, 17 s16s bytes, 18 c128s double*,
        19 f8e5m2s bytes, 20 f8e4m3fns bytes, 21 s4s bytes, 22 u4s bytes, 23 f8e4m3b11fnuzs bytes,
        24 f8e5m2fnuzs bytes, 25 f8e4m3fnuzs bytes, 26 s2s bytes, 27 u2s bytes, 28 f8e4m3s bytes, 29 f8e3m4s bytes,
        30 s1s bytes, 31 u1s bytes, 32 f4e2m1fns bytes, 33 f8e8m0fnus bytes, 34 dynamic_sizes int32*,
        35 f6e3m2fns bytes, 36 f6e2m3fns bytes""",
    "OpMetadata": """1 op_type string, 2 op_name string, 3 source_file string, 4 source_line int32,
        5 profile_type int32*,
        12 deduplicated_name string, 15 stack_frame_id int32, 16 scheduling_name string, 17 source_end_line int32,
        18 source_column int32, 19 source_end_column int32, 20 metadata_payload Payload""",
    "Window": "1 dimensions WindowDimension*",
    "WindowDimension": """1 size int64, 2 stride int64, 3 padding_low int64, 4 padding_high int64,
        5 window_dilation int64, 6 base_dilation int64, 7 window_reversal bool""",
    "ConvolutionDimensionNumbers": """3 kernel_input_feature_dimension int64, 4 kernel_output_feature_dimension int64,
        6 kernel_spatial_dimensions int64*, 7 input_batch_dimension int64, 8 input_feature_dimension int64,
        9 output_batch_dimension int64, 10 output_feature_dimension int64, 11 input_spatial_dimensions int64*,
        12 output_spatial_dimensions int64*""",
    "DotDimensionNumbers": """1 lhs_contracting_dimensions int64*, 2 rhs_contracting_dimensions int64*,
        3 lhs_batch_dimensions int64*, 4 rhs_batch_dimensions int64*""",
    "RaggedDotDimensionNumbers": """1 dot_dimension_numbers DotDimensionNumbers, 2 lhs_ragged_dimensions int64*,
        3 rhs_group_dimensions int64*""",
    "GatherDimensionNumbers": """1 offset_dims int64*, 2 collapsed_slice_dims int64*, 3 start_index_map int64*,
        4 index_vector_dim int64, 5 operand_batching_dims int64*, 6 start_indices_batching_dims int64*""",
    "ScatterDimensionNumbers": """1 update_window_dims int64*, 2 inserted_window_dims int64*,
        3 scatter_dims_to_operand_dims int64*, 4 index_vector_dim int64, 5 input_batching_dims int64*,
        6 scatter_indices_batching_dims int64*""",
    "PaddingConfig": "1 dimensions PaddingDimension*",
    "PaddingDimension": "1 edge_padding_low int64, 2 edge_padding_high int64, 3 interior_padding int64",
    "PrecisionConfig": "1 operand_precision int32*, 2 algorithm int32",
    "TriangularSolveOptions": "1 left_side bool, 2 lower bool, 3 unit_diagonal bool, 4 transpose_a int32",
    "CholeskyOptions": "1 lower bool",
    "ResultAccuracy": "1 mode int32?, 2 tolerance Tolerance",
    "Tolerance": "1 atol double, 2 rtol double, 3 ulps int64",
    "ReplicaGroup": "1 replica_ids int64*",
    "CollectiveDeviceList": "1 replica_groups ReplicaGroup*",
    "IotaGroups": """1 num_replica_groups int64, 2 num_devices_per_group int64, 3 iota_reshape_dims int64*,
        4 iota_transpose_perm int32*""",
    "MeshAxesGroups": "1 mesh Mesh, 2 axes AxisRef*",
    "Mesh": "1 axes MeshAxis*, 2 device_ids int64*, 3 iota_transform IotaTransform",
    "MeshAxis": "1 name string, 2 size int64",
    "IotaTransform": "1 reshape_dims int64*, 2 transpose_perm int64*",
    "AxisRef": "1 mesh_axis_index int64, 2 sub_axis_info SubAxis",
    "SubAxis": "1 pre_size int64, 2 size int64",
    "SourceTarget": "1 source int64, 2 target int64",
    "OpSharding": """1 type int32, 3 tile_assignment_dimensions int64*, 4 tile_assignment_devices int64*,
        5 tuple_shardings OpSharding*, 6 replicate_on_last_tile_dim bool, 7 metadata OpMetadata*,
        8 last_tile_dims int32*, 9 iota_reshape_dims int64*, 10 iota_transpose_perm int32*, 11 is_shard_group bool,
        12 shard_group_id int64, 13 shard_group_type int32, 14 named_sharding NamedSharding""",
    "NamedSharding": """2 mesh Mesh, 3 dim_shardings DimensionSharding*, 4 replicated_axes AxisRef*,
        5 unreduced_axes AxisRef*, 6 metadata OpMetadata*, 7 manual_axes AxisRef*""",
    "DimensionSharding": "1 axes AxisRef*, 2 is_closed bool",
    "ParameterReplication": "1 replicated_at_leaf_buffers bool*",
    "OutputOperandAliasing": "1 output_shape_index int64*, 2 operand_index int64, 3 operand_shape_index int64*",
    "FrontendAttributes": "1 map FrontendAttribute*",
    "FrontendAttribute": "1 key string, 2 value string",
    "StatisticsViz": "1 stat_index_to_visualize int64, 2 statistics Statistic*",
    "Statistic": "1 stat_name string, 2 stat_val double",
    "OriginalValueProto": "1 elements OriginalValueElement*, 2 is_synthetic_call bool",
    "OriginalValueElement": "1 shape_index int64*, 2 original_array OriginalArray",
    "OriginalArray": "1 instruction_name string, 2 shape_index int64*",
    "OriginalValueRecoveryTableProto": "1 entries RecoveryEntry*",
    "RecoveryEntry": """1 old_original_array OriginalArray, 2 new_original_array OriginalArray,
        3 recovery_module HloModuleProto""",
    "HloScheduleProto": "1 sequences Sequence*",
    "Sequence": "1 key int64, 2 value InstructionSequence",
    "InstructionSequence": "1 instruction_ids int64*",
    "HloInputOutputAliasProto": "1 entries AliasEntry*",
    "AliasEntry": "1 output_shape_index int64*, 2 parameter_number int64, 3 parameter_shape_index int64*, 4 kind int32",
    "HloBufferDonorProto": "1 entries BufferDonorEntry*",
    "BufferDonorEntry": "1 parameter_number int64, 2 parameter_shape_index int64*",
    "StackFrameIndexProto": """1 file_names string*, 2 function_names string*, 3 file_locations FileLocation*,
        4 stack_frames StackFrame*""",
    "FileLocation": """1 file_name_id int32, 2 function_name_id int32, 3 line int32, 4 column int32, 5 end_line int32,
        6 end_column int32""",
    "StackFrame": "1 file_location_id int32, 2 parent_frame_id int32",
}  # fmt: skip

# `PrimitiveType`: number to the name in text.
ELEMENT_NAMES: dict[int, str] = {
    int(number): name
    for number, name in (
        item.split("=")
        for item in """1=pred 30=s1 26=s2 21=s4 2=s8 3=s16 4=s32 5=s64 31=u1 27=u2 22=u4 6=u8 7=u16 8=u32 9=u64 10=f16
        11=f32 16=bf16 12=f64 19=f8e5m2 28=f8e4m3 20=f8e4m3fn 23=f8e4m3b11fnuz 29=f8e3m4 24=f8e5m2fnuz 25=f8e4m3fnuz
        32=f4e2m1fn 33=f8e8m0fnu 35=f6e3m2fn 36=f6e2m3fn 15=c64 18=c128 13=tuple 14=opaque 17=token
        34=buffer""".split()
    )
}


@cache
def message_class(name: str) -> type[Message]:
    """The class of a message in the table, whose `FromString` reads bytes."""
    return _declared().message_class(name)


@cache
def _declared() -> Declared:
    return Declared(_PACKAGE, MESSAGES)
