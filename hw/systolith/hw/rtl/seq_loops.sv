// SEQ's loops: where to go on, given where the instruction that ends would go.
//
// From the innermost loop outwards: at the end of its body and with iterations left, back to its start; inside its
// body, on; else it has ended, or was left, and the next one outwards is asked.
module seq_loops (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        step_i,    // an instruction ends
  input  logic [31:0] next_i,    // and goes to this word, unless that is the end of a loop
  input  logic        enter_i,   // it is a loop, whose body is from next_i to end_i
  input  logic [31:0] end_i,
  input  logic [31:0] count_i,   // at least 1
  output logic [31:0] target_o
);

  localparam int unsigned Depth = systolith_pkg::MaxLoopNest;
  localparam int unsigned DepthBits = $clog2(Depth + 1);
  localparam int unsigned LevelBits = $clog2(Depth);

  logic [Depth-1:0][31:0] start_q, end_q, left_q;
  logic [DepthBits-1:0]   depth_q, depth;
  logic [LevelBits-1:0]   level;
  logic                   ends, again;

  // The innermost loop that goes on, either again from its start or inside its body.
  always_comb begin
    target_o = next_i;
    depth    = depth_q;
    level    = '0;
    ends     = 1'b0;
    again    = 1'b0;
    if (depth_q != '0 && !enter_i) begin
      depth = '0;
      for (int unsigned i = 0; i < Depth; i++) begin
        if (DepthBits'(i) < depth_q) begin
          ends = next_i == end_q[i] && left_q[i] > 32'd1;
          if (ends || (start_q[i] <= next_i && next_i < end_q[i])) begin
            again = ends;
            level = LevelBits'(i);
            depth = DepthBits'(i) + DepthBits'(1);
          end
        end
      end
      if (again) target_o = start_q[level];
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) depth_q <= '0;
    else if (step_i) depth_q <= enter_i ? depth_q + DepthBits'(1) : depth;
  end

  always_ff @(posedge clk_i) begin
    if (step_i && enter_i) begin
      start_q[depth_q[LevelBits-1:0]] <= next_i;
      end_q[depth_q[LevelBits-1:0]]   <= end_i;
      left_q[depth_q[LevelBits-1:0]]  <= count_i;
    end else if (step_i && again) begin
      left_q[level] <= left_q[level] - 32'd1;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk_i) begin
    if (rst_ni && step_i && enter_i) begin
      assert (depth_q < DepthBits'(Depth))
      else $error("seq_loops: loops nest deeper than %0d", Depth);
      assert (end_i > next_i)
      else $error("seq_loops: a loop at word %0d has an empty body", next_i);
    end
  end
`endif

endmodule
