"""Who takes part in a collective: groups and pairs of ids as groups and pairs of devices.

The kind of the ids depends on the operation, its channel and its flags: replicas, partitions, or devices.
Source: `GetCollectiveOpGroupMode` and `GetParticipatingDevicesGroups` of XLA's `collective_ops_utils.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Instruction, Module
from systolith.compiler.hlo.rules.shapes_collectives import groups_of, stated_size
from systolith.compiler.hlo.values.devices import Topology

Ids = Sequence[int]
Groups = dict[int, tuple[int, ...]]
"""Device number to the group that it is in."""


_MODES = ("cross_replica", "cross_partition", "cross_replica_and_partition", "flattened_id")
# Of these a channel makes every partition of a replica take part; of others the ids are partitions then.
_WITH_GLOBAL_IDS = frozenset({"all-gather", "all-reduce", "reduce-scatter"})


def channel(i: Instruction) -> int:
    """The channel's number; 0 is none, as in XLA's protos."""
    return i.integer("channel_id", 0)


def _by_mode(mode: str, topology: Topology) -> tuple[int, Callable[[Ids], list[list[int]]]]:
    """How many ids there are in a mode, and the groups of devices that one group of ids stands for."""
    width = topology.partitions
    replicas, partitions = range(topology.replicas), range(width)
    match mode:
        case "cross_replica":
            return len(replicas), lambda ids: [[r * width + p for r in ids] for p in partitions]
        case "cross_partition":
            return len(partitions), lambda ids: [[r * width + p for p in ids] for r in replicas]
        case "cross_replica_and_partition":
            return len(replicas), lambda ids: [[r * width + p for r in ids for p in partitions]]
        case _:
            return topology.count, lambda ids: [list(ids)]


def _mode(i: Instruction) -> str:
    """The kind of the ids of an instruction's groups: its `mode`, or by channel and use_global_device_ids."""
    flattened = i.flag("use_global_device_ids")
    if "mode" in i.attributes:
        if (mode := i.word("mode")) not in _MODES:
            raise HloError(f"unknown mode {mode!r} of groups; known: {', '.join(_MODES)}")
        return mode
    if not channel(i):
        if flattened:
            raise HloError("use_global_device_ids=true needs a channel_id")
        return "cross_replica"
    if flattened:
        return "flattened_id"
    return "cross_replica_and_partition" if i.opcode.removesuffix("-start") in _WITH_GLOBAL_IDS else "cross_partition"


def device_groups(i: Instruction, topology: Topology, lists: Sequence[Sequence[int]]) -> Groups:
    """The groups of devices that lists of ids stand for, in the mode that channel and flags say; none: all together.

    Raises:
        HloError: an id is out of range, or in two groups.
    """
    count, expand = _by_mode(_mode(i), topology)
    found: Groups = {}
    for ids in [ids for ids in lists if ids] or [range(count)]:
        for id_ in ids:
            if not 0 <= id_ < count:
                raise HloError(f"a group has the id {id_}, of {count} ({topology}); give as many devices as it needs")
        for group in expand(ids):
            for device in group:
                if device in found:
                    raise HloError(f"device {device} is twice in the groups")
                found[device] = tuple(group)
    return found


def pairs_of(i: Instruction) -> tuple[Ids, ...]:
    """The pairs of ids of a collective-permute."""
    return cast("tuple[Ids, ...]", i.attributes.get("source_target_pairs", ()))


def device_pairs(i: Instruction, topology: Topology, pairs: Sequence[Ids]) -> list[tuple[int, int]]:
    """Source and target devices of pairs of ids.

    Raises:
        HloError: a pair is not two ids that exist.
    """
    count, expand = _by_mode(_mode(i), topology)
    for pair in pairs:
        if len(pair) != 2 or not all(0 <= id_ < count for id_ in pair):
            raise HloError(f"{tuple(pair)} is not a pair of ids below {count} ({topology})")
    return [(source, target) for pair in pairs for source, target in expand(pair)]


def device_sources(i: Instruction, topology: Topology, pairs: Sequence[Ids]) -> dict[int, int]:
    """Target to source device, of pairs of ids.

    Raises:
        HloError: as `device_pairs`, or a device is twice a source or a target.
    """
    listed = device_pairs(i, topology, pairs)
    found = {target: source for source, target in listed}
    if len(found) < len(listed) or len(set(found.values())) < len(found):
        raise HloError("a device is twice a source or a target")
    return found


def grid(module: Module, replicas: int | None = None, partitions: int | None = None) -> Topology:
    """The grid of devices that a module says; where it says nothing, as few as its groups and pairs have ids for, and
    as its shapes say for a group of all devices.

    Args:
        replicas, partitions: their numbers, if known; None: `replica_count` and `num_partitions`.

    Raises:
        HloError: an instruction's groups make no sense; names it.
    """
    if replicas is None:
        replicas = cast("int | None", module.attributes.get("replica_count"))
    if partitions is None:
        partitions = cast("int | None", module.attributes.get("num_partitions"))
    ids: dict[str, int] = dict.fromkeys(_MODES, 1)
    for i in module.instructions():
        size = stated_size(i)
        if size is None and not {"replica_groups", "source_target_pairs"} & i.attributes.keys():
            continue
        try:
            mode, lists = _mode(i), [*groups_of(i), *pairs_of(i)]
        except HloError as problem:
            raise module.error(i, problem.message) from None
        if size and not lists:
            # Of all devices; where a channel makes every partition take part, partitions count too.
            mode, lists = "flattened_id" if mode == "cross_replica_and_partition" else mode, [[size - 1]]
        ids[mode] = max([ids[mode], *(id_ + 1 for listed in lists for id_ in listed)])
    total = ids["flattened_id"]
    if partitions is None:
        least = max(ids["cross_replica"], ids["cross_replica_and_partition"]) if replicas is None else replicas
        partitions = max(ids["cross_partition"], -(-total // max(least, 1)))
    if replicas is None:
        replicas = max(ids["cross_replica"], ids["cross_replica_and_partition"], -(-total // max(partitions, 1)))
    return Topology(replicas, partitions)
