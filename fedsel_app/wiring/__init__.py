"""Wiring: the server and the client of a run, built from its settings. Only wiring and entry points join packages."""
