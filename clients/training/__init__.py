"""Local training: steps, optimizers, local solvers, and the numbers that methods ask of a client."""
