# Scatter of rows, two ways: adding with duplicate indices by a serial kernel, overwriting by an indirect DMA.  Indices
# out of bounds fall outside a coordinate's bounds and write nothing.
.program scatter
.equ rows 20
.equ updates 12
.equ row_bytes 32                   # 8 f32

.buffer table parameter f32 [rows, 8] number=0
.buffer indices parameter s32 [updates] number=1
.buffer values parameter f32 [updates, 8] number=2
.buffer unique parameter s32 [updates] number=3
.buffer added result f32 [rows, 8] number=0
.buffer replaced result f32 [rows, 8] number=1

.equ INDEX 0
.equ UNIQUE 64
.equ TABLE 128
.equ VALUES TABLE + rows * row_bytes

.token loaded ld -> vpu
.token unchanged ld -> st
.token stored st -> vpu
.token added vpu -> st

.pattern list s32 counts=(updates) strides=(4)
.pattern whole f32 counts=(rows * 8) strides=(4)
.pattern updates f32 counts=(updates, 8) strides=(row_bytes, 4)
.pattern update f32 counts=(updates, 1, 8) strides=(row_bytes, row_bytes, 4)
.pattern targets f32 counts=(updates, 8) strides=(row_bytes, 4) indirect=0
    coord coefs=(1, 0) lo=0 hi=rows
.pattern target f32 counts=(updates, 1, 8) strides=(row_bytes, row_bytes, 4) indirect=0
    coord coefs=(1, 0, 0) lo=0 hi=rows

.kernel accumulate auto
  body
    old = ld s0
    more = ld s1
    new = add.f32 old, more
    st s0, new
.end

    dma.load hbm(indices)[0]:list, vmem[INDEX]:list
    dma.load hbm(unique)[0]:list, vmem[UNIQUE]:list
    dma.load hbm(values)[0]:updates, vmem[VALUES]:updates
    dma.load hbm(table)[0]:whole, vmem[TABLE]:whole signal loaded, unchanged
    # The overwritten copy first: the table as it is, then rows over it.  The fence keeps the two in order.
    dma.store vmem[TABLE]:whole, hbm(replaced)[0]:whole wait unchanged
    fence dma.store vmem[VALUES]:updates, hbm(replaced)[0]:targets index=UNIQUE
    nop st signal stored
    # serial: an iteration finds the sums that those before it left.
    vpu.run accumulate, (updates), serial=1,
        streams=(vmem[TABLE]:target index=INDEX, vmem[VALUES]:update) wait loaded, stored signal added
    dma.store vmem[TABLE]:whole, hbm(added)[0]:whole wait added
    halt
