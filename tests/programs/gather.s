# Gather of rows, indices clamped as XLA's gather clamps them: once by the DMA out of HBM, once by a kernel's indirect
# stream out of VMEM (which scales them on the way).
.program gather
.equ rows 20
.equ picks 12
.equ row_bytes 32                   # 8 f32

.buffer table parameter f32 [rows, 8] number=0
.buffer indices parameter s32 [picks] number=1
.buffer by_dma result f32 [picks, 8] number=0
.buffer by_kernel result f32 [picks, 8] number=1

.equ INDEX 0
.equ TABLE 64
.equ DMA TABLE + rows * row_bytes
.equ KERNEL DMA + picks * row_bytes

.token loaded ld -> vpu
.token clamped vpu -> ld
.token scaled vpu -> st
.token gathered ld -> st

.pattern list s32 counts=(picks) strides=(4)
.pattern list_vector s32 counts=(picks, 1, 1) strides=(4, 4, 4)
.pattern whole f32 counts=(rows * 8) strides=(4)
.pattern picked f32 counts=(picks, 8) strides=(row_bytes, 4)
.pattern picked_vector f32 counts=(picks, 1, 8) strides=(row_bytes, row_bytes, 4)
# The first loop goes through the index list.  The bounds exclude nothing, the indices are clamped; they tell everyone
# (the hazard checker too) which bytes can be meant.
.pattern wanted f32 counts=(picks, 8) strides=(row_bytes, 4) indirect=0
    coord coefs=(1, 0) lo=0 hi=rows
.pattern wanted_vector f32 counts=(picks, 1, 8) strides=(row_bytes, row_bytes, 4) indirect=0
    coord coefs=(1, 0, 0) lo=0 hi=rows

.kernel clamp auto                  # a0: number of rows - 1
    const zero = 0
  body
    i = ld s0
    low = max.s32 i, zero
    clamped = min.s32 low, a0
    st s0, clamped
.end

.kernel scale auto                  # a0: factor
  body
    x = ld s0
    y = mul.f32 x, a0
    st s1, y
.end

    dma.load hbm(indices)[0]:list, vmem[INDEX]:list
    dma.load hbm(table)[0]:whole, vmem[TABLE]:whole signal loaded
    vpu.run clamp, (picks), scalars=(rows - 1, 0, 0, 0), streams=(vmem[INDEX]:list_vector) wait loaded signal clamped
    dma.load hbm(table)[0]:wanted index=INDEX, vmem[DMA]:picked wait clamped signal gathered
    vpu.run scale, (picks), scalars=(0.5, 0, 0, 0),
        streams=(vmem[TABLE]:wanted_vector index=INDEX, vmem[KERNEL]:picked_vector) signal scaled
    dma.store vmem[DMA]:picked, hbm(by_dma)[0]:picked wait gathered
    dma.store vmem[KERNEL]:picked, hbm(by_kernel)[0]:picked wait scaled
    halt
