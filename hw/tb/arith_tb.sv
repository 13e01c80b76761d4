// Arithmetic, many lanes at once: combinational, for benches that compare with exact arithmetic.
module arith_tb
  import mxu_pkg::*;
#(
  parameter int unsigned Lanes = 64
) (
  input  logic [Lanes-1:0][31:0] a_i,
  input  logic [Lanes-1:0][31:0] b_i,
  input  logic [Lanes-1:0][31:0] c_i,
  input  logic [1:0]             part_i,
  input  logic [4:0]             dtype_i,
  output logic [Lanes-1:0][31:0] fma_o,    // bf16 a, b in the upper halves
  output logic [Lanes-1:0][31:0] add_o,    // a + c
  output logic [Lanes-1:0][31:0] part_o,   // of c, as f32
  output logic [Lanes-1:0][31:0] widen_o   // of a
);

  for (genvar l = 0; l < int'(Lanes); l++) begin : gen_lanes
    fma_bf16 u_fma (
      .a_i  (a_i[l][31:16]),
      .b_i  (b_i[l][31:16]),
      .c_i  (c_i[l]),
      .sum_o(fma_o[l])
    );
    fadd_f32 u_add (
      .a_i  (a_i[l]),
      .b_i  (c_i[l]),
      .sum_o(add_o[l])
    );
    bf16_part u_part (
      .x_i   (c_i[l]),
      .part_i,
      .part_o(part_o[l][31:16])
    );
    assign part_o[l][15:0] = '0;
    widen u_widen (
      .dtype_i(systolith_pkg::dtype_e'(dtype_i)),
      .raw_i  (a_i[l]),
      .image_o(widen_o[l])
    );
    logic unused_low;
    assign unused_low = ^b_i[l][15:0];
  end

endmodule
