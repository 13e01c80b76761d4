// Grants chunks of HBM, at most one a cycle: P/Q bytes a cycle by a credit, and round robin between the two DMA queues.
module hbm_ctrl #(
  parameter int unsigned P = 16,
  parameter int unsigned Q = 1,
  parameter int unsigned Chunk = 32
) (
  input  logic       clk_i,
  input  logic       rst_ni,
  input  logic [1:0] request_i,  // 0: ld, 1: st
  output logic [1:0] grant_o     // in the same cycle
);

  localparam longint unsigned Need = 64'(Q) * 64'(Chunk);  // of a chunk
  localparam int unsigned Bits = $clog2(Need + 64'(P) + 1);

  logic [Bits-1:0] credit_q, credit_d, gained;
  logic            st_last_q;

  // Credit that is not used is saved up to one chunk.
  assign gained   = credit_q + Bits'(P);
  assign credit_d = (grant_o != '0) ? gained - Bits'(Need) : (gained > Bits'(Need)) ? Bits'(Need) : gained;

  always_comb begin
    grant_o = '0;
    if (gained >= Bits'(Need)) begin
      if (request_i[0] && (st_last_q || !request_i[1])) grant_o = 2'b01;
      else if (request_i[1]) grant_o = 2'b10;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      credit_q  <= Bits'(Need);
      st_last_q <= 1'b1;
    end else begin
      credit_q <= credit_d;
      if (grant_o != '0) st_last_q <= grant_o[1];
    end
  end

`ifndef SYNTHESIS
  initial begin
    assert (P >= 1 && 64'(P) <= Need)
    else $error("hbm_ctrl: %0d/%0d bytes a cycle is more than a chunk of %0d", P, Q, Chunk);
  end
`endif

endmodule
