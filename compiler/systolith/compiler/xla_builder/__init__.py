"""XLA's client builder: computations made by calling methods, out of which come HLO modules.

- **One implementation.** Each operation is one method, in snake_case, of a class with a theme; the classes are in one
  line of inheritance (`core`, `constants`, `broadcasting`, `elementwise`, `movement`, ..., `builder`), so that an
  operation can use those before it; `op.Operators`, below them, declares those of a value's operators.  C++'s names
  of both generations (`ComputationBuilder`, `XlaBuilder`) follow by a rule (`names.py`); functions (`ops.Add(x, y)`)
  are the same methods.
- **Only HLO.** A method adds instructions as XLA's builder does: implicit broadcasting is written out
  (`broadcasting.py`), and operations that HLO lacks are made of those that it has.
- **Shapes** come from `hlo/rules/shapes.py`, as the verifier's; the builder's own rules choose the instructions.
- **Errors wait.** The first is kept, with the line that called, and `build()` raises it; values made from then on are
  invalid.
- **Computations are shared.** A built computation does not change, and others refer to it; a module has it once.
"""

from systolith.compiler.xla_builder.builder import XlaBuilder
from systolith.compiler.xla_builder.computation import XlaComputation
from systolith.compiler.xla_builder.op import XlaOp

__all__ = ["XlaBuilder", "XlaComputation", "XlaOp"]
