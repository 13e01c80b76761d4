// Results on their way: one issued in cycle t of the schedule is at the output, to be written, in cycle t + Latency - 1.
module vpu_result #(
  parameter int unsigned Width = 512,
  parameter int unsigned Latency = 2
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             advance_i,  // a cycle of the schedule
  input  logic             valid_i,
  input  logic [5:0]       dst_i,
  input  logic [Width-1:0] data_i,
  output logic             valid_o,
  output logic [5:0]       dst_o,
  output logic [Width-1:0] data_o
);

  if (Latency <= 1) begin : gen_wire
    logic unused_clock;
    assign unused_clock = ^{clk_i, rst_ni};
    assign valid_o      = advance_i && valid_i;
    assign dst_o        = dst_i;
    assign data_o       = data_i;
  end else begin : gen_ring
    localparam int unsigned Depth = Latency - 1;
    localparam int unsigned Bits = (Depth > 1) ? $clog2(Depth) : 1;

    // The place that is read is the oldest; the next issue takes it.
    logic [Depth-1:0] valid_q;
    logic [5:0]       dst_q [Depth];
    logic [Width-1:0] data_q[Depth];
    logic [Bits-1:0]  place_q;

    assign valid_o = advance_i && valid_q[place_q];

    always_comb begin
      dst_o  = '0;
      data_o = '0;
      if (valid_o) begin
        dst_o  = dst_q[place_q];
        data_o = data_q[place_q];
      end
    end

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        valid_q <= '0;
        place_q <= '0;
      end else if (advance_i) begin
        valid_q[place_q] <= valid_i;
        place_q          <= (32'(place_q) == Depth - 1) ? '0 : place_q + 1'b1;
      end
    end

    always_ff @(posedge clk_i) begin
      if (advance_i && valid_i) begin
        dst_q[place_q]  <= dst_i;
        data_q[place_q] <= data_i;
      end
    end
  end

endmodule
