// HBM's arbiter, for a bench that asks in its clients' place.
module hbm_tb #(
  parameter int unsigned P = 16,
  parameter int unsigned Q = 1,
  parameter int unsigned Chunk = 32
) (
  input  logic       clk_i,
  input  logic       rst_ni,
  input  logic [1:0] request_i,
  output logic [1:0] grant_o
);

  hbm_ctrl #(
    .P    (P),
    .Q    (Q),
    .Chunk(Chunk)
  ) u_hbm_ctrl (
    .clk_i,
    .rst_ni,
    .request_i,
    .grant_o
  );

endmodule
