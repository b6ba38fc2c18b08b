"""Federations on separate machines: each machine has a folder with its keys, addresses and settings."""
