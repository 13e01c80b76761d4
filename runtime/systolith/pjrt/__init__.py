"""systolith as a device of JAX: a PJRT plugin (docs/jax.md).

Input: calls of jaxlib through the table of the PJRT C API.  Output: calls of `systolith.runtime`.  Nothing here
compiles or simulates; nothing outside of it knows C structures.
"""
