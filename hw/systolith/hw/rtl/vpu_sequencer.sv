// Which row of the control store issues in which cycle, and where the iterations are.
//
// Time is counted in cycles of the schedule; one in which loads or stores stall the pipeline takes `stall_i` cycles more.
// The cycle of a start is the first of the schedule: where it begins is worked out in that cycle.
module vpu_sequencer
  import vpu_pkg::*;
(
  input  logic              clk_i,
  input  logic              rst_ni,
  input  logic              start_i,
  input  kernel_t           kernel_i,     // the one that runs, in the cycle of the start already
  input  nest_t             counts_i,
  input  logic [2:0]        first_inner_i,
  input  logic              serial_i,
  input  logic [15:0]       stall_i,      // how long the issues of this cycle stall the pipeline
  output logic              issue_o,      // a row issues in this cycle
  output logic [31:0]       row_o,
  output iteration_t        iteration_o,  // of stage 0
  output logic [Stages-1:0] live_o,       // stages that have an iteration
  output logic              shift_o,      // after this cycle, iterations are a stage further
  output logic              done_o        // in the first cycle after the last
);

  typedef enum logic [1:0] {
    Prologue,
    Body,
    Epilogue
  } section_e;

  typedef struct packed {
    section_e          section;
    logic [15:0]       row;        // of the section
    logic [15:0]       age;        // cycles since the latest iteration of the body began
    iteration_t        iteration;  // the latest one
    logic [Stages-1:0] live;
  } place_t;

  // Sections that take no cycle are passed over; a body has cycles also where only iterations come after the first.
  logic [2:0] first_inner;
  logic       has_prologue, has_body, has_epilogue, empty;

  always_comb begin
    first_inner  = kernel_i.sections ? first_inner_i : '0;
    has_prologue = kernel_i.prologue != '0;
    has_epilogue = kernel_i.epilogue != '0;
    has_body     = kernel_i.body != '0 || !at_end('0, counts_i, first_inner);
    empty        = !has_prologue && !has_body && !has_epilogue;
  end

  // The first section of an outer iteration.
  function automatic place_t begin_outer(nest_t index, logic prologue, logic body, logic nothing);
    begin_outer                 = '0;
    begin_outer.section         = prologue ? Prologue : body ? Body : Epilogue;
    begin_outer.iteration.index = index;
    begin_outer.live            = Stages'(!nothing);
  endfunction

  place_t place_q, place, place_d;

  always_comb begin
    place = place_q;
    if (start_i) place = begin_outer('0, has_prologue, has_body, empty);
  end

  // Where the schedule is after this cycle.  `ends`: the section does; `finishes`: the instruction does.
  logic        launches, ends, finishes, later_section;
  logic [15:0] period;  // cycles from one iteration to the next
  nest_t       inner_next, outer_next;
  logic        inner_last, outer_last;

  assign period = (serial_i && kernel_i.body > kernel_i.ii) ? kernel_i.body : kernel_i.ii;

  always_comb begin
    inner_next    = '0;
    outer_next    = '0;
    inner_last    = 1'b1;
    outer_last    = 1'b1;
    launches      = 1'b0;
    ends          = 1'b0;
    later_section = 1'b0;
    if (issue_o) begin
      outer_next = advance(place.iteration.index, counts_i, first_inner);
      outer_last = outer_next == '0;
      inner_last = at_end(place.iteration.index, counts_i, first_inner);
      unique case (place.section)
        Prologue: begin
          ends          = place.row + 16'd1 == kernel_i.prologue;
          later_section = has_body || has_epilogue;
        end
        Body: begin
          inner_next    = advance(place.iteration.index, counts_i, 3'(Nest));
          launches      = !inner_last && place.age + 16'd1 == period;
          later_section = has_epilogue;
          if (kernel_i.body != '0) ends = inner_last && place.age + 16'd1 == kernel_i.body;
          else ends = launches && at_end(inner_next, counts_i, first_inner);
        end
        default: ends = empty || place.row + 16'd1 == kernel_i.epilogue;
      endcase
    end
  end

  assign finishes = ends && !later_section && (outer_last || empty);

  // The indices of the inner loops start again where a section begins.
  nest_t outer_index;

  always_comb begin
    outer_index = place.iteration.index;
    for (int unsigned k = 0; k < Nest; k++) begin
      if (k >= 32'(first_inner)) outer_index[k] = '0;
    end
  end

  logic wraps;  // the body's rows start again
  assign wraps = launches || place.row + 16'd1 == kernel_i.ii;

  always_comb begin
    place_d     = place;
    place_d.row = place.row + 16'd1;
    place_d.age = place.age + 16'd1;
    shift_o     = 1'b0;
    if (ends && later_section) begin
      place_d         = begin_outer(outer_index, 1'b0, has_body, 1'b0);
      if (place.section == Body) place_d.section = Epilogue;
    end else if (ends) begin
      place_d = begin_outer(outer_next, has_prologue, has_body, 1'b0);
    end else if (place.section == Body && wraps) begin
      shift_o      = 1'b1;
      place_d.row  = '0;
      place_d.live = place.live << 1;
      if (launches) begin
        place_d.age                  = '0;
        place_d.live[0]              = 1'b1;
        place_d.iteration.index      = inner_next;
        place_d.iteration.turn       = place.iteration.turn + 6'd1;
        if ({1'b0, place.iteration.turn} + 7'd1 >= kernel_i.rotating) place_d.iteration.turn = '0;
      end
    end
  end

  // Rows follow each other: prologue, `ii` of the body, epilogue.
  always_comb begin
    row_o = kernel_i.row + 32'(place.row);
    if (place.section != Prologue) row_o += 32'(kernel_i.prologue);
    if (place.section == Epilogue) row_o += 32'(kernel_i.ii);
  end

  assign iteration_o = place.iteration;
  assign live_o      = place.live;

  // Stalls: those issued wait before the next row.
  logic        busy_q, ending_q;
  logic [15:0] stalled_q, waits;
  logic        over;

  assign issue_o = start_i || (busy_q && stalled_q == '0);
  assign waits   = issue_o ? stall_i : stalled_q - 16'd1;
  assign over    = (issue_o ? finishes : ending_q) && waits == '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      busy_q    <= 1'b0;
      ending_q  <= 1'b0;
      stalled_q <= '0;
      done_o    <= 1'b0;
    end else begin
      done_o <= (start_i || busy_q) && over;
      if (start_i || busy_q) begin
        busy_q    <= !over;
        stalled_q <= waits;
        if (issue_o) ending_q <= finishes;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (issue_o) place_q <= place_d;
  end

endmodule
