// Arithmetic of the matrix unit, many lanes at once: combinational, for benches that compare with exact arithmetic.
module arith_tb #(
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

  always_comb begin
    for (int unsigned l = 0; l < Lanes; l++) begin
      fma_o[l]   = bf16_pkg::fma(a_i[l][31:16], b_i[l][31:16], c_i[l]);
      add_o[l]   = f32_pkg::add(a_i[l], c_i[l]);
      part_o[l]  = {bf16_pkg::part(c_i[l], part_i), 16'b0};
      widen_o[l] = formats_pkg::widen(systolith_pkg::dtype_e'(dtype_i), a_i[l]);
    end
  end

  logic unused_low;
  always_comb begin
    unused_low = 1'b0;
    for (int unsigned l = 0; l < Lanes; l++) unused_low ^= ^b_i[l][15:0];
  end

endmodule
