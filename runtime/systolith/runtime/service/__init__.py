"""A service of simulated devices over gRPC, and its client (docs/service.md).

- In: calls of XLA's client interface from other processes.  Out: their results; metrics.
- From below: `messages`, `limits`, `address`, `access`; `worker` (a client's process), `frames`, `sessions` (the
  front's end of it), `metrics`, `server`; `stub` (the client).
- Not here: the commands that start and use it.
"""
