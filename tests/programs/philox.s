# Philox-4x32 with 10 rounds, of n keys and counters: results to the bit.  A round is one iteration of the kernel's
# inner loop; counter and key are carried.
.program philox
.equ n 64
.equ bytes n * 4

.buffer keys parameter u32 [2, n] number=0
.buffer counters parameter u32 [4, n] number=1
.buffer bits result u32 [4, n] number=0

.equ KEYS 0
.equ COUNTERS KEYS + 2 * bytes
.equ BITS COUNTERS + 4 * bytes

.token loaded ld -> vpu
.token done vpu -> st

.pattern key_words u32 counts=(2 * n) strides=(4)
.pattern words u32 counts=(4 * n) strides=(4)
.pattern vectors u32 counts=(4, 10, 2, 8) strides=(64, 0, 32, 4)

.kernel rounds auto
    const m0 = 0xD2511F53
    const m1 = 0xCD9E8D57
    const bump0 = 0x9E3779B9
    const bump1 = 0xBB67AE85
  prologue
    k0 = ld s0
    k1 = ld s1
    x0 = ld s2
    x1 = ld s3
    x2 = ld s4
    x3 = ld s5
  body
    hi0 = mulh.u32 x0, m0
    lo0 = mul.s32 x0, m0
    hi1 = mulh.u32 x2, m1
    lo1 = mul.s32 x2, m1
    t0 = xor hi1, x1
    t2 = xor hi0, x3
    x0 = xor t0, k0
    x1 = mov lo1
    x2 = xor t2, k1
    x3 = mov lo0
    k0 = add.s32 k0, bump0
    k1 = add.s32 k1, bump1
  epilogue
    st s6, x0
    st s7, x1
    st s8, x2
    st s9, x3
.end

    dma.load hbm(keys)[0]:key_words, vmem[KEYS]:key_words
    dma.load hbm(counters)[0]:words, vmem[COUNTERS]:words signal loaded
    vpu.run rounds, (4, 10), inner=1,
        streams=(vmem[KEYS]:vectors, vmem[KEYS + bytes]:vectors, vmem[COUNTERS]:vectors,
                 vmem[COUNTERS + bytes]:vectors, vmem[COUNTERS + 2*bytes]:vectors, vmem[COUNTERS + 3*bytes]:vectors,
                 vmem[BITS]:vectors, vmem[BITS + bytes]:vectors, vmem[BITS + 2*bytes]:vectors,
                 vmem[BITS + 3*bytes]:vectors) wait loaded signal done
    dma.store vmem[BITS]:words, hbm(bits)[0]:words wait done
    halt
