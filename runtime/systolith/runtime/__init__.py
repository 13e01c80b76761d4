"""The host: clients, devices, buffers, executables, queues, and the command line.

- In: modules, computations and binaries; arrays, files and options.  Out: results, records of runs, exit statuses.
- From below: `records` and `inputs`, folders; `hbm` and `task`, `device` (with its buffers), `executable`,
  `global_data` (XLA's client calls) with `device_transfers`, `client`, `connect`; `jit`; the folders `service`, `jobs`,
  `commands`, `sweep` and `imports`; `cli`.
- Not here: compilation, simulation, drawing of reports.
"""
