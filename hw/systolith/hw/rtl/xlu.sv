// The cross-lane unit: copies elements between places in VMEM (shuffle), or combines rows of up to Lanes elements (reduce).
//
// From the cycle after the start on up to Lanes elements, or a row, are read a cycle.  They are written one cycle later; a
// row's result after its way through the tree.
module xlu
  import core_pkg::*;
  import walk_pkg::*;
#(
  parameter int unsigned Lanes = 8,
  parameter int unsigned Sublanes = 2,  // accesses a cycle, of rows that are not contiguous
  parameter int unsigned Latency = 4    // cycles of an instruction besides its accesses; at least 2
) (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  input  logic                        start_i,
  input  logic [XluWords-1:0][31:0]   words_i,
  input  pattern_t [1:0]              pattern_i,        // 0: source, 1: destination
  output logic                        done_o,
  // VMEM: data in the same cycle; written at the end of the cycle.
  output logic [Lanes-1:0]            src_read_o,
  output logic [Lanes-1:0][31:0]      src_address_o,
  output logic [1:0]                  src_size_o,       // log2 of bytes
  input  logic [Lanes-1:0][31:0]      src_data_i,
  output logic [Lanes-1:0]            dst_write_o,
  output logic [Lanes-1:0][31:0]      dst_address_o,
  output logic [1:0]                  dst_size_o,
  output logic [Lanes-1:0][31:0]      dst_data_o,
  // Index lists: data in the same cycle.
  output logic [1:0][Lanes-1:0]       index_read_o,
  output logic [1:0][Lanes-1:0][31:0] index_address_o,
  input  logic [1:0][Lanes-1:0][31:0] index_data_i
);

  localparam int unsigned CountBits = $clog2(Lanes + 1);
  localparam int unsigned Levels = $clog2(Lanes);
  localparam int unsigned Stages = (Latency - 2 < Levels) ? Latency - 2 : Levels;
  localparam int unsigned StreamWords = systolith_pkg::StreamWords;

  // The instruction that starts, and its accesses.
  logic                   reduces;
  systolith_pkg::reduce_e operation;
  stream_t                src, dst;
  logic [31:0]            accesses;

  assign reduces   = words_i[0][7:0] == systolith_pkg::OpXluReduce;
  assign operation = systolith_pkg::reduce_e'(words_i[systolith_pkg::XluReduceFunctionWord][7:0]);
  assign src       = to_stream(reduces ? words_i[systolith_pkg::XluReduceSrcWord+:StreamWords]
                               : words_i[systolith_pkg::XluShuffleSrcWord+:StreamWords]);
  assign dst       = to_stream(reduces ? words_i[systolith_pkg::XluReduceDstWord+:StreamWords]
                               : words_i[systolith_pkg::XluShuffleDstWord+:StreamWords]);

  always_comb begin
    logic [31:0] other;
    accesses = '0;
    other    = '0;
    if (start_i && reduces) accesses = copy_pkg::row_cycles(pattern_i[0], Sublanes);
    else if (start_i) begin
      accesses = copy_pkg::side_accesses(pattern_i[0], Levels);
      other    = copy_pkg::side_accesses(pattern_i[1], Levels);
      if (other > accesses) accesses = other;
    end
  end

  // The one under way.
  logic                         busy_q, reduces_q;
  systolith_pkg::reduce_e       operation_q;
  systolith_pkg::dtype_e  [1:0] dtype_q;
  logic [31:0]                  left_q;  // cycles until it is done
  logic [31:0]                  fill_q;
  logic [CountBits-1:0]         step_q;  // elements to read in a cycle

  assign done_o = busy_q && left_q == '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q      <= 1'b0;
      reduces_q   <= 1'b0;
      operation_q <= systolith_pkg::ReduceAddF32;
      dtype_q     <= {2{systolith_pkg::DtypePred}};
      left_q      <= '0;
      fill_q      <= '0;
      step_q      <= '0;
    end else begin
      busy_q <= start_i || busy_q && !done_o;
      if (start_i) begin
        left_q      <= accesses + (Latency - 32'd1);
        reduces_q   <= reduces;
        operation_q <= operation;
        dtype_q     <= {pattern_i[1].dtype, pattern_i[0].dtype};
        fill_q      <= pattern_i[0].fill;
        step_q      <= reduces ? CountBits'(pattern_i[0].counts[Loops-1]) : CountBits'(Lanes);
      end else if (busy_q) begin
        left_q <= left_q - 32'd1;
      end
    end
  end

  // Where the elements are.
  logic [1:0][Lanes-1:0]       valid, exists;
  logic [1:0][Lanes-1:0][31:0] address;
  logic [1:0]                  more;
  logic [1:0][CountBits-1:0]   take;

  for (genvar n = 0; n < 2; n++) begin : gen_sides
    walker #(
      .E(Lanes)
    ) u_walker (
      .clk_i,
      .rst_ni,
      .start_i,
      .pattern_i      (pattern_i[n]),
      .stream_i       (n == 0 ? src : dst),
      .take_i         (take[n]),
      .valid_o        (valid[n]),
      .inside_o       (exists[n]),
      .address_o      (address[n]),
      .more_o         (more[n]),
      .index_read_o   (index_read_o[n]),
      .index_address_o(index_address_o[n]),
      .index_data_i   (index_data_i[n])
    );
  end

  // Reading: elements as they are, or a row widened and padded.
  logic [Lanes-1:0][31:0] row, row_q;
  logic [Lanes-1:0]       valid_q;

  assign take[0]       = busy_q ? step_q : '0;
  assign src_read_o    = exists[0];
  assign src_address_o = address[0];
  assign src_size_o    = size_log2(dtype_q[0]);

  always_comb begin
    row = '0;
    if (valid[0] != '0) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        if (!exists[0][l]) row[l] = fill_q;
        else row[l] = reduces_q ? formats_pkg::widen(dtype_q[0], src_data_i[l]) : src_data_i[l];
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_q <= '0;
      row_q   <= '0;
    end else begin
      valid_q <= valid[0];
      if (valid[0] != '0) row_q <= row;
    end
  end

  // Combining.
  logic        result_valid;
  logic [31:0] result;

  xlu_tree #(
    .Lanes (Lanes),
    .Stages(Stages)
  ) u_tree (
    .clk_i,
    .rst_ni,
    .valid_i   (reduces_q && valid_q != '0),
    .function_i(operation_q),
    .row_i     (row_q),
    .valid_o   (result_valid),
    .result_o  (result)
  );

  // Writing.
  always_comb begin
    take[1]    = '0;
    dst_data_o = '0;
    if (result_valid) begin
      take[1]       = CountBits'(1);
      dst_data_o[0] = formats_pkg::narrow(dtype_q[1], result);
    end else if (!reduces_q && valid_q != '0) begin
      take[1]    = CountBits'(Lanes);
      dst_data_o = row_q;
    end
  end

  assign dst_write_o   = exists[1];
  assign dst_address_o = address[1];
  assign dst_size_o    = size_log2(dtype_q[1]);

`ifndef SYNTHESIS
  initial begin
    assert (Latency >= 2 && Lanes == 1 << Levels)
    else $fatal(1, "xlu: Latency %0d must be at least 2, Lanes %0d a power of two", Latency, Lanes);
  end

  always_ff @(posedge clk_i) begin
    if (rst_ni && start_i) begin
      assert (!busy_q || done_o)
      else $error("xlu: starts before the one under way is done");
      assert (!reduces || pattern_i[0].counts[Loops-1] <= Lanes)
      else $error("xlu: rows of %0d elements", pattern_i[0].counts[Loops-1]);
      assert (reduces || size_log2(pattern_i[0].dtype) == size_log2(pattern_i[1].dtype))
      else $error("xlu: elements of different sizes");
    end
    if (rst_ni && !reduces_q && valid_q != '0) begin
      assert (valid[1] == valid_q)
      else $error("xlu: source and destination have different numbers of elements");
    end
    if (rst_ni && done_o) begin
      assert (more == '0 && valid_q == '0 && !result_valid)
      else $error("xlu: done, and elements are left");
    end
  end
`endif

endmodule
