// Puts the segments that arrive in a cycle into their places in the row.
module row_gather
  import mxu_pkg::*;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Segments = 2,
  parameter int unsigned SegmentBytes = 32
) (
  input  logic                                       clk_i,
  input  logic                                       rst_ni,
  input  systolith_pkg::dtype_e                                     dtype_i,
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

  logic [Lanes-1:0][31:0] raw_d, raw_q;
  logic [Lanes-1:0]       present_d, present_q, inside_d, inside_q;
  logic                   fresh_q;  // the row is complete: start a new one

  // The elements of each segment, 32 bits each.  A segment that ends before the lanes do has no elements there.
  logic [31:0] elements[Segments][Lanes];

  for (genvar s = 0; s < int'(Segments); s++) begin : gen_segments
    logic [SegmentBytes*8-1:0] bits;
    assign bits = data_i[s];
    for (genvar e = 0; e < int'(Lanes); e++) begin : gen_elements
      logic [31:0] size1, size2, size4;
      assign size1 = 32'(bits[(e%int'(SegmentBytes))*8+:8]);
      assign size2 = 32'(bits[(e%(int'(SegmentBytes)/2))*16+:16]);
      assign size4 = bits[(e%(int'(SegmentBytes)/4))*32+:32];
      always_comb begin
        if (broadcast_i) elements[s][e] = bits[31:0];
        else begin
          unique case (size_log2(dtype_i))
            2'd0:    elements[s][e] = size1;
            2'd1:    elements[s][e] = size2;
            default: elements[s][e] = size4;
          endcase
        end
      end
    end
  end

  always_comb begin
    logic [31:0]              e;
    logic [$clog2(Lanes)-1:0] pick;
    raw_d     = fresh_q ? '0 : raw_q;
    present_d = fresh_q ? '0 : present_q;
    inside_d  = fresh_q ? '0 : inside_q;
    for (int unsigned s = 0; s < Segments; s++) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        e    = l - lane_i[s];  // below lane_i it wraps, and is beyond the elements
        pick = e[$clog2(Lanes)-1:0];
        if (valid_i[s] && e < elements_i[s]) begin
          raw_d[l]     = elements[s][pick];
          inside_d[l]  = inside_i[s][pick];
          present_d[l] = 1'b1;
        end
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      raw_q     <= '0;
      present_q <= '0;
      inside_q  <= '0;
      fresh_q   <= 1'b1;
    end else if (valid_i[0]) begin
      raw_q     <= raw_d;
      present_q <= present_d;
      inside_q  <= inside_d;
      fresh_q   <= row_last_i;
    end
  end

  assign raw_o     = raw_q;
  assign present_o = present_q;
  assign inside_o  = inside_q;

endmodule
