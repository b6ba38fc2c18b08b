"""Local training: steps, optimizers, local solvers, and the numbers that methods request from a client."""
