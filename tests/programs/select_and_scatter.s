# A 3 x 3 max-pool with stride 2 and padding 1 of 9 x 9 pixels of 8 channels, and its gradient (select-and-scatter with
# ge and add): each window's source goes to the first of its greatest elements.
#
# The window's dimensions are the inner loops of a kernel that carries the greatest value and its place; padding reads
# -inf through bounds.  The places then drive a serial scatter-add, one element an iteration.
.program select_and_scatter
.equ size 9
.equ out 5
.equ channels 8
.equ line size * channels * 4
.equ elements size * size * channels
.equ chosen out * out * channels

.buffer operand parameter f32 [size, size, channels] number=0
.buffer source parameter f32 [out, out, channels] number=1
.buffer pooled result f32 [out, out, channels] number=0
.buffer gradient result f32 [size, size, channels] number=1

.equ OPERAND 0
.equ SOURCE OPERAND + elements * 4
.equ POOLED SOURCE + chosen * 4
.equ PLACES POOLED + chosen * 4
.equ GRADIENT PLACES + chosen * 4

.token loaded ld -> vpu
.token done vpu -> st

.pattern operand_words f32 counts=(elements) strides=(4)
.pattern chosen_words f32 counts=(chosen) strides=(4)
# Result y, x; window y, x; channels.  Coordinate 2 is the element's number, to be stored.
.pattern windows f32 counts=(out, out, 3, 3, 1, channels) strides=(2 * line, 64, line, 32, 4, 4) fill=-inf
    coord coefs=(2, 0, 1, 0, 0, 0) offset=-1 lo=0 hi=size
    coord coefs=(0, 2, 0, 1, 0, 0) offset=-1 lo=0 hi=size
    coord coefs=(2 * size * channels, 2 * channels, size * channels, channels, 0, 1) offset=-size * channels - channels
.pattern best f32 counts=(out, out, 3, 3, 1, channels) strides=(out * 32, 32, 0, 0, 4, 4)
.pattern best_place s32 counts=(out, out, 3, 3, 1, channels) strides=(out * 32, 32, 0, 0, 4, 4)
.pattern clear f32 counts=(size * size, 1, channels) strides=(32, 4, 4)
.pattern each f32 counts=(chosen, 1, 1) strides=(4, 4, 4)
.pattern target f32 counts=(chosen, 1, 1) strides=(4, 4, 4) indirect=0

.kernel pool auto
    const least = -inf
    const none = -1
  prologue
    best = mov least
    place = mov none
  body
    x = ld s0
    here = coord s0.2
    exists = inside s0
    more = gt.f32 x, best
    unset = eq.s32 place, none
    first = and unset, exists       # an element of -inf is better than none
    better = or more, first
    best = select better, x, best
    place = select better, here, place
  epilogue
    st s1, best
    st s2, place
.end

.kernel clear auto
    const zero = 0.0
  body
    st s0, zero
.end

.kernel accumulate auto
  body
    old = ld s0
    more = ld s1
    new = add.f32 old, more
    st s0, new
.end

    dma.load hbm(operand)[0]:operand_words, vmem[OPERAND]:operand_words
    dma.load hbm(source)[0]:chosen_words, vmem[SOURCE]:chosen_words signal loaded
    vpu.run clear, (size * size), streams=(vmem[GRADIENT]:clear)
    vpu.run pool, (out, out, 3, 3), inner=2,
        streams=(vmem[OPERAND - line - 32]:windows, vmem[POOLED]:best, vmem[PLACES]:best_place) wait loaded
    vpu.run accumulate, (chosen), serial=1, streams=(vmem[GRADIENT]:target index=PLACES, vmem[SOURCE]:each) signal done
    dma.store vmem[POOLED]:chosen_words, hbm(pooled)[0]:chosen_words wait done
    dma.store vmem[GRADIENT]:operand_words, hbm(gradient)[0]:operand_words
    halt
