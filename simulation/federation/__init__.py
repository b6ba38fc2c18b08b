"""Federations on separate machines: a folder for each machine, and one command to start it."""
