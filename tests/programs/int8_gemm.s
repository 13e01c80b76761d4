# s8 rows times u8 weights in s32, weights stored [N, K] (mxu.load transposes them), and the result once as it is and
# once transposed by the XLU.
.program int8_gemm
.equ m 24
.equ k 16
.equ n 8

.buffer rows parameter s8 [m, k] number=0
.buffer weights parameter u8 [n, k] number=1
.buffer product result s32 [m, n] number=0
.buffer transposed result s32 [n, m] number=1

.equ ROWS 0
.equ WEIGHTS ROWS + m * k
.equ PRODUCT WEIGHTS + n * k
.equ TRANSPOSED PRODUCT + m * n * 4

.token loaded ld -> w0
.token free s0 -> w0
.token shadow w0 -> s0
.token summed s0 -> vpu
.token copied vpu -> xlu
.token turned xlu -> st

.pattern row_bytes s8 counts=(m * k) strides=(1)
.pattern weight_bytes u8 counts=(n * k) strides=(1)
.pattern words s32 counts=(m * n) strides=(4)
.pattern tile u8 counts=(n, 8) strides=(k, 1)
.pattern stream s8 counts=(m, 8) strides=(k, 1)
.pattern sums s32 counts=(m, 1, n) strides=(mxu.cols * 4, 4, 4)
.pattern copied s32 counts=(m, 1, n) strides=(n * 4, 4, 4)
.pattern by_columns s32 counts=(n, m) strides=(4, n * 4)

.kernel copy auto
  body
    x = ld s0
    st s1, x
.end

    dma.load hbm(rows)[0]:row_bytes, vmem[ROWS]:row_bytes
    dma.load hbm(weights)[0]:weight_bytes, vmem[WEIGHTS]:weight_bytes signal loaded
    mxu.load vmem[WEIGHTS]:tile, row_loops=1, transpose=1, integer=1 wait loaded signal shadow
    mxu.latch wait shadow signal free
    mxu.matmul vmem[ROWS]:stream, row_loops=1, acc=0, integer=1
    mxu.load vmem[WEIGHTS + 8]:tile, row_loops=1, transpose=1, integer=1 wait free signal shadow
    mxu.latch wait shadow
    mxu.matmul vmem[ROWS + 8]:stream, row_loops=1, acc=0, accumulate=1, integer=1 signal summed
    vpu.run copy, (m), streams=(acc(0)[0]:sums, vmem[PRODUCT]:copied) wait summed signal copied
    xlu.shuffle vmem[PRODUCT]:by_columns, vmem[TRANSPOSED]:words wait copied signal turned
    dma.store vmem[PRODUCT]:words, hbm(product)[0]:words wait turned
    dma.store vmem[TRANSPOSED]:words, hbm(transposed)[0]:words
    halt
