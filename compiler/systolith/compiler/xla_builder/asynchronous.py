"""Operations under way: those that begin something, and those that wait for its end.

A compiler makes them; they are here so that every opcode can be built.
"""

from __future__ import annotations

from collections.abc import Sequence

from systolith.compiler.hlo.shape import tuple_of
from systolith.compiler.xla_builder.arguments import (
    Groups,
    Pairs,
    ShapeLike,
    as_shape,
    channel_number,
    expect,
    integer,
    pairs,
)
from systolith.compiler.xla_builder.communication import Channel, Communication
from systolith.compiler.xla_builder.op import XlaOp, several
from systolith.compiler.xla_builder.reduction import Callee


class Asynchronous(Communication):
    """Pairs of a start and a done."""

    def async_start(
        self, operands: Sequence[XlaOp], execution_thread: str, called_computation: Callee, shape: ShapeLike
    ) -> XlaOp:
        """Begins a computation on a thread; `shape` is ((operands), result, contexts...)."""
        return self._emit(
            "async-start",
            several(operands),
            as_shape(shape),
            async_execution_thread=expect(execution_thread, str, "execution_thread") or None,
            calls=self._embedded(called_computation),
        )

    def async_update(self, operand: XlaOp, shape: ShapeLike) -> XlaOp:
        """A computation that is under way, and still is."""
        return self._emit("async-update", [operand], as_shape(shape))

    def async_done(self, operand: XlaOp) -> XlaOp:
        """The result of a computation that is under way."""
        return self._emit("async-done", [operand])

    def copy_start(self, operand: XlaOp, cross_program_prefetch_index: int | None = None) -> XlaOp:
        """Begins a copy."""
        index = cross_program_prefetch_index
        return self._emit(
            "copy-start",
            [operand],
            cross_program_prefetch_index=None if index is None else integer(index, "cross_program_prefetch_index"),
        )

    def copy_done(self, operand: XlaOp) -> XlaOp:
        """The copy that is under way."""
        return self._emit("copy-done", [operand])

    def all_reduce_start(
        self,
        operand: XlaOp,
        computation: Callee,
        replica_groups: Groups = (),
        channel_id: Channel = None,
        use_global_device_ids: bool | None = None,
    ) -> XlaOp:
        """Begins an all-reduce."""
        return self._collective(
            "all-reduce-start",
            self._elements(operand),
            replica_groups,
            channel_id,
            use_global_device_ids=use_global_device_ids,
            to_apply=self._embedded(computation),
        )

    def all_reduce_done(self, operand: XlaOp) -> XlaOp:
        """The result of an all-reduce that is under way."""
        return self._emit("all-reduce-done", [operand])

    def all_gather_start(
        self,
        operand: XlaOp,
        all_gather_dimension: int,
        shard_count: int,
        replica_groups: Groups = (),
        channel_id: Channel = None,
        use_global_device_ids: bool | None = None,
    ) -> XlaOp:
        """Begins an all-gather of one array."""
        axis, shapes = self._gathered([operand], all_gather_dimension, shard_count)
        return self._collective(
            "all-gather-start",
            [operand],
            replica_groups,
            channel_id,
            tuple_of([self._array(operand), *shapes]),
            use_global_device_ids=use_global_device_ids,
            dimensions=(axis,),
        )

    def all_gather_done(self, operand: XlaOp) -> XlaOp:
        """The result of an all-gather that is under way."""
        return self._emit("all-gather-done", [operand])

    def collective_permute_start(self, operand: XlaOp, source_target_pairs: Pairs, channel_id: Channel = None) -> XlaOp:
        """Begins a collective permute."""
        return self._emit(
            "collective-permute-start",
            [operand],
            channel_id=channel_number(channel_id),
            source_target_pairs=pairs(source_target_pairs, "source_target_pairs"),
        )

    def collective_permute_done(self, operand: XlaOp) -> XlaOp:
        """The result of a collective permute that is under way."""
        return self._emit("collective-permute-done", [operand])
