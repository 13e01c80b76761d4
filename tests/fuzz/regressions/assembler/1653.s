.equ m 4
.equ T 0
.kernel clear auto
.end
vpu.run clear,(),streams=(acc(t