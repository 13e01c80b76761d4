// IEEE 754 binary32.
package f32_pkg;

  localparam int unsigned ExpBits = 8;
  localparam int unsigned ManBits = 23;

  `include "ieee754.svh"
  `include "ieee754_integer.svh"

endpackage
