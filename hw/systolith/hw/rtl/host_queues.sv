// The host's byte queues: infeed, from which a DMA unit takes elements in order, and outfeed, to which another adds them.
// A transfer begins when the host is ready for all of its bytes: it has sent them, for which it needs credits, or has
// taken so many from the outfeed queue that there is room for them.
//
// The host's side is a model: the harness fills infeed queues before a run, with the cycles at which the host sends and
// takes bytes, and reads outfeed queues after it.
module host_queues #(
  parameter int unsigned Queues = 2,
  parameter int unsigned Bytes = 65536,  // of each queue, a power of two
  parameter int unsigned Room = 16384,   // bytes that a queue holds
  parameter int unsigned Times = 1024,   // cycles at which the host does something, for each queue
  parameter int unsigned E = 32
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  // A transfer starts; 0: from an infeed queue, 1: to an outfeed queue.
  input  logic [1:0]         start_i,
  input  logic [1:0][15:0]   start_number_i,
  input  logic [1:0][31:0]   start_bytes_i,
  output logic [1:0]         ready_o,        // the host is ready for the last one that started, from its start on
  input  logic               taken_i,        // the last one from an infeed queue ends
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
  localparam int unsigned SideBits = $clog2(2 * Queues);
  localparam int unsigned Bits = $clog2(Bytes);
  localparam int unsigned TimeBits = $clog2(Times);

  // The bytes, and how many went in and came out.
  logic [7:0]           infeed      [Queues*Bytes];
  logic [7:0]           outfeed     [Queues*Bytes];
  logic [31:0]          infeed_out_q[Queues];
  logic [31:0]          outfeed_in_q[Queues];
  logic [QueueBits-1:0] pop_queue, push_queue;

  // What the host has sent and taken.  Of queue n, infeed before outfeed: bytes at the start of the run, then cycles, in
  // order, from which on there are other totals.  The cycle after the last has no more.
  logic [31:0]         first  [2*Queues];
  logic [31:0]         time_at[2*Queues*Times];
  logic [31:0]         total  [2*Queues*Times];
  logic [TimeBits-1:0] passed_q[2*Queues];
  logic [31:0]         cycle_q;
  // Bytes of the transfers that started, and the queue of the last one.
  logic [31:0]          claimed_q[2*Queues];
  logic [QueueBits-1:0] queue_q  [2];

  function automatic int unsigned entry(int unsigned queue, logic [TimeBits-1:0] number);
    entry = queue * Times + 32'(number);
  endfunction

  // What the host offers of infeed queues and has taken of outfeed queues; what it has sent; which infeed queue the
  // transfer that ends has taken from.
  logic [2*Queues-1:0][31:0] given;
  logic [Queues-1:0][31:0]   sent, held;
  logic [Queues-1:0]         taken;
  logic [31:0]               taken_bytes_q;

  for (genvar n = 0; n < int'(2 * Queues); n++) begin : gen_given
    assign given[n] = (passed_q[n] == '0) ? first[n] : total[entry(n, passed_q[n]-TimeBits'(1))];
  end

  for (genvar n = 0; n < int'(Queues); n++) begin : gen_taken
    assign taken[n] = taken_i && queue_q[0] == QueueBits'(n);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) taken_bytes_q <= '0;
    else if (start_i[0]) taken_bytes_q <= start_bytes_i[0];
  end

  host_credits #(
    .Queues(Queues),
    .Room  (Room)
  ) u_credits (
    .clk_i,
    .rst_ni,
    .count_i   (cycle_q != '1),
    .offered_i (given[Queues-1:0]),
    .return_i  (taken),
    .returned_i(taken_bytes_q),
    .sent_o    (sent),
    .held_o    (held)
  );

  for (genvar d = 0; d < 2; d++) begin : gen_ready
    logic [QueueBits-1:0] queue;
    logic [SideBits-1:0]  side;
    logic [31:0]          claimed, moved;

    assign queue      = start_i[d] ? start_number_i[d][QueueBits-1:0] : queue_q[d];
    assign side       = SideBits'(d * Queues) + SideBits'(queue);
    assign claimed    = claimed_q[side] + (start_i[d] ? start_bytes_i[d] : 32'd0);
    assign moved      = (d == 0) ? sent[queue] : given[side];
    assign ready_o[d] = 33'(moved) + ((d == 1) ? 33'(Room) : 33'd0) >= 33'(claimed);

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) queue_q[d] <= '0;
      else queue_q[d] <= queue;
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      cycle_q   <= '1;
      passed_q  <= '{default: '0};
      claimed_q <= '{default: '0};
    end else begin
      cycle_q <= cycle_q + 32'd1;
      for (int unsigned n = 0; n < 2 * Queues; n++) begin
        if (time_at[entry(n, passed_q[n])] == cycle_q + 32'd1) passed_q[n] <= passed_q[n] + TimeBits'(1);
      end
      for (int unsigned d = 0; d < 2; d++) begin
        if (start_i[d]) begin
          claimed_q[d*Queues+32'(start_number_i[d][QueueBits-1:0])] <=
              claimed_q[d*Queues+32'(start_number_i[d][QueueBits-1:0])] + start_bytes_i[d];
        end
      end
    end
  end

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
  // The harness, between clock edges, by addresses: bytes of the queues (queue n from n * Bytes on); a word for each side
  // of each queue, what the host has sent or taken when the run starts, or (read) how many bytes are in the outfeed
  // queues, then how many cycles the infeed queues held the host; then for each side of each queue the cycles, then the
  // totals.  It writes infeed queues and reads outfeed queues.
  localparam int unsigned Sizes = Queues * Bytes;
  localparam int unsigned Cycles = Sizes + 8 * Queues;
  localparam int unsigned Totals = Cycles + 8 * Queues * Times;
  localparam int unsigned AllBits = $clog2(Sizes);

  // The harness reads after the edge that ends the cycle in which the core is done, the first after the run.
  logic [Queues-1:0][31:0] held_q;

  always_ff @(posedge clk_i) held_q <= held;

  export "DPI-C" function model_poke;
  export "DPI-C" function model_peek;

  initial begin
    first   = '{default: '0};
    time_at = '{default: '1};
    total   = '{default: '0};
  end

  function automatic void model_poke(longint unsigned address, int unsigned data);
    if (address >= 64'(Totals)) total[(32'(address)-Totals)>>2] = data;
    else if (address >= 64'(Cycles)) time_at[(32'(address)-Cycles)>>2] = data;
    else if (address >= 64'(Sizes)) first[(32'(address)-Sizes)>>2] = data;
    else for (int unsigned b = 0; b < 4; b++) infeed[AllBits'(address)+AllBits'(b)] = data[8*b+:8];
  endfunction

  function automatic int unsigned model_peek(longint unsigned address);
    if (address >= 64'(Sizes + 4 * Queues)) model_peek = held_q[QueueBits'((32'(address)-Sizes-4*Queues)>>2)];
    else if (address >= 64'(Sizes)) model_peek = outfeed_in_q[QueueBits'((32'(address)-Sizes)>>2)];
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
      assert (claimed_q[32'(pop_queue)] - infeed_out_q[pop_queue] >= 32'($countones(pop_i)) << pop_size_i)
      else $error("host_queues: infeed queue %0d has too few bytes", pop_number_i);
    end
    for (int unsigned n = 0; n < Queues; n++) begin
      if (rst_ni) begin
        assert (sent[n] - infeed_out_q[n] - ((pop_i != '0 && pop_queue == QueueBits'(n)) ?
                32'($countones(pop_i)) << pop_size_i : 32'd0) <= Room)
        else $error("host_queues: infeed queue %0d is full, and the host sends more", n);
      end
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
