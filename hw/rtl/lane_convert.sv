// An element of a row to what the array multiplies: a bf16 part, or a small integer.
module lane_convert
  import mxu_pkg::*;
(
  input  systolith_pkg::dtype_e      dtype_i,
  input  logic [31:0] fill_i,
  input  logic        is_integer_i,
  input  logic [1:0]  part_i,
  input  logic        present_i,
  input  logic        inside_i,
  input  logic [31:0] raw_i,
  output logic [15:0] operand_o
);

  logic [31:0] widened, value;
  logic [15:0] part;

  widen u_widen (
    .dtype_i,
    .raw_i,
    .image_o(widened)
  );

  assign value = !present_i ? '0 : inside_i ? widened : fill_i;

  bf16_part u_part (
    .x_i   (value),
    .part_i,
    .part_o(part)
  );

  assign operand_o = is_integer_i ? value[15:0] : part;

endmodule
