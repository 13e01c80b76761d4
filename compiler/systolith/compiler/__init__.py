"""The compiler, from HLO to the binary of a chip.  Each folder imports those before it only.

hlo            HLO as data: text, protos, shapes, verifier, evaluator, cost analysis
xla_builder    XLA's client builder, which makes HLO
passes         HLO to HLO, by XLA's names
cost           what a piece of code costs in cycles: prices from sizes, the timeline of the chip's units
index          index expressions and maps, boxes, contractions
ops            what an operation computes, as expressions of micro-operations over index maps
tile           tile IR: the machine's instructions over symbolic buffers; its builder, printer, parser, verifier
memory         where values lie: aliasing, residency, VMEM, HBM, rematerialisation, the report
emit           tile IR to a program: linear code, dependences, tokens, assembly
schedule       the order of tile IR: times, prediction, blocks interleaved, loads ahead, addresses
vpu            groups for the vector and cross-lane units: kernels, their cycles, loops, reductions, scans
mxu            groups for the matrix units: contractions in tiles, the search for their sizes
groups         which operations run together: fusion, several outputs, producers, splitting
tiling         modules in parts: batch loops, blocked normalisations, what a dimension means for operands
lower          grouped HLO to tile IR: values and their places, control flow, blocks, data movement
driver.py      the pipeline
"""
