"""Folders of the machines of a federation: keys, certificates, addresses and settings of each."""
