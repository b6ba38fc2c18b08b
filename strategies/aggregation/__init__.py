"""Aggregation: weights, robust rules, privacy, server optimizers, and what the server keeps for it between rounds."""
