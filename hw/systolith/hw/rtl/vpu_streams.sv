// The streams of the instruction under way: operands, patterns, where they start, and how long a vector of each takes.
//
// They are there in the cycle of the start already: then from the inputs, afterwards from the registers that it loads.
module vpu_streams
  import core_pkg::stream_t, core_pkg::to_stream;
  import vpu_pkg::*;
  import walk_pkg::*;
#(
  parameter int unsigned Sublanes = 2,
  parameter int unsigned Ports = 4
) (
  input  logic                                                            clk_i,
  input  logic                                                            start_i,
  input  logic [3:0]                                                      count_i,
  input  logic [Streams-1:0][systolith_pkg::StreamWords-1:0][31:0]        words_i,
  input  pattern_t [Streams-1:0]                                          pattern_i,
  input  logic [Ports-1:0]                                                use_i,
  input  logic [Ports-1:0][3:0]                                           number_i,
  output stream_t [Ports-1:0]                                             stream_o,
  output pattern_t                                                        pattern_o[Ports],
  output point_t [Ports-1:0]                                              origin_o,
  output logic [Ports-1:0][15:0]                                          stall_o    // cycles beyond one, of a vector
);

  kept_t    kept_q[Streams], kept_d[Streams];
  pattern_t pattern_q[Streams];

  for (genvar s = 0; s < int'(Streams); s++) begin : gen_starts
    vpu_stream_start #(
      .Sublanes(Sublanes)
    ) u_start (
      .valid_i  (start_i && s < int'(count_i)),
      .stream_i (to_stream(words_i[s])),
      .pattern_i(pattern_i[s]),
      .kept_o   (kept_d[s])
    );
  end

  always_ff @(posedge clk_i) begin
    if (start_i) begin
      /* verilator unroll_disable */
      for (int unsigned s = 0; s < Streams; s++) begin
        if (s < 32'(count_i)) begin
          kept_q[s]    <= kept_d[s];
          pattern_q[s] <= pattern_i[s];
        end
      end
    end
  end

  for (genvar p = 0; p < int'(Ports); p++) begin : gen_ports
    kept_t kept;

    always_comb begin
      kept         = '0;
      pattern_o[p] = '0;
      if (use_i[p]) begin
        kept         = start_i ? kept_d[number_i[p]] : kept_q[number_i[p]];
        pattern_o[p] = start_i ? pattern_i[number_i[p]] : pattern_q[number_i[p]];
      end
    end

    assign stream_o[p] = kept.stream;
    assign origin_o[p] = kept.origin;
    assign stall_o[p]  = kept.stall;
  end

endmodule
