// Division of integers, a bit of the quotient a step.
package int_div_pkg;

  typedef struct packed {
    logic [31:0] quotient;
    logic [31:0] remainder;
  } result_t;

  // Division by 0 gives a quotient of all ones and the dividend as the remainder.
  function automatic result_t unsigned_div(logic [31:0] a, logic [31:0] b);
    /* verilator no_inline_task */
    logic [31:0] quotient;
    logic [32:0] rest;
    quotient = a;
    rest = '0;
    for (int unsigned i = 0; i < 32; i++) begin
      rest = {rest[31:0], quotient[31]};
      quotient <<= 1;
      if (rest >= {1'b0, b}) begin
        rest -= {1'b0, b};
        quotient[0] = 1'b1;
      end
    end
    unsigned_div = '{quotient, rest[31:0]};
  endfunction

  // Towards zero, the remainder with the sign of the dividend.  Division by 0 gives -1 and the dividend.
  function automatic result_t signed_div(logic [31:0] a, logic [31:0] b);
    result_t magnitude;
    magnitude = unsigned_div(a[31] ? -a : a, b[31] ? -b : b);
    signed_div.quotient = (a[31] != b[31] && b != '0) ? -magnitude.quotient : magnitude.quotient;
    signed_div.remainder = a[31] ? -magnitude.remainder : magnitude.remainder;
  endfunction

endpackage
