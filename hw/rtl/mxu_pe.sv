// Processing element: a weight that works, one that waits in its shadow, and a multiply-accumulate a cycle.
//
// The stream comes from the left, sums from above; weights from above or, of transposed tiles, from the left.  The switch to
// the shadow weight comes with the stream, so each element switches between the rows before and after it.
module mxu_pe
  import mxu_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,
  input  wave_t       wave_i,
  input  logic [15:0] x_i,
  input  logic [31:0] sum_i,
  input  weight_t     down_i,
  input  weight_t     right_i,
  output wave_t       wave_o,
  output logic [15:0] x_o,
  output logic [31:0] sum_o,
  output weight_t     down_o,
  output weight_t     right_o
);

  logic [15:0] weight_q, shadow_q;

  // A weight that is not at its place goes on with one hop less; its passing may still clear.
  function automatic weight_t pass(weight_t weight);
    weight_t next;
    next       = weight;
    next.hops -= 16'd1;
    pass = next;
  endfunction

  logic [15:0] shadow_d;

  always_comb begin
    shadow_d = shadow_q;
    if ((down_i.valid && down_i.clear) || (right_i.valid && right_i.clear)) shadow_d = '0;
    if (down_i.valid && down_i.hops == '0) shadow_d = down_i.value;
    if (right_i.valid && right_i.hops == '0) shadow_d = right_i.value;
  end

  logic [31:0]        fused;
  logic signed [17:0] product;

  fma_bf16 u_fma (
    .a_i  (x_i),
    .b_i  (weight_q),
    .c_i  (sum_i),
    .sum_o(fused)
  );

  assign product = $signed(x_i[8:0]) * $signed(weight_q[8:0]);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      weight_q <= '0;
      shadow_q <= '0;
      wave_o   <= '0;
      x_o      <= '0;
      sum_o    <= '0;
      down_o   <= '0;
      right_o  <= '0;
    end else begin
      shadow_q <= shadow_d;
      if (wave_i.latch) weight_q <= shadow_q;
      wave_o  <= wave_i;
      x_o     <= x_i;
      sum_o   <= wave_i.is_integer ? sum_i + 32'(product) : fused;
      down_o  <= pass(down_i);
      right_o <= pass(right_i);
    end
  end

endmodule
