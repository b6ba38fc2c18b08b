"""Workbench: runs, comparisons, tuning and reports, as commands and as Python functions."""
