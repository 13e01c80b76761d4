// The micro-operations of a row, each with its iteration: its loops' indices, its registers renamed.
//
// Stage 0 comes from the sequencer; iterations further on are in a ring, which turns when they all move a stage.
module vpu_issue
  import vpu_pkg::*;
#(
  parameter int unsigned Columns = 5,
  parameter int unsigned MaxStages = 64
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,
  input  logic                    issue_i,
  input  logic                    shift_i,
  input  iteration_t              iteration_i,
  input  logic [Stages-1:0]       live_i,
  input  logic [6:0]              rotating_i,
  input  microop_t [Columns-1:0]  row_i,
  output issued_t [Columns-1:0]   issued_o
);

  localparam int unsigned Bits = $clog2(MaxStages);

  iteration_t      ring_q[MaxStages];
  logic [Bits-1:0] head_q;  // where stage 0 goes

  always_ff @(posedge clk_i) begin
    if (issue_i && shift_i) ring_q[head_q] <= iteration_i;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) head_q <= '0;
    else if (issue_i && shift_i) head_q <= head_q + 1'b1;
  end

  always_comb begin
    iteration_t at;
    at       = '0;
    issued_o = '0;
    for (int unsigned c = 0; c < Columns; c++) begin
      if (row_i[c].valid && live_i[row_i[c].stage]) begin
        at = (row_i[c].stage == '0) ? iteration_i : ring_q[head_q - Bits'(row_i[c].stage)];
        issued_o[c].valid = 1'b1;
        issued_o[c].op    = row_i[c].op;
        issued_o[c].imm   = row_i[c].imm;
        issued_o[c].index = at.index;
        issued_o[c].dst   = 6'(rename({2'b0, row_i[c].dst}, at.turn, rotating_i));
        for (int unsigned s = 0; s < 3; s++) issued_o[c].src[s] = rename(row_i[c].src[s], at.turn, rotating_i);
      end
    end
  end

`ifndef SYNTHESIS
  if (MaxStages != 2 ** Bits || MaxStages > Stages) begin : gen_bad
    $error("MaxStages %0d: must be a power of two, at most %0d", MaxStages, Stages);
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned c = 0; c < Columns; c++) begin
      assert (!(rst_ni && issue_i && row_i[c].valid) || 32'(row_i[c].stage) < MaxStages)
      else $error("a micro-operation of stage %0d, there are %0d", row_i[c].stage, MaxStages);
    end
  end
`endif

endmodule
