# Operations on the bits of floats: reduce-precision to 5 exponent and 10 mantissa bits, and a bitcast of f32[n] to
# u16[n, 2], which is the same bytes seen through a pattern of the other type.
.program bits
.equ n 64

.buffer x parameter f32 [n] number=0
.buffer reduced result f32 [n] number=0
.buffer halves result u32 [n, 2] number=1      # widened: 32 bits a half

.equ X 0
.equ REDUCED X + n * 4
.equ HALVES REDUCED + n * 4

.token loaded ld -> vpu
.token done vpu -> st

.pattern words f32 counts=(n) strides=(4)
.pattern pairs u32 counts=(2 * n) strides=(4)
.pattern vectors f32 counts=(n / 16, 2, 8) strides=(64, 32, 4)
.pattern half_vectors u16 counts=(n / 8, 2, 8) strides=(32, 16, 2)
.pattern wide_vectors u32 counts=(n / 8, 2, 8) strides=(64, 32, 4)

.kernel reduce_precision auto
    const one = 1
    const dropped = 13                  # of the 23 mantissa bits
    const almost_half = 0xFFF
    const kept = 0xFFFFE000
    const exponent_mask = 0x7F800000    # and the bits of infinity
    const sign_mask = 0x80000000
    const greatest = 0x47000000         # exponent 15
    const least = 0x38800000            # exponent -14
  body
    x = ld s0
    shifted = shr x, dropped
    odd = and shifted, one
    up = add.s32 almost_half, odd       # ties go to even
    sum = add.s32 x, up
    rounded = and sum, kept
    exponent = and rounded, exponent_mask
    sign = and x, sign_mask
    infinity = or sign, exponent_mask
    over = gt.u32 exponent, greatest
    clamped = select over, infinity, rounded
    under = lt.u32 exponent, least
    flushed = select under, sign, clamped
    is_nan = ne.f32 x, x
    result = select is_nan, x, flushed
    st s1, result
.end

.kernel copy auto
  body
    x = ld s0
    st s1, x
.end

    dma.load hbm(x)[0]:words, vmem[X]:words signal loaded
    vpu.run reduce_precision, (n / 16), streams=(vmem[X]:vectors, vmem[REDUCED]:vectors) wait loaded
    vpu.run copy, (n / 8), streams=(vmem[X]:half_vectors, vmem[HALVES]:wide_vectors) signal done
    dma.store vmem[REDUCED]:words, hbm(reduced)[0]:words wait done
    dma.store vmem[HALVES]:pairs, hbm(halves)[0]:pairs
    halt
