"""Which micro-operations have machine code; the others are left to numpy."""

from __future__ import annotations

from systolith.isa.numerics.alu import RULES

UNTRACEABLE = frozenset(
    """clz mulh.u32 sign.s32 div.s32 div.u32 rem.s32 rem.u32 rem.f32 cbrt.f32 sin.f32 cos.f32 tan.f32 pow.f32 wrap.s4
    wrap.s8 wrap.s16 wrap.u4 wrap.u8 wrap.u16 round.f8e4m3fn round.f8e5m2 round.f8e4m3fnuz round.f8e5m2fnuz
    round.f16""".split()
)
TRACED = tuple(name for name in RULES if name not in UNTRACEABLE)
