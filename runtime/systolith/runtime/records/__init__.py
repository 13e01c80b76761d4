"""Records of runs: the JSON object that reports are made from, and traces.

- In: the simulator's result and the compiler's placement.  Out: JSON values, files of traces.
- From below: `held` (bytes held over time), `record`, `perfetto`.
- Not here: reports (`systolith.reports`); traces as Chrome's JSON (`systolith.sim.chrome`).
"""
