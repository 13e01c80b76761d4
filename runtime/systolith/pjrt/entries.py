"""The PJRT C API as data: every function of its table, and the fields of its argument structure.

Source: `xla/pjrt/c/pjrt_c_api.h` of OpenXLA, version 0.69.  Later versions add functions behind these and fields behind
these fields, so they call a table of this version as it is; it has all that JAX asks for.

Each structure starts with its size and a list of extensions.  A function's first field is the object that it is about;
fields behind `->` are results.  A function without fields here is none that this plugin answers.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, ClassVar

MAJOR, MINOR = 0, 69

_TYPES: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "z": ctypes.c_size_t,
    "i": ctypes.c_int32,
    "q": ctypes.c_int64,
    "b": ctypes.c_bool,
}

HEADER = [("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p)]

# name, fields: `:z` is a size_t, `:i` an int or enum, `:q` an int64_t, `:b` a bool; others are pointers.
_ENTRIES = """
Error_Destroy error
Error_Message error -> message message_size:z
Error_GetCode error -> code:i
Plugin_Initialize
Plugin_Attributes -> attributes num_attributes:z
Event_Destroy event
Event_IsReady event -> is_ready:b
Event_Error event
Event_Await event
Event_OnReady event callback user_arg
Client_Create create_options num_options:z kv_get kv_get_arg kv_put kv_put_arg client kv_try_get kv_try_get_arg
Client_Destroy client
Client_PlatformName client -> platform_name platform_name_size:z
Client_ProcessIndex client -> process_index:i
Client_PlatformVersion client -> platform_version platform_version_size:z
Client_Devices client -> devices num_devices:z
Client_AddressableDevices client -> addressable_devices num_addressable_devices:z
Client_LookupDevice client id:i -> device
Client_LookupAddressableDevice client local_hardware_id:i -> addressable_device
Client_AddressableMemories client -> addressable_memories num_addressable_memories:z
Client_Compile client program compile_options compile_options_size:z -> executable
Client_DefaultDeviceAssignment client num_replicas:i num_partitions:i size:z assignment
Client_BufferFromHostBuffer client data type:i dims num_dims:z byte_strides num_byte_strides:z semantics:i device\
 memory device_layout -> done_with_host_buffer buffer
DeviceDescription_Id device_description -> id:i
DeviceDescription_ProcessIndex device_description -> process_index:i
DeviceDescription_Attributes device_description -> num_attributes:z attributes
DeviceDescription_Kind device_description -> device_kind device_kind_size:z
DeviceDescription_DebugString device_description -> debug_string debug_string_size:z
DeviceDescription_ToString device_description -> to_string to_string_size:z
Device_GetDescription device -> device_description
Device_IsAddressable device -> is_addressable:b
Device_LocalHardwareId device -> local_hardware_id:i
Device_AddressableMemories device -> memories num_memories:z
Device_DefaultMemory device -> memory
Device_MemoryStats device -> bytes_in_use:q peak_bytes_in_use:q peak_bytes_in_use_is_set:b num_allocs:q\
 num_allocs_is_set:b largest_alloc_size:q largest_alloc_size_is_set:b bytes_limit:q bytes_limit_is_set:b\
 bytes_reserved:q bytes_reserved_is_set:b peak_bytes_reserved:q peak_bytes_reserved_is_set:b bytes_reservable_limit:q\
 bytes_reservable_limit_is_set:b largest_free_block_bytes:q largest_free_block_bytes_is_set:b pool_bytes:q\
 pool_bytes_is_set:b peak_pool_bytes:q peak_pool_bytes_is_set:b
Memory_Id memory -> id:i
Memory_Kind memory -> kind kind_size:z
Memory_DebugString memory -> debug_string debug_string_size:z
Memory_ToString memory -> to_string to_string_size:z
Memory_AddressableByDevices memory -> devices num_devices:z
Executable_Destroy executable
Executable_Name executable -> executable_name executable_name_size:z
Executable_NumReplicas executable -> num_replicas:z
Executable_NumPartitions executable -> num_partitions:z
Executable_NumOutputs executable -> num_outputs:z
Executable_SizeOfGeneratedCodeInBytes executable -> size_in_bytes:q
Executable_GetCostAnalysis executable -> num_properties:z properties
Executable_OutputMemoryKinds executable -> num_outputs:z memory_kinds memory_kind_sizes
Executable_OptimizedProgram executable program
Executable_Serialize executable -> serialized_bytes serialized_bytes_size:z serialized_executable deleter
LoadedExecutable_Destroy executable
LoadedExecutable_GetExecutable loaded_executable -> executable
LoadedExecutable_AddressableDevices executable -> addressable_devices num_addressable_devices:z
LoadedExecutable_Delete executable
LoadedExecutable_IsDeleted executable -> is_deleted:b
LoadedExecutable_Execute executable options argument_lists num_devices:z num_args:z output_lists device_complete_events\
 execute_device
Executable_DeserializeAndLoad client serialized serialized_size:z loaded_executable options options_size:z
LoadedExecutable_Fingerprint executable -> executable_fingerprint executable_fingerprint_size:z
Buffer_Destroy buffer
Buffer_ElementType buffer -> type:i
Buffer_Dimensions buffer -> dims num_dims:z
Buffer_UnpaddedDimensions buffer -> dims num_dims:z
Buffer_DynamicDimensionIndices buffer -> dynamic_dim_indices num_dynamic_dims:z
Buffer_GetMemoryLayout buffer -> layout_size:z layout_extensions tiled_size:z tiled_extensions minor_to_major\
 num_dims:z tile_dims tile_dim_sizes num_tiles:z layout_type:i
Buffer_OnDeviceSizeInBytes buffer -> on_device_size_in_bytes:z
Buffer_Device buffer -> device
Buffer_Memory buffer -> memory
Buffer_Delete buffer
Buffer_IsDeleted buffer -> is_deleted:b
Buffer_CopyToDevice buffer dst_device -> dst_buffer
Buffer_ToHostBuffer src host_layout dst dst_size:z -> event
Buffer_IsOnCpu buffer -> is_on_cpu:b
Buffer_ReadyEvent buffer -> event
Buffer_UnsafePointer buffer -> buffer_pointer
Buffer_IncreaseExternalReferenceCount buffer
Buffer_DecreaseExternalReferenceCount
Buffer_OpaqueDeviceMemoryDataPointer buffer -> buffer_pointer
CopyToDeviceStream_Destroy stream
CopyToDeviceStream_AddChunk
CopyToDeviceStream_TotalBytes
CopyToDeviceStream_GranuleSize
CopyToDeviceStream_CurrentBytes
TopologyDescription_Create name name_size:z create_options num_options:z -> topology
TopologyDescription_Destroy topology
TopologyDescription_PlatformName topology -> platform_name platform_name_size:z
TopologyDescription_PlatformVersion topology -> platform_version platform_version_size:z
TopologyDescription_GetDeviceDescriptions topology -> descriptions num_descriptions:z
TopologyDescription_Serialize topology -> serialized_bytes serialized_bytes_size:z serialized_topology deleter
TopologyDescription_Attributes topology -> attributes num_attributes:z
Compile topology program compile_options compile_options_size:z client -> executable
Executable_OutputElementTypes executable -> output_types num_outputs:z
Executable_OutputDimensions executable -> num_outputs:z dims dim_sizes
Buffer_CopyToMemory buffer dst_memory -> dst_buffer
Client_CreateViewOfDeviceBuffer
Executable_Fingerprint executable -> executable_fingerprint executable_fingerprint_size:z
Client_TopologyDescription client -> topology
Executable_GetCompiledMemoryStats executable -> generated_code_size_in_bytes:q argument_size_in_bytes:q\
 output_size_in_bytes:q alias_size_in_bytes:q temp_size_in_bytes:q host_generated_code_size_in_bytes:q\
 host_argument_size_in_bytes:q host_output_size_in_bytes:q host_alias_size_in_bytes:q host_temp_size_in_bytes:q\
 peak_memory_in_bytes:q total_size_in_bytes:q
Memory_Kind_Id memory -> kind_id:i
ExecuteContext_Create -> context
ExecuteContext_Destroy context
Buffer_CopyRawToHost buffer dst offset:q transfer_size:q -> event
AsyncHostToDeviceTransferManager_Destroy transfer_manager
AsyncHostToDeviceTransferManager_TransferData
Client_CreateBuffersForAsyncHostToDevice
AsyncHostToDeviceTransferManager_RetrieveBuffer
AsyncHostToDeviceTransferManager_Device
AsyncHostToDeviceTransferManager_BufferCount
AsyncHostToDeviceTransferManager_BufferSize
AsyncHostToDeviceTransferManager_SetBufferError
AsyncHostToDeviceTransferManager_AddMetadata
Client_DmaMap
Client_DmaUnmap
Client_CreateUninitializedBuffer client dims num_dims:z type:i layout device memory -> buffer
"""

_STRUCTURES = """
Program code code_size:z format format_size:z
NamedValue name name_size:z type:i value value_size:z
ExecuteOptions send_callbacks recv_callbacks num_send_ops:z num_recv_ops:z launch_id:i non_donatable num_non_donatable:z
Layout tiled_size:z tiled_extensions minor_to_major num_dims:z tile_dims tile_dim_sizes num_tiles:z type:i
"""
"""Structures that arguments point to.  A layout is a union: of one by strides, the first two fields are these."""


@dataclass(frozen=True)
class Entry:
    """A function of the table.

    Attributes:
        name: without `PJRT_`.
        struct: its arguments, a ctypes structure; None: nothing is known of them.
        results: names of its result fields.
    """

    name: str
    struct: Any
    results: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The kind of object that it is about: `Buffer`, `Device`, ..."""
        return self.name.partition("_")[0]


def _fields(words: list[str]) -> list[tuple[str, Any]]:
    pairs = [word.partition(":") for word in words if word != "->"]
    return [(name, _TYPES[kind or "p"]) for name, _, kind in pairs]


def _structure(name: str, words: list[str]) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": HEADER + _fields(words)})


def _entry(line: str) -> Entry:
    name, *words = line.split()
    results = words[words.index("->") + 1 :] if "->" in words else []
    struct = _structure(name, words) if words else None
    return Entry(name, struct, tuple(word.partition(":")[0] for word in results))


ENTRIES: dict[str, Entry] = {entry.name: entry for entry in map(_entry, _ENTRIES.strip().splitlines())}
STRUCTURES: dict[str, Any] = {
    name: _structure(name, words) for name, *words in (line.split() for line in _STRUCTURES.strip().splitlines())
}


class Table(ctypes.Structure):
    """`PJRT_Api`."""

    _fields_: ClassVar[Any] = (
        *HEADER,
        ("version_size", ctypes.c_size_t),
        ("version_extensions", ctypes.c_void_p),
        ("major", ctypes.c_int32),
        ("minor", ctypes.c_int32),
        *((name, ctypes.c_void_p) for name in ENTRIES),
    )
