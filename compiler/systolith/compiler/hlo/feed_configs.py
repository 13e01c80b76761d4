"""Configs of infeeds and outfeeds: which of them share a queue of the host."""

from __future__ import annotations

from typing import cast

from systolith.compiler.hlo.attributes import Fields
from systolith.compiler.hlo.ir import Instruction, Module

FEED_OPCODES = ("infeed", "outfeed")

HOST_CALL = "host_call"
"""The frontend attribute of infeeds and outfeeds that are parts of a call of a function of the host: its signature."""


def config_of(i: Instruction) -> str:
    """The config of an infeed or outfeed; empty: it has none."""
    return str(i.attributes.get(f"{i.opcode}_config") or "")


def feed_configs(module: Module) -> dict[str, tuple[str, ...]]:
    """The configs of a module's infeeds and of its outfeeds, by opcode, each once; those of calls have none.

    The empty one is first, then they are in the order of the text.  Their positions are the numbers of their queues.
    """
    found: dict[str, dict[str, None]] = {opcode: {} for opcode in FEED_OPCODES}
    for i in module.instructions():
        if i.opcode in found and HOST_CALL not in cast(Fields, i.attributes.get("frontend_attributes", {})):
            found[i.opcode][config_of(i)] = None
    return {opcode: tuple(sorted(configs, key=bool)) for opcode, configs in found.items()}


def queue_name(i: Instruction, configs: dict[str, tuple[str, ...]]) -> str:
    """The name of an infeed's or outfeed's queue on the host: its config, where there are several; else empty."""
    return config_of(i) if len(configs.get(i.opcode, ())) > 1 else ""
