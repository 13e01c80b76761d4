# A 7 x 7 convolution of 3 channels with stride 2 and padding 3, in bf16 with f32 sums: a network's stem.
#
# Three channels would leave the array almost empty, so taps are packed into K.  Taps of one kernel row are neighbours
# in memory (x and channel merge into one coordinate of 7 * 3 = 21 values); K = 8 holds 4 of them in each of two kernel
# rows.  The loops over kernel rows (0, 2, 4, 6) and over the 21 (0, 4, ..., 20) are SEQ's: four and six tiles.
# Padding is bounds: y within the image; x and channel, merged, within a row.  The tail tiles need bounds, too: kernel
# row 7 and merged taps 21 to 23 do not exist, in the weights nor in the image (0 x infinity is NaN).
.program conv_stem
.equ size 16                        # image: 16 x 16 x 3
.equ out 8                          # result: 8 x 8 x 8
.equ line 3 * size                  # a row of the image, in elements
.equ taps 21                        # of a kernel row
.equ features 8
.equ pixels out * out

.buffer image parameter bf16 [size, size, 3] number=0
.buffer weights parameter bf16 [7, 7, 3, features] number=1
.buffer result result f32 [out, out, features] number=0

.equ IMAGE 0
.equ WEIGHTS IMAGE + size * line * 2
.equ RESULT WEIGHTS + 7 * taps * features * 2

.token cleared vpu -> s0
.token image_there ld -> w0
.token free s0 -> w0
.token shadow w0 -> s0
.token summed s0 -> vpu
.token done vpu -> st

.pattern image_words bf16 counts=(size * line) strides=(2)
.pattern weight_words bf16 counts=(7 * taps * features) strides=(2)
.pattern result_words f32 counts=(pixels * features) strides=(4)
# K: 2 kernel rows x 4 merged taps; N: features.  Bias 0: first kernel row; bias 1: first merged tap.
.pattern tile bf16 counts=(2, 4, features) strides=(taps * features * 2, features * 2, 2)
    coord coefs=(1, 0, 0) hi=7 bias=0
    coord coefs=(0, 1, 0) hi=taps bias=1
# M: pixels of the result; K as above.
.pattern windows bf16 counts=(out, out, 2, 4) strides=(2 * line * 2, 2 * 3 * 2, line * 2, 2)
    coord coefs=(2, 0, 1, 0) offset=-3 lo=0 hi=size bias=0
    coord coefs=(0, 6, 0, 1) offset=-9 lo=0 hi=line bias=1
    coord coefs=(0, 0, 1, 0) hi=7 bias=0
    coord coefs=(0, 0, 0, 1) hi=taps bias=1
.pattern sums f32 counts=(pixels, 1, features) strides=(mxu.cols * 4, 4, 4)
.pattern rows f32 counts=(pixels, 1, features) strides=(features * 4, 4, 4)

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

.equ kernel_row r1
.equ tap r2
.equ window_row r3                  # address of the image at kernel_row - 3 rows, -3 columns
.equ window r4
.equ tile_row r5
.equ tile_at r6

    dma.load hbm(image)[0]:image_words, vmem[IMAGE]:image_words
    dma.load hbm(weights)[0]:weight_words, vmem[WEIGHTS]:weight_words signal image_there
    # `accumulate` is fixed in the instruction, so in a loop the accumulators start as zeros.
    vpu.run clear, (pixels), streams=(acc(0)[0]:sums) signal cleared
    # The loop's loads wait until the shadow tile is free, which only a latch may say: a first one is there for that.
    mxu.load vmem[WEIGHTS]:tile bias=(0, 0), row_loops=2 wait image_there signal shadow
    mxu.latch wait cleared, shadow signal free
    li kernel_row, 0
    li window_row, IMAGE - 3 * line * 2 - 9 * 2
    li tile_row, WEIGHTS
    loop 4, all
        li tap, 0
        add window, window_row, 0
        add tile_at, tile_row, 0
        loop 6, end_of_row
            mxu.load vmem[tile_at]:tile bias=(kernel_row, tap), row_loops=2 wait free signal shadow
            mxu.latch wait shadow signal free
            mxu.matmul vmem[window]:windows bias=(kernel_row, tap), row_loops=2, acc=0, accumulate=1
            add tap, tap, 4
            add window, window, 4 * 2
            add tile_at, tile_at, 4 * features * 2
end_of_row:
        add kernel_row, kernel_row, 2
        add window_row, window_row, 2 * line * 2
        add tile_row, tile_row, 2 * taps * features * 2
all:
    nop s0 signal summed
    vpu.run copy, (pixels), streams=(acc(0)[0]:sums, vmem[RESULT]:rows) wait summed signal done
    dma.store vmem[RESULT]:result_words, hbm(result)[0]:result_words wait done
    halt
