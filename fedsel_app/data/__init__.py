"""Data sets as arrays: loading, partitions over clients, and mini-batches."""
