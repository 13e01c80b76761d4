# A while loop whose condition only the data knows: how many steps each of 16 numbers takes to reach 1 (Collatz).
#
# The kernel says of each number whether it goes on; the XLU combines that to one word, the DMA moves it into scalar
# memory, and SEQ branches on it.
.program collatz
.equ n 16

.buffer start parameter s32 [n] number=0
.buffer steps result s32 [n] number=0

.equ X 0
.equ STEPS 64
.equ LIVE 128
.equ ROWS_LIVE 192
.equ ANY_LIVE 224

.token loaded ld -> vpu
.token stepped vpu -> xlu
.token reduced xlu -> ld
.token known ld -> seq

.pattern words s32 counts=(n) strides=(4)
.pattern vector s32 counts=(1, 2, 8) strides=(64, 32, 4)
.pattern rows s32 counts=(2, 8) strides=(32, 4)
.pattern pair s32 counts=(2) strides=(4)
.pattern row_of_two s32 counts=(1, 2) strides=(8, 4)
.pattern word s32 counts=(1) strides=(4)

.kernel clear auto
    const zero = 0
  body
    st s0, zero
.end

.kernel step auto
    const one = 1
    const three = 3
  body
    x = ld s0
    count = ld s1
    live = gt.s32 x, one
    odd = and x, one
    half = sra x, one
    triple = mul.s32 x, three
    up = add.s32 triple, one
    next = select odd, up, half
    new = select live, next, x
    more = add.s32 count, live
    goes_on = gt.s32 new, one
    st s0, new
    st s1, more
    st s2, goes_on
.end

.equ any r1

    dma.load hbm(start)[0]:words, vmem[X]:words signal loaded
    vpu.run clear, (1), streams=(vmem[STEPS]:vector) wait loaded
again:
    vpu.run step, (1), streams=(vmem[X]:vector, vmem[STEPS]:vector, vmem[LIVE]:vector) signal stepped
    xlu.reduce vmem[LIVE]:rows, vmem[ROWS_LIVE]:pair, or wait stepped
    xlu.reduce vmem[ROWS_LIVE]:row_of_two, vmem[ANY_LIVE]:word, or signal reduced
    dma.load vmem[ANY_LIVE]:word, smem[0]:word wait reduced signal known
    sync wait known
    lds any, r0, 0
    bne any, r0, again
    # No token: SEQ knows that the last step is over, and the store is issued after that.
    dma.store vmem[STEPS]:words, hbm(steps)[0]:words
    halt
