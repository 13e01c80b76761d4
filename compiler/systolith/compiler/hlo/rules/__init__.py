"""Shape inference and the verifier."""
