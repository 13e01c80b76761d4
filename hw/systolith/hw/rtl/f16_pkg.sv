// IEEE 754 binary16: not in the chip, a second format by which to test that the functions are right for any widths.
package f16_pkg;

  localparam int unsigned ExpBits = 5;
  localparam int unsigned ManBits = 10;

  `include "ieee754.svh"
  `include "ieee754_integer.svh"

endpackage
