# Threefry-2x32 with 20 rounds, of n keys and counters: results to the bit.
#
# The inner loop of the kernel makes four rounds and one key injection; it runs five times.  Loop-carried values
# are in carried registers: the state, the key schedule (which rotates by one word), the two sets of four
# rotation distances (which change places), and the number of the injection.
.program threefry
.equ n 64
.equ bytes n * 4

.buffer key0 parameter u32 [n] number=0
.buffer key1 parameter u32 [n] number=1
.buffer counter0 parameter u32 [n] number=2
.buffer counter1 parameter u32 [n] number=3
.buffer out0 result u32 [n] number=0
.buffer out1 result u32 [n] number=1

.equ KEY0 0
.equ KEY1 KEY0 + bytes
.equ COUNTER0 KEY1 + bytes
.equ COUNTER1 COUNTER0 + bytes
.equ OUT0 COUNTER1 + bytes
.equ OUT1 OUT0 + bytes

.token loaded ld -> vpu
.token done vpu -> st

.pattern words u32 counts=(n) strides=(4)
# Vectors of 2 x 8 words; the second loop, of the five groups of rounds, stays in place.
.pattern vectors u32 counts=(4, 5, 2, 8) strides=(64, 0, 32, 4)

.kernel rounds auto
    const width = 32
    const parity = 0x1BD11BDA
    const one = 1
    const d0 = 13
    const d1 = 15
    const d2 = 26
    const d3 = 6
    const e0 = 17
    const e1 = 29
    const e2 = 16
    const e3 = 24
  prologue
    ka = ld s0
    kb = ld s1
    k01 = xor ka, kb
    kc = xor k01, parity
    in0 = ld s2
    in1 = ld s3
    x = add.s32 in0, ka
    y = add.s32 in1, kb
    injection = mov one
    r0 = mov d0
    r1 = mov d1
    r2 = mov d2
    r3 = mov d3
    q0 = mov e0
    q1 = mov e1
    q2 = mov e2
    q3 = mov e3
  body
    # A round: x += y; y = rotate(y, r) ^ x.
    x0 = add.s32 x, y
    l0 = shl y, r0
    w0 = sub.s32 width, r0
    h0 = shr y, w0
    t0 = or l0, h0
    y0 = xor t0, x0

    x1 = add.s32 x0, y0
    l1 = shl y0, r1
    w1 = sub.s32 width, r1
    h1 = shr y0, w1
    t1 = or l1, h1
    y1 = xor t1, x1

    x2 = add.s32 x1, y1
    l2 = shl y1, r2
    w2 = sub.s32 width, r2
    h2 = shr y1, w2
    t2 = or l2, h2
    y2 = xor t2, x2

    x3 = add.s32 x2, y2
    l3 = shl y2, r3
    w3 = sub.s32 width, r3
    h3 = shr y2, w3
    t3 = or l3, h3
    y3 = xor t3, x3

    # The injection; then everything that rotates, rotates.
    x = add.s32 x3, kb
    kn = add.s32 kc, injection
    y = add.s32 y3, kn
    injection = add.s32 injection, one
    old = mov ka
    ka = mov kb
    kb = mov kc
    kc = mov old
    s0 = mov r0
    r0 = mov q0
    q0 = mov s0
    s1 = mov r1
    r1 = mov q1
    q1 = mov s1
    s2 = mov r2
    r2 = mov q2
    q2 = mov s2
    s3 = mov r3
    r3 = mov q3
    q3 = mov s3
  epilogue
    st s4, x
    st s5, y
.end

    dma.load hbm(key0)[0]:words, vmem[KEY0]:words
    dma.load hbm(key1)[0]:words, vmem[KEY1]:words
    dma.load hbm(counter0)[0]:words, vmem[COUNTER0]:words
    dma.load hbm(counter1)[0]:words, vmem[COUNTER1]:words signal loaded
    vpu.run rounds, (4, 5), inner=1,
        streams=(vmem[KEY0]:vectors, vmem[KEY1]:vectors, vmem[COUNTER0]:vectors, vmem[COUNTER1]:vectors,
                 vmem[OUT0]:vectors, vmem[OUT1]:vectors) wait loaded signal done
    dma.store vmem[OUT0]:words, hbm(out0)[0]:words wait done
    dma.store vmem[OUT1]:words, hbm(out1)[0]:words
    halt
