// Part 0, 1 or 2 of the bf16 split of an f32: bf16(x), bf16(x - part 0), bf16(x - part 0 - part 1).
module bf16_part
  import mxu_pkg::*;
(
  input  logic [31:0] x_i,
  input  logic [1:0]  part_i,
  output logic [15:0] part_o
);

  logic [15:0] part0, part1;
  logic [31:0] rest1, rest2;

  assign part0 = round_bf16(x_i);
  assign part1 = round_bf16(rest1);

  fadd_f32 u_rest1 (
    .a_i  (x_i),
    .b_i  ({~part0[15], part0[14:0], 16'b0}),
    .sum_o(rest1)
  );

  fadd_f32 u_rest2 (
    .a_i  (rest1),
    .b_i  ({~part1[15], part1[14:0], 16'b0}),
    .sum_o(rest2)
  );

  always_comb begin
    unique case (part_i)
      2'd0:    part_o = part0;
      2'd1:    part_o = part1;
      default: part_o = round_bf16(rest2);
    endcase
  end

endmodule
