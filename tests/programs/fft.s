# The discrete Fourier transform of 64 complex numbers, planar: radix 2, decimation in frequency, constant geometry
# (Pease).
#
# Every one of the six stages reads i and i + 32 and writes 2i and 2i + 1, so that one kernel and one set of patterns
# serve all; SEQ loops over them.  Two halves of VMEM change places: a bias register says which is which.  Stage t's
# twiddle of pair i is w^((i >> t) << t), fetched through an index list.  The results come out in bit-reversed order,
# which is a pattern of six loops.
.program fft
.equ n 64
.equ half 32
.equ bytes n * 4

.buffer re parameter f32 [n] number=0
.buffer im parameter f32 [n] number=1
.buffer spectrum_re result f32 [n] number=0
.buffer spectrum_im result f32 [n] number=1
# w^j = exp(-2 pi i j / 64), j = 0 .. 31
.buffer cosines constant f32 [half] data="0000803f6dc47e3fbe147b3f0bfa743f5e836c3f98c5613f31db543f03e4453f",
    "f304353f9967223fda390e3fea5af13e15efc33e31a0943ec2c5473e36bdc83d",
    "32318d2436bdc8bdc2c547be31a094be15efc3beea5af1beda390ebf996722bf",
    "f30435bf03e445bf31db54bf98c561bf5e836cbf0bfa74bfbe147bbf6dc47ebf"
.buffer sines constant f32 [half] data="0000000036bdc8bdc2c547be31a094be15efc3beea5af1beda390ebf996722bf",
    "f30435bf03e445bf31db54bf98c561bf5e836cbf0bfa74bfbe147bbf6dc47ebf",
    "000080bf6dc47ebfbe147bbf0bfa74bf5e836cbf98c561bf31db54bf03e445bf",
    "f30435bf996722bfda390ebfea5af1be15efc3be31a094bec2c547be36bdc8bd"

# Two sides (chosen by a coordinate of stride `side`) of: real parts, imaginary parts.
.equ RE 0
.equ IM RE + bytes
.equ side 2 * bytes
.equ COS 2 * side
.equ SIN COS + half * 4
.equ INDEX SIN + half * 4
.equ STAGE_COS INDEX + half * 4
.equ STAGE_SIN STAGE_COS + half * 4
.equ OUT STAGE_SIN + half * 4

.token loaded ld -> vpu
.token listed vpu -> xlu
.token fetched xlu -> vpu
.token transformed vpu -> xlu
.token done xlu -> st

.pattern words f32 counts=(n) strides=(4)
.pattern half_words f32 counts=(half) strides=(4)
.pattern picked f32 counts=(half) strides=(4) indirect=0
.pattern numbers s32 counts=(2, 2, 8) strides=(64, 32, 4)
    coord coefs=(16, 8, 1)
.pattern twiddle f32 counts=(2, 2, 8) strides=(64, 32, 4)
.pattern from f32 counts=(2, 2, 8) strides=(64, 32, 4)
    coord coefs=(0, 0, 0) stride=side bias=0
.pattern to f32 counts=(2, 2, 8) strides=(128, 64, 8)
    coord coefs=(0, 0, 0) stride=side bias=0
.pattern reversed f32 counts=(2, 2, 2, 2, 2, 2) strides=(4, 8, 16, 32, 64, 128)

.kernel exponents auto              # a0: -1 << t
  body
    i = coord s0.0
    e = and i, a0
    st s0, e
.end

.kernel butterfly auto              # s0, s1: a; s2, s3: b; s4, s5: w; s6, s7: 2i; s8, s9: 2i + 1
  body
    ar = ld s0
    ai = ld s1
    br = ld s2
    bi = ld s3
    wr = ld s4
    wi = ld s5
    sr = add.f32 ar, br
    si = add.f32 ai, bi
    dr = sub.f32 ar, br
    di = sub.f32 ai, bi
    p0 = mul.f32 dr, wr
    p1 = mul.f32 di, wi
    p2 = mul.f32 dr, wi
    p3 = mul.f32 di, wr
    tr = sub.f32 p0, p1
    ti = add.f32 p2, p3
    st s6, sr
    st s7, si
    st s8, tr
    st s9, ti
.end

.equ mask r1
.equ source r2
.equ target r3

    dma.load hbm(re)[0]:words, vmem[RE]:words
    dma.load hbm(im)[0]:words, vmem[IM]:words
    dma.load hbm(cosines)[0]:half_words, vmem[COS]:half_words
    dma.load hbm(sines)[0]:half_words, vmem[SIN]:half_words signal loaded
    nop vpu wait loaded
    li mask, -1
    li source, 0
    loop 6, end
        xor target, source, 1
        vpu.run exponents, (2), scalars=(mask, 0, 0, 0), streams=(vmem[INDEX]:numbers) signal listed
        xlu.shuffle vmem[COS]:picked index=INDEX, vmem[STAGE_COS]:half_words wait listed
        xlu.shuffle vmem[SIN]:picked index=INDEX, vmem[STAGE_SIN]:half_words signal fetched
        vpu.run butterfly, (2),
            streams=(vmem[RE]:from bias=(source, 0), vmem[IM]:from bias=(source, 0),
                     vmem[RE + 4*half]:from bias=(source, 0), vmem[IM + 4*half]:from bias=(source, 0),
                     vmem[STAGE_COS]:twiddle, vmem[STAGE_SIN]:twiddle, vmem[RE]:to bias=(target, 0),
                     vmem[IM]:to bias=(target, 0), vmem[RE + 4]:to bias=(target, 0),
                     vmem[IM + 4]:to bias=(target, 0)) wait fetched
        shl mask, mask, 1
        xor source, source, 1
end:
    # After an even number of stages the results lie where the inputs lay.
    nop vpu signal transformed
    xlu.shuffle vmem[RE]:reversed, vmem[OUT]:words wait transformed
    xlu.shuffle vmem[IM]:reversed, vmem[OUT + bytes]:words signal done
    dma.store vmem[OUT]:words, hbm(spectrum_re)[0]:words wait done
    dma.store vmem[OUT + bytes]:words, hbm(spectrum_im)[0]:words
    halt
