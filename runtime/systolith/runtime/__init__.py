"""The host: clients, devices, buffers, executables, queues, and the command line.

- In: modules, computations and binaries; arrays, files and options.  Out: results, records of runs, exit statuses.
- From below: `hbm` and `task`, `device` (with its buffers), `executable`, `global_data` (XLA's client calls) with
  `device_transfers`, `client`, `connect`; `service`, a folder; the modules of commands, `cli`.
- Not here: compilation, simulation, drawing of reports.
"""
