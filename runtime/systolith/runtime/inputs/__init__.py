"""Files that programs come from: HLO text and protos, StableHLO, binaries, assembly, stages of a compilation.

- In: paths and bytes.  Out: modules, programs, and the chip that they are for; errors that name the place.
- From below: `stablehlo`, `stablehlo_apart` (its reader in a process of its own), `source_lines`, `sources`, `stages`.
- Not here: models of other tools (`imports`); arguments and results (`arrays`).
"""
