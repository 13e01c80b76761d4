"""Design-space exploration: models times chips times options, simulated, stored as they come, and compared."""
