# y := a * x + y, for 8192 elements: an example of a program.  On any chip:
#
#     systolith asm examples/axpy.s --chip tiny -o axpy.slb
#     systolith run axpy.slb --chip tiny --random 0 --hostile
#
# The vectors come in tiles.  Three units work at the same time: while the VPU computes one tile, `ld` loads the next
# and `st` stores the one before.  Each has two buffers, and tokens say who may go on.
.program axpy

.equ n 8192
.equ tile 1024
.equ bytes tile * 4
.equ vector vpu.sublanes * vpu.lanes    # elements of a vector register: the chip's

# HBM, bound by the host.
.buffer a parameter f32 [] number=0
.buffer x parameter f32 [n] number=1
.buffer y parameter f32 [n] number=2
.buffer result result f32 [n] number=0

# VMEM: two buffers each; the second one lies `bytes` behind the first.
.equ X 0
.equ Y X + 2 * bytes
.equ RESULT Y + 2 * bytes
.vmem_high_water RESULT + 2 * bytes

# Counting tokens: one queue signals, one waits.
.token scalar ld -> seq
.token loaded ld -> vpu                 # x and y of a tile are there
.token used vpu -> ld                   # x and y may be overwritten
.token computed vpu -> st               # the result of a tile is there
.token stored st -> vpu                 # its buffer may be overwritten

# How memory is walked: trip counts and strides in bytes, the outermost loop first.
.pattern word f32 counts=(1) strides=(4)
.pattern flat f32 counts=(tile) strides=(4)
.pattern vectors f32 counts=(tile / vector, vpu.sublanes, vpu.lanes) strides=(vector * 4, vpu.lanes * 4, 4)

# The VPU's operations on each vector; a0 is the instruction's first scalar.  `auto`: the assembler schedules it.
.kernel axpy auto
  body
    x = ld s0
    y = ld s1
    ax = mul.f32 a0, x
    sum = add.f32 ax, y
    st s2, sum
.end

.equ factor r1
.equ hbm_at r2                          # of the tile, in HBM
.equ x_at r3                            # its buffers, in VMEM
.equ y_at r4
.equ result_at r5

    # The factor: HBM -> scalar memory -> register.
    dma.load hbm(a)[0]:word, smem[0]:word signal scalar
    sync wait scalar
    lds factor, r0, 0

    # All buffers are free to begin with, two of each.
    nop vpu signal used
    nop vpu signal used
    nop st signal stored
    nop st signal stored

    li hbm_at, 0
    li x_at, X
    li y_at, Y
    li result_at, RESULT
    loop n / tile, end
        dma.load hbm(x)[hbm_at]:flat, vmem[x_at]:flat wait used
        dma.load hbm(y)[hbm_at]:flat, vmem[y_at]:flat signal loaded
        vpu.run axpy, (tile / vector), scalars=(factor, 0, 0, 0),
            streams=(vmem[x_at]:vectors, vmem[y_at]:vectors,
                     vmem[result_at]:vectors) wait loaded, stored signal used, computed
        dma.store vmem[result_at]:flat, hbm(result)[hbm_at]:flat wait computed signal stored
        add hbm_at, hbm_at, bytes
        # To the other buffer and back: the first ones lie at multiples of 2 * bytes.
        xor x_at, x_at, bytes
        xor y_at, y_at, bytes
        xor result_at, result_at, bytes
end:
    halt
