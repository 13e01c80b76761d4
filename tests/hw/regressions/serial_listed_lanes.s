# Serial iterations whose lanes go through an index list: a later one loads the stores of an earlier one.
#: vmem 0 0x2ee4 feffffff02000000fefffffffeffffff01000000050000000600000003000000
#: vmem 0 0x2f04 070000000000000001000000ffffffff0600000001000000feffffff00000000
.program serial_listed_lanes
.pattern p0 u4 counts=(2, 2, 8) strides=(16, 8, 1) indirect=2
.kernel flip ii=1 rotating=64
    const 0xc134cccd
  body length=11
    @0.0 v6 = sin.f32 c0
    @0.0 v0 = ld s0
    @8.1 v9 = xor v6, v0
    @10.0 st s0, v9
.end
    vpu.run flip, (2), serial=1, streams=(vmem[21184]:p0 index=12028)
    halt
