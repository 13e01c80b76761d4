# Cholesky factor of a 16 x 16 matrix, column by column (right-looking), as SEQ's loop.
#
# Column j: the base registers point at the diagonal element and at the column, the bias -j masks the rows above the
# diagonal: it reads 0, so that the factor is lower triangular and the rank-1 update leaves those rows as they are.
.program cholesky
.equ n 16
.equ row_bytes n * 4

.buffer a parameter f32 [n, n] number=0
.buffer l result f32 [n, n] number=0

.equ A 0
.equ L A + n * row_bytes
.equ COLUMN L + n * row_bytes       # column j of the factor, dense, zeros above the diagonal

.token loaded ld -> vpu
.token done vpu -> st

.pattern matrix f32 counts=(n * n) strides=(4)
# A column as one vector of 2 x 8: rows are `row_bytes` apart.
.pattern column f32 counts=(1, 2, 8) strides=(4, 8 * row_bytes, row_bytes)
.pattern column_below f32 counts=(1, 2, 8) strides=(4, 8 * row_bytes, row_bytes)
    coord coefs=(0, 8, 1) lo=0 bias=0          # i - j >= 0
.pattern spread f32 counts=(1, 2, 8) strides=(0, 0, 0)
.pattern dense f32 counts=(1, 2, 8) strides=(64, 32, 4)
# The rank-1 update: a row of A for each iteration.
.pattern row f32 counts=(n, 2, 8) strides=(row_bytes, 32, 4)
.pattern factor_of_row f32 counts=(n, 2, 8) strides=(4, 0, 0)
.pattern factor_of_lane f32 counts=(n, 2, 8) strides=(0, 32, 4)

.kernel scale auto
  body
    d = ld s0
    x = ld s1
    root = sqrt.f32 d
    y = div.f32 x, root
    st s2, y
    st s3, y
.end

.kernel update auto
  body
    x = ld s0
    li = ld s1
    lk = ld s2
    p = mul.f32 li, lk
    y = sub.f32 x, p
    st s0, y
.end

.equ j r1
.equ minus_j r2
.equ at_diagonal r3
.equ at_column r4
.equ at_result r5

    dma.load hbm(a)[0]:matrix, vmem[A]:matrix signal loaded
    nop vpu wait loaded
    li j, 0
    li at_diagonal, A
    li at_column, A
    li at_result, L
    loop n, end
        sub minus_j, r0, j
        vpu.run scale, (1),
            streams=(vmem[at_diagonal]:spread, vmem[at_column]:column_below bias=(minus_j, 0),
                     vmem[at_result]:column, vmem[COLUMN]:dense)
        vpu.run update, (n), streams=(vmem[A]:row, vmem[COLUMN]:factor_of_row, vmem[COLUMN]:factor_of_lane)
        add j, j, 1
        add at_diagonal, at_diagonal, row_bytes + 4
        add at_column, at_column, 4
        add at_result, at_result, 4
end:
    nop vpu signal done
    dma.store vmem[L]:matrix, hbm(l)[0]:matrix wait done
    halt
