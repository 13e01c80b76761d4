# Records of 16 f32 come in from the host, their running sums go out: the order within a queue is that of the program.
.program host_queues
.equ records 3
.equ record 16

.equ X 0
.equ SUM 64
.equ OUT 128

.token free vpu -> ld
.token loaded ld -> vpu
.token computed vpu -> st
.token stored st -> vpu

.pattern words f32 counts=(record) strides=(4)
.pattern vector f32 counts=(1, 2, 8) strides=(64, 32, 4)

.kernel clear auto
    const zero = 0.0
  body
    st s0, zero
.end

.kernel add auto
  body
    x = ld s0
    sum = ld s1
    new = add.f32 sum, x
    st s1, new
    st s2, new
.end

    vpu.run clear, (1), streams=(vmem[SUM]:vector) signal free
    nop st signal stored
    loop records, end
        dma.load host(0)[0]:words, vmem[X]:words wait free signal loaded
        vpu.run add, (1),
            streams=(vmem[X]:vector, vmem[SUM]:vector, vmem[OUT]:vector) wait loaded, stored signal free, computed
        dma.store vmem[OUT]:words, host(1)[0]:words wait computed signal stored
end:
    halt
