# A carried register that arithmetic makes at first and a load makes later: payloads of loaded NaNs are kept.
#: vmem 0 0x0 010080ff0300a07f0000c0ff0700807f
.program carried_nan
.token done vpu -> seq
.pattern each u32 counts=(4, 1, 1) strides=(4, 4, 4)
.kernel count auto
    const infinity = inf
  prologue
    x = sub.f32 infinity, infinity
  body
    n = popc x
    st s1, n
    x = ld s0
.end
    vpu.run count, (4), inner=1, streams=(vmem[0]:each, vmem[64]:each) signal done
    sync wait done
    halt
