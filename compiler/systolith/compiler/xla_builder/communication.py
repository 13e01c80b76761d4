"""Operations between devices and with the host: tokens, infeed and outfeed, send and receive, collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from systolith.compiler.hlo.attributes import DeviceGroups
from systolith.compiler.hlo.errors import HloError
from systolith.compiler.hlo.shape import TOKEN, Layout, Shape, array, tuple_of
from systolith.compiler.xla_builder.arguments import (
    ChannelHandle,
    ChannelType,
    Groups,
    Pairs,
    ShapeLike,
    as_shape,
    channel_number,
    device_groups,
    expect,
    integer,
    pairs,
)
from systolith.compiler.xla_builder.control import Control
from systolith.compiler.xla_builder.op import XlaOp, several
from systolith.compiler.xla_builder.reduction import Callee
from systolith.compiler.xla_builder.scalars import add_computation
from systolith.isa.dtypes import DTYPES

Channel = ChannelHandle | int | None
_U32 = array(DTYPES["u32"])


class Communication(Control):
    """Operations that reach outside of one device."""

    def create_token(self) -> XlaOp:
        """A token that waits for nothing."""
        return self._emit("after-all")

    def after_all(self, tokens: Sequence[XlaOp]) -> XlaOp:
        """One token that waits for several."""
        for number, token in enumerate(several(tokens)):
            shape = self._instruction(token).shape
            if shape != TOKEN:
                raise HloError(f"all operands are tokens, operand {number} is {shape}")
        return self._emit("after-all", several(tokens))

    # Host queues.  Those without a token of the caller's go in the order in which they are made.

    def infeed(self, shape: ShapeLike, config: str = "") -> XlaOp:
        """The next item of the infeed; infeeds of one computation follow each other."""
        both = self._infeed(self._infeed_token or self.create_token(), as_shape(shape), config)
        self._infeed_token = self.get_tuple_element(both, 1)
        return self.get_tuple_element(both, 0)

    def infeed_with_token(self, token: XlaOp, shape: ShapeLike, config: str = "") -> XlaOp:
        """The next item of the infeed once the token is there, and a token: a tuple."""
        return self._infeed(token, as_shape(shape), config)

    def _infeed(self, token: XlaOp, shape: Shape, config: str) -> XlaOp:
        if any(e.is_tuple for e in shape.elements):
            raise HloError(f"an infeed's shape is no nested tuple, got {shape}")
        return self._emit("infeed", [token], tuple_of([shape, TOKEN]), infeed_config=config or None)

    def outfeed(self, operand: XlaOp, shape_with_layout: ShapeLike | None = None, outfeed_config: str = "") -> XlaOp:
        """Sends a value to the outfeed; outfeeds of one computation follow each other.  Gives the empty tuple."""
        token = self._outfeed_token or self.create_token()
        self._outfeed_token = self.outfeed_with_token(operand, token, shape_with_layout, outfeed_config)
        return self.tuple([])

    def outfeed_with_token(
        self, operand: XlaOp, token: XlaOp, shape_with_layout: ShapeLike | None = None, outfeed_config: str = ""
    ) -> XlaOp:
        """Sends a value to the outfeed once the token is there; gives a token.

        Args:
            operand: the value to send.
            token: to wait for.
            shape_with_layout: its shape with the layout to send; the operand's own if None.
            outfeed_config: text for the device.
        """
        shape = self._instruction(operand).shape
        sent = shape if shape_with_layout is None else as_shape(shape_with_layout)
        if not sent.same(shape):
            raise HloError(f"the outfeed's shape {sent} is that of the operand, {shape}")
        return self._emit("outfeed", [operand, token], outfeed_shape=sent, outfeed_config=outfeed_config or None)

    # Channels

    def send(self, operand: XlaOp, handle: ChannelHandle | int) -> XlaOp:
        """Sends a value to the receiver on a channel; gives a token."""
        return self.send_with_token(operand, self.create_token(), handle)

    def send_with_token(self, operand: XlaOp, token: XlaOp, handle: ChannelHandle | int) -> XlaOp:
        """Sends a value to the receiver on a channel once the token is there; gives a token."""
        self._require_type(handle, ChannelType.DEVICE_TO_DEVICE)
        return self._send(operand, token, handle, None)

    def send_to_host(
        self, operand: XlaOp, token: XlaOp, shape_with_layout: ShapeLike, handle: ChannelHandle | int
    ) -> XlaOp:
        """Sends an array to the host; gives a token."""
        self._require_type(handle, ChannelType.DEVICE_TO_HOST)
        shape = as_shape(shape_with_layout)
        if not shape.is_array or not shape.same(self._instruction(operand).shape):
            raise HloError(f"the shape {shape} is an array, that of the operand, {self._instruction(operand).shape}")
        return self._send(operand, token, handle, True)

    def _send(self, operand: XlaOp, token: XlaOp, handle: ChannelHandle | int, host: bool | None) -> XlaOp:
        channel = channel_number(handle)
        sent = self._emit("send", [operand, token], channel_id=channel, is_host_transfer=host)
        return self._emit("send-done", [sent], channel_id=channel, is_host_transfer=host)

    def recv(self, shape: ShapeLike, handle: ChannelHandle | int) -> XlaOp:
        """The value that the sender on a channel sends."""
        return self.get_tuple_element(self.recv_with_token(self.create_token(), shape, handle), 0)

    def recv_with_token(self, token: XlaOp, shape: ShapeLike, handle: ChannelHandle | int) -> XlaOp:
        """The value that the sender on a channel sends, once the token is there, and a token: a tuple."""
        self._require_type(handle, ChannelType.DEVICE_TO_DEVICE)
        return self._recv(token, as_shape(shape), handle, None)

    def recv_from_host(self, token: XlaOp, shape: ShapeLike, handle: ChannelHandle | int) -> XlaOp:
        """An array from the host, and a token: a tuple."""
        self._require_type(handle, ChannelType.HOST_TO_DEVICE)
        if not as_shape(shape).is_array:
            raise HloError(f"the shape is an array, got {as_shape(shape)}")
        return self._recv(token, as_shape(shape), handle, True)

    def _recv(self, token: XlaOp, shape: Shape, handle: ChannelHandle | int, host: bool | None) -> XlaOp:
        channel = channel_number(handle)
        context = tuple_of([shape, _U32, TOKEN])
        begun = self._emit("recv", [token], context, channel_id=channel, is_host_transfer=host)
        return self._emit("recv-done", [begun], tuple_of([shape, TOKEN]), channel_id=channel, is_host_transfer=host)

    def _require_type(self, handle: ChannelHandle | int, wanted: ChannelType) -> None:
        if isinstance(handle, ChannelHandle) and handle.type is not wanted:
            raise HloError(f"the channel is {wanted}, got {handle.type}")

    # Collectives

    def replica_id(self) -> XlaOp:
        """The number of the replica, u32."""
        return self._emit("replica-id")

    def partition_id(self) -> XlaOp:
        """The number of the partition, u32."""
        return self._emit("partition-id")

    def cross_replica_sum(self, operand: XlaOp, replica_groups: Groups = ()) -> XlaOp:
        """The sum over replicas; of pred, or.  Of a tuple, of each array in it."""
        elements = self._elements(operand)
        dtypes = {self._array(element).dtype for element in elements}
        if len(dtypes) != 1:
            raise HloError("operands have one element type; all_reduce them one by one")
        return self.all_reduce(operand, add_computation(dtypes.pop()), replica_groups)

    def all_reduce(
        self,
        operand: XlaOp,
        computation: Callee,
        replica_groups: Groups = (),
        channel_id: Channel = None,
        shape_with_layout: ShapeLike | None = None,
        use_global_device_ids: bool | None = None,
    ) -> XlaOp:
        """Arrays of all devices of a group combined by a computation.

        Args:
            operand: an array or a tuple of arrays.
            computation: combines two scalars.
            replica_groups: lists of devices; empty for one group of all.
            channel_id: by which modules find each other.
            shape_with_layout: the result's shape, with a layout that is to stay.
            use_global_device_ids: groups count replicas and partitions together.
        """
        reduced = self._collective(
            "all-reduce",
            self._elements(operand),
            replica_groups,
            channel_id,
            None if shape_with_layout is None else as_shape(shape_with_layout),
            constrain_layout=True if shape_with_layout is not None else None,
            use_global_device_ids=use_global_device_ids,
            to_apply=self._embedded(computation),
        )
        return self._as_tuple(operand, reduced)

    def all_gather(
        self,
        operand: XlaOp,
        all_gather_dimension: int,
        shard_count: int,
        replica_groups: Groups = (),
        channel_id: Channel = None,
        layout: Layout | None = None,
        use_global_device_ids: bool | None = None,
    ) -> XlaOp:
        """Arrays of all devices of a group one after the other along a dimension; groups have `shard_count` devices."""
        elements = self._elements(operand)
        axis, shapes = self._gathered(elements, all_gather_dimension, shard_count)
        gathered = self._collective(
            "all-gather",
            elements,
            replica_groups,
            channel_id,
            _one_or_tuple(shapes, layout),
            constrain_layout=None if layout is None else True,
            use_global_device_ids=use_global_device_ids,
            dimensions=(axis,),
        )
        return self._as_tuple(operand, gathered)

    def _gathered(self, elements: list[XlaOp], dimension: int, shard_count: int) -> tuple[int, list[Shape]]:
        """The dimension, and the shapes of arrays that are `shard_count` times as large in it."""
        axis, count = integer(dimension, "all_gather_dimension"), self._count(shard_count, "shard_count")
        shapes: list[Shape] = []
        for element in elements:
            shape = self._array(element)
            self._axis(axis, shape.rank, "all_gather_dimension")
            shapes.append(_resized(shape, axis, shape.dims[axis] * count))
        return axis, shapes

    def reduce_scatter(
        self,
        operand: XlaOp,
        computation: Callee,
        scatter_dimension: int,
        shard_count: int,
        replica_groups: Groups = (),
        channel_id: Channel = None,
        layout: Layout | None = None,
        use_global_device_ids: bool | None = None,
    ) -> XlaOp:
        """As `all_reduce`, of which each device gets its block of `shard_count` along a dimension."""
        elements = self._elements(operand)
        axis, count = integer(scatter_dimension, "scatter_dimension"), self._count(shard_count, "shard_count")
        shapes: list[Shape] = []
        for element in elements:
            shape = self._array(element)
            self._axis(axis, shape.rank, "scatter_dimension")
            if shape.dims[axis] % count:
                raise HloError(f"shard_count {count} divides dimension {axis} of {shape}")
            shapes.append(_resized(shape, axis, shape.dims[axis] // count))
        scattered = self._collective(
            "reduce-scatter",
            elements,
            replica_groups,
            channel_id,
            _one_or_tuple(shapes, layout),
            constrain_layout=None if layout is None else True,
            use_global_device_ids=use_global_device_ids,
            dimensions=(axis,),
            to_apply=self._embedded(computation),
        )
        return self._as_tuple(operand, scattered)

    def all_to_all(
        self,
        operand: XlaOp,
        split_dimension: int,
        concat_dimension: int,
        split_count: int,
        replica_groups: Groups = (),
        layout: Layout | None = None,
        channel_id: Channel = None,
    ) -> XlaOp:
        """Splits an array into `split_count` blocks, block i for device i of the group, and puts the received together.

        HLO's all-to-all leaves received blocks where the sent ones were; a transpose brings them to `concat_dimension`.
        """
        shape, count = self._array(operand), self._count(split_count, "split_count")
        split = self._axis(split_dimension, shape.rank, "split_dimension")
        concat = self._axis(concat_dimension, shape.rank, "concat_dimension")
        self._require_divisible(shape, split, count)
        exchanged = self._collective(
            "all-to-all",
            [operand],
            replica_groups or [range(count)],  # XLA's verifier wants a group here
            channel_id,
            _one_or_tuple([shape], layout),
            constrain_layout=None if layout is None else True,
            dimensions=(split,),
        )
        if split == concat:
            return exchanged
        sizes = (*shape.dims[:split], count, shape.dims[split] // count, *shape.dims[split + 1 :])
        order: list[int] = []
        for dimension in range(shape.rank):
            if dimension == concat:
                order.append(split)
            order.append(dimension + (dimension >= split))
        moved = self.transpose(self.reshape(exchanged, sizes), order)
        result = list(shape.dims)
        result[split] //= count
        result[concat] *= count
        return self.reshape(moved, result)

    def all_to_all_tuple(
        self,
        operands: Sequence[XlaOp],
        replica_groups: Groups = (),
        layout: Layout | None = None,
        channel_id: Channel = None,
    ) -> XlaOp:
        """Operand i goes to device i of the group; gives a tuple of the values that each device sends here."""
        shapes = [self._array(operand) for operand in several(operands, least=1)]
        exchanged = self._collective(
            "all-to-all",
            several(operands, least=1),
            replica_groups,
            channel_id,
            tuple_of([_one_or_tuple([shape], layout) for shape in shapes]),
            constrain_layout=None if layout is None else True,
        )
        return exchanged

    def collective_permute(self, operand: XlaOp, source_target_pairs: Pairs, channel_id: Channel = None) -> XlaOp:
        """An array goes from sources to targets; other devices get zeros."""
        return self._emit(
            "collective-permute",
            [operand],
            self._array(operand),
            channel_id=channel_number(channel_id),
            source_target_pairs=pairs(source_target_pairs, "source_target_pairs"),
        )

    def collective_broadcast(self, operand: XlaOp, replica_groups: Groups, channel_id: Channel = None) -> XlaOp:
        """The array of the first device of each group."""
        return self._collective("collective-broadcast", [operand], replica_groups, channel_id, self._array(operand))

    def ragged_all_to_all(
        self,
        input: XlaOp,
        input_offsets: XlaOp,
        send_sizes: XlaOp,
        output: XlaOp,
        output_offsets: XlaOp,
        recv_sizes: XlaOp,
        replica_groups: Groups = (),
        channel_id: Channel = None,
    ) -> XlaOp:
        """Slices of rows, of any number each, go to the devices of a group; gives `output` with the received rows."""
        operands = [input, output, input_offsets, send_sizes, output_offsets, recv_sizes]
        return self._collective("ragged-all-to-all", operands, replica_groups, channel_id, self._array(output))

    def _collective(
        self,
        opcode: str,
        operands: list[XlaOp],
        replica_groups: Groups,
        channel_id: Channel,
        shape: Shape | None = None,
        **attributes: object,
    ) -> XlaOp:
        if not operands:
            raise HloError("at least one array is needed")
        made = shape or _one_or_tuple([self._array(operand) for operand in operands], None)
        groups: DeviceGroups = device_groups(replica_groups)
        return self._emit(
            opcode,
            operands,
            made,
            channel_id=channel_number(channel_id),
            replica_groups=groups,
            **attributes,  # type: ignore[arg-type]
        )

    def _as_tuple(self, operand: XlaOp, result: XlaOp) -> XlaOp:
        """A tuple of one array goes in and comes out as a tuple, though the instruction has an array."""
        wanted, found = self._instruction(operand).shape.is_tuple, self._instruction(result).shape.is_tuple
        return self.tuple([result]) if wanted and not found else result

    def _count(self, count: int, name: str) -> int:
        found = integer(count, name)
        if found < 1:
            raise HloError(f"{name} is at least 1, got {found}")
        return found

    def _require_divisible(self, shape: Shape, axis: int, count: int) -> None:
        if shape.dims[axis] % count:
            raise HloError(f"split_count {count} divides dimension {axis} of {shape}")


def _resized(shape: Shape, axis: int, size: int) -> Shape:
    return replace(shape, dims=(*shape.dims[:axis], size, *shape.dims[axis + 1 :]))


def _one_or_tuple(shapes: list[Shape], layout: Layout | None) -> Shape:
    laid = [shape if layout is None else shape.with_layout(expect(layout, Layout, "layout")) for shape in shapes]
    return laid[0] if len(laid) == 1 else tuple_of(laid)
