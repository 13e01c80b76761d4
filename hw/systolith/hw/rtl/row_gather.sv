// Puts the segments that arrive in a cycle into their places in the row.
module row_gather #(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Segments = 2,
  parameter int unsigned SegmentBytes = 32
) (
  input  logic                                       clk_i,
  input  logic                                       rst_ni,
  input  systolith_pkg::dtype_e                      dtype_i,
  input  logic                                       broadcast_i,
  input  logic [Segments-1:0]                        valid_i,
  input  logic [Segments-1:0][31:0]                  lane_i,
  input  logic [Segments-1:0][31:0]                  elements_i,
  input  logic [Segments-1:0][Lanes-1:0]             inside_i,
  input  logic [Segments-1:0][SegmentBytes-1:0][7:0] data_i,
  input  logic                                       row_last_i,
  output logic [Lanes-1:0][31:0]                     raw_o,      // of the cycle after row_last_i
  output logic [Lanes-1:0]                           present_o,  // the row has such an element
  output logic [Lanes-1:0]                           inside_o    // and it is inside
);

  localparam int unsigned LaneBits = $clog2(Lanes);

  // The elements of a segment, 32 bits each, the lower ones of which count.  Beyond its end there are none.
  function automatic logic [Lanes-1:0][31:0] to_elements(logic [SegmentBytes-1:0][7:0] data, logic [1:0] size);
    /* verilator no_inline_task */
    logic [SegmentBytes/2-1:0][15:0] halves;
    logic [SegmentBytes/4-1:0][31:0] words;
    halves = data;
    words  = data;
    for (int unsigned e = 0; e < Lanes; e++) begin
      case (size)
        2'd0:    to_elements[e] = 32'(data[e%SegmentBytes]);
        2'd1:    to_elements[e] = 32'(halves[e%(SegmentBytes/2)]);
        default: to_elements[e] = words[e%(SegmentBytes/4)];
      endcase
    end
  endfunction

  logic [Lanes-1:0][31:0] raw_d, raw_q;
  logic [Lanes-1:0]       present_d, present_q, inside_d, inside_q;
  logic                   fresh_q;  // the row is complete: start a new one
  logic [1:0]             size;

  assign size = broadcast_i ? 2'd2 : walk_pkg::size_log2(dtype_i);

  always_comb begin
    logic [LaneBits-1:0]    lane;
    logic [Lanes-1:0][31:0] elements;
    lane      = '0;
    elements  = '0;
    raw_d     = raw_q;
    present_d = fresh_q ? '0 : present_q;
    inside_d  = fresh_q ? '0 : inside_q;
    for (int unsigned s = 0; s < Segments; s++) begin
      if (valid_i[s]) begin
        elements = to_elements(data_i[s], size);
        for (int unsigned e = 0; e < Lanes; e++) begin
          if (e < elements_i[s]) begin
            lane            = LaneBits'(lane_i[s] + e);
            raw_d[lane]     = elements[broadcast_i ? 0 : e];
            inside_d[lane]  = inside_i[s][e];
            present_d[lane] = 1'b1;
          end
        end
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) fresh_q <= 1'b1;
    else if (valid_i[0]) fresh_q <= row_last_i;
  end

  always_ff @(posedge clk_i) begin
    if (valid_i[0]) begin
      raw_q     <= raw_d;
      present_q <= present_d;
      inside_q  <= inside_d;
    end
  end

  assign raw_o     = raw_q;
  assign present_o = present_q;
  assign inside_o  = inside_q;

endmodule
