// The host's byte queues: infeed, from which a DMA unit takes elements in order, and outfeed, to which another adds them.
// The host's side is a model: the harness fills infeed queues before a run, and reads outfeed queues after it.
module host_queues #(
  parameter int unsigned Queues = 2,
  parameter int unsigned Bytes = 65536,  // of each queue, a power of two
  parameter int unsigned E = 32
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  // Take: elements from number 0 on, data zero-extended in the same cycle.
  input  logic [E-1:0]       pop_i,
  input  logic [15:0]        pop_number_i,
  input  logic [1:0]         pop_size_i,     // log2 of bytes
  output logic [E-1:0][31:0] pop_data_o,
  // Add: elements from number 0 on.
  input  logic [E-1:0]       push_i,
  input  logic [15:0]        push_number_i,
  input  logic [1:0]         push_size_i,
  input  logic [E-1:0][31:0] push_data_i
);

  localparam int unsigned QueueBits = (Queues > 1) ? $clog2(Queues) : 1;
  localparam int unsigned Bits = $clog2(Bytes);

  // The bytes, and how many went in and came out.
  logic [7:0]           infeed      [Queues*Bytes];
  logic [7:0]           outfeed     [Queues*Bytes];
  logic [31:0]          infeed_in   [Queues];
  logic [31:0]          infeed_out_q[Queues];
  logic [31:0]          outfeed_in_q[Queues];
  logic [QueueBits-1:0] pop_queue, push_queue;

  assign pop_queue  = pop_number_i[QueueBits-1:0];
  assign push_queue = push_number_i[QueueBits-1:0];

  function automatic logic [31:0] place(logic [QueueBits-1:0] queue, logic [Bits-1:0] position);
    place = 32'(queue) * Bytes + 32'(position);
  endfunction

  always_comb begin
    pop_data_o = '0;
    if (pop_i != '0) begin
      for (int unsigned e = 0; e < E; e++) begin
        for (int unsigned b = 0; b < 4; b++) begin
          if (pop_i[e] && b < 32'd1 << pop_size_i) begin
            pop_data_o[e][8*b+:8] = infeed[place(pop_queue, Bits'(infeed_out_q[pop_queue] + (e << pop_size_i) + b))];
          end
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (push_i != '0) begin
      for (int unsigned e = 0; e < E; e++) begin
        for (int unsigned b = 0; b < 4; b++) begin
          if (push_i[e] && b < 32'd1 << push_size_i) begin
            outfeed[place(push_queue, Bits'(outfeed_in_q[push_queue] + (e << push_size_i) + b))] <= push_data_i[e][8*b+:8];
          end
        end
      end
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      infeed_out_q <= '{default: '0};
      outfeed_in_q <= '{default: '0};
    end else begin
      if (pop_i != '0) infeed_out_q[pop_queue] <= infeed_out_q[pop_queue] + (32'($countones(pop_i)) << pop_size_i);
      if (push_i != '0) outfeed_in_q[push_queue] <= outfeed_in_q[push_queue] + (32'($countones(push_i)) << push_size_i);
    end
  end

`ifndef SYNTHESIS
  // The harness, between clock edges: by byte addresses (queue n from n * Bytes on), then a word for each queue with the
  // number of its bytes.  It writes infeed queues and reads outfeed queues.
  localparam int unsigned Sizes = Queues * Bytes;
  localparam int unsigned AllBits = $clog2(Sizes);

  export "DPI-C" function model_poke;
  export "DPI-C" function model_peek;

  initial infeed_in = '{default: '0};

  function automatic logic [QueueBits-1:0] size_of(longint unsigned address);
    size_of = QueueBits'((address - 64'(Sizes)) >> 2);
  endfunction

  function automatic void model_poke(longint unsigned address, int unsigned data);
    if (address >= 64'(Sizes)) infeed_in[size_of(address)] = data;
    else for (int unsigned b = 0; b < 4; b++) infeed[AllBits'(address)+AllBits'(b)] = data[8*b+:8];
  endfunction

  function automatic int unsigned model_peek(longint unsigned address);
    if (address >= 64'(Sizes)) model_peek = outfeed_in_q[size_of(address)];
    else for (int unsigned b = 0; b < 4; b++) model_peek[8*b+:8] = outfeed[AllBits'(address)+AllBits'(b)];
  endfunction

  initial begin
    assert (Bytes == 1 << Bits)
    else $error("host_queues: %0d bytes: must be a power of two", Bytes);
  end

  always_ff @(posedge clk_i) begin
    if (rst_ni && pop_i != '0) begin
      assert (32'(pop_number_i) < Queues && (pop_i & (pop_i + E'(1))) == '0)
      else $error("host_queues: takes %b of infeed queue %0d of %0d", pop_i, pop_number_i, Queues);
      assert (infeed_in[pop_queue] - infeed_out_q[pop_queue] >= 32'($countones(pop_i)) << pop_size_i)
      else $error("host_queues: infeed queue %0d has too few bytes", pop_number_i);
    end
    if (rst_ni && push_i != '0) begin
      assert (32'(push_number_i) < Queues && (push_i & (push_i + E'(1))) == '0)
      else $error("host_queues: adds %b to outfeed queue %0d of %0d", push_i, push_number_i, Queues);
      assert (outfeed_in_q[push_queue] + (32'($countones(push_i)) << push_size_i) <= Bytes)
      else $error("host_queues: outfeed queue %0d is full", push_number_i);
    end
  end
`endif

endmodule
