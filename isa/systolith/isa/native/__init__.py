"""Machine code for the simulator: LLVM IR made from the definitions of `numerics`, compiled, kept on disk."""
