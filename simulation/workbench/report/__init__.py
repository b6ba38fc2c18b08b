"""Reports: runs and comparisons shown on the terminal, as a page and as pictures."""
