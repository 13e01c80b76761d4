"""Rules of a module as a whole: recursion, the entry's layout, aliases, operations in two steps, channels, devices.

Source: XLA's `hlo_verifier.cc` and `hlo_input_output_alias_config.cc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from systolith.compiler.hlo.attributes import Alias
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.ir import Computation, Instruction, Module, ProgramShape
from systolith.compiler.hlo.opcodes import COLLECTIVES
from systolith.compiler.hlo.rules.shape_rules import agree, part_of, require, show_alias
from systolith.compiler.hlo.rules.shapes_collectives import groups_of


def check_module(module: Module) -> None:
    """Check the rules that no instruction alone breaks.

    Raises:
        HloError: the first rule that is broken.
    """
    _check_names(module)
    _check_recursion(module)
    _check_entry_layout(module)
    _check_aliases(module)
    _check_donors(module)
    opcodes = {i.opcode for i in module.instructions()}
    if opcodes & (_USERS.keys() | _SOURCES.keys()):
        wrapped = {c for i in module.instructions() if i.opcode == "async-start" for c in i.called}
        for computation in module.computations:
            _check_steps(module, computation, computation in wrapped)
    if any(_plain(o) in COLLECTIVES for o in opcodes):
        for instruction in module.instructions():
            if _plain(instruction.opcode) in COLLECTIVES:
                _check_devices(module, instruction)


def _plain(opcode: str) -> str:
    return opcode.removesuffix("-start")


def _check_names(module: Module) -> None:
    names: set[str] = set()
    for computation in module.computations:
        if computation.name in names:
            raise HloError(f"module {module.name!r} has two computations {computation.name!r}")
        names.add(computation.name)


def _check_recursion(module: Module) -> None:
    """No computation calls itself, directly or through others."""
    called = {c: {callee for i in c.instructions if i.attributes for callee in i.called} for c in module.computations}
    done: set[Computation] = set()
    active: set[Computation] = set()
    for start in module.computations:
        stack = [(start, False)]
        while stack:
            computation, leaving = stack.pop()
            if leaving:
                active.discard(computation)
                done.add(computation)
                continue
            if computation in done:
                continue
            if computation in active:
                raise HloError(f"computation {computation.name!r} calls itself")
            active.add(computation)
            stack.append((computation, True))
            for callee in called[computation]:
                if callee in active:
                    raise HloError(f"computation {callee.name!r} calls itself, through {computation.name!r}")
                stack.append((callee, False))


def _check_entry_layout(module: Module) -> None:
    """`entry_computation_layout`, where it is given, states the entry's parameters and result."""
    stated = module.attributes.get("entry_computation_layout")
    if not isinstance(stated, ProgramShape):
        return
    parameters, result = module.entry.parameters, module.entry.result
    if len(parameters) != len(stated.parameters):
        raise HloError(
            f"entry_computation_layout states {len(stated.parameters)} parameters, "
            f"{module.entry.name!r} has {len(parameters)}"
        )
    for index, (actual, wanted) in enumerate(zip(parameters, stated.parameters, strict=True)):
        if not agree(actual.shape, wanted):
            what = f"entry_computation_layout states {wanted} for parameter {index}, which has {actual.shape}"
            raise module.error(actual, what)
    if not agree(result.shape, stated.result):
        what = f"entry_computation_layout states result {stated.result}, the root has {result.shape}"
        raise module.error(result, what)


def _check_aliases(module: Module) -> None:
    """`input_output_alias`: each part of the result takes the buffer of a parameter's part, none twice."""
    value = module.attributes.get("input_output_alias", ())
    aliases = [a for a in value if isinstance(a, Alias)] if isinstance(value, tuple) else []
    parameters, result = module.entry.parameters, module.entry.result
    seen: set[tuple[int, ...] | tuple[int, tuple[int, ...]]] = set()
    for alias in aliases:
        where = f"input_output_alias {show_alias(alias)}"
        if not 0 <= alias.number < len(parameters):
            raise HloError(f"{where}: the entry has {len(parameters)} parameters, numbered from 0")
        try:
            target = part_of(result.shape, alias.output)
            source = part_of(parameters[alias.number].shape, alias.index)
            require(source.is_array, f"that part of parameter {alias.number} is an array, got {source}")
            fits = alias.kind != "must-alias" or agree(source, target)
            require(fits, f"both have one shape, got {source} for {target}")
            fresh = alias.output not in seen and (alias.number, alias.index) not in seen
            require(fresh, "a part of the result and a part of a parameter are aliased once")
        except HloError as problem:
            raise module.error(result, f"{where}: {problem.message}") from None
        seen |= {alias.output, (alias.number, alias.index)}


def _check_donors(module: Module) -> None:
    """`buffer_donor`: each names an array of a parameter."""
    parameters = module.entry.parameters
    donors = cast("tuple[tuple[int, tuple[int, ...]], ...]", module.attributes.get("buffer_donor", ()))
    for number, index in donors:
        where = f"buffer_donor ({number}, {{{','.join(map(str, index))}}})"
        if not 0 <= number < len(parameters):
            raise HloError(f"{where}: the entry has {len(parameters)} parameters, numbered from 0")
        try:
            part = part_of(parameters[number].shape, index)
            require(part.is_array, f"that part of parameter {number} is an array, got {part}")
        except HloError as problem:
            raise module.error(parameters[number], f"{where}: {problem.message}") from None


# Opcodes that may use an operation under way, and those whose results its end may take.
_USERS = {
    "async-start": ("async-update", "async-done"),
    "async-update": ("async-update", "async-done"),
    "all-reduce-start": ("all-reduce-done",),
    "all-gather-start": ("all-gather-done",),
    "collective-permute-start": ("collective-permute-done",),
    "copy-start": ("copy-done",),
    "send": ("send-done", "tuple"),
    "recv": ("recv-done", "tuple"),
}
_SOURCES = {
    "all-reduce-done": ("all-reduce-start",),
    "all-gather-done": ("all-gather-start",),
    "collective-permute-done": ("collective-permute-start",),
    "copy-done": ("copy-start",),
    "send-done": ("send", "get-tuple-element"),
    "recv-done": ("recv", "get-tuple-element"),
}


def _check_steps(module: Module, computation: Computation, wrapped: bool) -> None:
    """The result of a start has one user, of a matching opcode; the two agree on their channel."""
    users: dict[Instruction, list[Instruction]] = {i: [] for i in computation.instructions if i.opcode in _USERS}
    for instruction in computation.instructions:
        for operand in dict.fromkeys(instruction.operands):
            if operand in users and not _is_control(instruction):
                users[operand].append(instruction)
        sources = _SOURCES.get(instruction.opcode)
        before = instruction.operands[0] if instruction.operands else None
        if sources and before is not None and before.opcode not in sources:
            what = f"takes the result of {' or '.join(sources)}, got {before.opcode} {before.name!r}"
            raise module.error(instruction, what)
    for start, found in users.items():
        if wrapped and start is computation.result:
            continue
        followers = _USERS[start.opcode]
        if len(found) != 1:
            raise module.error(start, f"its result is taken once, by {' or '.join(followers)}, got {len(found)} users")
        if found[0].opcode not in followers:
            what = f"its result is taken by {' or '.join(followers)}, got {found[0].opcode} {found[0].name!r}"
            raise module.error(start, what)
        _check_channel(module, start, found[0])


def _is_control(instruction: Instruction) -> bool:
    target = instruction.attributes.get("custom_call_target")
    return instruction.opcode == "custom-call" and target == "control_dep"


def _check_channel(module: Module, start: Instruction, done: Instruction) -> None:
    if done.opcode not in ("send-done", "recv-done"):
        return
    for key, default in (("channel_id", None), ("is_host_transfer", False)):
        first, second = (i.attributes.get(key, default) for i in (start, done))
        if first != second and (key != "channel_id" or None not in (first, second)):
            raise module.error(done, f"{key} is that of {start.name!r}, {first}, got {second}")


def _check_devices(module: Module, i: Instruction) -> None:
    """Groups name devices 0, 1, ... once each, as many as the module has, in equal numbers (but for all-reduce)."""
    opcode = _plain(i.opcode)
    channel = i.attributes.get("channel_id")
    if opcode == "all-reduce" and isinstance(channel, int) and channel < 1:
        raise module.error(i, f"channel_id is at least 1, got {channel}")
    try:
        groups = groups_of(i)
    except HloError as problem:
        raise module.error(i, problem.message) from None
    if i.flag("use_global_device_ids"):
        if channel is None:
            raise module.error(i, "use_global_device_ids needs a channel_id")
        if not groups:
            raise module.error(i, "use_global_device_ids needs replica_groups")
    for broken in _group_problems(module, i, groups):
        raise module.error(i, broken)


def _group_problems(module: Module, i: Instruction, groups: tuple[tuple[int, ...], ...]) -> Iterator[str]:
    devices = [d for group in groups for d in group]
    if not devices and not any(groups):
        if groups:
            yield "no group of replica_groups is empty"
        return
    if not all(groups):
        yield "no group of replica_groups is empty"
    if len(set(devices)) != len(devices):
        twice = next(d for d in devices if devices.count(d) > 1)
        yield f"replica_groups name each device once, {twice} is there twice"
    if set(devices) != set(range(len(devices))):
        missing = next(d for d in range(len(devices)) if d not in set(devices))
        yield f"replica_groups name devices 0 to {len(devices) - 1}, {missing} is missing"
    if _plain(i.opcode) not in ("all-reduce", "collective-broadcast") and len({len(g) for g in groups}) > 1:
        yield "groups of replica_groups have equal sizes"
    count = _device_count(module, i)
    if count > 1 and len(devices) != count and _plain(i.opcode) != "collective-broadcast":
        yield f"replica_groups name the module's {count} devices, got {len(devices)}"


def _device_count(module: Module, i: Instruction) -> int:
    """How many devices the groups of a collective number; 1 where the module does not say."""
    replicas, partitions = (_count(module, key) for key in ("replica_count", "num_partitions"))
    if "channel_id" not in i.attributes:
        return replicas
    if i.flag("use_global_device_ids"):
        return replicas * partitions
    cross_partition = _plain(i.opcode) not in ("all-gather", "all-reduce", "reduce-scatter")
    return partitions if cross_partition else replicas


def _count(module: Module, key: str) -> int:
    value = module.attributes.get(key, 1)
    return int(value) if isinstance(value, int | str) else 1
