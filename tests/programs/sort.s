# A stable sort of n f32 keys in IEEE total order (-NaN < -inf < ... < -0 < +0 < ... < +inf < NaN), with the sorting
# permutation: a bitonic network over `padded` elements.
#
# In a stage, element i meets element i + j; whether the pair ascends depends on i and k, and k is a scalar operand of
# the kernel.  So SEQ loops over k; the stages of a merge, j = k/2 ... 1, are written out, because strides are fixed:
# log2(padded) patterns.  Keys are compared as integers; the position as second key makes the order strict, and so the
# sort stable.
.program sort
.equ n 100
.equ padded 128
.equ bytes padded * 4

.buffer keys parameter f32 [n] number=0
.buffer sorted result f32 [n] number=0
.buffer order result s32 [n] number=1

.equ KEY 0                          # s32 that compare like the floats
.equ POSITION KEY + bytes

.token loaded ld -> vpu
.token done vpu -> st

.pattern dense s32 counts=(padded) strides=(4)
.pattern valid s32 counts=(n) strides=(4)
# Beyond n there is nothing to read: the pad is the greatest key.
.pattern input s32 counts=(padded) strides=(4) fill=0x7FFFFFFF
    coord coefs=(1) hi=n
.pattern all s32 counts=(8, 2, 8) strides=(64, 32, 4)
    coord coefs=(16, 8, 1)          # the element's number

# The lower elements of pairs at distance j, that is blocks of j in every 2j; the coordinate is the element's number.
# Below 8 a vector holds two blocks, and its lanes are not all used.
.pattern by64 s32 counts=(1, 4, 2, 8) strides=(0, 64, 32, 4)
    coord coefs=(0, 16, 8, 1)
.pattern by32 s32 counts=(2, 2, 2, 8) strides=(256, 64, 32, 4)
    coord coefs=(64, 16, 8, 1)
.pattern by16 s32 counts=(4, 1, 2, 8) strides=(128, 0, 32, 4)
    coord coefs=(32, 0, 8, 1)
.pattern by8 s32 counts=(4, 1, 2, 8) strides=(128, 0, 64, 4)
    coord coefs=(32, 0, 16, 1)
.pattern by4 s32 counts=(8, 1, 2, 4) strides=(64, 0, 32, 4)
    coord coefs=(16, 0, 8, 1)
.pattern by2 s32 counts=(16, 1, 2, 2) strides=(32, 0, 16, 4)
    coord coefs=(8, 0, 4, 1)
.pattern by1 s32 counts=(32, 1, 2, 1) strides=(16, 0, 8, 4)
    coord coefs=(4, 0, 2, 1)

# f32 bits to integers of the same order, and back: flip all bits but the sign of negative numbers.
.kernel flip auto
    const low = 0x7FFFFFFF
    const shift = 31
  body
    bits = ld s0
    sign = sra bits, shift
    mask = and sign, low
    key = xor bits, mask
    st s0, key
.end

.kernel number auto
  body
    i = coord s0.0
    st s0, i
.end

.kernel exchange auto               # a0: k
    const zero = 0
  body
    key = ld s0
    other_key = ld s1
    position = ld s2
    other_position = ld s3
    less = lt.s32 other_key, key
    same = eq.s32 other_key, key
    before = lt.s32 other_position, position
    tie = and same, before
    other_first = or less, tie
    i = coord s0.0
    ik = and i, a0
    descending = ne.s32 ik, zero
    swap = xor other_first, descending
    new_key = select swap, other_key, key
    new_other_key = select swap, key, other_key
    new_position = select swap, other_position, position
    new_other_position = select swap, position, other_position
    st s0, new_key
    st s1, new_other_key
    st s2, new_position
    st s3, new_other_position
.end

.equ j r1
.equ k r2
.equ last r3

    dma.load hbm(keys)[0]:input, vmem[KEY]:dense signal loaded
    vpu.run flip, (8), streams=(vmem[KEY]:all) wait loaded
    vpu.run number, (8), streams=(vmem[POSITION]:all)
    li last, padded
    li k, 2
merge:                              # sorted runs of k / 2, every other one descending, become runs of k
    li j, 64
    bge j, k, after64
    vpu.run exchange, (1, 4), scalars=(k, 0, 0, 0),
        streams=(vmem[KEY]:by64, vmem[KEY + 256]:by64, vmem[POSITION]:by64, vmem[POSITION + 256]:by64)
after64:
    shr j, j, 1
    bge j, k, after32
    vpu.run exchange, (2, 2), scalars=(k, 0, 0, 0),
        streams=(vmem[KEY]:by32, vmem[KEY + 128]:by32, vmem[POSITION]:by32, vmem[POSITION + 128]:by32)
after32:
    shr j, j, 1
    bge j, k, after16
    vpu.run exchange, (4, 1), scalars=(k, 0, 0, 0),
        streams=(vmem[KEY]:by16, vmem[KEY + 64]:by16, vmem[POSITION]:by16, vmem[POSITION + 64]:by16)
after16:
    shr j, j, 1
    bge j, k, after8
    vpu.run exchange, (4, 1), scalars=(k, 0, 0, 0),
        streams=(vmem[KEY]:by8, vmem[KEY + 32]:by8, vmem[POSITION]:by8, vmem[POSITION + 32]:by8)
after8:
    shr j, j, 1
    bge j, k, after4
    vpu.run exchange, (8, 1), scalars=(k, 0, 0, 0),
        streams=(vmem[KEY]:by4, vmem[KEY + 16]:by4, vmem[POSITION]:by4, vmem[POSITION + 16]:by4)
after4:
    shr j, j, 1
    bge j, k, after2
    vpu.run exchange, (16, 1), scalars=(k, 0, 0, 0),
        streams=(vmem[KEY]:by2, vmem[KEY + 8]:by2, vmem[POSITION]:by2, vmem[POSITION + 8]:by2)
after2:
    vpu.run exchange, (32, 1), scalars=(k, 0, 0, 0),
        streams=(vmem[KEY]:by1, vmem[KEY + 4]:by1, vmem[POSITION]:by1, vmem[POSITION + 4]:by1)
    shl k, k, 1
    bge last, k, merge
    vpu.run flip, (8), streams=(vmem[KEY]:all) signal done
    dma.store vmem[KEY]:valid, hbm(sorted)[0]:valid wait done
    dma.store vmem[POSITION]:valid, hbm(order)[0]:valid
    halt
