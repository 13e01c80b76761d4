# Solves L X = B for a lower triangular 16 x 16 matrix and 8 right sides, row by row, as SEQ's loop.
#
# Row i of X is row i of B over the diagonal element; then every row below gives up its part of it: the bias -i masks
# the rows above, of which nothing is written.
.program trisolve
.equ n 16
.equ row_bytes n * 4
.equ right_bytes 32                 # a row of B: 8 f32

.buffer l parameter f32 [n, n] number=0
.buffer b parameter f32 [n, 8] number=1
.buffer x result f32 [n, 8] number=0

.equ L 0
.equ B L + n * row_bytes            # becomes X

.token loaded ld -> vpu
.token done vpu -> st

.pattern matrix f32 counts=(n * n) strides=(4)
.pattern right f32 counts=(n * 8) strides=(4)
.pattern row f32 counts=(1, 1, 8) strides=(4, 4, 4)
.pattern element f32 counts=(1, 1, 8) strides=(0, 0, 0)
.pattern rows_below f32 counts=(n, 1, 8) strides=(right_bytes, 4, 4)
    coord coefs=(1, 0, 0) offset=-1 lo=0 bias=0
.pattern column f32 counts=(n, 1, 8) strides=(row_bytes, 0, 0)
.pattern same_row f32 counts=(n, 1, 8) strides=(0, 4, 4)

.kernel divide auto
  body
    b = ld s0
    d = ld s1
    x = div.f32 b, d
    st s0, x
.end

.kernel eliminate auto              # an iteration stores the row that it loads, and never row i
  body
    b = ld s0
    l = ld s1
    x = ld s2
    p = mul.f32 l, x
    y = sub.f32 b, p
    st s0, y
.end

.equ minus_i r1
.equ at_row r2
.equ at_diagonal r3
.equ at_column r4

    dma.load hbm(l)[0]:matrix, vmem[L]:matrix
    dma.load hbm(b)[0]:right, vmem[B]:right signal loaded
    nop vpu wait loaded
    li minus_i, 0
    li at_row, B
    li at_diagonal, L
    li at_column, L
    loop n, end
        vpu.run divide, (1), streams=(vmem[at_row]:row, vmem[at_diagonal]:element)
        vpu.run eliminate, (n),
            streams=(vmem[B]:rows_below bias=(minus_i, 0), vmem[at_column]:column, vmem[at_row]:same_row)
        sub minus_i, minus_i, 1
        add at_row, at_row, right_bytes
        add at_diagonal, at_diagonal, row_bytes + 4
        add at_column, at_column, 4
end:
    nop vpu signal done
    dma.store vmem[B]:right, hbm(x)[0]:right wait done
    halt
