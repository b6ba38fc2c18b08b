"""Federations on separate machines: the folder of each, with its keys, its addresses and its owner's settings."""
