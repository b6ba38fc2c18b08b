"""Aggregation: weights, robust rules, privacy, server optimizers, and their state between rounds."""
