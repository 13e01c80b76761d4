# A ragged dot: rows of the left side belong to groups of sizes that only the data knows; each group has its own
# weights.  Rows beyond the last group are zeros.
#
# The sizes go through scalar memory into registers.  A group multiplies all rows, of which those outside it read as
# zeros (biases -start and -end against bounds), and adds to the accumulators.
.program ragged_dot
.equ m 24
.equ groups 3
.equ tile_bytes 8 * 8 * 4

.buffer left parameter f32 [m, 8] number=0
.buffer right parameter f32 [groups, 8, 8] number=1
.buffer sizes parameter s32 [groups] number=2
.buffer product result f32 [m, 8] number=0

.equ LEFT 0
.equ RIGHT LEFT + m * 32
.equ PRODUCT RIGHT + groups * tile_bytes

.token sized ld -> seq
.token loaded ld -> w0
.token cleared vpu -> s0
.token free s0 -> w0
.token shadow w0 -> s0
.token summed s0 -> vpu
.token done vpu -> st

.pattern size_words s32 counts=(groups) strides=(4)
.pattern rows f32 counts=(m * 8) strides=(4)
.pattern weights f32 counts=(groups * 64) strides=(4)
.pattern tile f32 counts=(8, 8) strides=(32, 4)
.pattern of_group f32 counts=(m, 8) strides=(32, 4)
    coord coefs=(1, 0) lo=0 bias=0                 # row - start >= 0
    coord coefs=(1, 0) hi=0 bias=1                 # row - end < 0
.pattern sums f32 counts=(m, 1, 8) strides=(mxu.cols * 4, 4, 4)
.pattern dense f32 counts=(m, 1, 8) strides=(32, 4, 4)

.kernel clear auto
    const zero = 0.0
  body
    st s0, zero
.end

.kernel copy auto
  body
    x = ld s0
    st s1, x
.end

.equ minus_start r1
.equ minus_end r2
.equ size r3
.equ at_size r4
.equ at_tile r5

    dma.load hbm(sizes)[0]:size_words, smem[0]:size_words signal sized
    dma.load hbm(left)[0]:rows, vmem[LEFT]:rows
    dma.load hbm(right)[0]:weights, vmem[RIGHT]:weights signal loaded
    vpu.run clear, (m), streams=(acc(0)[0]:sums) signal cleared
    # The loop's loads wait until the shadow tile is free, which only a latch may say: a first one is there for that.
    mxu.load vmem[RIGHT]:tile, row_loops=1 wait loaded signal shadow
    mxu.latch wait cleared, shadow signal free
    sync wait sized
    li minus_end, 0
    li at_size, 0
    li at_tile, RIGHT
    loop groups, end
        lds size, at_size, 0
        add minus_start, minus_end, 0
        sub minus_end, minus_end, size
        mxu.load vmem[at_tile]:tile, row_loops=1 wait free signal shadow
        mxu.latch wait shadow signal free
        mxu.matmul vmem[LEFT]:of_group bias=(minus_start, minus_end), row_loops=1, acc=0, accumulate=1
        add at_size, at_size, 4
        add at_tile, at_tile, tile_bytes
end:
    nop s0 signal summed
    vpu.run copy, (m), streams=(acc(0)[0]:sums, vmem[PRODUCT]:dense) wait summed signal done
    dma.store vmem[PRODUCT]:rows, hbm(product)[0]:rows wait done
    halt
