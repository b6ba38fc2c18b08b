"""Runs of several methods, compared: `fedsel compare`, `fedsel watch` and the pages of `fedsel report`."""
