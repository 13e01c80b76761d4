// Combines a row of lanes into one element: element i with i + n/2, halving.  `Stages` of its levels, the first ones, end in
// registers.
module xlu_tree #(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Stages = 2,
  localparam int unsigned Levels = $clog2(Lanes)
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,
  input  logic                    valid_i,
  input  systolith_pkg::reduce_e  function_i,  // the same while rows are under way
  input  logic [Lanes-1:0][31:0]  row_i,
  output logic                    valid_o,     // Stages cycles later
  output logic [31:0]             result_o
);

  for (genvar l = 0; l < int'(Levels); l++) begin : gen_levels
    localparam int unsigned Pairs = Lanes >> (l + 1);

    logic                     in_valid, valid;
    logic [2*Pairs-1:0][31:0] in;
    logic [Pairs-1:0][31:0]   combined, out;

    if (l == 0) begin : gen_first
      assign in_valid = valid_i;
      assign in       = row_i;
    end else begin : gen_later
      assign in_valid = gen_levels[l-1].valid;
      assign in       = gen_levels[l-1].out;
    end

    always_comb begin
      combined = '0;
      if (in_valid) begin
        for (int unsigned i = 0; i < Pairs; i++) combined[i] = alu_pkg::reduce(function_i, in[i], in[i+Pairs]);
      end
    end

    if (l < int'(Stages)) begin : gen_register
      always_ff @(posedge clk_i or negedge rst_ni) begin
        if (!rst_ni) begin
          valid <= 1'b0;
          out   <= '0;
        end else begin
          valid <= in_valid;
          if (in_valid) out <= combined;
        end
      end
    end else begin : gen_through
      assign valid = in_valid;
      assign out   = combined;
    end
  end

  assign valid_o  = gen_levels[Levels-1].valid;
  assign result_o = gen_levels[Levels-1].out[0];

endmodule
