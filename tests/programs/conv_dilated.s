# A 3 x 3 convolution of 8 channels, kernel dilated by 2 and image dilated by 2 (a transposed convolution), padding 2.
#
# In the coordinates of the dilated image, 11 x 11: y = oy + 2 ky - 2.  Only even y are pixels (div=2), pixel y / 2 at
# stride `line`; those between and beyond are zeros that nobody stores.  A tap's 8 channels are K: nine tiles, two loops
# of SEQ whose registers are the biases 2 ky and 2 kx.
.program conv_dilated
.equ size 6
.equ out 11
.equ channels 8
.equ line size * channels * 4
.equ pixels out * out
.equ tile_bytes channels * 8 * 4

.buffer image parameter f32 [size, size, channels] number=0
.buffer weights parameter f32 [3, 3, channels, 8] number=1
.buffer result result f32 [out, out, 8] number=0

.equ IMAGE 0
.equ WEIGHTS IMAGE + size * line
.equ RESULT WEIGHTS + 9 * tile_bytes

.token cleared vpu -> s0
.token loaded ld -> w0
.token free s0 -> w0
.token shadow w0 -> s0
.token summed s0 -> vpu
.token done vpu -> st

.pattern image_words f32 counts=(size * size * channels) strides=(4)
.pattern weight_words f32 counts=(9 * channels * 8) strides=(4)
.pattern result_words f32 counts=(pixels * 8) strides=(4)
.pattern tile f32 counts=(channels, 8) strides=(32, 4)
.pattern windows f32 counts=(out, out, channels) strides=(0, 0, 4)
    coord coefs=(1, 0, 0) offset=-2 div=2 lo=0 hi=size stride=line bias=0
    coord coefs=(0, 1, 0) offset=-2 div=2 lo=0 hi=size stride=channels * 4 bias=1
.pattern sums f32 counts=(pixels, 1, 8) strides=(mxu.cols * 4, 4, 4)
.pattern rows f32 counts=(pixels, 1, 8) strides=(32, 4, 4)

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

.equ y r1
.equ x r2
.equ tile_at r3

    dma.load hbm(image)[0]:image_words, vmem[IMAGE]:image_words
    dma.load hbm(weights)[0]:weight_words, vmem[WEIGHTS]:weight_words signal loaded
    vpu.run clear, (pixels), streams=(acc(0)[0]:sums) signal cleared
    # The loop's loads wait until the shadow tile is free, which only a latch may say: a first one is there for that.
    mxu.load vmem[WEIGHTS]:tile, row_loops=1 wait loaded signal shadow
    mxu.latch wait cleared, shadow signal free
    li y, 0
    li tile_at, WEIGHTS
    loop 3, all
        li x, 0
        loop 3, end_of_row
            mxu.load vmem[tile_at]:tile, row_loops=1 wait free signal shadow
            mxu.latch wait shadow signal free
            mxu.matmul vmem[IMAGE]:windows bias=(y, x), row_loops=2, acc=0, accumulate=1
            add x, x, 2
            add tile_at, tile_at, tile_bytes
end_of_row:
        add y, y, 2
all:
    nop s0 signal summed
    vpu.run copy, (pixels), streams=(acc(0)[0]:sums, vmem[RESULT]:rows) wait summed signal done
    dma.store vmem[RESULT]:result_words, hbm(result)[0]:result_words wait done
    halt
