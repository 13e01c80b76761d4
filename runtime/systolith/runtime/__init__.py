"""The host: clients, devices, buffers, executables, queues, and the command line."""
