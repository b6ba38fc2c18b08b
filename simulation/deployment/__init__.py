"""Deployment: a run as real server and client processes, over gRPC where Flower has it."""
