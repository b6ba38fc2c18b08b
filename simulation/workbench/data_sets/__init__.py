"""Data sets of single papers. Each is found by its name in `data`, through the entry points `fedsel.data`."""
