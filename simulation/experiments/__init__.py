"""Experiments: what a run would do, before it runs: listings, protocols of papers, preflight checks and folders."""
